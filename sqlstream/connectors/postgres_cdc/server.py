"""The resources of a job on a PostgreSQL server: a replication slot, which retains the log, and a publication of the table."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlstream.catalog import Column, Table
from sqlstream.connectors.cdc.discovery import LogServer
from sqlstream.connectors.postgresql import client
from sqlstream.connectors.postgresql.dialect import PostgreSQL
from sqlstream.connectors.postgresql.introspection import server_table
from sqlstream.connectors.relational.dialect import is_nested
from sqlstream.duck.sql import quote_name, quote_text
from sqlstream.errors import BindError, DataError, UsageError, missing

_DIALECT = PostgreSQL()
# Of a table: the kind of its replica identity, the columns of that, the columns that may have large values, the kind of relation.
_IDENTITY = """
SELECT c.relreplident::text, coalesce((
  SELECT array_agg(a.attname::text) FROM pg_index i
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
  WHERE i.indrelid = c.oid AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END), '{}'),
  (SELECT coalesce(array_agg(a.attname::text), '{}') FROM pg_attribute a
   WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attstorage IN ('x', 'e')),
  c.relkind::text
FROM pg_class c WHERE c.oid = to_regclass(%s)
"""
_SLOT = """
SELECT plugin, database = current_database(), wal_status = 'lost', (confirmed_flush_lsn - '0/0')::bigint, active_pid
FROM pg_replication_slots WHERE slot_name = %s
"""
_DROP_SECONDS = 60.0


def as_lsn(position: int) -> str:
    """Return a log position, in bytes, as PostgreSQL writes it (LSN).

    >>> as_lsn(4294967312)
    '1/10'
    """
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def as_position(lsn: str) -> int:
    """Return the log position, in bytes, of an LSN that PostgreSQL writes.

    >>> as_position("1/10")
    4294967312
    """
    high, _, low = lsn.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


@dataclass(frozen=True, slots=True)
class ServedTable:
    """The location of a table: the connection string of the server, and the table's schema and name there."""

    url: str
    schema: str
    name: str

    @property
    def qualified(self) -> str:
        return f"{quote_name(self.schema)}.{quote_name(self.name)}"


@dataclass(frozen=True, slots=True)
class SlotState:
    """The state of a slot: its `confirmed` log position, and whether the server has `lost` the log after that."""

    confirmed: int
    lost: bool


