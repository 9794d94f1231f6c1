"""Lookups in tables of SQLite files, and all of their rows."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column, Table
from sqlstream.connectors.confined_files import check_files
from sqlstream.connectors.interface import LookupFunction, TableLookup
from sqlstream.connectors.lookup_rows import KEYS, chosen, lookup_columns, untyped
from sqlstream.connectors.relational.dialect import DatabaseTable, is_nested
from sqlstream.connectors.relational.rows import CHUNK, CopiedRows
from sqlstream.connectors.sqlite.dialect import SQLite, affinity
from sqlstream.connectors.sqlite.introspection import file_table, is_passing
from sqlstream.duck import databases
from sqlstream.duck.errors import plain
from sqlstream.duck.sql import Relation, quote_name, typed
from sqlstream.errors import DataError, OutageError, missing

_DIALECT = SQLite()
_ROWS = "_sqlstream_rows"
# Seconds that a lookup waits for a locked file.
_PATIENCE = 5.0


class SQLiteFile(LookupFunction):
    """Looks up rows in a table of a SQLite file, which is open only during a call.

    Raises DataError if the file, the table or a column does not exist, or a value does not have its declared type; OutageError
    if the file stays locked.
    """

    def __init__(self, table: Table, project: str):
        self._table, self._columns = table, lookup_columns(table)
        self._path = os.path.join(project, table.options["path"])

    def __call__(self, keys: pa.Table) -> pa.Table:
        with self._opened() as con:
            rows = self._rows(con, keys)
        return self._typed(rows, keys)

    def scan(self) -> Iterator[pa.Table]:
        """Yield all rows of the table, of one moment, with the declared types; at most `CHUNK` at a time."""
        with self._opened() as con:
            _, query = self._query(con)
            cursor = con.execute(query)
            while rows := cursor.fetchmany(CHUNK):
                yield self._typed(rows)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Open the file for a block. Raises DataError for errors of SQLite, OutageError if the file stays locked."""
        if not os.path.isfile(self._path):
            raise DataError(f'the file "{self._path}" of table "{self._table.name}" does not exist', self._table.span)
        check_files(self._table, [self._path])
        uri = f"{Path(self._path).resolve().as_uri()}?mode=ro"
        try:
            with closing(sqlite3.connect(uri, uri=True, timeout=_PATIENCE, isolation_level=None)) as con:
                yield con
        except sqlite3.Error as error:
            if is_passing(error):
                raise OutageError(str(error)) from error
            raise DataError(f'table "{self._table.name}": {error}', self._table.span) from error

    def _rows(self, con: sqlite3.Connection, keys: pa.Table) -> Sequence[Sequence[Any]]:
        """Return a superset of the rows with the keys: SQLite filters by the columns that `_is_compared` accepts."""
        types, query = self._query(con)
        compared = [c for c in self._columns if c.name in keys.column_names and _is_compared(c, types[c.name])]
        if not compared:
            return con.execute(query).fetchall()
        con.execute("PRAGMA temp_store = MEMORY")
        listed = ", ".join(f"k{i} {_DIALECT.type(c.type)}" for i, c in enumerate(compared))
        con.execute(f"CREATE TEMP TABLE {KEYS} ({listed})")
        marks = ", ".join("?" * len(compared))
        values = [keys.column(c.name).to_pylist() for c in compared]
        con.execute("BEGIN")
        con.executemany(f"INSERT INTO temp.{KEYS} VALUES ({marks})", zip(*values, strict=True))
        con.execute("COMMIT")
        key_columns = ", ".join(quote_name(c.name) for c in compared)
        return con.execute(f"{query} WHERE ({key_columns}) IN (SELECT * FROM temp.{KEYS})").fetchall()

    def _query(self, con: sqlite3.Connection) -> tuple[Mapping[str, str], str]:
        """Return the types of the declared columns in the file, and the query for all rows. Raises DataError without a table."""
        name = self._table.options["table"]
        database_table = file_table(con, name)
        if database_table is None:
            raise DataError(f'table "{self._table.name}": "{self._path}" has no table "{name}"', self._table.span)
        items = ", ".join(quote_name(c.name) for c in self._columns)
        return self._types(database_table), f"SELECT {items} FROM main.{quote_name(name)}"

    def _types(self, database_table: DatabaseTable) -> Mapping[str, str]:
        """Return the types of the declared columns in the file, by declared name. Names in SQLite are case-insensitive."""
        types = {c.name.lower(): c.type for c in database_table.columns}
        for column in self._columns:
            if column.name.lower() not in types:
                message = f'table "{self._table.name}" is not declared as it is in "{self._path}"'
                names = [c.name for c in database_table.columns]
                hint = missing("column", column.name, names)
                raise DataError(f'{message}: it has no column "{column.name}"', self._table.span, hint=hint)
        return {c.name: types[c.name.lower()] for c in self._columns}

    def _typed(self, rows: Sequence[Sequence[Any]], keys: pa.Table | None = None) -> pa.Table:
        """Return the rows that have the keys, or all without keys, with the declared types."""
        values = zip(*rows, strict=True) if rows else [()] * len(self._columns)
        arrays = {c.name: untyped(list(of)) for c, of in zip(self._columns, values, strict=True)}
        items = ", ".join(_item(c) for c in self._columns)
        with databases.passing() as con:
            con.execute("SET TimeZone = 'UTC'")
            con.register(_ROWS, pa.table(arrays))
            relation = Relation(f"(SELECT {items} FROM {_ROWS})")
            try:
                if keys is None:
                    return con.sql(f"SELECT {typed(self._columns)} FROM {relation}").to_arrow_table()
                con.register(KEYS, keys)
                return con.sql(chosen(self._table, relation, keys)).to_arrow_table()
            except duckdb.Error as error:
                message = f'a row of table "{self._table.name}" does not have the declared types'
                raise DataError(message, self._table.span, detail=f"DuckDB says: {plain(error)}.") from error


def _is_compared(column: Column, file_type: str) -> bool:
    """Whether SQLite compares the values of a column as its declared type does. Times, for one, have several texts."""
    if column.type == "VARCHAR":
        return affinity(file_type) == "TEXT"
    is_whole = _DIALECT.type(column.type) == "INTEGER" and column.type != "BOOLEAN"
    return is_whole and affinity(file_type) in ("INTEGER", "NUMERIC")


def _item(column: Column) -> str:
    """Return the DuckDB SQL that reads a value as it came from the file."""
    name = quote_name(column.name)
    return f"CAST({name} AS JSON) AS {name}" if is_nested(column.type) else name


class SQLiteLookup(TableLookup):
    """A table of a SQLite file in which jobs look up rows."""

    def function(self, *, warehouse: str, project: str) -> SQLiteFile:
        return SQLiteFile(self.table, project)


class SQLiteRows(CopiedRows):
    """The rows of a table of a SQLite file."""

    def tables(self, project: str) -> Iterator[pa.Table]:
        return SQLiteFile(self.table, project).scan()
