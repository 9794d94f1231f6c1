"""The `postgresql` connector."""

from __future__ import annotations

from sqlstream.catalog import Table
from sqlstream.connectors.interface import Connector
from sqlstream.connectors.options import TEXT, TableOption
from sqlstream.connectors.postgresql import client
from sqlstream.connectors.postgresql.lookup import PostgreSQLLookup
from sqlstream.connectors.postgresql.sink import PostgreSQLSink
from sqlstream.connectors.relational.writer import SINK_OPTIONS


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
