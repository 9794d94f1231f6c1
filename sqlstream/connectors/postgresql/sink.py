"""The `postgresql` sink: rows travel by COPY, and a transaction has the rows of a batch and its number."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlstream.catalog import Column, Table
from sqlstream.connectors.interface import SinkContext
from sqlstream.connectors.postgresql import client
from sqlstream.connectors.postgresql.dialect import PostgreSQL
from sqlstream.connectors.postgresql.found import found_table
from sqlstream.connectors.relational.dialect import FoundTable
from sqlstream.connectors.relational.server import KEYS, ROWS, ServerTransaction, ServerWriter
from sqlstream.connectors.relational.writer import DatabaseSink
from sqlstream.duck.sql import names, quote_name
from sqlstream.errors import UsageError
from sqlstream.storage.zsets import WEIGHT

if TYPE_CHECKING:
    import duckdb

    from sqlstream.connectors.batch import Batch

_DIALECT = PostgreSQL()
# So many rows are made text at a time.
_CHUNK = 50_000
# What jobs that make the same table wait for, each for the others: an arbitrary number.
_MAKING = 7_160_514
# The net changes of a batch, in DuckDB.
_CHANGES = "_changes"
# Where COPY fails again and again, at most so many batches are upserted before it is tried once more.
_MOST_PASSED = 1024


class PostgreSQLTransaction(ServerTransaction):
    """A transaction on a server."""

    set_number = (
        "INSERT INTO {table} (sink, batch) VALUES (%s, %s)"
        " ON CONFLICT (sink) DO UPDATE SET batch = excluded.batch, written_at = now()"
    )

    def __init__(self, writer: PostgreSQLWriter, con: Any):
        super().__init__(writer, con)
        self._direct, self._no_copy = writer.direct, writer.no_copy

    def insert(self, batch: Batch) -> None:
        with batch.connection() as duck:
            self._copy(duck, batch.rows(), batch.columns, self.target)

    def replace(self, batch: Batch) -> None:
        """Write a batch of a table with a key.

        Where a batch takes no row of a key away, the table has none, unless somebody else wrote it. COPY adds the new row to the
        table, which takes the server about half as long as an upsert. If that fails, it is undone, and the row is upserted.
        """
        if batch.order or not self._direct.is_due():
            super().replace(batch)
            return
        with batch.connection() as duck:
            duck.execute(f"CREATE TEMP TABLE {_CHANGES} AS {batch.changes()}")
            counted = f"SELECT count(*) FILTER ({WEIGHT} < 0), count(*) FILTER ({WEIGHT} > 0) FROM {_CHANGES}"
            [(taken, added)] = duck.execute(counted).fetchall()
            if taken:
                self._delete(duck, batch, batch.gone(_CHANGES))
                self._upsert(duck, batch, batch.known(_CHANGES))
            if added:
                self._add(duck, batch, batch.new(_CHANGES))

    def delete(self, batch: Batch, key: Sequence[Column]) -> None:
        with batch.connection() as duck:
            self._delete(duck, batch, batch.deletes())

    def upsert(self, batch: Batch, key: Sequence[Column]) -> None:
        with batch.connection() as duck:
            self._upsert(duck, batch, batch.upserts())

    def _delete(self, duck: duckdb.DuckDBPyConnection, batch: Batch, keys: str) -> None:
        key = [c for c in batch.columns if c.name in self.table.primary_key]
        if batch.is_changing and self._stage(duck, keys, key, KEYS):
            same = " AND ".join(f"_row.{quote_name(c.name)} = _key.{quote_name(c.name)}" for c in key)
            self.con.execute(f"DELETE FROM {self.target} _row USING {KEYS} _key WHERE {same}")

    def _upsert(self, duck: duckdb.DuckDBPyConnection, batch: Batch, rows: str) -> None:
        if self._stage(duck, rows, batch.columns, ROWS):
            columns, key = [c.name for c in batch.columns], self.table.primary_key
            staged = f"SELECT {names(batch.columns)} FROM {ROWS}"
            self.con.execute(_DIALECT.upsert(self.target, columns, key, staged))

    def _add(self, duck: duckdb.DuckDBPyConnection, batch: Batch, rows: str) -> None:
        """Add rows of keys that the table should not have; upsert them where it has one."""
        try:
            with self.con.transaction():
                self._copy(duck, self._in_order(rows), batch.columns, self.target)
            self._direct.succeed()
        except self._no_copy:
            self._direct.fail()
            self._upsert(duck, batch, rows)

    def _stage(self, duck: duckdb.DuckDBPyConnection, sql: str, columns: Sequence[Column], name: str) -> int:
        """Copy rows into a temporary table of the session, with the types of the target; return their number.

        They are in the order of their keys: so the server finds the rows of a page, and of its index, one after the other. Where
        a batch changes 50,000 of 300,000 rows, that takes it less than half the time.
        """
        rows = f"SELECT {names(columns)} FROM {self.target} WITH NO DATA"
        self.con.execute(f"CREATE TEMP TABLE IF NOT EXISTS {name} ON COMMIT DELETE ROWS AS {rows}")
        return self._copy(duck, self._in_order(sql), columns, name)

    def _in_order(self, sql: str) -> str:
        return f"SELECT * FROM ({sql}) ORDER BY {', '.join(map(quote_name, self.table.primary_key))}"

    def _copy(self, duck: duckdb.DuckDBPyConnection, sql: str, columns: Sequence[Column], target: str) -> int:
        from pyarrow import csv

        options, count = csv.WriteOptions(include_header=False), 0
        with self.con.cursor().copy(f"COPY {target} ({names(columns)}) FROM STDIN (FORMAT csv)") as copy:
            for rows in duck.sql(_DIALECT.values(columns, sql)).to_arrow_reader(_CHUNK):
                text = io.BytesIO()
                csv.write_csv(rows, text, options)
                copy.write(text.getbuffer())
                count += rows.num_rows
        return count


class Attempts:
    """Tells whether to try what may fail: each failure doubles the number of times that it is not tried.

    >>> attempts, tried = Attempts(), []
    >>> for number in range(20):
    ...     if attempts.is_due():
    ...         tried.append(number)
    ...         attempts.fail()
    >>> tried
    [0, 3, 8, 17]
    """

    def __init__(self) -> None:
        self._failed = self._left = 0

    def is_due(self) -> bool:
        self._left -= 1
        return self._left < 0

    def fail(self) -> None:
        self._failed += 1
        self._left = min(2**self._failed, _MOST_PASSED)

    def succeed(self) -> None:
        self._failed = 0


class PostgreSQLWriter(ServerWriter):
    """Writes the batches of a job into a table of a server."""

    dialect = _DIALECT
    make_batches = (
        "CREATE TABLE IF NOT EXISTS {table} (sink text PRIMARY KEY, batch bigint NOT NULL,"
        " written_at timestamptz NOT NULL DEFAULT now())"
    )
    make_number = "INSERT INTO {table} (sink, batch) VALUES (%s, %s) ON CONFLICT (sink) DO NOTHING"

    def __init__(self, table: Table, context: SinkContext):
        super().__init__(table, context)
        self._psycopg: Any = client.load(table)
        self.error = self._psycopg.Error
        self.passing_errors = (self._psycopg.OperationalError, self._psycopg.InterfaceError)
        self.direct = Attempts()
        # A row of the key is there; or the table has rules by row of who may write, and takes no COPY.
        self.no_copy = (self._psycopg.errors.UniqueViolation, self._psycopg.errors.FeatureNotSupported)

    def connect(self) -> Any:
        try:
            return client.connect(self.table, self.table.options["url"])
        except self._psycopg.ProgrammingError as error:
            at = self.table.option_span("url", value=True)
            raise UsageError(f'table "{self.table.name}": the url is not one: {client.reason(error)}', at) from error

    def is_open(self, con: Any) -> bool:
        return not con.closed

    def run(self, con: Any, statement: str, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        return client.run(con, statement, values)

    def found(self, con: Any, name: str) -> FoundTable | None:
        return found_table(con, name)

    def make(self, con: Any, statement: str) -> None:
        # Of several jobs that make a table at the same time, IF NOT EXISTS would let one fail.
        with con.transaction():
            con.execute(f"SELECT pg_advisory_xact_lock({_MAKING})")
            con.execute(statement)

    @contextmanager
    def begun(self, con: Any) -> Iterator[PostgreSQLTransaction]:
        with con.transaction():
            yield PostgreSQLTransaction(self, con)

    def is_passing(self, error: Exception) -> bool:
        return client.is_passing(error)

    def is_refusal(self, error: Exception) -> bool:
        return not isinstance(error, self.passing_errors)

    def is_duplicate(self, error: Exception) -> bool:
        return isinstance(error, self._psycopg.errors.UniqueViolation)

    def reason(self, error: Exception) -> str:
        return client.reason(error)

    def detail(self, error: Any) -> str | None:
        texts = (error.diag.message_detail, (error.diag.context or "").split("\n")[0])
        return ". ".join(text for text in texts if text) or None


class PostgreSQLSink(DatabaseSink):
    """A table of a server."""

    writer_type = PostgreSQLWriter
