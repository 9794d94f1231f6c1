"""Lookups in tables of MySQL and MariaDB servers, and all of their rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC
from typing import Any

import pyarrow as pa

from sqlstream.catalog import Column, Table
from sqlstream.connectors.interface import TableLookup
from sqlstream.connectors.lookup_rows import KEYS
from sqlstream.connectors.mysql import client
from sqlstream.connectors.mysql.dialect import MySQL
from sqlstream.connectors.relational.dialect import is_nested, qualified
from sqlstream.connectors.relational.lookup import ServerLookup
from sqlstream.connectors.relational.rows import CHUNK, CopiedRows
from sqlstream.duck import databases
from sqlstream.duck.sql import Select, names, quote_name, typed
from sqlstream.errors import DataError, OutageError

_DIALECT = MySQL()
# The keys of one statement, few enough to be looked up in an index. From 1,000 texts MariaDB would make a table, whose collation
# may differ from the column's.
_CHUNK = 500


class MySQLServer(ServerLookup):
    """Looks up rows on a MySQL or MariaDB server."""

    def __init__(self, table: Table):
        super().__init__(table)
        self.error = client.load(table).MySQLError
        self._converters = [_converter(column.type) for column in self.columns]

    def connect(self) -> Any:
        return client.connect(self.table)

    def is_open(self, con: Any) -> bool:
        return bool(con.open)

    def rows(self, con: Any, keys: pa.Table) -> Sequence[Sequence[Any]]:
        columns = self.keys_of(keys)
        items = ", ".join(_item(c) for c in self.columns)
        query = f"SELECT {items} FROM {qualified(self.table.options['table'])} AS _row WHERE ({names(columns)}) IN"
        texts, rows = _literals(columns, keys), []
        for first in range(0, len(texts), _CHUNK):
            some = "".join(texts[first : first + _CHUNK]).rstrip(",")
            rows += client.run(con, f"{query} ({some})")
        return self._converted(rows)

    def chunks(self, con: Any) -> Iterator[Sequence[Sequence[Any]]]:
        items = ", ".join(_item(c) for c in self.columns)
        with con.cursor(client.load(self.table).cursors.SSCursor) as cursor:
            cursor.execute(f"SELECT {items} FROM {qualified(self.table.options['table'])} AS _row")
            while rows := cursor.fetchmany(CHUNK):
                yield self._converted(rows)

    def _converted(self, rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
        return [[convert(value) for convert, value in zip(self._converters, row, strict=True)] for row in rows]

    def failure(self, error: Exception) -> Exception:
        """Return OutageError if a retry may succeed after an error, else DataError."""
        if client.is_passing(error):
            return OutageError(client.reason(error))
        return DataError(f'table "{self.table.name}": {client.reason(error)}', self.table.span)


def _literals(columns: Sequence[Column], keys: pa.Table) -> list[str]:
    """Return a text such as `(1, 'a'),` for each key. A FLOAT is sent as a DOUBLE, because the server compares it as a DOUBLE."""
    sent = [replace(c, type="DOUBLE") if c.type == "FLOAT" else c for c in columns]
    with databases.passing() as con:
        con.register(KEYS, keys)
        rows = Select(f"SELECT {typed(sent)} FROM (SELECT {typed(columns)} FROM {KEYS})")
        literals = con.sql(_DIALECT.literals(sent, rows, {c.name: "" for c in sent})).fetchall()
        con.unregister(KEYS)
    return [text for (text,) in literals]


def _item(column: Column) -> str:
    """Return the SQL that reads a column of `_row`."""
    name = f"_row.{quote_name(column.name)}"
    # Texts of numbers, as they may be declared, and of times, for which the library has a duration.
    return f"CAST({name} AS CHAR)" if column.type in ("VARCHAR", "TIME") else name


def _converter(kind: str) -> Callable[[Any], Any]:
    """Return the function that converts a value of the library to a declared DuckDB type; NULL stays NULL."""
    convert: Callable[[Any], Any]
    if is_nested(kind):
        convert = json.loads
    elif kind == "TIMESTAMP WITH TIME ZONE":
        convert = _instant
    elif kind == "BOOLEAN":
        convert = _truth
    else:
        return lambda value: value
    return lambda value: None if value is None else convert(value)


def _instant(value: Any) -> Any:
    return value.replace(tzinfo=UTC)


def _truth(value: Any) -> bool:
    """Whether a number, or a `bit`, which comes as bytes, is not 0."""
    return any(value) if isinstance(value, bytes) else bool(value)


class MySQLLookup(TableLookup):
    """A table of a MySQL or MariaDB server in which jobs look up rows."""

    def function(self, *, warehouse: str, project: str) -> MySQLServer:
        return MySQLServer(self.table)


class MySQLRows(CopiedRows):
    """The rows of a table of a MySQL or MariaDB server."""

    def tables(self, project: str) -> Iterator[pa.Table]:
        return MySQLServer(self.table).scan()
