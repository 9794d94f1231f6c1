"""Lookups in tables of PostgreSQL servers, and all of their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from sqlstream.catalog import Table
from sqlstream.connectors.interface import TableLookup
from sqlstream.connectors.postgresql import client
from sqlstream.connectors.relational.lookup import ServerLookup
from sqlstream.connectors.relational.rows import CHUNK, CopiedRows
from sqlstream.errors import DataError, OutageError

# The types with which keys are sent, by their DuckDB types; decimals are numeric, all others text.
_PG_TYPES = {
    "TINYINT": "smallint",
    "SMALLINT": "smallint",
    "INTEGER": "integer",
    "BIGINT": "bigint",
    "DOUBLE": "float8",
    "FLOAT": "float4",
    "BOOLEAN": "boolean",
    "VARCHAR": "text",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP WITH TIME ZONE": "timestamptz",
    "UUID": "uuid",
    "BLOB": "bytea",
    "TIME": "time",
}


def _pg_type(kind: str) -> str:
    return "numeric" if kind.startswith("DECIMAL") else _PG_TYPES.get(kind, "text")


class PostgreSQLServer(ServerLookup):
    """Looks up rows on a PostgreSQL server."""

    def __init__(self, table: Table):
        super().__init__(table)
        self._psycopg: Any = client.load(table)
        self.error = self._psycopg.Error

    def connect(self) -> Any:
        return self._psycopg.connect(self.table.options["url"], autocommit=True, connect_timeout=10)

    def is_open(self, con: Any) -> bool:
        return not con.closed

    def rows(self, con: Any, keys: pa.Table) -> Sequence[Sequence[Any]]:
        rows: Sequence[Sequence[Any]] = con.execute(
            self._sql(keys), [column.to_pylist() for column in keys.columns]
        ).fetchall()
        return rows

    def chunks(self, con: Any) -> Iterator[Sequence[Sequence[Any]]]:
        sql = self._psycopg.sql
        identifier = sql.Identifier(*self.table.options["table"].split("."))
        with con.transaction(), con.cursor(name="sqlstream") as cursor:
            cursor.execute(sql.SQL("SELECT {} FROM {} AS _row").format(self._items(), identifier))
            while rows := cursor.fetchmany(CHUNK):
                yield rows

    def failure(self, error: Exception) -> Exception:
        """Return OutageError for an error of the connection, DataError for a missing table or column, else the error itself."""
        errors = self._psycopg.errors
        if isinstance(error, self._psycopg.OperationalError):
            return OutageError(str(error).strip().split("\n")[0])
        if isinstance(error, errors.UndefinedTable | errors.UndefinedColumn):
            return DataError(f'table "{self.table.name}": {client.reason(error)}', self.table.span)
        return error

    def _items(self) -> Any:
        """Return the columns of `_row` that are read."""
        sql = self._psycopg.sql
        items = (
            sql.SQL("_row.{}::text" if c.type == "VARCHAR" else "_row.{}").format(sql.Identifier(c.name))
            for c in self.columns
        )
        return sql.SQL(", ").join(items)

    def _sql(self, keys: pa.Table) -> Any:
        """Return the query for the rows of keys; its parameters are a list of values for each key column."""
        sql = self._psycopg.sql
        kinds = {c.name: _pg_type(c.type) for c in self.keys_of(keys)}
        names = [f"k{i}" for i in range(keys.num_columns)]
        lists = sql.SQL(", ").join(sql.SQL(f"%s::{kind}[]") for kind in kinds.values())
        same = [
            sql.SQL("_row.{}::text" if kind == "text" else "_row.{}").format(sql.Identifier(name))
            + sql.SQL(f" = _key.{k}")
            for (name, kind), k in zip(kinds.items(), names, strict=True)
        ]
        return sql.SQL("SELECT {} FROM {} AS _row JOIN unnest({}) AS _key({}) ON {}").format(
            self._items(),
            sql.Identifier(*self.table.options["table"].split(".")),
            lists,
            sql.SQL(", ").join(map(sql.SQL, names)),
            sql.SQL(" AND ").join(same),
        )


class PostgreSQLLookup(TableLookup):
    """A table of a PostgreSQL server in which jobs look up rows."""

    def function(self, *, warehouse: str, project: str) -> PostgreSQLServer:
        return PostgreSQLServer(self.table)


class PostgreSQLRows(CopiedRows):
    """The rows of a table of a PostgreSQL server."""

    def tables(self, project: str) -> Iterator[pa.Table]:
        return PostgreSQLServer(self.table).scan()
