"""Window aggregates whose results change: late rows correct them, and open windows are emitted early.

Rows stay until the watermark is past the end of their windows by the allowed lateness. Emitted results are stored as well. A
batch emits the difference between current and emitted results, for windows that its rows, its watermark or its time affect. So
all changes add up exactly to the result over the rows that were not dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import pyarrow as pa

from sqlstream.catalog import Column
from sqlstream.duck.sql import Condition, Relation, Relations, Select, names, no_rows, subquery, typed, union_all
from sqlstream.duck.time_variables import NEVER
from sqlstream.operators.scratch import keep
from sqlstream.operators.windows.assigners import PARTIALS, ROWS, WindowAssigner, between
from sqlstream.operators.windows.early_results import DUE, EarlyResults, EveryRows
from sqlstream.operators.windows.emitted import EMITTED, EmittedResults
from sqlstream.operators.windows.results import WindowResult
from sqlstream.operators.windows.retention import KEPT, Retention
from sqlstream.operators.windows.window_batch import WindowBatch
from sqlstream.storage.segments import Segment
from sqlstream.units import EventTime, from_millis
from sqlstream.warehouse.declarations import TableDeclaration

# The temporary table of the groups of a batch's rows, with the number of rows in each.
ARRIVED = Relation("_arrived")


class ChangedResults(Protocol):
    """Selects the windows whose results a batch changes: see ChangedWindows and ChangedSessions."""

    @property
    def moving(self) -> tuple[str, ...]:
        """The tables, besides the row tables, that store bounds of sessions, which can change."""
        ...

    def closing(self, batch: WindowBatch, relations: Relations, condition: Condition) -> Select:
        """Return the last changes of windows that are forgotten before they were emitted at their end.

        `relations` are rows and EMITTED; `condition` on END selects the windows.
        """
        ...

    def changes(self, batch: WindowBatch, after: EventTime | None) -> Iterator[Select]:
        """Yield the changes of windows that end after `after`, that got rows, or that are due early.

        The temporary table ARRIVED has the groups of the batch's rows.
        """
        ...

    def waiting(self, batch: WindowBatch) -> Select:
        """Return the column DUE: when open windows are to be emitted early."""
        ...


@dataclass(frozen=True)
class Corrections:
    """A window emits at its end, and again whenever late rows change it; before its end it emits as `early` says."""

    emitted: EmittedResults
    changed: ChangedResults
    early: EarlyResults | None = None

    @property
    def retention(self) -> Retention:
        return self.emitted.retention

    @cached_property
    def tables(self) -> tuple[TableDeclaration, ...]:
        return (self.emitted.table, *([self.early.table] if self.early else []))

    @property
    def moving(self) -> tuple[str, ...]:
        return self.changed.moving

    @property
    def corrects(self) -> bool:
        return True

    def closing(self, batch: WindowBatch, result: WindowResult, rows: Relations) -> Select | None:
        """Return the last changes of windows that are forgotten before they were emitted at their end.

        None unless the watermark is the first, or has advanced by more than the lateness in this batch.
        """
        before, closed = batch.state.closed, batch.closed
        if before is not None and closed is not None and before >= closed:
            return None
        relations = {EMITTED: batch.relation(EMITTED), **rows}
        changed = keep(batch.con, "_changed", self.changed.closing(batch, relations, between(before, closed)))
        return self.emitted.leaving(changed)

    def changes(self, batch: WindowBatch, added: Sequence[pa.Table | Segment]) -> Select | None:
        """Return the changes of windows that end, that late rows correct, or that are due early; store them."""
        self._keep_arrived(batch, added)
        before, closed = batch.state.closed, batch.closed
        after = closed if before is None or closed is None else max(before, closed)
        changes = list(self.changed.changes(batch, after))
        if not changes:
            return None
        changed = keep(batch.con, "_changed", union_all(changes))
        batch.store({EMITTED: changed})
        return self.emitted.leaving(changed)

    def _keep_arrived(self, batch: WindowBatch, added: Sequence[pa.Table | Segment]) -> None:
        group = self.emitted.groups.columns
        columns = (*group, Column(ROWS, "BIGINT"))
        listed = [c.name for c in columns]
        # A frame without rows calls the operator, and has no columns either.
        arrived = [
            batch.state.read(rows, listed) if isinstance(rows, Segment) else rows.select(listed)
            for rows in added
            if isinstance(rows, Segment) or rows.num_rows
        ]
        rows = no_rows(columns)
        if arrived:
            batch.con.register("_added", pa.concat_tables(arrived, promote_options="permissive"))
            rows = Select(f"SELECT {typed(columns)} FROM _added")
        counts = f"SELECT {names(group)}, sum({ROWS}) AS {ROWS} FROM ({rows}) GROUP BY ALL"
        keep(batch.con, ARRIVED, Select(counts))

    def set_timers(self, batch: WindowBatch, windows: WindowAssigner) -> None:
        """Forget rows, and set the timers to when the next window ends, is forgotten, or is due early."""
        state, watermark = batch.state, batch.times.watermark
        held = batch.forget(NEVER if watermark is None else watermark)
        # Rows of windows that have not ended stay longer than the lateness from now on.
        stays = between(batch.retention.stored_until(watermark), None, KEPT.name)
        earliest = batch.least(f"epoch_us({KEPT.name})", batch.relation(PARTIALS), stays)
        first = None if earliest is None else batch.retention.closed(EventTime(earliest))
        state.event_timer = held if first is None else windows.next_time(first, watermark)
        state.processing_timer = None
        if self.early is None or isinstance(self.early.interval, EveryRows):
            return
        due = batch.least(DUE, subquery(self.changed.waiting(batch)))
        if self.early.interval.by == "time":
            state.processing_timer = None if due is None else from_millis(due)
        elif due is not None:
            state.event_timer = EventTime(due if state.event_timer is None else min(due, state.event_timer))
