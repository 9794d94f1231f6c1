"""The server of a table whose binary log is read: what it must log, a snapshot of the table, and the events of the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa

from sqlstream.catalog import Column, Table
from sqlstream.connectors.cdc.discovery import LogServer
from sqlstream.connectors.extras import imported
from sqlstream.connectors.mysql import client
from sqlstream.connectors.mysql_cdc.options import BinlogSettings
from sqlstream.connectors.mysql_cdc.positions import (
    FIRST,
    as_position,
    as_text,
    file_name,
    file_of,
    numbered,
    offset_of,
)
from sqlstream.connectors.mysql_cdc.types import reads, snapshot_item
from sqlstream.duck.sql import quote_name
from sqlstream.errors import BindError, DataError, UsageError, missing

# Variables of the server: the values that changes need.
_NEEDED = {
    "binlog_format": ("ROW",),
    "binlog_row_image": ("FULL",),
    "binlog_row_metadata": ("FULL",),
    "log_bin_compress": ("OFF", "0"),
    "binlog_transaction_compression": ("OFF", "0"),
}
_TABLE = """
SELECT table_schema, table_name, table_type, coalesce(engine, '') FROM information_schema.tables
WHERE table_schema = %s AND table_name = %s
"""
_COLUMNS = """
SELECT column_name, column_type, character_set_name FROM information_schema.columns
WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
"""
# Foreign keys of a table by which the server changes rows without logging these changes.
_CASCADES = """
SELECT constraint_name FROM information_schema.referential_constraints
WHERE constraint_schema = %s AND table_name = %s
  AND (delete_rule IN ('CASCADE', 'SET NULL', 'SET DEFAULT') OR update_rule IN ('CASCADE', 'SET NULL', 'SET DEFAULT'))
