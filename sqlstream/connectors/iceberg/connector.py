"""The `iceberg` connector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sqlstream.catalog import Table
from sqlstream.connectors.discovery import DiscoveryContext, Offsets
from sqlstream.connectors.guarantees import Replay
from sqlstream.connectors.iceberg import schema
from sqlstream.connectors.iceberg.appends import DataFileCommitter, DataFileWriter
from sqlstream.connectors.iceberg.catalogs import CATALOG, CatalogTable, pyiceberg
from sqlstream.connectors.iceberg.reading import SnapshotSplit, read_snapshots
from sqlstream.connectors.iceberg.snapshots import SnapshotDiscovery
from sqlstream.connectors.iceberg.upserts import UpsertWriter
from sqlstream.connectors.interface import (
    BatchWriter,
    Committer,
    DriverSink,
    Reach,
    ReadContext,
    SinkContext,
    TableSource,
    WorkerSink,
    Writer,
)
from sqlstream.connectors.lakes.connector import CREATE, PACE, LakeConnector, LakeSink, start_options
from sqlstream.connectors.options import NUMBER, TEXT, TableOption
from sqlstream.connectors.read_plan import ReadPlan

if TYPE_CHECKING:
    import duckdb

# The options with this prefix are properties of an Iceberg table that is created.
PROPERTIES = "iceberg."


class IcebergSnapshots(TableSource):
    """Reads the snapshots of an Iceberg table in order: the rows that each appends."""

    replay = Replay.REPLAYABLE
    replay_reason = "snapshots are read again"
    rewinds = True
    slot: str | None = None
    split_type = SnapshotSplit
    measured = True

    def check_input(self, project: str) -> None:
        CatalogTable.of(self.table, project).open()

    def discovery(self, position: Offsets, context: DiscoveryContext) -> SnapshotDiscovery:
        return SnapshotDiscovery(self.table, position, context)

    def read(self, con: duckdb.DuckDBPyConnection, splits: Sequence[Any], context: ReadContext) -> ReadPlan:
        return read_snapshots(con, splits, self.table, CatalogTable.of(self.table, context.project))


class _IcebergSink(LakeSink):
    """An Iceberg table that a job writes, with one commit per batch."""

    delivery_reason = "a batch is one commit to the table, with its number"

    def prepare(self, context: SinkContext, *, creates: bool) -> None:
        located = CatalogTable.of(self.table, context.project)
        if creates and not located.exists():
            properties = {
                k.removeprefix(PROPERTIES): v for k, v in self.table.options.items() if k.startswith(PROPERTIES)
            }
            schema.create(located, properties)
        schema.check(located.open(), self.table)


class IcebergFiles(_IcebergSink, WorkerSink):
    """An Iceberg table without a PRIMARY KEY: tasks write files, which a batch appends."""

    def writer(self, context: SinkContext) -> Writer:
        return DataFileWriter(self.table, context)

    def committer(self, context: SinkContext) -> Committer:
        return DataFileCommitter(self.table, self.ready(context))


class IcebergRows(_IcebergSink, DriverSink):
    """An Iceberg table with a PRIMARY KEY: the driver replaces the rows of a batch's keys."""

    def open(self, context: SinkContext) -> BatchWriter:
        return UpsertWriter(self.table, self.ready(context))


class IcebergConnector(LakeConnector):
    """Tables of Apache Iceberg."""

    name = "iceberg"
    summary = "a table of Apache Iceberg"
    reach = Reach.ELSEWHERE
    infers = "Iceberg tables"
    location_option = "table"
    passed_through = (CATALOG, PROPERTIES)
    unit = "snapshot-id"
    options = (
        TableOption(location_option, TEXT, "the table, with its namespace", required=True, example="db.orders"),
        TableOption("catalog", TEXT, "name of the catalog", default="default"),
        *PACE,
        TableOption("scan.snapshot-id", NUMBER, "the snapshot that is read; the table is bounded"),
        *start_options(
            unit,
            "`snapshot`: the rows that the table has, then what is appended; `latest`: only what is appended from the job's "
            "first start on; `snapshot-id`: what was appended from `scan.startup.snapshot-id` on",
            "the first snapshot whose appended rows are read",
        ),
        CREATE,
    )
    source_type = IcebergSnapshots
    sink_type = IcebergFiles
    keyed_sink_type = IcebergRows

    def prepare(self, table: Table) -> Table:
        pyiceberg(table)
        return table

    def schema(self, table: Table, project: str) -> pa.Schema:
        return schema.arrow_schema(CatalogTable.of(table, project).open())
