"""The `sqlite` sink: a transaction in a SQLite file has the rows of a batch and its number."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from sqlstream.catalog import Column
from sqlstream.connectors.relational.database_file import FileTransaction, FileWriter
from sqlstream.connectors.relational.dialect import DatabaseTable
from sqlstream.connectors.relational.writer import DatabaseSink
from sqlstream.connectors.sqlite.dialect import SQLite
from sqlstream.connectors.sqlite.introspection import file_table, is_passing
from sqlstream.duck.sql import Select, quote_name

if TYPE_CHECKING:
    from sqlstream.connectors.batch import Batch

# Rows that are converted to tuples at a time.
_CHUNK = 20_000

_DIALECT = SQLite()


class SQLiteTransaction(FileTransaction):
    """A transaction in a SQLite file."""

    def insert(self, batch: Batch) -> None:
        statement = _DIALECT.insert(self.target, [c.name for c in batch.columns], _values(batch.columns))
        self._each(batch, batch.rows(), batch.columns, statement)

    def delete(self, batch: Batch, key: Sequence[Column]) -> None:
        same = " AND ".join(f"{quote_name(c.name)} = ?" for c in key)
        self._each(batch, batch.deletes(), key, f"DELETE FROM {self.target} WHERE {same}")

    def upsert(self, batch: Batch, key: Sequence[Column]) -> None:
        columns = [c.name for c in batch.columns]
        statement = _DIALECT.upsert(self.target, columns, [c.name for c in key], _values(batch.columns))
        self._each(batch, batch.upserts(), batch.columns, statement)

    def _each(self, batch: Batch, sql: Select, columns: Sequence[Column], statement: str) -> None:
        """Run a statement once for each row of a DuckDB query; the row's values are its parameters."""
        with batch.connection() as con:
            for rows in con.sql(_DIALECT.values(columns, sql)).to_arrow_reader(_CHUNK):
                self.con.executemany(statement, zip(*(column.to_pylist() for column in rows.columns), strict=True))


def _values(columns: Sequence[Column]) -> str:
    return f"VALUES ({', '.join('?' * len(columns))})"


class SQLiteWriter(FileWriter):
    """Writes the batches of a job into a table of a SQLite file."""

    dialect = _DIALECT
    transaction_type = SQLiteTransaction
    begin = "BEGIN IMMEDIATE"
    passing_errors = (sqlite3.OperationalError,)
    refusals = (sqlite3.Error, OverflowError)

    def is_passing(self, error: Exception) -> bool:
        return is_passing(error)

    def describe(self, con: Any, name: str) -> DatabaseTable | None:
        return file_table(con, name)

    @contextmanager
    def opened(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=1.0, isolation_level=None)) as con:
            yield con


class SQLiteSink(DatabaseSink):
    """A table of a SQLite file that a job writes."""

    writer_type = SQLiteWriter