class Server(LogServer):
    """The server of a table whose changes are read. Its connection is opened at the first use, and again after it was lost."""

    def __init__(self, table: Table, served_table: ServedTable, slot: str, publication: str):
        self.table, self.served_table, self.slot, self.publication = table, served_table, slot, publication
        self._con: Any = None
        self.psycopg = client.load(table)
        self.whole_rows = f"On the server: ALTER TABLE {served_table.qualified} REPLICA IDENTITY FULL"

    @property
    def lost_errors(self) -> tuple[type[Exception], ...]:
        return self.psycopg.OperationalError, self.psycopg.InterfaceError

    def is_passing(self, error: Exception) -> bool:
        return client.is_passing(error)

    def unreachable(self, error: Exception) -> UsageError:
        return unreachable(self.table, error)

    @property
    def con(self) -> Any:
        """The open connection, which returns `bytea` as hexadecimal digits. Raises `lost_errors`."""
        if self._con is None or self._con.closed:
            self._con = client.connect(self.table, self.served_table.url)
            self._con.execute("SET bytea_output = 'hex'")
        return self._con

    def close(self) -> None:
        if self._con is not None:
            self._con.close()
            self._con = None

    # -- the table

    def check(self) -> None:
        """Raise BindError if the table is not as declared, UsageError if the log lacks the old values that changes need."""
        [level] = self.con.execute("SHOW wal_level").fetchone()
        if level != "logical":
            hint = "On the server: ALTER SYSTEM SET wal_level = 'logical', and restart it."
            raise self._wrong(f"the server does not log changes: its wal_level is {level}", hint)
        [encoding] = self.con.execute("SHOW server_encoding").fetchone()
        if encoding not in ("UTF8", "SQL_ASCII"):
            raise self._wrong(f"the texts of its database are {encoding}, not UTF8", "Read a database in UTF8.")
        database_table = server_table(self.con, f"{self.served_table.schema}.{self.served_table.name}")
        if database_table is None:
            raise BindError(f'table "{self.table.name}": PostgreSQL has no table "{self._name}"', self.table.span)
        types = {c.name: c.type for c in database_table.columns}
        for column in self.table.stored:
            if column.name not in types:
                hint = missing("column", column.name, types)
                raise BindError(
                    f'table "{self.table.name}": table "{self._name}" of PostgreSQL has no column "{column.name}"',
                    self.table.span,
                    hint=hint,
                )
            self._check_type(column, types[column.name])
        self._check_identity()

    def types(self) -> dict[str, tuple[int, int]]:
        """Return the columns to read, in their order: name to (type OID, type modifier)."""
        sql = "SELECT attname, atttypid::bigint, atttypmod FROM pg_attribute WHERE attrelid = to_regclass(%s)"
        types = {
            name: (number, more)
            for name, number, more in self.con.execute(sql, [self.served_table.qualified]).fetchall()
        }
        return {c.name: types[c.name] for c in self.table.stored}

    def _check_type(self, column: Column, server_type: str) -> None:
        if not _reads(server_type, column.type):
            message = f'column "{column.name}" is {server_type} in PostgreSQL, which {column.type} does not hold'
            raise BindError(
                f'table "{self.table.name}": {message}',
                self.table.span,
                hint="Declare it as a type that holds it, or as STRING.",
            )

    def _check_identity(self) -> None:
        """Raise UsageError unless the log has the old values of rows that changes need, by the table's REPLICA IDENTITY."""
        kind, identity, large, form = self.con.execute(_IDENTITY, [self.served_table.qualified]).fetchone()
        if form == "p":
            # The log has the rows of partitions, which have identities of their own; the publication calls them the table's.
            return
        if form != "r":
            raise self._wrong("it is no table: views and foreign tables have no changes", "Read the tables behind it.")
        if kind == "f":
            return
        key, names = set(self.table.primary_key), {c.name for c in self.table.stored}
        if not key:
            why = "without a PRIMARY KEY in its declaration every change needs the whole row before it"
        elif not key <= set(identity):
            why = (
                f"the log does not have the PRIMARY KEY ({', '.join(self.table.primary_key)}) of rows that are deleted"
            )
        elif large_columns := sorted(names & set(large)):
            why = (
                "the log leaves out large values that an update has not changed, as those of column "
                f'"{large_columns[0]}" may be'
            )
        else:
            return
        hint = f"On the server: ALTER TABLE {self._name} REPLICA IDENTITY FULL."
        raise self._wrong(f'table "{self._name}" needs REPLICA IDENTITY FULL', hint, f"Reason: {why}.")

    # -- the publication

    def publish(self, *, create: bool) -> None:
        """Create the publication if it does not exist and `create` says so.

        Raises UsageError if the publication still does not exist, or does not publish all changes of the table.
        """
        sql = "SELECT pubinsert AND pubupdate AND pubdelete FROM pg_publication WHERE pubname = %s"
        publication = self.con.execute(sql, [self.publication]).fetchone()
        if publication is None and create:
            self.con.execute(
                f"CREATE PUBLICATION {quote_name(self.publication)} FOR TABLE {self.served_table.qualified}"
                " WITH (publish_via_partition_root = true)"
            )
            return
        hint = f"On the server: CREATE PUBLICATION {self.publication} FOR TABLE {self._name}."
        if publication is None:
            raise self._wrong(f'publication "{self.publication}" does not exist', hint)
        if not publication[0]:
            raise self._wrong(f'publication "{self.publication}" does not publish inserts, updates and deletes', hint)
        tables = "SELECT 1 FROM pg_publication_tables WHERE pubname = %s AND schemaname = %s AND tablename = %s"
        if not self.con.execute(
            tables, [self.publication, self.served_table.schema, self.served_table.name]
        ).fetchone():
            hint = f"On the server: ALTER PUBLICATION {self.publication} ADD TABLE {self._name}."
            raise self._wrong(f'publication "{self.publication}" does not have table "{self._name}"', hint)

    # -- the slot

    def slot_state(self) -> SlotState | None:
        """Return the state of the slot, None if it does not exist. Raises UsageError for a slot of another plugin or database."""
        row = self.con.execute(_SLOT, [self.slot]).fetchone()
        if row is None:
            return None
        plugin, ours, lost, confirmed, _ = row
        if plugin != "pgoutput" or not ours:
            raise self._wrong(
                f'replication slot "{self.slot}" is of plugin "{plugin}", or of another database',
                "Name another slot: 'slot.name' = '..'.",
            )
        return SlotState(int(confirmed or 0), bool(lost))

    def create_slot(self) -> int:
        """Create the slot without a snapshot; return the log position from which it has all changes."""
        sql = "SELECT (lsn - '0/0')::bigint FROM pg_create_logical_replication_slot(%s, 'pgoutput')"
        [position] = self.con.execute(sql, [self.slot]).fetchone()
        return int(position)

    @contextmanager
    def slot_with_snapshot(self) -> Iterator[tuple[int, str]]:
        """Create the slot; yield its log position and the name of the snapshot there, which is valid during the block.

        Raises UsageError if the server refuses to create it.
        """
        from psycopg import pq
        from psycopg.conninfo import make_conninfo

        conninfo = make_conninfo(self.served_table.url, replication="database", connect_timeout=10)
        connection = pq.PGconn.connect(conninfo.encode())
        try:
            if connection.status != pq.ConnStatus.OK:
                raise self.psycopg.OperationalError(connection.error_message.decode(errors="replace").strip())
            command = f"CREATE_REPLICATION_SLOT {quote_name(self.slot)} LOGICAL pgoutput EXPORT_SNAPSHOT"
            result = connection.exec_(command.encode())
            if result.status != pq.ExecStatus.TUPLES_OK:
                reason = result.error_message.decode(errors="replace").strip().removeprefix("ERROR:").strip()
                raise self._wrong(f'replication slot "{self.slot}" cannot be made: {reason}', None)
            position, snapshot = (result.get_value(0, column) or b"" for column in (1, 2))
            yield as_position(position.decode()), snapshot.decode()
        finally:
            connection.finish()

    def drop_slot(self) -> None:
        """Drop the slot of a process that has died; wait up to 60 seconds for the server to end its session."""
        deadline = time.monotonic() + _DROP_SECONDS
        while True:
            try:
                self.con.execute("SELECT pg_drop_replication_slot(%s)", [self.slot])
            except self.psycopg.errors.ObjectInUse:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return

    def end_of_log(self) -> int:
        [position] = self.con.execute("SELECT (pg_current_wal_lsn() - '0/0')::bigint").fetchone()
        return int(position)

    def advance(self, position: int) -> None:
        """Advance the slot to a log position: the server may discard all changes before it."""
        self.con.execute("SELECT pg_replication_slot_advance(%s, %s)", [self.slot, as_lsn(position)])

    @contextmanager
    def messages(self, end: int, most: int) -> Iterator[Iterator[bytes]]:
        """Yield an iterator of the messages of committed transactions from the slot's position up to the log position `end`.

        It ends early after the transaction with the `most`th message. The slot does not advance.
        """
        sql = (
            "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, %s, %s, 'proto_version', '1',"
            " 'publication_names', %s)"
        )
        with self.con.transaction(), self.con.cursor("sqlstream_changes", binary=True) as cursor:
            cursor.itersize = 10_000
            cursor.execute(sql, [self.slot, as_lsn(end), most, quote_name(self.publication)])
            yield (data for (data,) in cursor)

    @contextmanager
    def rows(self, snapshot: str) -> Iterator[Any]:
        """Yield a COPY of the rows of a snapshot in CSV, all values in quotes, as the log writes them."""
        columns = ", ".join(f"{quote_name(c.name)}" for c in self.table.stored)
        with self.con.transaction():
            self.con.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            self.con.execute(f"SET TRANSACTION SNAPSHOT {quote_text(snapshot)}")
            query = f"COPY (SELECT {columns} FROM {self.served_table.qualified}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)"
            with self.con.cursor().copy(query) as copy:
                yield copy

    # -- errors

    @contextmanager
    def plainly(self) -> Iterator[None]:
        """Turn the server's errors into UsageError, or DataError for a dropped slot; `lost_errors` pass unchanged."""
        try:
            yield
        except self.lost_errors:
            raise
        except self.psycopg.errors.UndefinedObject as error:
            if f'replication slot "{self.slot}"' in str(error):
                raise self.slot_is_gone() from error
            raise self._wrong(f"PostgreSQL says: {client.reason(error)}", error.diag.message_hint) from error
        except self.psycopg.Error as error:
            raise self._wrong(f"PostgreSQL says: {client.reason(error)}", error.diag.message_hint) from error

    def _wrong(self, what: str, hint: str | None, detail: str | None = None) -> UsageError:
        return UsageError(f'table "{self.table.name}": {what}', self.table.span, hint=hint, detail=detail)

    def slot_is_gone(self) -> DataError:
        """Return the error for a slot that was dropped."""
        return self.lost(f'replication slot "{self.slot}" does not exist any more')

    def lost(self, what: str) -> DataError:
        """Return the error for changes that are gone for good."""
        return DataError(
            f'changes of table "{self.table.name}" are lost: {what}',
            self.table.span,
            detail="The job's state, and what it has written, cannot be brought up to date any more.",
            hint="Drop the job and start it afresh: it begins with a new snapshot. "
            "max_slot_wal_keep_size says how much log the server keeps for a slot.",
        )

    @property
    def _name(self) -> str:
        return f"{self.served_table.schema}.{self.served_table.name}"


