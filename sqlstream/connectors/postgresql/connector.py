"""The `postgresql` connector."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from sqlstream.catalog import Table
from sqlstream.connectors.interface import Connector, LookupFunction, TableLookup
from sqlstream.connectors.lookup_rows import lookup_columns, typed_rows
from sqlstream.connectors.options import TEXT, TableOption
from sqlstream.connectors.postgresql import client
from sqlstream.connectors.postgresql.sink import PostgreSQLSink
from sqlstream.connectors.relational.writer import SINK_OPTIONS
from sqlstream.errors import DataError, OutageError

# What keys are sent as, by their DuckDB types; decimals are numeric, all others text.
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


class PostgreSQLServer(LookupFunction):
    """Asks a PostgreSQL server; the connection stays open between questions, and is made anew where it is lost."""

    def __init__(self, table: Table):
        self._table = table
        self._connection: Any = None

    def __call__(self, keys: pa.Table) -> pa.Table:
        psycopg = client.load(self._table)
        con = self._open(psycopg)
        try:
            rows = con.execute(self._sql(psycopg, keys), [column.to_pylist() for column in keys.columns]).fetchall()
        except psycopg.OperationalError as error:
            self._close()
            raise OutageError(str(error).strip().split("\n")[0]) from error
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
            raise DataError(f'table "{self._table.name}": {error.diag.message_primary}', self._table.span) from error
        return typed_rows(
            self._table, [dict(zip((c.name for c in lookup_columns(self._table)), row, strict=True)) for row in rows]
        )

    def _open(self, psycopg: Any) -> Any:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._table.options["url"], autocommit=True, connect_timeout=10)
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _sql(self, psycopg: Any, keys: pa.Table) -> Any:
        """Return the query of the rows for lists of key values."""
        sql, types = psycopg.sql, {c.name: c.type for c in lookup_columns(self._table)}
        items = [
            sql.SQL("_row.{}::text" if c.type == "VARCHAR" else "_row.{}").format(sql.Identifier(c.name))
            for c in lookup_columns(self._table)
        ]
        kinds = {name: _pg_type(types[name]) for name in keys.column_names}
        names = [f"k{i}" for i in range(keys.num_columns)]
        lists = sql.SQL(", ").join(sql.SQL(f"%s::{kind}[]") for kind in kinds.values())
        same = [
            sql.SQL("_row.{}::text" if kind == "text" else "_row.{}").format(sql.Identifier(name))
            + sql.SQL(f" = _key.{k}")
            for (name, kind), k in zip(kinds.items(), names, strict=True)
        ]
        return sql.SQL("SELECT {} FROM {} AS _row JOIN unnest({}) AS _key({}) ON {}").format(
            sql.SQL(", ").join(items),
            sql.Identifier(*self._table.options["table"].split(".")),
            lists,
            sql.SQL(", ").join(map(sql.SQL, names)),
            sql.SQL(" AND ").join(same),
        )


class PostgreSQLLookup(TableLookup):
    """Rows of a table of a server."""

    def function(self, *, warehouse: str, project: str) -> PostgreSQLServer:
        return PostgreSQLServer(self.table)


class PostgreSQLConnector(Connector):
    """Tables of PostgreSQL servers."""

    name = "postgresql"
    summary = "a table of a PostgreSQL server"
    options = (
        TableOption(
            "url",
            TEXT,
            "the connection string of libpq",
            required=True,
            example="postgresql://user@localhost/database",
        ),
        TableOption(
            "table", TEXT, "the table, with its schema if it is not in the search path", required=True, example="users"
        ),
        *SINK_OPTIONS,
    )
    lookup_type = PostgreSQLLookup
    sink_type = PostgreSQLSink

    def prepare(self, table: Table) -> Table:
        client.load(table)
        return table
