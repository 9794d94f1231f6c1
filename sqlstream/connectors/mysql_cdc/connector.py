"""The `mysql-cdc` connector."""

from __future__ import annotations

from dataclasses import replace

from sqlstream.catalog import Column, Table
from sqlstream.connectors.cdc.source import ChangesSource
from sqlstream.connectors.discovery import DiscoveryContext, Offsets
from sqlstream.connectors.extras import imported
from sqlstream.connectors.interface import Connector, Reach
from sqlstream.connectors.mysql import client
from sqlstream.connectors.mysql_cdc.discovery import BinlogDiscovery
from sqlstream.connectors.mysql_cdc.options import OPTIONS, BinlogSettings, validate, zone
from sqlstream.connectors.mysql_cdc.server import unreachable
from sqlstream.connectors.relational.dialect import is_nested
from sqlstream.duck.sql import quote_name, quote_text


class BinlogChanges(ChangesSource):
    """Reads the rows of a table of MySQL or MariaDB, then all their changes, from the binary log."""

    replay_reason = "the server keeps its log for some time, and the place in it is in the checkpoint"
    # As far back as the server still has its log.
    rewinds = True
    slot = None

    @property
    def bounded(self) -> bool:
        return BinlogSettings.of(self.table).reading.bounded

    def check_input(self, project: str) -> None:
        try:
            client.connect(self.table, BinlogSettings.of(self.table).address).close()
        except client.load(self.table).OperationalError as error:
            raise unreachable(self.table, error) from error

    def discovery(self, position: Offsets, context: DiscoveryContext) -> BinlogDiscovery:
        return BinlogDiscovery(self.server_table, position, context, BinlogSettings.of(self.table))

    def typed(self, column: Column) -> str:
        text = quote_name(column.name)
        if column.type == "BLOB":
            return f"unhex({text})"
        if column.type == "BOOLEAN":
            return f"CAST({text} AS BIGINT) <> 0"
        if is_nested(column.type):
            return f"CAST(CAST({text} AS JSON) AS {column.type})"
        zone_name = zone(self.table)
        if column.type == "TIMESTAMP" and zone_name != "UTC":
            # Only instants end so: a datetime is the same in all time zones.
            return (
                f"CASE WHEN ends_with({text}, '+00') THEN {_local(text, zone_name)} ELSE CAST({text} AS TIMESTAMP) END"
            )
        return f"CAST({text} AS {column.type})"


def _local(text: str, zone: str) -> str:
    """Return the SQL of the local time, in a zone or some minutes after UTC, of an instant in UTC that is a text."""
    if zone[0] in "+-":
        return f"CAST({text} AS TIMESTAMP) + INTERVAL '{int(zone)} minutes'"
    return f"timezone({quote_text(zone)}, CAST({text} AS TIMESTAMP WITH TIME ZONE))"


class MySQLCdcConnector(Connector):
    """The rows and changes of tables of MySQL and MariaDB servers."""

    name = "mysql-cdc"
    summary = "the rows of a table of a MySQL or MariaDB server, and all changes of them"
    reach = Reach.ELSEWHERE
    options = OPTIONS
    source_type = BinlogChanges

    def validate(self, table: Table) -> None:
        validate(table)

    def prepare(self, table: Table) -> Table:
        client.load(table)
        imported(table, "mysql", ["pymysqlreplication"], called="mysql-replication")
        return replace(table, changing=True)
