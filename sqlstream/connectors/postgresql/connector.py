"""The `postgresql` connector."""

from __future__ import annotations

from sqlstream.catalog import Table
from sqlstream.connectors.interface import Connector, Reach
from sqlstream.connectors.postgresql import client
from sqlstream.connectors.postgresql.lookup import PostgreSQLLookup, PostgreSQLRows
from sqlstream.connectors.postgresql.sink import PostgreSQLSink
from sqlstream.connectors.relational.server import server_options


class PostgreSQLConnector(Connector):
    """Tables of PostgreSQL servers."""

    name = "postgresql"
    summary = "a table of a PostgreSQL server"
    reach = Reach.ELSEWHERE
    options = server_options(
        "the connection string of libpq",
        "postgresql://user@localhost/database",
        "its schema if it is not in the search path",
    )
    source_type = PostgreSQLRows
    lookup_type = PostgreSQLLookup
    sink_type = PostgreSQLSink

    def prepare(self, table: Table) -> Table:
        client.load(table)
        return table
