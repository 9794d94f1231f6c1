"""Avro's object container files: their header, and their blocks a few at a time, each time as a small file of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import BinaryIO

from sqlstream.connectors.formats.avro.schemas import AvroSchema
from sqlstream.errors import DataError, SqlStreamError

_MAGIC = b"Obj\1"
_SYNC_BYTES = 16
# So many bytes of blocks are decoded at once.
CHUNK_BYTES = 8 << 20


class DamagedContainer(Exception):
    """A file is not a container file, or not all of one. It says which, and why, also through DuckDB's errors."""

    def __init__(self, path: str, reason: str):
        super().__init__(f'file "{path}" is damaged: {reason}')
        self.reason = reason


@dataclass(frozen=True)
class AvroContainer:
    """A file by its header: `head` are the bytes of it, up to the first block."""

    path: str
    text: str
    codec: str
    head: bytes

    @classmethod
    def of(cls, path: str) -> AvroContainer:
        """Return the file at a path. Raises DamagedContainer for what is none."""
        with open(path, "rb") as file:
            try:
                if file.read(len(_MAGIC)) != _MAGIC:
                    raise DamagedContainer(path, "it does not begin as one")
                meta = _header(file)
                text, codec = meta["avro.schema"].decode(), meta.get("avro.codec", b"null").decode()
                _exactly(file, _SYNC_BYTES)
            except (EOFError, KeyError, ValueError) as error:
                raise DamagedContainer(path, "its header is cut off or damaged") from error
            end = file.tell()
            file.seek(0)
            return cls(path, text, codec, file.read(end))

    @cached_property
    def schema(self) -> AvroSchema:
        return AvroSchema(self.text, f'the schema of "{self.path}"')

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        """Yield blocks, some at a time, as the bytes of a container file, and how many rows are in them.

        Raises DamagedContainer where a block is not whole, behind all that are.
        """
        sync = self.head[-_SYNC_BYTES:]
        rows, taken, size = 0, [self.head], 0
        with open(self.path, "rb") as file:
            file.seek(len(self.head))
            while (block := self._block(file, sync)) is not None:
                rows, size = rows + block[0], size + len(block[1])
                taken.append(block[1])
                if size >= CHUNK_BYTES:
                    yield rows, b"".join(taken)
                    rows, taken, size = 0, [self.head], 0
        if rows:
            yield rows, b"".join(taken)

    def _block(self, file: BinaryIO, sync: bytes) -> tuple[int, bytes] | None:
        start = file.tell()
        if not file.read(1):
            return None
        file.seek(start)
        try:
            rows, size = _long(file), _long(file)
            if rows < 0 or size < 0:
                raise ValueError("a negative length")
            length = file.tell() - start + size + _SYNC_BYTES
            file.seek(start)
            block = _exactly(file, length)
        except (EOFError, ValueError) as error:
            raise DamagedContainer(self.path, f"the block at byte {start} is cut off or damaged") from error
        if not block.endswith(sync):
            raise DamagedContainer(self.path, f"the block at byte {start} does not end as blocks of this file do")
        return rows, block


def container(path: str, named: str) -> AvroContainer:
    """Return the container file at a path, which messages call so. Raises DataError for what is none."""
    try:
        found = AvroContainer.of(path)
        # Its types are asked for by whoever reads it.
        _ = found.schema.arrow
        return found
    except DamagedContainer as error:
        message = f"{named} is not an Avro file, or an incomplete one"
        raise DataError(message, detail=f"{error.reason.capitalize()}.") from None
    except (OSError, SqlStreamError):
        raise
    except Exception as error:
        # Whatever Arrow makes of a schema that is one of Avro's, but of no use: of a name that is no text for it.
        detail = f"Its schema cannot be read: {error}."
        raise DataError(f"{named} is damaged", detail=detail) from error


def _header(file: BinaryIO) -> dict[str, bytes]:
    """Return the map of a header, which stands there in parts."""
    found = {}
    while count := _long(file):
        if count < 0:
            count = -count
            _long(file)
        for _ in range(count):
            name = _exactly(file, _length(file)).decode()
            found[name] = _exactly(file, _length(file))
    return found


def _length(file: BinaryIO) -> int:
    found = _long(file)
    if found < 0:
        raise ValueError("a negative length")
    return found


def _exactly(file: BinaryIO, count: int) -> bytes:
    if count > CHUNK_BYTES and count > os.fstat(file.fileno()).st_size:
        # A damaged length would ask for memory that there is not.
        raise EOFError
    found = file.read(count)
    if len(found) != count:
        raise EOFError
    return found


def _long(file: BinaryIO) -> int:
    """Return a number as Avro writes it.

    >>> import io
    >>> _long(io.BytesIO(b"\\x80\\x01")), _long(io.BytesIO(b"\\x01"))
    (64, -1)
    """
    whole = shift = 0
    while True:
        [byte] = _exactly(file, 1)
        whole, shift = whole | (byte & 127) << shift, shift + 7
        if byte < 128:
            return (whole >> 1) ^ -(whole & 1)
        if shift > 63:
            raise ValueError("a number that is too long")
