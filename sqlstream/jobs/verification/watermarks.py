"""The watermarks of a job before each of its batches, computed again from what the batches have read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa

from sqlstream.duck.sql import Relation
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.stateful import StatefulNode
from sqlstream.logical.plan.tables import Scan
from sqlstream.physical.batch.rows import BATCH, WATERMARK
from sqlstream.physical.plan import CLOCK, PhysicalPlan
from sqlstream.runtime.fragments import newest
from sqlstream.runtime.times import least
from sqlstream.storage.snapshot import JobVersion
from sqlstream.units import EventTime

# The watermark before each batch, by the number of the batch.
Before = Mapping[int, EventTime | None]


@dataclass
class JobWatermarks:
    """The watermarks that operators of a logical plan had; in temporary tables of `con` where a query reads them.

    `index_of` returns the index of a scan of the logical plan among the scans of the job, None if the job has no such scan.
    """

    plan: PhysicalPlan
    con: duckdb.DuckDBPyConnection
    index_of: Callable[[Scan], int | None]
    # Of each batch: its number, the watermarks of all scans before it and, behind them, the clock (see CLOCK), and whether
    # operators had watermarks of their own.
    _batches: list[tuple[int, tuple[EventTime | None, ...], bool]] = field(default_factory=list)
    _before: dict[tuple[int, ...], Before] = field(default_factory=dict)
    _tables: dict[tuple[int, ...], Relation] = field(default_factory=dict)

    def add(self, batch: int, scans: Sequence[EventTime | None], *, own: bool) -> None:
        """Add the next batch, with the watermarks of the scans before it."""
        self._batches.append((batch, tuple(scans), own))

    def before(self, node: Node) -> Before:
        """Return an operator's watermark before each batch, without the delay by which operators stay behind it."""
        indexes = self._indexes(node)
        if indexes not in self._before:
            self._before[indexes] = self._replayed(indexes)
        return self._before[indexes]

    def _replayed(self, indexes: Sequence[int]) -> Before:
        """Return the least watermark of some scans before each batch. Like watermarks of a running job, it never goes back."""
        watermarks: dict[int, EventTime | None] = {}
        watermark: EventTime | None = None
        for batch, scans, own in self._batches:
            # Earlier versions of sqlstream had one watermark for all operators.
            watermark = newest(watermark, least(scans[index] for index in (indexes if own else self.plan.timed)))
            watermarks[batch] = watermark
        return watermarks

    def sql(self, node: Node) -> str:
        """Return the SQL of `before`, in microseconds, over rows with the columns READ; NULL where there is no watermark."""
        if not self.plan.has_own_watermarks:
            return WATERMARK.name
        indexes = self._indexes(node)
        if indexes not in self._tables:
            batches, watermarks = [], []
            for batch, watermark in self.before(node).items():
                batches.append(batch)
                watermarks.append(watermark)
            rows = pa.table({"batch": pa.array(batches, pa.int64()), "watermark": pa.array(watermarks, pa.int64())})
            table = Relation("_".join(["_marks", *("clock" if index == CLOCK else str(index) for index in indexes)]))
            self.con.register("_made_marks", rows)
            self.con.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS FROM _made_marks")
            self.con.unregister("_made_marks")
            self._tables[indexes] = table
        return f"(SELECT _of.watermark FROM {self._tables[indexes]} AS _of WHERE _of.batch = {BATCH.name})"

    def reached(self, node: Node, version: JobVersion) -> EventTime | None:
        """Return the watermark that an operator had at a version, not reduced by the operator's delay."""
        indexes = self._indexes(node)
        alike = (stage.name for stage in self.plan.stages if stage.reads_time and stage.timed_by == indexes)
        return version.watermark_of(next(alike, ""))

    def _indexes(self, node: Node) -> tuple[int, ...]:
        if isinstance(node, StatefulNode) and node.waits_for_clock:
            return (CLOCK,)
        stage = next((stage for stage in self.plan.stages if stage.node == node), None)
        if stage is not None:
            # Of two scans of one table it says which one the operator reads.
            return stage.timed_by
        indexes = {self.index_of(scan) for scan in node.timed_by if isinstance(scan, Scan)}
        return tuple(sorted(index for index in indexes if index is not None))
