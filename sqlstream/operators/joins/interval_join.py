"""The interval join, and the window join as one of its cases: append-only, with rows as state, which expire by event time.

Pairs are emitted at once, and rows of an outer join without a match when the watermark has passed the last time at which one
could come. A row stays in state as long as it can match a row to come, or as another row needs it to know whether it has matched.
So no matches are stored: they are computed again. Rows are written once, and expire by their time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.catalog import Column
from sqlstream.duck.sql import (
    Condition,
    Relation,
    Relations,
    Rows,
    Select,
    all_of,
    no_rows,
    rows_where,
    typed,
    union_all,
)
from sqlstream.duck.time_variables import NEVER
from sqlstream.duck.types import encoded
from sqlstream.operators.joins.matching import JoinCondition
from sqlstream.operators.late_rows import LateOutput, late_outputs
from sqlstream.operators.operator import Holds, Inputs, Operator, SideRows, StepTimes
from sqlstream.operators.scratch import keep_view, leaving
from sqlstream.storage.bucket import Bucket
from sqlstream.storage.segments import Segment
from sqlstream.units import NO_TIME, Duration, EventTime
from sqlstream.warehouse.declarations import TableDeclaration

# Event times in microseconds: of a row, and up to which it stays in state.
AT, UNTIL = Column("_at", "BIGINT"), Column("_until", "BIGINT")
SIDES = ("left", "right")


@dataclass(frozen=True)
class IntervalJoinOperator(Operator):
    """Joins a left and a right row if they match, and the right time is in [left time - `before`, left time + `after`].

    `join` is inner, left, right, full, semi or anti. `times` are the SQL of the event times of left and right rows. The operator
    drops late rows; `late_inputs` are the indexes of the inputs whose late rows are side outputs. These show the watermark of the
    inputs, which is `kept_back` later than the operator's (see LateOutput).
    """

    matching: JoinCondition
    join: str
    times: tuple[str, str]
    before: Duration
    after: Duration
    late_inputs: tuple[int, ...] = ()
    kept_back: Duration = NO_TIME

    @property
    def kind(self) -> str:
        return "join"

    @property
    def hash_columns(self) -> tuple[str, ...]:
        return self.matching.key_names

    @property
    def _preserved(self) -> tuple[int, ...]:
        """The inputs whose rows are emitted if they have no match."""
        return {"left": (0,), "right": (1,), "full": (0, 1), "anti": (0,)}.get(self.join, ())

    def _wait(self, index: int) -> Duration:
        """Return by how much a match can be later than a row of this input, at least 0."""
        return max(NO_TIME, self.after if index == 0 else self.before)

    def _stored(self, index: int) -> tuple[Column, ...]:
        return (*self.matching.stored(index), AT, UNTIL)

    @cached_property
    def tables(self) -> tuple[TableDeclaration, ...]:
        return tuple(TableDeclaration(side, self._stored(index), UNTIL.name) for index, side in enumerate(SIDES))

    @property
    def holds(self) -> Holds:
        return self.matching.holds(enumerate(SIDES))

    @cached_property
    def parts(self) -> dict[str, Select]:
        """For `left` and `right`: the input's state columns, AT and UNTIL.

        Rows with a NULL key are left out, unless the rows of the input are emitted without a match.
        """
        selects = {}
        for index, (side, time) in enumerate(zip(SIDES, self.times, strict=True)):
            stay = max(self.before + self.after, self._wait(index))
            micros = f"epoch_us({time})"
            select = self.matching.select(index, f"{micros} AS {AT.name}", f"{micros} + {stay} AS {UNTIL.name}")
            # A row that cannot match is of use only if rows without a match are emitted.
            where = "" if index in self._preserved else f" WHERE {self.matching.has_keys()}"
            selects[side] = encoded(self._stored(index), Relation(f"(SELECT * FROM ({select}){where})"))
        return selects

    @cached_property
    def outputs(self) -> tuple[Column, ...]:
        shown = self.matching.columns[:1] if self.join in ("semi", "anti") else self.matching.columns
        return tuple(c for columns in shown for c in columns)

    @cached_property
    def _late(self) -> dict[int, LateOutput]:
        return {
            index: self.matching.late(index, f"make_timestamp({AT.name})", self.kept_back) for index in self.late_inputs
        }

    @cached_property
    def side_outputs(self) -> dict[str, tuple[Column, ...]]:
        return late_outputs(self._late.values())

    # -- a batch

    def step(
        self,
        con: duckdb.DuckDBPyConnection,
        state: Bucket,
        inputs: Inputs,
        times: StepTimes,
    ) -> Iterator[pa.RecordBatch | SideRows]:
        """Emit late rows as side outputs, the pairs of the batch, and then rows for which no match can come any more.

        Event times are microseconds. A row is late if the watermark has reached its time. The event timer is the next time at
        which a row may turn out to have no match, or at which all rows of the bucket expire.
        """
        late: tuple[list[pa.Table], ...] = ([], [])
        stored, arrived = self._arrive(state, inputs, times.watermark, late)
        if times.watermark is not None:
            for index, output in self._late.items():
                yield from output.rows(con, late[index], times.watermark)
        ranges = [self._register(con, index, rows) for index, rows in enumerate(arrived)]
        pairs = self._pairs(state, ranges)
        if pairs:
            yield from leaving(con, self.outputs, union_all(pairs))
        for side, pieces in zip(SIDES, stored, strict=True):
            for rows in pieces:
                if isinstance(rows, Segment):
                    state.adopt(side, [rows])
                else:
                    state.append(side, rows, times.batch)
        if times.watermark is not None:
            for index in self._preserved:
                if (unmatched := self._unmatched(state, index, times.watermark)) is not None:
                    yield from leaving(con, self.outputs, unmatched)
        for side in SIDES:
            state.forget(con, side, NEVER if times.watermark is None else times.watermark)
        state.event_timer = self._wake_at(con, state, times.watermark)

    def _arrive(
        self, state: Bucket, inputs: Inputs, watermark: EventTime | None, late: tuple[list[pa.Table], ...]
    ) -> tuple[list[list[pa.Table | Segment]], list[list[pa.Table]]]:
        """Return the rows of both sides that are not late, twice: as pieces to store, and as tables. Add late rows to `late`."""
        stored: list[list[pa.Table | Segment]] = [[], []]
        arrived: list[list[pa.Table]] = [[], []]
        for port, piece in inputs:
            index = SIDES.index(port.part)
            rows = state.read(piece) if isinstance(piece, Segment) else piece
            if not rows.num_rows:
                continue
            if not port.never_late and watermark is not None:
                behind = pc.less_equal(rows.column(AT.name), watermark)
                if count := pc.sum(behind).as_py():
                    state.count("late_rows", count)
                    if index in self.late_inputs:
                        late[index].append(rows.filter(behind))
                    piece = rows = rows.filter(pc.invert(behind))
            stored[index].append(piece)
            arrived[index].append(rows)
        return stored, arrived

    def _register(self, con: duckdb.DuckDBPyConnection, index: int, rows: list[pa.Table]) -> tuple[int, int] | None:
        """Make the view `_new_<index>` of the rows of the batch; return their least and greatest time, None without rows."""
        if not any(r.num_rows for r in rows):
            keep_view(con, _new(index), no_rows(self._stored(index)))
            return None
        con.register(f"_arrived_{index}", pa.concat_tables(rows, promote_options="permissive"))
        keep_view(con, _new(index), Select(f"SELECT {typed(self._stored(index))} FROM _arrived_{index}"))
        [(low, high)] = con.execute(f"SELECT min({AT.name}), max({AT.name}) FROM _arrived_{index}").fetchall()
        return int(low), int(high)

    def _old(self, state: Bucket, index: int, low: int, high: int) -> Relation | None:
        """Return an input's rows from earlier batches with a time from `low` to `high`; None if it has none."""
        rows = state.relation(SIDES[index])
        return rows and rows_where(rows, Condition(f"{AT.name} BETWEEN {low} AND {high}"))

    def _pairs(self, state: Bucket, ranges: list[tuple[int, int] | None]) -> list[Select]:
        """Return the result's new rows: new left rows with all right rows, and old left rows with new right rows."""
        if self.join == "anti":
            return []
        left_range, right_range = ranges
        old_left = (
            self._old(state, 0, right_range[0] - self.after, right_range[1] + self.before) if right_range else None
        )
        span = None
        if left_range:
            span = left_range[0] - self.before, left_range[1] + self.after
        if self.join == "semi" and right_range:
            # A left row that a new right row matches may have been emitted for an older match.
            reach = right_range[0] - self.after - self.before, right_range[1] + self.before + self.after
            span = (min(span[0], reach[0]), max(span[1], reach[1])) if span else reach
        old_right = self._old(state, 1, *span) if span else None
        all_right = Relation(f"(FROM {_new(1)} UNION ALL FROM {old_right})") if old_right else _new(1)
        selects = []
        if left_range:
            selects.append(self._joined(_new(0), all_right))
        if right_range and old_left:
            selects.append(self._joined(old_left, _new(1), before=old_right))
        return selects

    def _joined(self, left_rows: Relation, right_rows: Relation, before: Relation | None = None) -> Select:
        """Join rows of both sides; a semi join leaves out left rows that match a row of `before`."""
        a, b = self._named(0, left_rows), self._named(1, right_rows)
        if self.join != "semi":
            return Select(f"SELECT {self.matching.shown((0, 1))} FROM {a} _0 JOIN {b} _1 ON {self._on}")
        matches = f"(SELECT _0.* FROM {a} _0 SEMI JOIN {b} _1 ON {self._on})"
        anti_join = f" ANTI JOIN {self._named(1, before)} _1 ON {self._on}" if before else ""
        return Select(f"SELECT {self.matching.shown((0,))} FROM {matches} _0{anti_join}")

    def _named(self, index: int, rows: Relation) -> Relation:
        return self.matching.named(index, rows, AT.name)

    @cached_property
    def _on(self) -> Condition:
        near = f"_1.{AT.name} BETWEEN _0.{AT.name} - {self.before} AND _0.{AT.name} + {self.after}"
        return self.matching.on("_0", "_1", near)

    def _exists(self, index: int, rows: Relation) -> Condition:
        """Return the condition that a row of the other side has a match among `rows` of the input `index`."""
        return Condition(f"EXISTS (SELECT 1 FROM {self._named(index, rows)} _{index} WHERE {self._on})")

    # -- rows without a match

    def _unmatched(self, state: Bucket, index: int, watermark: EventTime) -> Select | None:
        """Return an input's rows without a match, for which only this watermark has ruled out a later match."""
        wait = self._wait(index)
        due = [f"{AT.name} <= {watermark - wait}"]
        if state.closed is not None:
            due.append(f"{AT.name} > {state.closed - wait}")
        rows, others = (state.relation(SIDES[p]) for p in (index, 1 - index))
        if rows is None:
            return None
        own = self._named(index, rows_where(rows, all_of(due)))
        candidates = self._named(1 - index, others) if others else ""
        alone = f" ANTI JOIN {candidates} _{1 - index} ON {self._on}" if candidates else ""
        shown = (0,) if self.join == "anti" else (0, 1)
        return Select(f"SELECT {self.matching.shown(shown, (1 - index,))} FROM {own} _{index}{alone}")

    def _wake_at(self, con: duckdb.DuckDBPyConnection, state: Bucket, watermark: EventTime | None) -> EventTime | None:
        """Return the next time at which a row may turn out to have no match, or at which all rows expire; None without rows."""
        last = [s.high for side in SIDES for s in state.segments(side) if s.live_low is not None and s.high is not None]
        times = [max(last)] if last else []
        for index in self._preserved:
            rows, wait = state.relation(SIDES[index]), self._wait(index)
            if rows is not None:
                ahead = f" WHERE {AT.name} > {watermark - wait}" if watermark is not None else ""
                [(first,)] = con.execute(f"SELECT min({AT.name}) FROM {rows}{ahead}").fetchall()
                times += [] if first is None else [EventTime(first + wait)]
        return min(times, default=None)

    # -- the view

    def view(self, index: int, relations: Relations, watermark: str) -> Select:
        """Return an input's rows in state, with `_event_time`, `_leaves_at` and `_matched` (see `view_columns`).

        `relations` and `watermark` are the arguments of `current`. A row that can get no match any more may stay in state as a
        match of other rows. Its own matches may have expired by then: so its `_matched` is true or NULL (not known).
        """
        rows = self.matching.named(index, relations[SIDES[index]], AT.name, UNTIL.name)
        exists = self._exists(1 - index, relations[SIDES[1 - index]])
        waits = f"{AT.name} > {watermark} - {self._wait(index)}"
        matched = f"CASE WHEN {exists} THEN true WHEN {waits} THEN false END"
        times = [f"make_timestamp({c.name}) AS {name}" for c, name in ((AT, "_event_time"), (UNTIL, "_leaves_at"))]
        own = self.matching.shown((index,))
        return Select(f"SELECT {', '.join([own, *times])}, {matched} AS _matched FROM {rows} _{index}")

    def view_columns(self, index: int) -> tuple[Column, ...]:
        """Return the columns of `view`: the input's columns, two TIMESTAMPs, and `_matched`, a BOOLEAN."""
        times = (Column("_event_time", "TIMESTAMP"), Column("_leaves_at", "TIMESTAMP"))
        return (*self.matching.columns[index], *times, Column("_matched", "BOOLEAN"))

    def side_views(self, relations: Relations, watermark: str) -> tuple[Rows, ...]:
        indexes = range(len(self.matching.columns))
        return tuple(Rows.of(self.view(p, relations, watermark), self.view_columns(p)) for p in indexes)

    def current(self, relations: Relations, watermark: str) -> Select:
        """Return both sides' rows in state; `_side` is `left` or `right`, the other side's columns are NULL."""
        both = [
            f"SELECT '{side}' AS _side, * FROM ({self.view(p, relations, watermark)})" for p, side in enumerate(SIDES)
        ]
        return Select(" UNION ALL BY NAME ".join(both))

    @cached_property
    def viewed(self) -> tuple[Column, ...]:
        """The columns of `current`: `_side`, the columns of both inputs, `_event_time`, `_leaves_at`, `_matched`."""
        own, times = (c for columns in self.matching.columns for c in columns), self.view_columns(0)[-3:]
        return (Column("_side", "VARCHAR"), *own, *times)


def _new(index: int) -> Relation:
    """Return the view of an input's rows of the batch."""
    return Relation(f"_new_{index}")
