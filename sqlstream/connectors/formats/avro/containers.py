"""Avro's object container files: their header, and their blocks in chunks."""

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
# This many bytes of blocks are decoded at once.
CHUNK_BYTES = 8 << 20


class DamagedContainer(Exception):
    """A file is not a container file, or is incomplete. The message names it, also within an error of DuckDB."""

    def __init__(self, path: str, reason: str):
        super().__init__(f'file "{path}" is damaged: {reason}')
        self.reason = reason


@dataclass(frozen=True)
class AvroContainer:
    """A container file: its schema as JSON (`text`), its `codec`, and the bytes in front of its first block (`head`)."""

    path: str
    text: str
    codec: str
    head: bytes

    @classmethod
    def of(cls, path: str) -> AvroContainer:
        """Read the header of a file. Raises DamagedContainer if the file is not a container file."""
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

    @property
    def sync(self) -> bytes:
        """The bytes at the end of each block."""
        return self.head[-_SYNC_BYTES:]

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        """Yield (number of rows, bytes) of chunks of the file: some blocks at a time.

        Raises DamagedContainer at a block that is damaged or cut off; the whole blocks of its chunk are not yielded.
        """
        rows, parts, size = 0, list[bytes](), 0
        with open(self.path, "rb") as file:
            file.seek(len(self.head))
            while (block := self._block(file)) is not None:
                rows, size = rows + block[0], size + len(block[1])
                parts.append(block[1])
                if size >= CHUNK_BYTES:
                    yield rows, b"".join(parts)
                    rows, parts, size = 0, [], 0
        if rows:
            yield rows, b"".join(parts)

    def _block(self, file: BinaryIO) -> tuple[int, bytes] | None:
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
        if not block.endswith(self.sync):
            raise DamagedContainer(self.path, f"the block at byte {start} does not end as blocks of this file do")
        return rows, block


def container(path: str, named: str) -> AvroContainer:
    """Return the container file at a path; `named` is its name in messages.

    Raises DataError if it is not a container file, or its schema cannot be read.
    """
    try:
        file = AvroContainer.of(path)
        # The types are computed now, so that their errors are handled here.
        _ = file.schema.arrow
        return file
    except DamagedContainer as error:
        message = f"{named} is not an Avro file, or an incomplete one"
        raise DataError(message, detail=f"{error.reason.capitalize()}.") from None
    except (OSError, SqlStreamError):
        raise
    except Exception as error:
        # Arrow may raise anything for a schema that only Avro allows, such as one with a name that Arrow cannot encode.
        detail = f"Its schema cannot be read: {error}."
        raise DataError(f"{named} is damaged", detail=detail) from error


def _header(file: BinaryIO) -> dict[str, bytes]:
    """Return the metadata of a header, a map that is stored in blocks."""
    entries = {}
    while count := _long(file):
        if count < 0:
            count = -count
            _long(file)
        for _ in range(count):
            name = _exactly(file, _length(file)).decode()
            entries[name] = _exactly(file, _length(file))
    return entries


def _length(file: BinaryIO) -> int:
    length = _long(file)
    if length < 0:
        raise ValueError("a negative length")
    return length


def _exactly(file: BinaryIO, count: int) -> bytes:
    if count > CHUNK_BYTES and count > os.fstat(file.fileno()).st_size:
        # A damaged length would ask for memory that there is not.
        raise EOFError
    content = file.read(count)
    if len(content) != count:
        raise EOFError
    return content


def _long(file: BinaryIO) -> int:
    """Read a number that is encoded as Avro's `long`.

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
