"""The window operator: rows are stored until the watermark closes their windows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column
from sqlstream.duck.sql import Relations, Rows, Select, subquery, typed
from sqlstream.duck.types import encoded
from sqlstream.operators.aggregates.grouped import GroupedCalls
from sqlstream.operators.groups import Groups
from sqlstream.operators.operator import Holds, Inputs, Operator, SideRows, StepTimes
from sqlstream.operators.scratch import leaving
from sqlstream.operators.windows.assigners import PARTIALS, WindowAssigner, WindowSpan, weights
from sqlstream.operators.windows.late_rows import LATE, LateRowsPart
from sqlstream.operators.windows.results import WindowResult
from sqlstream.operators.windows.triggers import AT_END, Trigger
from sqlstream.operators.windows.window_batch import WindowBatch, empty_relation
from sqlstream.storage.bucket import Bucket
from sqlstream.storage.segments import Segment
from sqlstream.storage.zsets import WEIGHT_COLUMN
from sqlstream.units import EventTime
from sqlstream.warehouse.declarations import TableDeclaration


@dataclass(slots=True)
class PendingRows:
    """Rows of a batch that are still to be processed once they are read.

    `added` are the partials that were stored, only for a trigger that corrects: they may be many. `after` are, by table, rows
    behind the watermark, to be added when windows have closed. `may_be_late` are rows to store or emit if they are late.
    """

    added: list[pa.Table | Segment] = field(default_factory=list)
    after: dict[str, list[pa.Table]] = field(default_factory=dict)
    may_be_late: list[pa.Table] = field(default_factory=list)


@dataclass(frozen=True)
class WindowOperator(Operator):
    """Emits a result per key and window, then forgets the window.

    `name` is the operator's `kind`. `groups` assigns rows to windows, `of` computes the result, `trigger` decides when it is
    emitted, and `late` stores or emits late rows (None: they are counted only).
    """

    name: str
    groups: Groups[WindowAssigner]
    of: WindowResult
    trigger: Trigger = AT_END
    late: LateRowsPart | None = None

    @property
    def kind(self) -> str:
        return self.name

    @cached_property
    def _row_tables(self) -> tuple[TableDeclaration, ...]:
        """The tables that hold rows as they arrive."""
        return tuple(map(self.trigger.retention.table, self.of.tables))

    @cached_property
    def tables(self) -> tuple[TableDeclaration, ...]:
        return (
            *self._row_tables,
            *([self.late.table] if self.late and self.late.in_table else []),
            *self.trigger.tables,
        )

    @cached_property
    def parts(self) -> dict[str, Select]:
        with_time = self.trigger.retention.with_time
        selects = {t.name: encoded(t.columns, subquery(with_time(self.of.computed[t.name]))) for t in self._row_tables}
        return {**selects, **({LATE: self.late.part(self.groups)} if self.late else {})}

    @property
    def outputs(self) -> tuple[Column, ...]:
        return (*self.of.outputs, WEIGHT_COLUMN) if self.trigger.corrects else self.of.outputs

    @cached_property
    def side_outputs(self) -> dict[str, tuple[Column, ...]]:
        return {LATE: self.late.table.columns} if self.late and self.late.emitted else {}

    @property
    def hash_columns(self) -> tuple[str, ...]:
        """The columns whose hash picks the bucket: the keys; without keys, columns that all rows of a window share."""
        return self.groups.key_names or self.groups.windows.meeting

    def current(self, relations: Relations, watermark: str) -> Select:
        """Return the results of windows that can still change, then `accumulators`."""
        closed = self.trigger.retention.closed_sql(watermark)
        rows = self.groups.windows.open(relations, self.groups.key_names, closed)
        return self.of.result(rows, accumulators=True) if isinstance(self.of, GroupedCalls) else self.of.result(rows)

    @property
    def accumulators(self) -> tuple[Column, ...]:
        return tuple(column for column, _ in self.of.accumulators) if isinstance(self.of, GroupedCalls) else ()

    @property
    def holds(self) -> Holds:
        return self.of.holds

    def open_windows(self, relations: Relations, watermark: str) -> Select:
        """Return the number of open windows: a window counts once for all keys, a session per key."""
        closed = self.trigger.retention.closed_sql(watermark)
        return self.groups.windows.count(self.of.present(relations[PARTIALS]), self.groups.key_names, closed)

    def late_view(self, name: str) -> Rows | None:
        return self.late.view(name) if self.late and self.late.in_table else None

    # -- a batch

    def step(
        self,
        con: duckdb.DuckDBPyConnection,
        state: Bucket,
        inputs: Inputs,
        times: StepTimes,
    ) -> Iterator[pa.RecordBatch | SideRows]:
        """Take a batch. Yield and forget the windows that the watermark closes, then late rows, then other changes.

        Rows behind the watermark that are not late are added last: windows close without them, as after an empty batch.
        """
        names = tuple(t.name for t in self._row_tables)
        batch = WindowBatch(con, state, times, {t.name: t for t in self.tables}, names, self.trigger.retention)
        received = self._receive(batch, inputs)
        if times.watermark is not None:
            if (closing := self._close(batch, times.watermark)) is not None:
                yield from leaving(con, self.outputs, closing)
            batch.forget(times.watermark)
            self._admit(batch, received)
            yield from self._take_late(batch, received)
        if (changes := self.trigger.changes(batch, received.added)) is not None:
            yield from leaving(con, self.outputs, changes)
        self.trigger.set_timers(batch, self.groups.windows)

    def _receive(self, batch: WindowBatch, inputs: Inputs) -> PendingRows:
        """Add the rows of a batch that are in no closed window; return the others."""
        received = PendingRows()
        for port, rows in inputs:
            if port.part == LATE:
                received.may_be_late.append(batch.state.read(rows) if isinstance(rows, Segment) else rows)
            elif port.never_late or batch.closed is None:
                self._add(batch, port.part, rows, received)
            else:
                self._arrive(batch, port.part, rows, batch.closed, received)
        return received

    def _arrive(
        self, batch: WindowBatch, part: str, rows: pa.Table | Segment, closed: EventTime, received: PendingRows
    ) -> None:
        """Add rows that are in no closed window; count late ones, and put the others aside."""
        if isinstance(rows, Segment):
            if self.groups.windows.is_early(batch.retention.segment(rows), batch.state.read, closed):
                self._add(batch, part, rows, received)
                return
            rows = batch.state.read(rows)
        if rows.num_rows == 0:
            return
        arrival = self.groups.windows.arrive(rows, closed)
        self._add(batch, part, arrival.before, received)
        if arrival.after is not None and arrival.after.num_rows:
            received.after.setdefault(part, []).append(arrival.after)
        # Lateness is counted in rows of the input, and once for all parts.
        if part == PARTIALS:
            self._count_late(batch, arrival.late_rows)
            batch.state.count("missed_windows", arrival.missed_windows)

    def _add(self, batch: WindowBatch, part: str, rows: pa.Table | Segment, received: PendingRows) -> None:
        if isinstance(rows, Segment):
            batch.state.adopt(part, [rows])
        else:
            batch.state.append(part, rows, batch.times.batch)
        if self.trigger.corrects and part == PARTIALS:
            received.added.append(rows)

    def _close(self, batch: WindowBatch, watermark: EventTime) -> Select | None:
        """Return what closing windows emit, None if no window closes."""
        windows, closed = self.groups.windows, batch.closed
        assert closed is not None
        up_to = batch.retention.stored_until(windows.reach(closed))
        if batch.state.relation(PARTIALS, up_to=up_to) is None:
            return None
        relations = {**batch.rows(up_to), **{table: batch.relation(table) for table in self.trigger.moving}}
        due = windows.due(batch.con, relations, self.groups.key_names, WindowSpan(batch.state.closed, closed))
        if due is None:
            return None
        batch.store(due.again)
        return self.trigger.closing(batch, self.of, due.closed)

    def _admit(self, batch: WindowBatch, received: PendingRows) -> None:
        """Add rows that arrived behind the watermark, if a window of theirs is open."""
        if not received.after or batch.closed is None:
            return
        relations = {}
        for name in batch.row_tables:
            table = batch.tables[name]
            relations[name] = empty_relation(table)
            if rows := received.after.get(name):
                batch.con.register(f"_after_{name}", pa.concat_tables(rows, promote_options="permissive"))
                relations[name] = subquery(Select(f"SELECT {typed(table.columns)} FROM _after_{name}"))
        admitted = self.groups.windows.admit(batch.con, batch.rows(), relations, self.groups.key_names, batch.closed)
        if admitted.late is not None:
            self._count_late(batch, int(weights(batch.con.sql(f"FROM {admitted.late}").to_arrow_table()).sum()))
        stored = batch.store(admitted.rows)
        if self.trigger.corrects:
            received.added.append(stored[PARTIALS])

    def _count_late(self, batch: WindowBatch, rows: int) -> None:
        # With `late`, `_take_late` counts the rows.
        if self.late is None:
            batch.state.count(LATE, rows)

    def _take_late(self, batch: WindowBatch, received: PendingRows) -> Iterator[SideRows]:
        """Store or emit the rows that are late.

        Rows may be late by the job's watermark, and on time by the operator's, which is behind it.
        """
        if self.late is None or not received.may_be_late:
            return
        if self.groups.windows.admits_late and not received.after:
            return
        dropped = self.late.dropped(self.groups, received.may_be_late, batch)
        batch.state.count(LATE, dropped.num_rows)
        if self.late.in_table:
            batch.state.append(LATE, dropped, batch.times.batch)
        if self.late.emitted:
            yield from (SideRows(LATE, some) for some in dropped.to_batches())
