"""The `sqlite` connector."""

from __future__ import annotations

from sqlstream.connectors.interface import Connector, Reach
from sqlstream.connectors.options import TEXT, TableOption
from sqlstream.connectors.relational.writer import SINK_OPTIONS
from sqlstream.connectors.sqlite.lookup import SQLiteLookup, SQLiteRows
from sqlstream.connectors.sqlite.sink import SQLiteSink


class SQLiteConnector(Connector):
    """Tables in SQLite files."""

    name = "sqlite"
    summary = "a table of a SQLite file"
    reach = Reach.FILE
    options = (
        TableOption("path", TEXT, "the SQLite file, relative to the project", required=True, example="out/shop.db"),
        TableOption("table", TEXT, "the table in the file", required=True, example="users"),
        *SINK_OPTIONS,
    )
    source_type = SQLiteRows
    lookup_type = SQLiteLookup
    sink_type = SQLiteSink