def unreachable(table: Table, error: Exception) -> UsageError:
    """Return the error for a server that cannot be reached."""
    reason = " ".join(str(error).split())
    return UsageError(f'table "{table.name}": the PostgreSQL server cannot be reached: {reason}', table.span)


def _reads(server_type: str, kind: str) -> bool:
    """Whether the DuckDB type `kind` holds all values of PostgreSQL's type `server_type`, by their texts."""
    if kind == "VARCHAR":
        return True
    if is_nested(kind) or kind == "JSON":
        return server_type in ("json", "jsonb")
    if kind == "INTERVAL":
        return False
    held = {
        "smallint": ("SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE"),
        "integer": ("INTEGER", "BIGINT", "HUGEINT", "DOUBLE"),
        "bigint": ("BIGINT", "HUGEINT"),
        "real": ("FLOAT", "DOUBLE"),
        "timestamp without time zone": ("TIMESTAMP",),
        "timestamp with time zone": ("TIMESTAMP WITH TIME ZONE", "TIMESTAMP"),
    }
    plain = server_type.partition("(")[0] + server_type.partition(")")[2]
    if plain in held:
        return kind in held[plain]
    if plain == "numeric":
        return kind == "DOUBLE" or (
            kind.startswith("DECIMAL")
            and (
                server_type == plain
                or _DIALECT.fits(server_type.upper().replace("NUMERIC", "DECIMAL"), kind.replace("DECIMAL", "numeric"))
            )
        )
    return _DIALECT.fits(kind, server_type)
