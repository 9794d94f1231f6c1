"""Window aggregates whose results change: late rows correct them, and open windows are emitted early.

Rows are kept until the watermark has passed the end of their windows by the lateness. What was emitted is kept as well, in a
table of its own: the changes of a batch are the difference of the results that its rows, its watermark or its time concern from
what was emitted of them. So the sum of all changes is the result of the rows that were not dropped, to the last digit.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import duckdb
import pyarrow as pa
from msgspec import structs

from sqlstream.catalog import Column
from sqlstream.duck.clock import NEVER
from sqlstream.duck.sql import names, quote_name, typed
from sqlstream.duck.types import encoded, time_literal
from sqlstream.operators.aggregates.calls import AggregateCall
from sqlstream.operators.aggregates.grouped import Grouped
from sqlstream.operators.operator import Clock, Inputs
from sqlstream.operators.scratch import keep
from sqlstream.operators.windows.assigners import (
    END,
    PARTIALS,
    ROWS,
    START,
    Relations,
    WindowAssigner,
    WindowSpan,
    window_time,
)
from sqlstream.operators.windows.late_rows import LateRows
from sqlstream.operators.windows.window_aggregate import WindowedAggregate
from sqlstream.operators.windows.window_operator import BATCH_ROWS, Received, empty_relation
from sqlstream.state.bucket import Bucket
from sqlstream.state.segments import Segment
from sqlstream.state.zsets import WEIGHT, WEIGHT_COLUMN, difference, summed
from sqlstream.units import MILLISECOND, NO_TIME, Duration, EventTime, from_millis, to_millis
from sqlstream.warehouse.declarations import MERGED, TableDeclaration

# The stored time: the end of a row's window, and the lateness.
KEPT = "_kept_until"
EMITTED = "emitted"
PENDING = "pending"
# When a result that has changed is to be emitted: a processing time, in milliseconds (see `units`), or an event time.
DUE = "_due"
_START, _END = "_shown_start", "_shown_end"


@dataclass(frozen=True, slots=True)
class Early:
    """How often open windows are emitted: after so much processing or event time (a Duration), or so many rows."""

    every: int
    by: Literal["time", "event", "rows"]

    def due(self, clock: Clock) -> int:
        """Return when a row of a batch is to be seen in a result, at the latest, as DUE has it.

        Times are multiples of the interval.
        """
        now = {"time": clock.time, "event": clock.watermark, "rows": 0}[self.by]
        if now is None:
            return NEVER
        due = (now // self.every + 1) * self.every
        # The clock goes by milliseconds: the first one from which on it is due.
        return -(-due // MILLISECOND) if self.by == "time" else due

    def reached(self, clock: Clock) -> int | None:
        """Return the time of a batch as DUE has it."""
        return {"time": to_millis(clock.time), "event": clock.watermark, "rows": 0}[self.by]


@dataclass(frozen=True)
class FiringAggregate(WindowedAggregate):
    """Aggregates per key and window; `lateness` is 0 where windows are forgotten at their end.

    An emitted row is stored with the bounds of its window (of a session: as it is by now) and those that it shows.
    """

    keys: tuple[tuple[Column, str], ...]
    windows: WindowAssigner
    bounds: tuple[str | None, str | None, str | None]
    calls: tuple[tuple[str, AggregateCall], ...]
    late: LateRows | None = None
    lateness: Duration = NO_TIME
    early: Early | None = None

    @abstractmethod
    def _corrections(
        self, con: duckdb.DuckDBPyConnection, state: Bucket, clock: Clock, after: EventTime | None
    ) -> Iterator[str]:
        """Yield SELECTs of changes, of windows that end after a time; `_arrived` are the batch's rows by their groups."""

    @abstractmethod
    def _final(self, relations: Relations, condition: str) -> str:
        """Return the SELECT of the changes with which windows are forgotten that have not been emitted at their end."""

    # -- tables

    @cached_property
    def _inner(self) -> Grouped:
        """The aggregate with results under names of our own."""
        keys = tuple((Column(name, c.type), sql) for name, (c, sql) in zip(self.key_names, self.keys, strict=True))
        calls = tuple((f"r{i}", call) for i, (_, call) in enumerate(self.calls))
        return Grouped(keys, self.windows, (_START, _END, None), calls)

    @cached_property
    def place(self) -> tuple[Column, ...]:
        """The columns that say of which window a result is."""
        keys = (Column(name, c.type) for name, (c, _) in zip(self.key_names, self.keys, strict=True))
        return (*keys, *(Column(name, "TIMESTAMP") for name in self.windows.bounds))

    @cached_property
    def shown(self) -> tuple[Column, ...]:
        """The columns of a result beside its keys."""
        calls = (Column(f"r{i}", call.result_type) for i, (_, call) in enumerate(self.calls))
        return (Column(_START, "TIMESTAMP"), Column(_END, "TIMESTAMP"), *calls)

    @property
    def _kept(self) -> str:
        return f"{END} + to_microseconds({self.lateness})"

    @cached_property
    def row_tables(self) -> tuple[TableDeclaration, ...]:
        return tuple(
            TableDeclaration(
                t.name,
                (*t.columns, Column(KEPT, "TIMESTAMP")),
                KEPT,
                f"SELECT *, {self._kept} AS {KEPT} FROM ({t.merge})" if t.merge else None,
            )
            for t in self._grouped.tables
        )

    @cached_property
    def tables(self) -> tuple[TableDeclaration, ...]:
        found = [self._weighted(EMITTED, (*self.place, *self.shown))]
        if self.early is not None:
            found.append(self._weighted(PENDING, (*self.place, Column(DUE, "BIGINT"))))
        return (*super().tables, *found)

    def _weighted(self, name: str, columns: Sequence[Column]) -> TableDeclaration:
        """Return the declaration of a table of rows with weights; a session's are told apart by where it ended when."""
        stored = (*columns, Column(KEPT, "TIMESTAMP"))
        merge = summed(stored, MERGED) if self.windows.mergeable else None
        return TableDeclaration(name, (*stored, WEIGHT_COLUMN), KEPT, merge)

    @cached_property
    def row_parts(self) -> dict[str, str]:
        computed = self._grouped.computed
        return {
            t.name: encoded(t.columns, f"(SELECT *, {self._kept} AS {KEPT} FROM ({computed[t.name]}))")
            for t in self.row_tables
        }

    @cached_property
    def outputs(self) -> tuple[Column, ...]:
        return (*self._grouped.outputs, WEIGHT_COLUMN)

    def current(self, relations: Relations, watermark: str) -> str:
        """Return the SELECT of the results of all windows that can still change, over the state tables."""
        return super().current(relations, f"({watermark} - {self.lateness})")

    def open_windows(self, relations: Relations, watermark: str) -> str:
        return super().open_windows(relations, f"({watermark} - {self.lateness})")

    # -- a batch

    def step(
        self,
        con: duckdb.DuckDBPyConnection,
        state: Bucket,
        inputs: Inputs,
        clock: Clock,
    ) -> Iterator[pa.RecordBatch]:
        """Take the rows of a batch, and emit what changes: results of windows that end, that late rows change, and early ones."""
        watermark, kept = clock.watermark, self._kept_from(clock)
        received = self._receive(state, inputs, replace(clock, watermark=kept))
        added = received.added
        if watermark is not None and kept is not None:
            yield from self._close(con, state, kept, clock.batch)
            self._forget(con, state, watermark)
            if any(received.after.values()):
                added.append(self._admit(con, state, received.after, kept, clock.batch)[PARTIALS])
            self._keep_late(con, state, received.late, kept, clock)
        self._arrived(con, state, added)
        after = kept if state.closed is None or kept is None else max(state.closed, kept)
        changes = list(self._corrections(con, state, clock, after))
        if changes:
            yield from self._emit(con, state, " UNION ALL ".join(changes), clock.batch)
        self._set_alarms(con, state, clock)

    def _kept_from(self, clock: Clock) -> EventTime | None:
        """Return the time up to which ended windows are forgotten."""
        return None if clock.watermark is None else EventTime(clock.watermark - self.lateness)

    def _note(self, received: Received, part: str, rows: pa.Table | Segment) -> None:
        # A frame without rows calls the operator, and has no columns either.
        if part == PARTIALS and (isinstance(rows, Segment) or rows.num_rows):
            received.added.append(rows)

    def _is_early(self, segment: Segment, state: Bucket, clock: Clock) -> bool:
        low = None if segment.low is None else EventTime(segment.low - self.lateness)
        return super()._is_early(structs.replace(segment, low=low), state, clock)

    def _arrived(self, con: duckdb.DuckDBPyConnection, state: Bucket, added: Sequence[pa.Table | Segment]) -> None:
        """Keep the groups of a batch's rows, with their number, in the table `_arrived`."""
        columns = (*self.group, Column(ROWS, "BIGINT"))
        listed = [c.name for c in columns]
        found = [state.read(r, listed) if isinstance(r, Segment) else r.select(listed) for r in added]
        rows = empty_relation(TableDeclaration("", columns))
        if found:
            con.register("_added", pa.concat_tables(found, promote_options="permissive"))
            rows = f"(SELECT {typed(columns)} FROM _added)"
        keep(con, "_arrived", f"SELECT {names(self.group)}, sum({ROWS}) AS {ROWS} FROM {rows} GROUP BY ALL")

    def _close(
        self, con: duckdb.DuckDBPyConnection, state: Bucket, kept: EventTime, batch: int
    ) -> Iterator[pa.RecordBatch]:
        """Emit what is forgotten before it was emitted at its end: the watermark has made a step longer than the lateness."""
        reach = self.windows.reach(kept)
        if state.relation(PARTIALS) is None:
            return
        relations = self._stored(state, None if reach is None else EventTime(reach + self.lateness))
        due = self.windows.due(con, relations, self.key_names, WindowSpan(state.closed, kept))
        if due is None:
            return
        self._store(con, state, due.again, batch)
        if state.closed is None or state.closed < kept:
            changes = self._final({EMITTED: self._of(state, EMITTED), **due.closed}, between(state.closed, kept))
            yield from self._emit(con, state, changes, None)

    def _stored(self, state: Bucket, up_to: EventTime | None = None) -> Relations:
        """Return all relations whose rows `windows.due` puts into windows."""
        return self._relations(state, up_to)

    def _of(self, state: Bucket, table: str) -> str:
        """Return the rows of one table."""
        return state.relation(table) or empty_relation(next(t for t in self.tables if t.name == table))

    def _changes(self, new: Relations, old: str | None) -> str:
        """Return the SELECT of what makes the results over some rows of what was emitted."""
        bounds = ", ".join(f"{_START if name == START else _END} AS {name}" for name in self.windows.bounds)
        items = ", ".join([*self.key_names, bounds, names(self.shown)])
        rows = f"SELECT {items}, CAST(1 AS BIGINT) AS {WEIGHT} FROM ({self._inner.result(new)})"
        return rows if old is None else difference((*self.place, *self.shown), f"({rows})", old)

    def _emit(
        self, con: duckdb.DuckDBPyConnection, state: Bucket, changes: str, batch: int | None
    ) -> Iterator[pa.RecordBatch]:
        """Emit changes, and remember them as of a batch unless they are forgotten at once."""
        keep(con, "_changed", changes)
        if batch is not None:
            self._store(con, state, {EMITTED: "_changed"}, batch)
        given = [c.name for c, _ in self.keys] + [n for n in self.bounds if n is not None] + [n for n, _ in self.calls]
        shown = (_START, _END, window_time(_END))
        bounds = [sql for sql, name in zip(shown, self.bounds, strict=True) if name is not None]
        made = [*self.key_names, *bounds, *(f"r{i}" for i in range(len(self.calls)))]
        items = ", ".join(f"{sql} AS {quote_name(name)}" for sql, name in zip(made, given, strict=True))
        rows = f"SELECT {items}, {WEIGHT} FROM _changed"
        if not self.windows.mergeable:
            # Sessions that differ in bounds which are not asked for are one.
            rows = summed(self._grouped.outputs, f"({rows})")
        yield from con.sql(encoded(self.outputs, f"({rows})")).to_arrow_reader(BATCH_ROWS)

    def _store(self, con: duckdb.DuckDBPyConnection, state: Bucket, rows: Relations, batch: int) -> dict[str, pa.Table]:
        own = {t.name: names(c for c in t.columns if c.name != KEPT) for t in self.tables}
        kept = {name: f"(SELECT {own[name]}, {self._kept} AS {KEPT} FROM {sql})" for name, sql in rows.items()}
        return super()._store(con, state, kept, batch)

    # -- early results

    @abstractmethod
    def _unseen(self, state: Bucket, clock: Clock) -> str:
        """Return the SELECT of when open windows are to be emitted early."""

    def _due(self, pending: str, clock: Clock) -> str:
        """Return the SELECT of windows that are to be emitted now."""
        assert self.early is not None
        now, waits = self.early.reached(clock), self._waiting(pending)
        due = "false" if now is None else f"min({DUE}) <= {now}"
        if self.early.by == "rows":
            due = f"sum({ROWS}) >= {self.early.every}"
        return f"SELECT {names(self.place)} FROM ({waits}) GROUP BY {names(self.place)} HAVING {due}"

    def _waiting(self, pending: str) -> str:
        """Return the SELECT of windows that are to be emitted early, with the rows that have come for them."""
        place = f"{names(self.place)}, {DUE}"
        total = f"sum({WEIGHT})"
        return f"SELECT {place}, {total} AS {ROWS} FROM {pending} GROUP BY {place} HAVING {total} > 0"

    def _add_pending(self, con: duckdb.DuckDBPyConnection, state: Bucket, arrived: str, clock: Clock) -> None:
        """Remember open windows, with the rows that have come for them."""
        assert self.early is not None
        due = f"CAST({self.early.due(clock)} AS BIGINT) AS {DUE}"
        place, number = names(self.place), f"CAST(sum({ROWS}) AS BIGINT) AS {WEIGHT}"
        rows = f"(SELECT {place}, {due}, {number} FROM {arrived} GROUP BY {place})"
        self._store(con, state, {PENDING: rows}, clock.batch)

    def _clear_pending(self, con: duckdb.DuckDBPyConnection, state: Bucket, pending: str, batch: int) -> None:
        """Forget what was to be emitted early of the windows in `_play`; of rows the rest of a division is still to come."""
        assert self.early is not None
        number = f"{ROWS} - {ROWS} % {self.early.every}" if self.early.by == "rows" else ROWS
        same = same_columns("_waiting_", "_play_", self.place)
        rows = f"({self._waiting(pending)}) _waiting_ SEMI JOIN _play _play_ ON {same}"
        taken = f"(SELECT {names(self.place)}, {DUE}, CAST(-({number}) AS BIGINT) AS {WEIGHT} FROM {rows})"
        self._store(con, state, {PENDING: f"(SELECT * FROM {taken} WHERE {WEIGHT} <> 0)"}, batch)

    def _set_alarms(self, con: duckdb.DuckDBPyConnection, state: Bucket, clock: Clock) -> None:
        """Say when the operator wants to be called again: when a window ends, is forgotten, or is to be emitted early."""
        held = self._forget(con, state, NEVER if clock.watermark is None else clock.watermark)
        # What has not ended yet is kept longer than the lateness from now on.
        ended = None if clock.watermark is None else EventTime(clock.watermark + self.lateness)
        rows = f"{self._of(state, PARTIALS)} WHERE {between(ended, None, KEPT)}"
        first = self._least(con, f"epoch_us({KEPT})", rows)
        state.event_timer = (
            held if first is None else self.windows.next_time(EventTime(first - self.lateness), clock.watermark)
        )
        state.processing_timer = None
        if self.early is not None and self.early.by != "rows":
            due = self._least(con, DUE, f"({self._unseen(state, clock)})")
            if self.early.by == "time":
                state.processing_timer = None if due is None else from_millis(due)
            elif due is not None:
                state.event_timer = EventTime(due if state.event_timer is None else min(due, state.event_timer))

    @staticmethod
    def _least(con: duckdb.DuckDBPyConnection, value: str, rows: str) -> int | None:
        [(found,)] = con.execute(f"SELECT min({value}) FROM {rows}").fetchall()
        return None if found is None else int(found)


def same_columns(left: str, right: str, columns: Iterable[Column]) -> str:
    """Return the condition that rows of two relations agree in some columns."""
    return " AND ".join(f"{left}.{c.name} IS NOT DISTINCT FROM {right}.{c.name}" for c in columns)


def between(after: EventTime | None, to: EventTime | None, column: str = END) -> str:
    """Return the condition that a window ends after one time, and by another."""
    found = [] if after is None else [f"{column} > {time_literal(after, 'TIMESTAMP')}"]
    found += [] if to is None else [f"{column} <= {time_literal(to, 'TIMESTAMP')}"]
    return " AND ".join(found) or "true"
