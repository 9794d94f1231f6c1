"""The `delta` connector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlstream.catalog import CHANGE_FEED, Column, Table
from sqlstream.connectors.delta import schema
from sqlstream.connectors.delta.appends import AddCommitter, AddWriter
from sqlstream.connectors.delta.location import STORAGE, Location, deltalake
from sqlstream.connectors.delta.merges import MergeWriter
from sqlstream.connectors.delta.reading import DeltaSplit, read_versions
from sqlstream.connectors.delta.versions import MODES, DeltaDiscovery
from sqlstream.connectors.discovery import DiscoveryContext, Offsets
from sqlstream.connectors.filesystem.listing import is_absolute
from sqlstream.connectors.guarantees import Delivery, Replay
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
from sqlstream.duck.internal_columns import PLACE
from sqlstream.errors import BindError
from sqlstream.units import parse_boolean

if TYPE_CHECKING:
    import duckdb

# Options of a table that begin so are properties of the Delta table.
PROPERTIES = "delta."
_CREATE = "sink.create-table"


class DeltaVersions(TableSource):
    """The versions of a Delta table, in order: the rows that each adds, or all its changes."""

    replay = Replay.REPLAYABLE
    replay_reason = "versions are read again"
    order = PLACE
    split_type = DeltaSplit

    def check_input(self, project: str) -> None:
        Location.of(self.table, project).open()

    def discovery(self, position: Offsets, context: DiscoveryContext) -> DeltaDiscovery:
        return DeltaDiscovery(self.table, position, context)

    def read(self, con: duckdb.DuckDBPyConnection, splits: Sequence[Any], context: ReadContext) -> ReadPlan:
        return read_versions(con, splits, self.table, Location.of(self.table, context.project))


class _DeltaSink(TableSink):
    """A Delta table that a job writes, a version for each batch."""

    delivery = Delivery.TRANSACTIONAL
    delivery_reason = "a batch is one version of the table, with its number"
    # Without a PRIMARY KEY the planner refuses changes, and says that one is missing.
    takes_changes = True
    replaces = True

    def ready(self, context: SinkContext) -> SinkContext:
        """Check the Delta table as it is now, and make it where that is asked for."""
        location = Location.of(self.table, context.project)
        if parse_boolean(self.table.options.get(_CREATE, "false")) and not location.exists():
            given = {k: v for k, v in self.table.options.items() if k.startswith(PROPERTIES)}
            schema.create(location, self.table, given)
        schema.check(location.open(), self.table)
        return context


class DeltaFiles(_DeltaSink, WorkerSink):
    """A table without a key: rows are appended."""

    def writer(self, context: SinkContext) -> Writer:
        return AddWriter(self.table, context)

    def committer(self, context: SinkContext) -> Committer:
        return AddCommitter(self.table, self.ready(context))


class DeltaRows(_DeltaSink, DriverSink):
    """A table with a key: a row takes the place of the one that has its key."""

    def open(self, context: SinkContext) -> BatchWriter:
        return MergeWriter(self.table, self.ready(context))


class DeltaConnector(Connector):
    """Tables of Delta Lake."""

    name = "delta"
    summary = "a table of Delta Lake"
    options = (
        TableOption(
            "path",
            TEXT,
            "the folder of the table, relative to the project, or its URI",
            required=True,
            example="lake/t",
        ),
        replace(MONITOR, mutable=True),
        MAX_BYTES,
        TableOption("scan.version", NUMBER, "the version that is read; the table is bounded", example="7"),
        TableOption(
            "scan.startup.mode",
            MODES,
            "`snapshot`: the rows that the table has, then what is written; `latest`: only what is written from the job's first "
            "start on; `version`: what was written from `scan.startup.version` on",
            default="snapshot",
        ),
        TableOption("scan.startup.version", NUMBER, "the first version whose rows are read"),
        TableOption(
            CHANGE_FEED,
            BOOLEAN,
            "`true`: all changes are read, from the change data feed; else rows may only be added",
            default="false",
        ),
        TableOption(
            _CREATE, BOOLEAN, "`true`: a job that writes the table creates it, if it is not there", default="false"
        ),
    )
    partitioned = True
    infers = "Delta tables"
    source_type = DeltaVersions
    sink_type = DeltaFiles

    def sink(self, table: Table) -> TableSink:
        return DeltaRows(table) if table.primary_key else DeltaFiles(table)

    def own_options(self, table: Table) -> Sequence[TableOption]:
        return [
            TableOption(name, TEXT, "passed through")
            for name in table.options
            if name.startswith((STORAGE, PROPERTIES))
        ]

    def validate(self, table: Table) -> None:
        start = table.options.get("scan.startup.mode", "snapshot").lower()
        for one, other in (("scan.version", MONITOR.name), ("scan.version", "scan.startup.mode")):
            if one in table.options and other in table.options:
                message = f'table "{table.name}": option "{one}" does not go with "{other}"'
                raise BindError(message, table.option_span(other), hint="Leave out one of them.")
        if (start == "version") != ("scan.startup.version" in table.options):
            message = f"table \"{table.name}\": \"scan.startup.version\" goes with 'scan.startup.mode' = 'version'"
            raise BindError(message, table.option_span("scan.startup.mode"), hint="Give both, or none.")

    def prepare(self, table: Table) -> Table:
        deltalake(table)
        return table

    def columns(self, table: Table, project: str) -> Sequence[Column] | None:
        if "path" not in table.options:
            return None
        return columns_of(schema.arrow_schema(Location.of(table, project).open()))

    def can_infer(self, table: Table) -> bool:
        return "path" in table.options

    def identity(self, table: Table, left_out: Mapping[str, str]) -> Mapping[str, str]:
        return {k: v for k, v in left_out.items() if k != "path" or not is_absolute(v)}
