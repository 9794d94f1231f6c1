"""The `delta` connector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sqlstream.catalog import CHANGE_FEED, Table
from sqlstream.connectors.delta import schema
from sqlstream.connectors.delta.appends import AddCommitter, AddWriter
from sqlstream.connectors.delta.location import STORAGE, Location, deltalake
from sqlstream.connectors.delta.merges import MergeWriter
from sqlstream.connectors.delta.reading import DeltaSplit, read_versions
from sqlstream.connectors.delta.versions import DeltaDiscovery
from sqlstream.connectors.discovery import DiscoveryContext, Offsets
from sqlstream.connectors.guarantees import Replay
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
from sqlstream.connectors.options import BOOLEAN, NUMBER, TEXT, TableOption
from sqlstream.connectors.read_plan import ReadPlan
from sqlstream.connectors.uris import is_absolute
from sqlstream.duck.internal_columns import FILE_ORDER

if TYPE_CHECKING:
    import duckdb

# The options with this prefix are properties of a Delta table that is created.
PROPERTIES = "delta."


class DeltaVersions(TableSource):
    """Reads the versions of a Delta table in order: the rows that each adds or, with the change data feed, all its changes."""

    replay = Replay.REPLAYABLE
    replay_reason = "versions are read again"
    rewinds = True
    slot: str | None = None
    order = FILE_ORDER
    split_type = DeltaSplit
    measured = True

    def check_input(self, project: str) -> None:
        Location.of(self.table, project).open()

    def discovery(self, position: Offsets, context: DiscoveryContext) -> DeltaDiscovery:
        return DeltaDiscovery(self.table, position, context)

    def read(self, con: duckdb.DuckDBPyConnection, splits: Sequence[Any], context: ReadContext) -> ReadPlan:
        return read_versions(con, splits, self.table, Location.of(self.table, context.project))


class _DeltaSink(LakeSink):
    """A Delta table that a job writes, with one version per batch."""

    delivery_reason = "a batch is one version of the table, with its number"

    def prepare(self, context: SinkContext, *, creates: bool) -> None:
        location = Location.of(self.table, context.project)
        if creates and not location.exists():
            properties = {k: v for k, v in self.table.options.items() if k.startswith(PROPERTIES)}
            schema.create(location, self.table, properties)
        schema.check(location.open(), self.table)


class DeltaFiles(_DeltaSink, WorkerSink):
    """A Delta table without a PRIMARY KEY: tasks write files, which a batch appends."""

    def writer(self, context: SinkContext) -> Writer:
        return AddWriter(self.table, context)

    def committer(self, context: SinkContext) -> Committer:
        return AddCommitter(self.table, self.ready(context))


class DeltaRows(_DeltaSink, DriverSink):
    """A Delta table with a PRIMARY KEY: the driver merges the net changes of a batch by key."""

    def open(self, context: SinkContext) -> BatchWriter:
        return MergeWriter(self.table, self.ready(context))


class DeltaConnector(LakeConnector):
    """Tables of Delta Lake."""

    location_option = "path"
    name = "delta"
    summary = "a table of Delta Lake"
    reach = Reach.STORE
    infers = "Delta tables"
    passed_through = (STORAGE, PROPERTIES)
    unit = "version"
    options = (
        TableOption(
            location_option,
            TEXT,
            "the folder of the table, relative to the project, or its URI",
            required=True,
            example="lake/t",
        ),
        *PACE,
        TableOption("scan.version", NUMBER, "the version that is read; the table is bounded", example="7"),
        *start_options(
            unit,
            "`snapshot`: the rows that the table has, then what is written; `latest`: only what is written from the job's first "
            "start on; `version`: what was written from `scan.startup.version` on",
            "the first version whose rows are read",
        ),
        TableOption(
            CHANGE_FEED,
            BOOLEAN,
            "`true`: all changes are read, from the change data feed; else rows may only be added",
            default="false",
        ),
        CREATE,
    )
    source_type = DeltaVersions
    sink_type = DeltaFiles
    keyed_sink_type = DeltaRows

    def prepare(self, table: Table) -> Table:
        deltalake(table)
        return table

    def schema(self, table: Table, project: str) -> pa.Schema:
        return schema.arrow_schema(Location.of(table, project).open())

    def identifying_options(self, table: Table, left_out: Mapping[str, str]) -> Mapping[str, str]:
        """Return the options without an absolute `path`: a job may read the same table from another place."""
        return {k: v for k, v in left_out.items() if k != self.location_option or not is_absolute(v)}
