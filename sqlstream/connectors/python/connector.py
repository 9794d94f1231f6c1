"""The `python` connector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlstream.catalog import Table
from sqlstream.connectors.discovery import DiscoveryContext, Offsets
from sqlstream.connectors.guarantees import Guarantee, Replay
from sqlstream.connectors.interface import Connector, Reach, ReadContext, TableLookup, TableSink, TableSource
from sqlstream.connectors.python.classes import AnySink, Sink, Source, TwoPhaseSink, UpsertSink, WriteAheadSink
from sqlstream.connectors.python.instances import OPTIONS, implemented, kind
from sqlstream.connectors.python.lookup import PythonFunction
from sqlstream.connectors.python.sinks import PythonSink, PythonTransactions, promise
from sqlstream.connectors.python.source import PartitionDiscovery, PartitionRange, read_python
from sqlstream.connectors.read_plan import ReadPlan

if TYPE_CHECKING:
    import duckdb

_REPLAYED = Replay.REPLAYABLE, "if `read` gives the same rows for the same positions"
_GONE = Replay.AT_MOST_ONCE, "rows are gone once they were read, and a repeated batch lacks them"


class PythonSource(TableSource):
    """A table that a user's `Source` class reads."""

    split_type = PartitionRange
    # False, if the user's class is not replayable.
    rewinds = True
    slot: str | None = None

    def __init__(self, table: Table):
        super().__init__(table)
        self.rewinds = self.replay is not Replay.AT_MOST_ONCE

    @property
    def replay(self) -> Replay:  # type: ignore[override]
        return self._promise[0]

    @property
    def replay_reason(self) -> str:  # type: ignore[override]
        return self._promise[1]

    @property
    def _promise(self) -> tuple[Replay, str]:
        source_class = kind(self.table)
        assert issubclass(source_class, Source)
        return _REPLAYED if source_class.replayable else _GONE

    @property
    def has_partitions(self) -> bool:  # type: ignore[override]
        return self.has_watermarks or self._defines("partitions")

    @property
    def has_watermarks(self) -> bool:  # type: ignore[override]
        return self._defines("watermark")

    def _defines(self, method: str) -> bool:
        return getattr(kind(self.table), method) is not getattr(Source, method)

    def discovery(self, position: Offsets, context: DiscoveryContext) -> PartitionDiscovery:
        return PartitionDiscovery(self.table, position, context)

    def read(self, con: duckdb.DuckDBPyConnection, splits: Sequence[PartitionRange], context: ReadContext) -> ReadPlan:
        return read_python(con, splits, self.table)


class PythonLookup(TableLookup):
    """A table whose rows a user's function looks up."""

    def function(self, *, warehouse: str, project: str) -> PythonFunction:
        return PythonFunction(self.table)


class PythonConnector(Connector):
    """Tables that a user's class or function implements: each is a source, a sink or a lookup table."""

    name = "python"
    summary = "a class or a function of your own"
    reach = Reach.ELSEWHERE
    options = OPTIONS
    any_options = True
    source_type = PythonSource
    sink_type = PythonSink
    lookup_type = PythonLookup

    def source(self, table: Table) -> TableSource | None:
        return PythonSource(table) if "class" in table.options and issubclass(kind(table), Source) else None

    def sink(self, table: Table) -> TableSink | None:
        if "class" not in table.options or not issubclass(kind(table), AnySink):
            return None
        return PythonTransactions(table) if issubclass(kind(table), TwoPhaseSink) else PythonSink(table)

    def lookup(self, table: Table) -> TableLookup | None:
        return PythonLookup(table) if "class" not in table.options else None

    def prepare(self, table: Table) -> Table:
        return implemented(table)

    def source_promises(self) -> Sequence[Guarantee]:
        promises = (("`python`", _REPLAYED), ("`python` with `replayable = False`", _GONE))
        return [Guarantee(replay.times, reason, name) for name, (replay, reason) in promises]

    def sink_promises(self) -> Sequence[Guarantee]:
        promises = [
            (f"`python`: `{of.__name__}`", promise(of)) for of in (Sink, UpsertSink, WriteAheadSink, TwoPhaseSink)
        ]
        return [Guarantee(delivery.times, reason, name) for name, (delivery, reason) in promises]
