"""The `sqlite` sink: a transaction in a SQLite file has the rows of a batch and its number."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from sqlstream.catalog import Column
from sqlstream.connectors.relational.database_file import FileTransaction, FileWriter
from sqlstream.connectors.relational.dialect import Dialect, FoundColumn, FoundTable, is_nested
from sqlstream.connectors.relational.writer import DatabaseSink
from sqlstream.duck.sql import quote_name, quote_text

if TYPE_CHECKING:
    from sqlstream.connectors.batch import Batch

# So many rows are made tuples at a time.
_CHUNK = 20_000
_INTEGERS = ("BOOLEAN", "TINYINT", "UTINYINT", "SMALLINT", "USMALLINT", "INTEGER", "UINTEGER", "BIGINT")
# SQLite keeps so many digits of a number that is not whole.
_DIGITS = 15
_DECIMAL = re.compile(r"DECIMAL\((\d+), ?\d+\)")
# What column types keep a value as it is; of a column without a type any value is. https://sqlite.org/datatype3.html
_KEPT_BY = {
    "INTEGER": ("INTEGER", "NUMERIC", "BLOB"),
    "REAL": ("REAL", "NUMERIC", "BLOB"),
    "NUMERIC": ("NUMERIC", "TEXT", "BLOB"),
    "TEXT": ("TEXT", "BLOB"),
    "BLOB": ("BLOB", "TEXT", "NUMERIC", "INTEGER", "REAL"),
}


class SQLite(Dialect):
    """SQLite's SQL; rows travel as integers, floating-point numbers, texts and bytes."""

    name = "SQLite"

    def qualified(self, name: str) -> str:
        # There are no schemas.
        return quote_name(name)

    def type(self, kind: str) -> str:
        if kind in _INTEGERS:
            return "INTEGER"
        if kind in ("FLOAT", "DOUBLE"):
            return "REAL"
        if kind == "BLOB":
            return "BLOB"
        decimal = _DECIMAL.fullmatch(kind)
        return "NUMERIC" if decimal is not None and int(decimal[1]) <= _DIGITS else "TEXT"

    def fitting(self, kind: str) -> Sequence[str]:
        return _KEPT_BY[self.type(kind)]

    def fits(self, kind: str, found: str) -> bool:
        return affinity(found) in self.fitting(kind)

    def value(self, kind: str, sql: str) -> str:
        if kind == "BOOLEAN":
            return f"CAST({sql} AS TINYINT)"
        if is_nested(kind):
            return f"CAST(to_json({sql}) AS VARCHAR)"
        return sql if self.type(kind) in ("INTEGER", "REAL", "BLOB") else f"CAST({sql} AS VARCHAR)"


def affinity(declared: str) -> str:
    """Return what SQLite makes of the type of a column.

    >>> [affinity(kind) for kind in ("bigint", "varchar(10)", "", "double", "decimal(10, 2)")]
    ['INTEGER', 'TEXT', 'BLOB', 'REAL', 'NUMERIC']
    """
    upper = declared.upper()
    rules = (("INT", "INTEGER"), ("CHAR|CLOB|TEXT", "TEXT"), ("BLOB|^$", "BLOB"), ("REAL|FLOA|DOUB", "REAL"))
    return next((kind for pattern, kind in rules if re.search(pattern, upper)), "NUMERIC")


_DIALECT = SQLite()


class SQLiteTransaction(FileTransaction):
    """A transaction in a file."""

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

    def _each(self, batch: Batch, sql: str, columns: Sequence[Column], statement: str) -> None:
        """Run a statement for each row of a query."""
        with batch.connection() as con:
            for rows in con.sql(_DIALECT.values(columns, sql)).to_arrow_reader(_CHUNK):
                self.con.executemany(statement, zip(*(column.to_pylist() for column in rows.columns), strict=True))


def _values(columns: Sequence[Column]) -> str:
    return f"VALUES ({', '.join('?' * len(columns))})"


class SQLiteWriter(FileWriter):
    """Writes the batches of a job into a table of a file."""

    dialect = _DIALECT
    transaction_type = SQLiteTransaction
    begin = "BEGIN IMMEDIATE"
    passing_errors = (sqlite3.OperationalError,)
    refusals = (sqlite3.Error, OverflowError)

    def is_passing(self, error: Exception) -> bool:
        return "locked" in str(error) or "busy" in str(error)

    def found(self, con: Any, name: str) -> FoundTable | None:
        return _found(con, name)

    @contextmanager
    def opened(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=1.0, isolation_level=None)) as con:
            yield con


def _found(con: sqlite3.Connection, name: str) -> FoundTable | None:
    """Return a table as it is, None when there is none of the name."""

    def pragma(what: str, of: str) -> list[Any]:
        return con.execute(f"SELECT * FROM pragma_{what}({quote_text(of)})").fetchall()

    described = pragma("table_xinfo", name)
    if not described:
        return None
    columns, key = [], set()
    for _, column, kind, not_null, default, in_key, hidden in described:
        columns.append(FoundColumn(column, kind, bool(not_null) and default is None and not in_key, hidden in (2, 3)))
        key |= {column} if in_key else set()
    unique = [frozenset(key)]
    for _, index, is_unique, _, partial in pragma("index_list", name):
        if is_unique and not partial:
            unique.append(frozenset(column for _, _, column in pragma("index_info", index)))
    return FoundTable(tuple(columns), tuple(unique))


class SQLiteSink(DatabaseSink):
    """A table of a file."""

    writer_type = SQLiteWriter
