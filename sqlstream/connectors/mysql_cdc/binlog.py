"""BinlogDecoder of the events of a binary log, as the library mysql-replication reads them: the changes of one table.

https://mariadb.com/kb/en/replication-protocol/
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pymysqlreplication import event as log_events
from pymysqlreplication import row_event as row_events
from pymysqlreplication.constants import BINLOG, NONE_SOURCE
from pymysqlreplication.exceptions import StatusVariableMismatch

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
from sqlstream.connectors.mysql_cdc import statements
from sqlstream.connectors.mysql_cdc.positions import FIRST, as_position, file_of, numbered
from sqlstream.connectors.mysql_cdc.types import log_text, logged_reads, logged_type

# Events with rows that the library does not read: MySQL's compressed transactions, MariaDB's compressed events.
_COMPRESSED = frozenset((40, *range(165, 172)))
# What the library raises for bytes that are no value of their column: a date such as February 31, a text in other characters.
_WRONG_BYTES = (ValueError, LookupError, ArithmeticError, AssertionError, struct.error)
_GTID_EVENTS = (log_events.MariadbGtidEvent, log_events.GtidEvent)
# Attributes of columns on which their texts depend.
_SIZES = ("fsp", "max_length")
# The bytes of a query event before its variables.
_QUERY_HEAD = 13


def _skipping(read: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
    """Return a reader of the variables of a query event that skips all behind one that the library does not know."""

    def read_variable(event: Any, key: int) -> None:
        try:
            read(event, key)
        except StatusVariableMismatch:
            event.packet.advance(_QUERY_HEAD + event.status_vars_length - event.packet.read_bytes)

    return read_variable


# MariaDB 11 has a variable that the library does not know (its issue 632). None of them matters here.
log_events.QueryEvent._read_status_vars_value_for_key = _skipping(log_events.QueryEvent._read_status_vars_value_for_key)


def with_own_tables(stream: Any) -> Iterator[Any]:
    """Yield the events of the library's stream.

    Rows are those of a table by a number, which an event before them gives it. A server that starts again counts anew, and the
    library does not notice that where the end of a file is missing. So all numbers are forgotten after each transaction.
    """
    for event in stream:
        yield event
        if not isinstance(event, row_events.TableMapEvent | row_events.RowsEvent):
            stream.table_map.clear()


class ColumnTypeChanged(Exception):
    """A column has got a type that its declared one does not hold."""

    def __init__(self, column: str, type: str):
        super().__init__(column)
        self.column, self.type = column, type


class UnreadableLog(Exception):
    """The log has what cannot be read as changes; the message says what, `hint` what to do."""

    def __init__(self, what: str, hint: str):
        super().__init__(what)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class _LoggedColumn:
    name: str
    text: Callable[[Any], str | None]
    is_set: bool


@dataclass
class BinlogDecoder:
    """Decodes the changes of one table from events.

    `columns` maps the columns to read, in their order, to their declared DuckDB types. `end` is the log position from which
    events come, and then that after the last transaction. Nothing of transactions that end after `until` is decoded, and after
    `most` events and rows it stops at the end of a transaction. With `skips_truncate` a TRUNCATE is ignored. `complete` tells
    whether there was nothing more to decode.
    """

    schema: str
    table: str
    columns: Mapping[str, str]
    end: int
    until: int | None
    most: int
    skips_truncate: bool = False
    complete: bool = False
    _file: int = 0
    _in_transaction: bool = False
    _count: int = 0
    _signature: Any = None
    _logged: Sequence[_LoggedColumn] = ()
    _savepoints: dict[str, int] = field(default_factory=dict)

    def decode(self, events: Iterable[Any]) -> Iterator[DecodedChanges]:
        """Yield the changes of each transaction that has some.

        Raises TableTruncated, IncompleteLog, ColumnGone, ColumnTypeChanged or UnreadableLog.
        """
        self._file = file_of(self.end)
        changes = DecodedChanges.none(len(self.columns))
        for event in events:
            self._count += 1
            if isinstance(event, log_events.RotateEvent):
                # A server that has crashed may have left half a transaction at the end of a file.
                self._begin_transaction(changes)
                self._in_transaction = False
                self._file = numbered(event.next_binlog)[1]
                self.end = max(self.end, as_position(self._file, event.position))
            elif isinstance(event, _GTID_EVENTS) or event.event_type == BINLOG.ANONYMOUS_GTID_LOG_EVENT:
                self._begin_transaction(changes)
            elif isinstance(event, row_events.TableMapEvent):
                self._table_map(event)
            elif isinstance(event, row_events.RowsEvent):
                self._rows(event, changes)
            elif not self._ends_transaction(event, changes):
                self._other(event)
            elif self._is_past(event):
                break
            else:
                self._in_transaction = False
                self._move(event)
                if changes.operations:
                    yield changes
                    changes = DecodedChanges.none(len(self.columns))
                if self._count >= self.most:
                    return
        self.complete = True

    def _begin_transaction(self, changes: DecodedChanges) -> None:
        self._in_transaction = True
        self._savepoints.clear()
        changes.cut(0)

    def _ends_transaction(self, event: Any, changes: DecodedChanges) -> bool:
        """Apply an event that is no row to the changes of the open transaction; return whether the transaction ends with it."""
        if isinstance(event, log_events.XidEvent):
            return True
        if isinstance(event, log_events.XAPrepareEvent):
            if changes.operations and not event.one_phase:
                raise UnreadableLog(
                    "has changes of an XA transaction, which are in the log before it is known whether they are committed",
                    "Change the table in transactions that are not prepared; and start the job afresh.",
                )
            return True
        return isinstance(event, log_events.QueryEvent) and self._statement(event, changes)

    def _statement(self, event: Any, changes: DecodedChanges) -> bool:
        """Apply a statement to the changes of the open transaction; return whether the transaction ends with it."""
        statement = event.query.strip()
        match statement.upper().split()[:2]:
            case ["BEGIN"] | ["START", "TRANSACTION"] | ["XA", "START" | "BEGIN"]:
                self._begin_transaction(changes)
                return False
            case ["XA", "END"]:
                return False
            case ["COMMIT"]:
                return True
            case ["ROLLBACK"]:
                changes.cut(0)
                return True
        if (name := statements.savepoint(statement)) is not None:
            self._savepoints[name] = len(changes.operations)
            return False
        if (name := statements.rolled_back_to(statement)) is not None:
            changes.cut(self._savepoints.get(name, 0))
            return False
        # Rows of CREATE TABLE .. SELECT follow it.
        try:
            statements.check(statement, event.schema.decode(errors="replace"), self.schema, self.table)
        except TableTruncated:
            if not self.skips_truncate:
                raise
        return not changes.operations

    def _other(self, event: Any) -> None:
        kind = event.event_type
        if kind in _COMPRESSED:
            raise UnreadableLog(
                "cannot be read from a compressed log",
                "On the server: SET GLOBAL log_bin_compress = OFF, or binlog_transaction_compression in MySQL; and start "
                "the job afresh.",
            )
        if kind == BINLOG.INCIDENT_EVENT:
            raise UnreadableLog(
                "may have changes that the log lacks: the server has logged an incident", "Start the job afresh."
            )
        if not self._in_transaction and not self._is_past(event):
            self._move(event)

    def _is_past(self, event: Any) -> bool:
        return self.until is not None and as_position(self._file, event.packet.log_pos) > self.until

    def _move(self, event: Any) -> None:
        """Move the end behind an event. Servers write 0 into events that they make for a reader."""
        offset = event.packet.log_pos
        if not offset:
            return
        position = as_position(self._file, offset)
        if position < self.end and isinstance(event, log_events.XidEvent):
            # Offsets have 32 bits: after a file of more, the next one begins.
            position = as_position(self._file + 1, FIRST)
        self.end = max(self.end, position)

    def _table_map(self, event: Any) -> None:
        """Note how rows are to be read. The event comes before rows, in each transaction."""
        columns = {column.name: column for column in event.columns}
        signature = [
            (c.name, logged_type(c), c.set_values, *(c.__dict__.get(n) for n in _SIZES)) for c in event.columns
        ]
        for column in event.columns:
            if column.name not in self.columns:
                # Its texts stay bytes: they may be in characters that the library does not know.
                column.character_set_name = "binary"
        if signature == self._signature:
            return
        if None in columns:
            raise IncompleteLog("the names of columns")
        logged = []
        for name, kind in self.columns.items():
            if name not in columns:
                raise ColumnGone(name)
            column = columns[name]
            if not logged_reads(column, kind):
                raise ColumnTypeChanged(name, logged_type(column))
            logged.append(_LoggedColumn(name, log_text(column, kind), logged_type(column) == "set"))
        self._signature, self._logged = signature, logged

    def _rows(self, event: Any, changes: DecodedChanges) -> None:
        if isinstance(event, row_events.PartialUpdateRowsEvent):
            raise IncompleteLog("whole values of JSON: binlog_row_value_options is PARTIAL_JSON")
        bitmaps = [
            event.columns_present_bitmap,
            getattr(event, "columns_present_bitmap2", event.columns_present_bitmap),
        ]
        every = (1 << event.number_of_columns) - 1
        if any(int.from_bytes(bitmap, "little") & every != every for bitmap in bitmaps):
            raise IncompleteLog("all columns: binlog_row_image was not FULL")
        try:
            rows = event.rows
        except _WRONG_BYTES as error:
            hint = "On the server: give the row values that are valid, and start the job afresh."
            raise UnreadableLog(f"has a value that cannot be read: {error}", hint) from error
        self._count += len(rows)
        for row in rows:
            if isinstance(event, row_events.UpdateRowsEvent):
                changes.add(BEFORE, self._texts(row["before_values"], row["before_none_sources"]))
                changes.add(AFTER, self._texts(row["after_values"], row["after_none_sources"]))
            else:
                operation = INSERTED if isinstance(event, row_events.WriteRowsEvent) else DELETED
                changes.add(operation, self._texts(row["values"], row["none_sources"]))

    def _texts(self, values: Mapping[str, Any], none_sources: Mapping[str, str]) -> list[bytes | None]:
        texts: list[bytes | None] = []
        for column in self._logged:
            value = values[column.name]
            if value is None:
                is_empty = column.is_set and none_sources.get(column.name) == NONE_SOURCE.EMPTY_SET
                texts.append(b"" if is_empty else None)
                continue
            text = column.text(value)
            texts.append(None if text is None else text.encode())
        return texts
