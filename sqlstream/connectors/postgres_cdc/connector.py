"""The `postgres-cdc` connector."""

from __future__ import annotations

from dataclasses import replace

from sqlstream.catalog import Column, Table
from sqlstream.connectors.cdc.source import ChangesSource
from sqlstream.connectors.discovery import DiscoveryContext, Offsets
from sqlstream.connectors.interface import Connector, Reach
from sqlstream.connectors.postgres_cdc.discovery import SlotDiscovery
from sqlstream.connectors.postgres_cdc.options import OPTIONS, CdcSettings, validate
from sqlstream.connectors.postgres_cdc.server import unreachable
from sqlstream.connectors.postgresql import client
from sqlstream.connectors.relational.dialect import is_nested
from sqlstream.duck.sql import quote_name


class TableChanges(ChangesSource):
    """Reads the rows of a PostgreSQL table, then all their changes, by logical replication."""

    replay_reason = "the server keeps changes until they are committed"
    # The server discards changes once they are committed.
    rewinds = False
    slot = "replication slot on the server"

    @property
    def bounded(self) -> bool:
        return CdcSettings.of(self.table).reading.bounded

    def check_input(self, project: str) -> None:
        try:
            client.connect(self.table, CdcSettings.of(self.table).served_table.url).close()
        except client.load(self.table).OperationalError as error:
            raise unreachable(self.table, error) from error

    def discovery(self, position: Offsets, context: DiscoveryContext) -> SlotDiscovery:
        return SlotDiscovery(self.server_table, position, context, CdcSettings.of(self.table))

    def typed(self, column: Column) -> str:
        text = quote_name(column.name)
        if column.type == "BLOB":
            return f"unhex(substr({text}, 3))"
        if is_nested(column.type):
            return f"CAST(CAST({text} AS JSON) AS {column.type})"
        if column.type.startswith(("DATE", "TIMESTAMP")):
            text = f"replace({text}, ' BC', ' (BC)')"
        return f"CAST({text} AS {column.type})"


class PostgresCdcConnector(Connector):
    """The rows and changes of tables of PostgreSQL servers."""

    name = "postgres-cdc"
    summary = "the rows of a table of a PostgreSQL server, and all changes of them"
    reach = Reach.ELSEWHERE
    options = OPTIONS
    source_type = TableChanges

    def validate(self, table: Table) -> None:
        validate(table)

    def prepare(self, table: Table) -> Table:
        client.load(table)
        return replace(table, changing=True)