"""
# Character sets of which the library knows the characters.
_READ_CHARSETS = ("utf8mb4", "utf8mb3", "utf8", "latin1", "ascii")
_FETCHED = 10_000
# Seconds without an event after which the connection counts as lost.
_SILENCE = 60
_FATAL, _DENIED, _PARSE, _LOST = 1236, 1227, 1064, 2013
_GRANT = "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO the user."


class BinlogServer(LogServer):
    """The server of a table whose binary log is read."""

    whole_rows = (
        "On the server: SET GLOBAL binlog_format = 'ROW', binlog_row_image = 'FULL', binlog_row_metadata = 'FULL', "
        "let its clients connect again"
    )

    def __init__(self, table: Table, settings: BinlogSettings):
        self.table, self._settings = table, settings
        self.pymysql = client.load(table)
        self._con: Any = None
        self._base = ""
        # The names of the database and the table as the log has them, and the columns that are read, with their types.
        self._database, self._name = settings.database, settings.name
        self._types: Mapping[str, str] = {}

    @property
    def lost_errors(self) -> tuple[type[Exception], ...]:
        return self.pymysql.OperationalError, self.pymysql.InterfaceError

    def is_passing(self, error: Exception) -> bool:
        return client.is_passing(error)

    def unreachable(self, error: Exception) -> UsageError:
        return unreachable(self.table, error)

    @property
    def con(self) -> Any:
        """The open connection. Raises `lost_errors`."""
        if self._con is None or not self._con.open:
            self._con = client.connect(self.table, self._settings.address)
        return self._con

    def close(self) -> None:
        if self._con is not None:
            with suppress(self.pymysql.Error):
                self._con.close()
            self._con = None

    def _run(self, statement: str, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        return client.run(self.con, statement, values)

    @property
    def product(self) -> str:
        """The name of the server's product."""
        return "MariaDB" if "mariadb" in str(self.con.get_server_info()).lower() else "MySQL"

    # -- what is checked

    def check(self) -> None:
        """Raise BindError if the table is not as declared, UsageError if the server's log lacks what its changes need."""
        self._check_log()
        database, name = self._settings.database, self._settings.name
        rows = self._run(_TABLE, [database, name])
        if not rows:
            hint = None
            if set(name + database) & set(r".*+|()[]\^$"):
                hint = "A table is one table of one database, not a pattern: declare each of them."
            raise BindError(
                f'table "{self.table.name}": {self.product} has no table "{database}.{name}"',
                self.table.span,
                hint=hint,
            )
        [(self._database, self._name, kind, engine)] = rows
        if kind != "BASE TABLE":
            raise self._wrong(
                f"it is no table but a {kind.lower()}, which has no changes", "Read the tables behind it."
            )
        if engine.upper() not in ("INNODB", "ROCKSDB"):
            hint = f"On the server: ALTER TABLE {name} ENGINE = InnoDB."
            raise self._wrong(f"its engine {engine} has no transactions, which a consistent snapshot needs", hint)
        self._check_columns()

    def _check_log(self) -> None:
        variables = dict(
            self._run("SHOW GLOBAL VARIABLES WHERE variable_name LIKE '%bin%log%' OR variable_name LIKE 'log_bin%'")
        )
        values = {name.lower(): value.upper() for name, value in variables.items()}
        if values.get("log_bin") not in ("ON", "1"):
            hint = (
                "Start it with log_bin = binlog, binlog_format = ROW, binlog_row_image = FULL, binlog_row_metadata = FULL"
                " and a server_id."
            )
            raise self._wrong("the server does not log changes: log_bin is OFF", hint)
        if "binlog_row_metadata" not in values:
            raise self._wrong("the server is too old", "MariaDB 10.5 and MySQL 8.0.14 log the names of columns.")
        for name, needed in _NEEDED.items():
            # A server has only some of them.
            if values.get(name, needed[0]) not in needed:
                hint = f"On the server: SET GLOBAL {name} = '{needed[0]}', and let its clients connect again."
                raise self._wrong(f"the server's log lacks what changes need: its {name} is {values[name]}", hint)
        with self._explained_right():
            status = self._status()
        done, ignored = ({d for d in text.split(",") if d} for text in status[2:4])
        if (done and self._settings.database not in done) or self._settings.database in ignored:
            hint = "See binlog_do_db and binlog_ignore_db of the server's configuration."
            raise self._wrong(f'the server does not log the database "{self._settings.database}"', hint)
        self._base = numbered(status[0])[0]

    def _check_columns(self) -> None:
        columns = {name: (kind, charset) for name, kind, charset in self._run(_COLUMNS, [self._database, self._name])}
        for name, (kind, _) in columns.items():
            if "COMPRESSED" in kind.upper() or kind.lower().startswith("vector"):
                raise self._wrong(f'its log cannot be read with column "{name}" of the type {kind}', None)
        for column in self.table.stored:
            if column.name not in columns:
                raise BindError(
                    f'table "{self.table.name}": table "{self._name}" of {self.product} has no column "{column.name}"',
                    self.table.span,
                    hint=missing("column", column.name, columns),
                )
            self._check_type(column, *columns[column.name])
        self._types = {c.name: columns[c.name][0] for c in self.table.stored}

    def _check_type(self, column: Column, kind: str, charset: str | None) -> None:
        if not reads(kind, column.type):
            raise self.mistyped(column.name, kind)
        is_list = kind.lower().startswith(("enum", "set"))
        if (charset and charset not in _READ_CHARSETS) or (charset == "latin1" and is_list and not kind.isascii()):
            hint = f"On the server: ALTER TABLE {self._name} MODIFY {column.name} .. CHARACTER SET utf8mb4."
            raise self._wrong(
                f'the texts of column "{column.name}" are {charset}, which cannot be read from its log', hint
            )

    def mistyped(self, name: str, kind: str) -> BindError:
        """Return the error for a column whose type on the server its declared type does not hold."""
        declared = next(c.type for c in self.table.stored if c.name == name)
        return BindError(
            f'table "{self.table.name}": column "{name}" is {kind} in {self.product}, which {declared} does not hold',
            self.table.span,
            hint="Declare it as a type that holds it; numbers, times and texts may be STRING.",
        )

    def notices(self) -> Sequence[str]:
        """Return what a user should know of the table before its changes are read."""
        cascades = [name for (name,) in self._run(_CASCADES, [self._database, self._name])]
        return [
            f'table "{self.table.name}": rows that the server changes or deletes by the foreign key {name} are not in its log, '
            "and stay as they were"
            for name in cascades
        ]

    # -- positions in the log

    def _status(self) -> tuple[Any, ...]:
        """Return the log file and the position of the end of the log, the databases that are logged, and those that are not."""
        try:
            rows = self._run("SHOW MASTER STATUS")
        except self.pymysql.ProgrammingError as error:
            if error.args[0] != _PARSE:
                raise
            rows = self._run("SHOW BINARY LOG STATUS")
        return rows[0]

    def end_of_log(self) -> int:
        name, offset, *_ = self._status()
        return as_position(numbered(name)[1], int(offset))

    def logs(self) -> dict[int, int]:
        """Return the files of the log: their numbers, and their sizes in bytes."""
        return {numbered(name)[1]: int(size) for name, size, *_ in self._run("SHOW BINARY LOGS")}

    def position_of(self, name: str, offset: int) -> int:
        """Return the position in a log file by its name. Raises UsageError if the server has no such file."""
        names = {file_name(self._base, number): number for number in self.logs()}
        if name not in names:
            raise self._wrong(f'the server has no log file "{name}"', missing("log file", name, names))
        return as_position(names[name], offset)

    def beginning(self) -> int:
        """Return the position of the first change that the server still has."""
        return as_position(min(self.logs()), FIRST)

    def check_position(self, position: int) -> dict[int, int]:
        """Return `logs`. Raises DataError unless the log has all changes after a position."""
        logs = self.logs()
        if file_of(position) < min(logs):
            raise self.lost(f"the server has purged its log file {file_name(self._base, file_of(position))}")
        if offset_of(position) > logs.get(file_of(position), -1):
            raise self.other_log(position)
        return logs

    def log_identity(self, position: int) -> str | None:
        """Return what tells this log from the logs of other servers; None if that is not known."""
        if self.product == "MySQL":
            [(uuid,)] = self._run("SELECT @@server_uuid")
            return str(uuid)
        [(gtid,)] = self._run(
            "SELECT BINLOG_GTID_POS(%s, %s)", [file_name(self._base, file_of(position)), offset_of(position)]
        )
        return None if gtid is None else str(gtid)

    def other_log(self, position: int) -> DataError:
        """Return the error for a log that is not the one in which the job has read up to a position."""
        return self.lost(
            f"the server's log is another one at {as_text(self._base, position)}, up to which the job has read: it is "
            "another server, or its log was reset"
        )

    # -- rows and events

    @contextmanager
    def snapshot(self) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
        """Yield the position in the log of a consistent snapshot, and its rows as batches of texts."""
        con = client.connect(
            self.table, self._settings.address, conv={}, cursorclass=self.pymysql.cursors.SSCursor, read_timeout=None
        )
        try:
            client.run(con, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            position = self._open_snapshot(con)
            kinds = {c.name: c.type for c in self.table.stored}
            items = ", ".join(snapshot_item(name, there, kinds[name]) for name, there in self._types.items())
            with con.cursor() as cursor:
                cursor.execute(f"SELECT {items} FROM {self._qualified}")
                yield position, _batches(cursor, list(kinds))
        finally:
            with suppress(self.pymysql.Error):
                con.close()

    def _open_snapshot(self, con: Any) -> int:
        """Begin a transaction that sees the rows at a position in the log, which is returned."""
        if self.product == "MariaDB":
            client.run(con, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            status = {name.lower(): value for name, value in client.run(con, "SHOW STATUS LIKE 'binlog_snapshot_%'")}
            return as_position(numbered(status["binlog_snapshot_file"])[1], int(status["binlog_snapshot_position"]))
        # MySQL does not know the position of a snapshot. While others can only read the table, its last change is behind.
        self._run("SET SESSION lock_wait_timeout = 10")
        self._run(f"LOCK TABLES {self._qualified} READ")
        try:
            client.run(con, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            return self.end_of_log()
        finally:
            self._run("UNLOCK TABLES")

    @property
    def _qualified(self) -> str:
        return f"{quote_name(self._database)}.{quote_name(self._name)}"

    @property
    def logged_table(self) -> tuple[str, str]:
        """The database and the table as the log names them."""
        return self._database, self._name

    @contextmanager
    def events(self, position: int) -> Iterator[Iterator[Any]]:
        """Yield the events of the log from a position up to its end, with rows of the table only."""
        library = imported(self.table, "mysql", ["pymysqlreplication"], called="mysql-replication")
        # It would tell of lost connections itself, and connect again in the middle of a transaction.
        logging.getLogger("pymysqlreplication").addHandler(logging.NullHandler())
        stream = library.BinLogStreamReader(
            connection_settings={**self._settings.address, **client.SESSION, "read_timeout": _SILENCE},
            server_id=self._settings.server_id(),
            resume_stream=True,
            log_file=file_name(self._base, file_of(position)),
            log_pos=offset_of(position),
            only_schemas=[self._database],
            only_tables=[self._name],
            filter_non_implemented_events=False,
            enable_logging=False,
            pymysql_wrapper=_connects(self.pymysql, most=2),
        )
        from sqlstream.connectors.mysql_cdc.binlog import with_own_tables

        try:
            yield with_own_tables(stream)
        finally:
            with suppress(self.pymysql.Error):
                stream.close()

    # -- errors

    @contextmanager
    def plainly(self) -> Iterator[None]:
        try:
            yield
        except self.pymysql.Error as error:
            number = error.args[0] if error.args else 0
            if client.is_passing(error):
                raise
            if number == _FATAL:
                raise self.lost(f"the server says: {client.reason(error)}") from error
            hint = f"On the server: {_GRANT}" if number == _DENIED else None
            raise self._wrong(f"the server says: {client.reason(error)}", hint) from error

    @contextmanager
    def _explained_right(self) -> Iterator[None]:
        try:
            yield
        except self.pymysql.OperationalError as error:
            if error.args[0] != _DENIED:
                raise
            raise self._wrong("the user may not read the server's log", f"On the server: {_GRANT}") from error

    def _wrong(self, what: str, hint: str | None) -> UsageError:
        return UsageError(f'table "{self.table.name}": {what}', self.table.span, hint=hint)

    def lost(self, what: str) -> DataError:
        """Return the error for changes that are gone for good."""
        return DataError(
            f'changes of table "{self.table.name}" are lost: {what}',
            self.table.span,
            detail="The job's state, and what it has written, cannot be brought up to date any more.",
            hint="Drop the job and start it afresh: it begins with a new snapshot. "
            "binlog_expire_logs_seconds says how long the server keeps its log.",
        )


def unreachable(table: Table, error: Exception) -> UsageError:
    """Return the error for a server that cannot be reached."""
    return UsageError(f'table "{table.name}": the server cannot be reached: {client.reason(error)}', table.span)


def _connects(pymysql: Any, most: int) -> Any:
    """Return a function that connects at `most` so often, and then fails: the reader of the log begins at a position of ours."""
    remaining = most

    def connect(**settings: Any) -> Any:
        nonlocal remaining
        remaining -= 1
        if remaining < 0:
            raise pymysql.OperationalError(_LOST, "Lost connection to the server while its log was read")
        return pymysql.connect(**settings)

    return connect


def _batches(cursor: Any, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    while rows := cursor.fetchmany(_FETCHED):
        columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
        yield pa.record_batch(columns, names=list(names))
