"""The `iceberg` connector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlstream.catalog import Column, Table
from sqlstream.connectors.discovery import DiscoveryContext, Offsets
from sqlstream.connectors.guarantees import Delivery, Replay
from sqlstream.connectors.iceberg import schema
from sqlstream.connectors.iceberg.appends import DataFileCommitter, DataFileWriter
from sqlstream.connectors.iceberg.catalogs import CATALOG, Located, pyiceberg
from sqlstream.connectors.iceberg.reading import SnapshotSplit, read_snapshots
from sqlstream.connectors.iceberg.snapshots import STARTS, SnapshotDiscovery
from sqlstream.connectors.iceberg.upserts import UpsertWriter
from sqlstream.connectors.interface import (
    BatchWriter,
    Committer,
    Connector,
    DriverSink,
    ReadContext,
    SinkContext,
    TableSink,
    TableSource,
    WorkerSink,
    Writer,
)
from sqlstream.connectors.lake_columns import columns_of
from sqlstream.connectors.options import BOOLEAN, MAX_BYTES, MONITOR, NUMBER, TEXT, TableOption
from sqlstream.connectors.read_plan import ReadPlan
from sqlstream.errors import BindError
from sqlstream.units import parse_boolean

if TYPE_CHECKING:
    import duckdb

# Options of a table that begin so are properties of the Iceberg table.
PROPERTIES = "iceberg."
_CREATE = "sink.create-table"


class IcebergSnapshots(TableSource):
    """The snapshots of an Iceberg table, in order: the rows that each appends."""

    replay = Replay.REPLAYABLE
    replay_reason = "snapshots are read again"
    split_type = SnapshotSplit

    def check_input(self, project: str) -> None:
        Located.of(self.table, project).open()

    def discovery(self, position: Offsets, context: DiscoveryContext) -> SnapshotDiscovery:
        return SnapshotDiscovery(self.table, position, context)

    def read(self, con: duckdb.DuckDBPyConnection, splits: Sequence[Any], context: ReadContext) -> ReadPlan:
        return read_snapshots(con, splits, self.table, Located.of(self.table, context.project))


class _IcebergSink(TableSink):
    """An Iceberg table that a job writes, a commit for each batch."""

    delivery = Delivery.TRANSACTIONAL
    delivery_reason = "a batch is one commit to the table, with its number"
    # Without a PRIMARY KEY the planner refuses changes, and says that one is missing.
    takes_changes = True
    replaces = True

    def ready(self, context: SinkContext) -> SinkContext:
        """Check the Iceberg table as it is now, and make it where that is asked for."""
        located = Located.of(self.table, context.project)
        if parse_boolean(self.table.options.get(_CREATE, "false")) and not located.exists():
            given = {k.removeprefix(PROPERTIES): v for k, v in self.table.options.items() if k.startswith(PROPERTIES)}
            schema.create(located, given)
        schema.check(located.open(), self.table)
        return context


class IcebergFiles(_IcebergSink, WorkerSink):
    """A table without a key: rows are appended."""

    def writer(self, context: SinkContext) -> Writer:
        return DataFileWriter(self.table, context)

    def committer(self, context: SinkContext) -> Committer:
        return DataFileCommitter(self.table, self.ready(context))


class IcebergRows(_IcebergSink, DriverSink):
    """A table with a key: a row takes the place of the one that has its key."""

    def open(self, context: SinkContext) -> BatchWriter:
        return UpsertWriter(self.table, self.ready(context))


class IcebergConnector(Connector):
    """Tables of Apache Iceberg."""

    name = "iceberg"
    summary = "a table of Apache Iceberg"
    options = (
        TableOption("table", TEXT, "the table, with its namespace", required=True, example="db.orders"),
        TableOption("catalog", TEXT, "name of the catalog", default="default"),
        replace(MONITOR, mutable=True),
        MAX_BYTES,
        TableOption("scan.snapshot-id", NUMBER, "the snapshot that is read; the table is bounded"),
        TableOption(
            "scan.startup.mode",
            STARTS,
            "`snapshot`: the rows that the table has, then what is appended; `latest`: only what is appended from the job's "
            "first start on; `snapshot-id`: what was appended from `scan.startup.snapshot-id` on",
            default="snapshot",
        ),
        TableOption("scan.startup.snapshot-id", NUMBER, "the first snapshot whose appended rows are read"),
        TableOption(
            _CREATE, BOOLEAN, "`true`: a job that writes the table creates it, if it is not there", default="false"
        ),
    )
    partitioned = True
    infers = "Iceberg tables"
    source_type = IcebergSnapshots
    sink_type = IcebergFiles

    def sink(self, table: Table) -> TableSink:
        return IcebergRows(table) if table.primary_key else IcebergFiles(table)

    def own_options(self, table: Table) -> Sequence[TableOption]:
        given = [name for name in table.options if name.startswith((CATALOG, PROPERTIES))]
        return [TableOption(name, TEXT, "passed through") for name in given]

    def validate(self, table: Table) -> None:
        start = table.options.get("scan.startup.mode", "snapshot").lower()
        for other in (MONITOR.name, "scan.startup.mode"):
            if "scan.snapshot-id" in table.options and other in table.options:
                message = f'table "{table.name}": option "scan.snapshot-id" does not go with "{other}"'
                raise BindError(message, table.option_span(other), hint="Leave out one of them.")
        if (start == "snapshot-id") != ("scan.startup.snapshot-id" in table.options):
            message = (
                f"table \"{table.name}\": \"scan.startup.snapshot-id\" goes with 'scan.startup.mode' = 'snapshot-id'"
            )
            raise BindError(message, table.option_span("scan.startup.mode"), hint="Give both, or none.")

    def prepare(self, table: Table) -> Table:
        pyiceberg(table)
        return table

    def columns(self, table: Table, project: str) -> Sequence[Column] | None:
        if "table" not in table.options:
            return None
        return columns_of(schema.arrow_schema(Located.of(table, project).open()))

    def can_infer(self, table: Table) -> bool:
        return "table" in table.options
