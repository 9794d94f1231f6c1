"""The `sqlite` sink: a transaction in a SQLite file has the rows of a batch and its number."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from sqlstream.catalog import Column, Table
from sqlstream.connectors.guarantees import Delivery
from sqlstream.connectors.interface import DriverSink, SinkContext
from sqlstream.connectors.relational.check import check_columns, check_key, no_table
from sqlstream.connectors.relational.database_file import FileWriter
from sqlstream.connectors.relational.dialect import (
    Dialect,
    FoundColumn,
    FoundTable,
    is_nested,
    last_batch,
    make_batches,
    set_last_batch,
)
from sqlstream.connectors.relational.writer import Transaction
from sqlstream.duck.sql import quote_name, quote_text
from sqlstream.errors import DataError

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


class SQLiteTransaction(Transaction):
    """A transaction in a file."""

    def __init__(self, table: Table, identity: str, con: sqlite3.Connection):
        self._table, self._identity, self._con = table, identity, con
        self._target = quote_name(table.options["table"])

    def last_batch(self) -> int | None:
        found = self._con.execute(last_batch(), [self._identity]).fetchone()
        return None if found is None else int(found[0])

    def set_last_batch(self, number: int) -> None:
        self._con.execute(set_last_batch(), [self._identity, number])

    def insert(self, batch: Batch) -> None:
        statement = _DIALECT.insert(self._target, [c.name for c in batch.columns], _values(batch.columns))
        self._each(batch, batch.rows(), batch.columns, statement)

    def replace(self, batch: Batch) -> None:
        key = [c for c in batch.columns if c.name in self._table.primary_key]
        if batch.is_changing:
            same = " AND ".join(f"{quote_name(c.name)} = ?" for c in key)
            self._each(batch, batch.deletes(), key, f"DELETE FROM {self._target} WHERE {same}")
        columns = [c.name for c in batch.columns]
        upsert = _DIALECT.upsert(self._target, columns, [c.name for c in key], _values(batch.columns))
        self._each(batch, batch.upserts(), batch.columns, upsert)

    def _each(self, batch: Batch, sql: str, columns: Sequence[Column], statement: str) -> None:
        """Run a statement for each row of a query."""
        with batch.connection() as con:
            for rows in con.sql(_DIALECT.values(columns, sql)).to_arrow_reader(_CHUNK):
                self._con.executemany(statement, zip(*(column.to_pylist() for column in rows.columns), strict=True))


def _values(columns: Sequence[Column]) -> str:
    return f"VALUES ({', '.join('?' * len(columns))})"


class SQLiteWriter(FileWriter):
    """Writes the batches of a job into a table of a file."""

    passing_errors = (sqlite3.OperationalError,)

    def __init__(self, table: Table, context: SinkContext):
        super().__init__(table, context, _DIALECT)

    def is_passing(self, error: Exception) -> bool:
        return "locked" in str(error) or "busy" in str(error)

    def prepare(self) -> None:
        self.check_file()
        name = self.table.options["table"]
        with self._open() as con:
            if self.creates:
                con.execute(_DIALECT.create(quote_name(name), self.table.writable, self.table.primary_key))
            found = _found(con, name)
            if found is None:
                raise no_table(self.table, name, _DIALECT)
            check_columns(self.table, found, _DIALECT)
            check_key(self.table, found, _DIALECT)
            con.execute(make_batches())

    @contextmanager
    def transaction(self) -> Iterator[SQLiteTransaction]:
        with self._open() as con:
            con.execute("BEGIN IMMEDIATE")
            try:
                yield SQLiteTransaction(self.table, self.identity, con)
                con.execute("COMMIT")
            except self.passing_errors:
                raise
            except (sqlite3.Error, OverflowError) as error:
                raise DataError(
                    f'SQLite refuses rows of table "{self.table.name}": {error}', self.table.span
                ) from error

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        # What is open at the end of a transaction that failed is rolled back.
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


class SQLiteSink(DriverSink):
    """A table of a file."""

    delivery = Delivery.TRANSACTIONAL
    delivery_reason = "a transaction has the rows of a batch and its number"
    takes_changes = True
    replaces = True

    def open(self, context: SinkContext) -> SQLiteWriter:
        return SQLiteWriter(self.table, context)
