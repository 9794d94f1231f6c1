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

if TYPE_CHECKING:
    from sqlstream.connectors.batch import Batch

_DIALECT = PostgreSQL()
# So many rows are made text at a time.
_CHUNK = 50_000
# What jobs that make the same table wait for, each for the others: an arbitrary number.
_MAKING = 7_160_514


class PostgreSQLTransaction(ServerTransaction):
    """A transaction on a server."""

    set_number = (
        "INSERT INTO {table} (sink, batch) VALUES (%s, %s)"
        " ON CONFLICT (sink) DO UPDATE SET batch = excluded.batch, written_at = now()"
    )

    def insert(self, batch: Batch) -> None:
        self._copy(batch, batch.rows(), batch.columns, self.target)

    def delete(self, batch: Batch, key: Sequence[Column]) -> None:
        if self._stage(batch, batch.deletes(), key, KEYS):
            same = " AND ".join(f"_row.{quote_name(c.name)} = _key.{quote_name(c.name)}" for c in key)
            self.con.execute(f"DELETE FROM {self.target} _row USING {KEYS} _key WHERE {same}")

    def upsert(self, batch: Batch, key: Sequence[Column]) -> None:
        if self._stage(batch, batch.upserts(), batch.columns, ROWS):
            columns, rows = [c.name for c in batch.columns], f"SELECT {names(batch.columns)} FROM {ROWS}"
            self.con.execute(_DIALECT.upsert(self.target, columns, [c.name for c in key], rows))

    def _stage(self, batch: Batch, sql: str, columns: Sequence[Column], name: str) -> int:
        """Copy rows into a temporary table of the session, with the types of the target; return their number.

        They are in the order of their keys: so the server finds the rows of a page, and of its index, one after the other. Where
        a batch changes 50,000 of 300,000 rows, that takes it less than half the time.
        """
        rows = f"SELECT {names(columns)} FROM {self.target} WITH NO DATA"
        self.con.execute(f"CREATE TEMP TABLE IF NOT EXISTS {name} ON COMMIT DELETE ROWS AS {rows}")
        key = ", ".join(map(quote_name, self.table.primary_key))
        return self._copy(batch, f"SELECT * FROM ({sql}) ORDER BY {key}", columns, name)

    def _copy(self, batch: Batch, sql: str, columns: Sequence[Column], target: str) -> int:
        from pyarrow import csv

        options, count = csv.WriteOptions(include_header=False), 0
        with (
            batch.connection() as duck,
            self.con.cursor().copy(f"COPY {target} ({names(columns)}) FROM STDIN (FORMAT csv)") as copy,
        ):
            for rows in duck.sql(_DIALECT.values(columns, sql)).to_arrow_reader(_CHUNK):
                text = io.BytesIO()
                csv.write_csv(rows, text, options)
                copy.write(text.getbuffer())
                count += rows.num_rows
        return count


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
