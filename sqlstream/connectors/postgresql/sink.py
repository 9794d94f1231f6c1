"""The `postgresql` sink: rows are sent by COPY, and a transaction has the rows of a batch and its number."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlstream.catalog import Column, Table
from sqlstream.connectors.interface import SinkContext
from sqlstream.connectors.postgresql import client
from sqlstream.connectors.postgresql.dialect import PostgreSQL
from sqlstream.connectors.postgresql.introspection import server_table
from sqlstream.connectors.relational.dialect import DatabaseTable
from sqlstream.connectors.relational.server import KEYS, ROWS, ServerTransaction, ServerWriter
from sqlstream.connectors.relational.writer import DatabaseSink
from sqlstream.duck.sql import Relation, Select, names, quote_name
from sqlstream.errors import UsageError
from sqlstream.storage.zsets import WEIGHT

if TYPE_CHECKING:
    import duckdb

    from sqlstream.connectors.batch import Batch

_DIALECT = PostgreSQL()
# Rows that are converted to CSV at a time.
_CHUNK = 50_000
# The advisory lock that a job holds while it creates a table, an arbitrary number: other jobs may create the same table.
_MAKING = 7_160_514
# The temporary table in DuckDB with the net changes of a batch.
_CHANGES = Relation("_changes")
# If COPY keeps failing, the most batches that are upserted before it is tried again.
_MOST_SKIPS = 1024


class PostgreSQLTransaction(ServerTransaction):
    """A transaction on a PostgreSQL server. Rows are sent by COPY, and upserted from temporary tables."""

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
        """Apply a batch to a table with a PRIMARY KEY: rows of new keys with COPY, the others with DELETE and upserts.

        A key is new if the batch deletes no row of it: then the table has none, unless another writer has inserted one. COPY
        takes the server about half as long as an upsert. If it fails, it is rolled back, and the rows are upserted.
        """
        if batch.order or not self._direct.is_due():
            super().replace(batch)
            return
        with batch.connection() as duck:
            duck.execute(f"CREATE TEMP TABLE {_CHANGES} AS {batch.changes()}")
            counted = f"SELECT count(*) FILTER ({WEIGHT} < 0), count(*) FILTER ({WEIGHT} > 0) FROM {_CHANGES}"
            [(deleted, added)] = duck.execute(counted).fetchall()
            if deleted:
                self._delete(duck, batch, batch.gone(_CHANGES))
                self._upsert(duck, batch, batch.updated(_CHANGES))
            if added:
                self._add(duck, batch, batch.inserted(_CHANGES))

    def delete(self, batch: Batch, key: Sequence[Column]) -> None:
        with batch.connection() as duck:
            self._delete(duck, batch, batch.deletes())

    def upsert(self, batch: Batch, key: Sequence[Column]) -> None:
        with batch.connection() as duck:
            self._upsert(duck, batch, batch.upserts())

    def _delete(self, duck: duckdb.DuckDBPyConnection, batch: Batch, keys: Select) -> None:
        key = [c for c in batch.columns if c.name in self.table.primary_key]
        if batch.is_changing and self._stage(duck, keys, key, KEYS):
            same = " AND ".join(f"_row.{quote_name(c.name)} = _key.{quote_name(c.name)}" for c in key)
            self.con.execute(f"DELETE FROM {self.target} _row USING {KEYS} _key WHERE {same}")

    def _upsert(self, duck: duckdb.DuckDBPyConnection, batch: Batch, rows: Select) -> None:
        if self._stage(duck, rows, batch.columns, ROWS):
            columns, key = [c.name for c in batch.columns], self.table.primary_key
            staged = f"SELECT {names(batch.columns)} FROM {ROWS}"
            self.con.execute(_DIALECT.upsert(self.target, columns, key, staged))

    def _add(self, duck: duckdb.DuckDBPyConnection, batch: Batch, rows: Select) -> None:
        """COPY rows whose keys the table should not have; upsert them if that fails."""
        try:
            with self.con.transaction():
                self._copy(duck, self._in_order(rows), batch.columns, self.target)
            self._direct.succeed()
        except self._no_copy:
            self._direct.fail()
            self._upsert(duck, batch, rows)

    def _stage(self, duck: duckdb.DuckDBPyConnection, sql: Select, columns: Sequence[Column], name: str) -> int:
        """Copy rows into a temporary table of the session, with the types of the target; return their number.

        They are sorted by key, so that the server visits the pages of the table and of its index in order. For a batch that
        changes 50,000 of 300,000 rows, that takes it less than half the time.
        """
        rows = f"SELECT {names(columns)} FROM {self.target} WITH NO DATA"
        self.con.execute(f"CREATE TEMP TABLE IF NOT EXISTS {name} ON COMMIT DELETE ROWS AS {rows}")
        return self._copy(duck, self._in_order(sql), columns, name)

    def _in_order(self, sql: Select) -> Select:
        return Select(f"SELECT * FROM ({sql}) ORDER BY {', '.join(map(quote_name, self.table.primary_key))}")

    def _copy(self, duck: duckdb.DuckDBPyConnection, sql: Select, columns: Sequence[Column], target: str) -> int:
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
    """Decides whether to try a step that may fail. After each failure in a row, twice as many tries are skipped.

    >>> attempts, tried = Attempts(), []
    >>> for number in range(20):
    ...     if attempts.is_due():
    ...         tried.append(number)
    ...         attempts.fail()
    >>> tried
    [0, 3, 8, 17]
    """

    def __init__(self) -> None:
        self._failed = self._skips = 0

    def is_due(self) -> bool:
        """Whether to try now. Each call counts as one try, made or skipped."""
        self._skips -= 1
        return self._skips < 0

    def fail(self) -> None:
        """Record a failure: the next 2, 4, 8, .., at most 1024 calls of `is_due` return False."""
        self._failed += 1
        self._skips = min(2**self._failed, _MOST_SKIPS)

    def succeed(self) -> None:
        """Record a success: the next failure counts as the first one."""
        self._failed = 0


class PostgreSQLWriter(ServerWriter):
    """Writes the batches of a job into a table of a PostgreSQL server."""

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
        # The table has a row of the key, or row-level security, which forbids COPY.
        self.no_copy = (self._psycopg.errors.UniqueViolation, self._psycopg.errors.FeatureNotSupported)

    def connect(self) -> Any:
        """Open a session. Raises UsageError if the url is not valid."""
        try:
            return client.connect(self.table, self.table.options["url"])
        except self._psycopg.ProgrammingError as error:
            at = self.table.option_span("url", value=True)
            raise UsageError(f'table "{self.table.name}": the url is not one: {client.reason(error)}', at) from error

    def is_open(self, con: Any) -> bool:
        return not con.closed

    def run(self, con: Any, statement: str, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        return client.run(con, statement, values)

    def describe(self, con: Any, name: str) -> DatabaseTable | None:
        return server_table(con, name)

    def make(self, con: Any, statement: str) -> None:
        # If several jobs create a table at the same time, one of them would fail, in spite of IF NOT EXISTS.
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
    """A table of a PostgreSQL server that a job writes."""

    writer_type = PostgreSQLWriter
