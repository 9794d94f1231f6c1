"""The `mysql` connector."""

from __future__ import annotations

from sqlstream.catalog import Table
from sqlstream.connectors.interface import Connector, Reach
from sqlstream.connectors.mysql import client
from sqlstream.connectors.mysql.lookup import MySQLLookup, MySQLRows
from sqlstream.connectors.mysql.sink import MySQLSink
from sqlstream.connectors.relational.server import server_options


class MySQLConnector(Connector):
    """Tables of MySQL and MariaDB servers."""

    name = "mysql"
    summary = "a table of a MySQL or MariaDB server"
    reach = Reach.ELSEWHERE
    options = server_options(
        "the server and the database",
        "mysql://user:password@localhost:3306/database",
        "its database if it is not that of the url",
    )
    source_type = MySQLRows
    lookup_type = MySQLLookup
    sink_type = MySQLSink

    def prepare(self, table: Table) -> Table:
        client.load(table)
        client.address(table)
        return table
