"""Decoder of the messages of PostgreSQL's plugin `pgoutput`, which describe the changes of transactions.

https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sqlstream.connectors.cdc.changes import (
    AFTER,
    BEFORE,
    DELETED,
    INSERTED,
    ColumnGone,
    DecodedChanges,
    IncompleteLog,
    TableTruncated,
)

# In place of a large value that an update has not changed: the log leaves it out.
UNCHANGED = object()

_INT16, _INT32, _INT64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_TYPE = struct.Struct(">ii")
_COMMIT = struct.Struct(">cbqqq")
_NULL, _UNCHANGED, _TEXT = ord("n"), ord("u"), ord("t")
_NEW, _OLD, _KEY = ord("N"), ord("O"), ord("K")


class ColumnAltered(Exception):
    """A column that is read has changed its type; `type` is the new (type OID, type modifier)."""

    def __init__(self, column: str, type: tuple[int, int]):
        super().__init__(column)
        self.column, self.type = column, type


@dataclass
class Decoder:
    """Decodes the changes of one table from messages.

    `columns` are the columns to read, in their order, with (type OID, type modifier). Unless changes are `by_key`, every update
    needs the old row, and every delete all columns of the row. Transactions that end at the log position `after`, or before it,
    are skipped. With `skips_truncate` a TRUNCATE is ignored. `end` is the log position after the last transaction, `count` the
    number of messages.
    """

    schema: str
    table: str
    columns: Mapping[str, tuple[int, int]]
    by_key: bool
    after: int
    skips_truncate: bool = False
    end: int = 0
    count: int = 0
    _relations: dict[int, tuple[int, ...] | None] = field(default_factory=dict)

    def decode(self, messages: Iterable[bytes]) -> Iterator[DecodedChanges]:
        """Yield the changes of each transaction that has some.

        Raises TableTruncated, IncompleteLog, ColumnGone or ColumnAltered.
        """
        changes = DecodedChanges.none(len(self.columns))
        passed = False
        for data in messages:
            self.count += 1
            match data[:1]:
                case b"B":
                    changes = DecodedChanges.none(len(self.columns))
                    # The message has the log position at which the COMMIT begins, which is before its end.
                    passed = _INT64.unpack_from(data, 1)[0] < self.after
                case b"C":
                    end = _COMMIT.unpack_from(data)[3]
                    self.end = max(self.end, end)
                    if changes.operations:
                        yield changes
                case b"R":
                    self._relation(data)
                case b"I" | b"U" | b"D" if not passed:
                    self._change(data, changes)
                case b"T" if not passed:
                    self._truncate(data)

    def _relation(self, data: bytes) -> None:
        """Store the indexes of the columns from a Relation message, which precedes the first row and each change of the columns.

        Raises ColumnGone or ColumnAltered if the columns to read have changed.
        """
        [number] = _INT32.unpack_from(data, 1)
        schema, _, rest = data[5:].partition(b"\0")
        name, _, rest = rest.partition(b"\0")
        # An empty name stands for pg_catalog.
        if (schema.decode() or "pg_catalog", name.decode()) != (self.schema, self.table):
            self._relations[number] = None
            return
        [count] = _INT16.unpack_from(rest, 1)
        at, types = 3, {}
        for _ in range(count):
            end = rest.index(b"\0", at + 1)
            types[rest[at + 1 : end].decode()] = _TYPE.unpack_from(rest, end + 1)
            at = end + 9
        for column, type in self.columns.items():
            if column not in types:
                raise ColumnGone(column)
            if types[column] != type:
                raise ColumnAltered(column, types[column])
        names = list(types)
        self._relations[number] = tuple(names.index(column) for column in self.columns)

    def _change(self, data: bytes, changes: DecodedChanges) -> None:
        indexes = self._relations[_INT32.unpack_from(data, 1)[0]]
        if indexes is None:
            return
        kind, first = data[0], data[5]
        row, at = _tuple(data, 6)
        if kind == 73:  # I
            changes.add(INSERTED, self._whole([row[i] for i in indexes]))
        elif kind == 68:  # D
            self._check_old(first)
            changes.add(DELETED, self._whole([row[i] for i in indexes]))
        elif first == _NEW:
            self._check_old(first)
            changes.add(AFTER, self._whole([row[i] for i in indexes]))
        else:
            self._check_old(first)
            old, (new, _) = row, _tuple(data, at + 1)
            filled = [old[i] if new[i] is UNCHANGED and first == _OLD else new[i] for i in indexes]
            changes.add(BEFORE, self._whole([old[i] for i in indexes]))
            changes.add(AFTER, self._whole(filled))

    def _check_old(self, kind: int) -> None:
        if not self.by_key and kind != _OLD:
            raise IncompleteLog("the row before a change")

    def _whole(self, row: list[object]) -> list[bytes | None]:
        for name, value in zip(self.columns, row, strict=True):
            if value is UNCHANGED:
                raise IncompleteLog(f'the large value of column "{name}", which an update has not changed')
        return row  # type: ignore[return-value]  # texts and NULLs are left

    def _truncate(self, data: bytes) -> None:
        [count] = _INT32.unpack_from(data, 1)
        numbers = (_INT32.unpack_from(data, 6 + 4 * i)[0] for i in range(count))
        if not self.skips_truncate and any(self._relations.get(number) is not None for number in numbers):
            raise TableTruncated("was truncated")


def _tuple(data: bytes, at: int) -> tuple[list[object], int]:
    """Return the values of the row that begins at an offset, and the offset after it."""
    [count] = _INT16.unpack_from(data, at)
    at += 2
    values: list[object] = []
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == _TEXT:
            end = at + 4 + _INT32.unpack_from(data, at)[0]
            values.append(data[at + 4 : end])
            at = end
        elif kind == _NULL:
            values.append(None)
        else:
            values.append(UNCHANGED)
    return values, at
