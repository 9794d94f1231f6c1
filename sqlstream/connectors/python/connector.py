"""The `python` connector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sqlstream.catalog import Table
from sqlstream.connectors.discovery import DiscoveryContext, Offsets
from sqlstream.connectors.guarantees import Delivery, Replay
from sqlstream.connectors.interface import (
    Connector,
    DriverSink,
    ReadContext,
    TableLookup,
    TableSink,
    TableSource,
)
from sqlstream.connectors.python.classes import Sink, Source
from sqlstream.connectors.python.lookup import PythonFunction
from sqlstream.connectors.python.source import (
    OPTIONS,
    PartitionDiscovery,
    PartitionRange,
    implemented,
    kind,
    read_python,
    write_batch,
)
from sqlstream.connectors.read_plan import ReadPlan

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


class PythonSource(TableSource):
    """What a Source of the user's reads."""

    replay = Replay.REPLAYABLE
    replay_reason = "if `read` gives the same rows for the same positions"
    split_type = PartitionRange

    def discovery(self, position: Offsets, context: DiscoveryContext) -> PartitionDiscovery:
        return PartitionDiscovery(self.table, position, context)

    def read(self, con: duckdb.DuckDBPyConnection, splits: Sequence[PartitionRange], context: ReadContext) -> ReadPlan:
        return read_python(con, splits, self.table)


class PythonSink(DriverSink):
    """What a Sink of the user's writes."""

    delivery = Delivery.AT_LEAST_ONCE
    delivery_reason = "the last batch may come again; exactly once if `write` recognises its number"

    def write(self, batch: int, rows: Callable[[], pa.Table]) -> None:
        write_batch(self.table, batch, rows)


class PythonLookup(TableLookup):
    """What a function of the user's finds."""

    def function(self, *, warehouse: str, project: str) -> PythonFunction:
        return PythonFunction(self.table)


class PythonConnector(Connector):
    """Tables that are classes of the user's: each is one of source, sink and lookup."""

    name = "python"
    summary = "a class or a function of your own"
    options = OPTIONS
    any_options = True
    source_type = PythonSource
    sink_type = PythonSink
    lookup_type = PythonLookup

    def source(self, table: Table) -> TableSource | None:
        return PythonSource(table) if "class" in table.options and issubclass(kind(table), Source) else None

    def sink(self, table: Table) -> TableSink | None:
        return PythonSink(table) if "class" in table.options and issubclass(kind(table), Sink) else None

    def lookup(self, table: Table) -> TableLookup | None:
        return PythonLookup(table) if "class" not in table.options else None

    def prepare(self, table: Table) -> Table:
        return implemented(table)
