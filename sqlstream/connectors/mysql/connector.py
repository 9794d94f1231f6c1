"""The `mysql` connector."""

from __future__ import annotations

from sqlstream.catalog import Table
from sqlstream.connectors.interface import Connector
from sqlstream.connectors.mysql import client
from sqlstream.connectors.mysql.lookup import MySQLLookup
from sqlstream.connectors.mysql.sink import MySQLSink
from sqlstream.connectors.options import TEXT, TableOption
from sqlstream.connectors.relational.writer import SINK_OPTIONS


class MySQLConnector(Connector):
    """Tables of MySQL and MariaDB servers."""

    name = "mysql"
    summary = "a table of a MySQL or MariaDB server"
    options = (
        TableOption(
            "url",
            TEXT,
            "the server and the database",
            required=True,
            example="mysql://user:password@localhost:3306/database",
        ),
        TableOption(
            "table", TEXT, "the table, with its database if it is not that of the url", required=True, example="users"
        ),
        *SINK_OPTIONS,
    )
    lookup_type = MySQLLookup
    sink_type = MySQLSink

    def prepare(self, table: Table) -> Table:
        client.load(table)
        client.address(table)
        return table
