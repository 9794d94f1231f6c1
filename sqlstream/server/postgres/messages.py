"""The messages of PostgreSQL's protocol, version 3.0: reads the clients' messages, and makes the server's."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlstream.server.postgres.errors import ProtocolError
from sqlstream.server.postgres.types import SentType

VERSION = 196608  # 3.0
CANCEL, SSL, GSS = 80877102, 80877103, 80877104

AUTHENTICATED = b"R\0\0\0\x08\0\0\0\0"
ASK_PASSWORD = b"R\0\0\0\x08\0\0\0\x03"
PARSED = b"1\0\0\0\x04"
BOUND = b"2\0\0\0\x04"
CLOSED = b"3\0\0\0\x04"
NO_ROWS = b"n\0\0\0\x04"
SUSPENDED = b"s\0\0\0\x04"
EMPTY = b"I\0\0\0\x04"


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of a result: its name, its type, and whether its values are sent in binary."""

    name: str
    type: SentType
    binary: bool = False


class Body:
    """The body of a message, read from its start. Its methods raise ProtocolError for a malformed message."""

    def __init__(self, data: bytes):
        self._data, self._at = data, 0

    def number(self, size: int) -> int:
        """Read a signed number of 2 or 4 bytes."""
        return int.from_bytes(self.take(size), "big", signed=True)

    def take(self, size: int) -> bytes:
        """Read `size` bytes."""
        part = self._data[self._at : self._at + size]
        if size < 0 or len(part) < size:
            raise ProtocolError("a message is shorter than it says")
        self._at += size
        return part

    def text(self) -> str:
        """Read a text that ends with a zero byte."""
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise ProtocolError("a text in a message has no end")
        content = self._data[self._at : end]
        self._at = end + 1
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise ProtocolError("a text is not UTF-8", "22021") from error

    def numbers(self, size: int) -> list[int]:
        """Read a count, and so many numbers."""
        return [self.number(size) for _ in range(self.count())]

    def count(self) -> int:
        """Read the number of numbers or values that follow, up to 65,535."""
        return int.from_bytes(self.take(2), "big")

    def values(self) -> list[bytes | None]:
        """Read a count, and so many values, each after its length, which is -1 for NULL."""
        values: list[bytes | None] = []
        for _ in range(self.count()):
            length = self.number(4)
            values.append(None if length < 0 else self.take(length))
        return values

    @property
    def is_read(self) -> bool:
        """Whether the whole body has been read."""
        return self._at >= len(self._data)


def message(kind: bytes, body: bytes) -> bytes:
    """Return a message of a kind, which is a letter."""
    return kind + (len(body) + 4).to_bytes(4, "big") + body


def _texts(*texts: str) -> bytes:
    return b"".join(text.replace("\0", "").encode() + b"\0" for text in texts)


def parameter(name: str, value: str) -> bytes:
    """Return the message with the value of a session parameter."""
    return message(b"S", _texts(name, value))


def key_data(number: int, secret: int) -> bytes:
    """Return the message with the key by which a client can cancel a query."""
    return message(b"K", struct.pack(">ii", number, secret))


def ready(status: str) -> bytes:
    """Return the message that the server is ready. The status is I outside of a transaction, T inside, E in a failed one."""
    return message(b"Z", status.encode())


def complete(tag: str) -> bytes:
    """Return the message that a statement is complete."""
    return message(b"C", _texts(tag))


def notice(fields: Mapping[str, str], kind: bytes = b"N") -> bytes:
    """Return a message with a notice; of the kind E, with an error."""
    return message(kind, b"".join(name.encode() + _texts(value) for name, value in fields.items()) + b"\0")


def error(fields: Mapping[str, str]) -> bytes:
    """Return an error message."""
    return notice(fields, b"E")


def row_description(columns: Sequence[ResultColumn]) -> bytes:
    """Return the message with the names and types of a result's columns."""
    parts = [len(columns).to_bytes(2, "big")]
    for column in columns:
        kind = column.type
        fixed = struct.pack(">ihihih", 0, 0, kind.oid, kind.size, kind.modifier, int(column.binary))
        parts += [_texts(column.name), fixed]
    return message(b"T", b"".join(parts))


def parameter_description(types: Sequence[int]) -> bytes:
    """Return the message with the types (oid) of a statement's parameters."""
    return message(b"t", struct.pack(f">H{len(types)}i", len(types), *types))


def data_rows(columns: Sequence[Sequence[bytes | None]]) -> bytes:
    """Return the messages of rows, from the encoded values of each column."""
    count = len(columns).to_bytes(2, "big")
    messages = []
    for row in zip(*columns, strict=True):
        body = b"".join([b"\xff\xff\xff\xff" if v is None else len(v).to_bytes(4, "big") + v for v in row])
        messages.append(b"D" + (len(body) + 6).to_bytes(4, "big") + count + body)
    return b"".join(messages)


def text_rows(rows: Iterable[Sequence[str | None]], width: int) -> bytes:
    """Return the messages of rows of `width` texts."""
    values = [[None if v is None else v.encode() for v in row] for row in rows]
    return data_rows([[row[i] for row in values] for i in range(width)])
