"""The `postgres-cdc` connector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlstream.catalog import Table
from sqlstream.connectors.discovery import DiscoveryContext, Offsets
from sqlstream.connectors.formats.changelogs import OPERATION
from sqlstream.connectors.guarantees import Replay
from sqlstream.connectors.interface import Connector, Reach, ReadContext, TableSource
from sqlstream.connectors.postgres_cdc.discovery import ChangesDiscovery
from sqlstream.connectors.postgres_cdc.files import ChangesFile, mistyped, rows_of
from sqlstream.connectors.postgres_cdc.options import OPTIONS, CdcSettings, validate
from sqlstream.connectors.postgres_cdc.server import unreachable
from sqlstream.connectors.postgresql import client
from sqlstream.connectors.read_plan import ReadPlan
from sqlstream.errors import DataError
from sqlstream.warehouse.paths import Warehouse

if TYPE_CHECKING:
    import duckdb


class TableChanges(TableSource):
    """Reads the rows of a PostgreSQL table, then all their changes, by logical replication."""

    replay = Replay.REPLAYABLE
    replay_reason = "the server keeps changes until they are committed"
    # The server discards changes once they are committed.
    rewinds = False
    slot = "replication slot on the server"
    split_type = ChangesFile
    measured = True

    @property
    def bounded(self) -> bool:
        return CdcSettings.of(self.table).bounded

    def check_input(self, project: str) -> None:
        try:
            client.connect(self.table, CdcSettings.of(self.table).place.url).close()
        except client.load(self.table).OperationalError as error:
            raise unreachable(self.table, error) from error

    def discovery(self, position: Offsets, context: DiscoveryContext) -> ChangesDiscovery:
        # The server's table has no column with the operation.
        server_table = replace(self.table, columns=tuple(c for c in self.table.columns if c != OPERATION))
        return ChangesDiscovery(server_table, position, context, CdcSettings.of(self.table))

    def read(self, con: duckdb.DuckDBPyConnection, splits: Sequence[ChangesFile], context: ReadContext) -> ReadPlan:
        warehouse = Warehouse(context.warehouse)
        located = [replace(split, folder=f"{warehouse.root.rstrip('/')}/{split.folder}") for split in splits]
        return ReadPlan(rows_of(warehouse.fs, located, self.table), keep=True)

    def explained(self, error: duckdb.Error, splits: Sequence[ChangesFile]) -> DataError | None:
        import duckdb

        return mistyped(self.table, error) if isinstance(error, duckdb.DataError) else None


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
