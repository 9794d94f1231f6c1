"""Windows of a fixed number of rows of a key, in the order of event time.

A row gets its number when the watermark passes it: no earlier row can arrive then. So windows do not depend on how rows were
split into batches. By the clock of another time zone than UTC a row gets its number in the batch in which it comes: no earlier
row can arrive after it, and the watermark, a local time, stands for an hour when clocks are set back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import ARRIVED, INTERNAL
from sqlstream.duck.sql import Items, Relation, Relations, Select, names, quote_name, typed
from sqlstream.duck.time_variables import NEVER
from sqlstream.duck.types import encoded
from sqlstream.logical.plan.windows import UNTIL_PASSED
from sqlstream.operators.keyed_state import AT, TOUCHED, KeyedState
from sqlstream.operators.late_rows import LateOutput, late_outputs
from sqlstream.operators.operator import Holds, Inputs, Operator, SideRows, StepTimes
from sqlstream.operators.scratch import keep, keep_and_count, leaving
from sqlstream.operators.windows.assigners import window_time
from sqlstream.operators.windows.window_batch import empty_relation
from sqlstream.storage.bucket import Bucket
from sqlstream.storage.segments import Segment
from sqlstream.storage.zsets import WEIGHT, zset
from sqlstream.units import NO_TIME, Duration, EventTime, to_millis
from sqlstream.warehouse.declarations import ExpiringState, TableDeclaration

WAITING = "waiting"
NUMBERED = "numbered"
COUNTED = "counted"
TIME = Column("_time", "TIMESTAMP")
NUMBER = Column("_number", "BIGINT")
BOUNDS = ("window_start", "window_end", "window_time", "window_id")


@dataclass(frozen=True)
class CountWindowOperator(Operator):
    """At every `slide`-th row of a key, in event-time order, emits a window of the key's last `size` rows.

    `keys` are columns, each with its SQL over input rows; `columns` are the columns of the rows, and `time` is the SQL of their
    event time. WAITING stores rows that the watermark has not passed. NUMBERED stores numbered rows that later windows need,
    COUNTED the number of numbered rows per key. A key expires when none of its rows got a number for `ttl` (0: never). Late rows
    are dropped; with `emits_late` they go to a side output.

    With `by_instant` the times are instants of the clock, stored as TIMESTAMPs in UTC: rows get their numbers in the batch in
    which they come, none is late, and the bounds of windows are local times of the session's zone.
    """

    keys: tuple[tuple[Column, str], ...]
    columns: tuple[Column, ...]
    time: str
    size: int
    slide: int
    ttl: Duration = NO_TIME
    emits_late: bool = False
    by_instant: bool = False

    @property
    def kind(self) -> str:
        return "row_windows"

    @cached_property
    def key_columns(self) -> tuple[Column, ...]:
        """The key columns as they are stored: k0, k1, ..."""
        return tuple(Column(f"k{i}", c.type) for i, (c, _) in enumerate(self.keys))

    @cached_property
    def hash_columns(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.key_columns)

    @cached_property
    def _stored(self) -> tuple[Column, ...]:
        return tuple(Column(f"c{i}", c.type) for i, c in enumerate(self.columns))

    @cached_property
    def _ties(self) -> tuple[Column, ...]:
        """The stored columns in the order in which they order rows of one time: the order of arrival first, if rows have it."""
        pairs = tuple(zip(self.columns, self._stored, strict=True))
        first = tuple(own for c, own in pairs if c.name == ARRIVED.name)
        return (*first, *(own for own in self._stored if own not in first))

    @cached_property
    def _row(self) -> tuple[Column, ...]:
        return (*self.key_columns, *self._stored, TIME)

    @cached_property
    def tables(self) -> tuple[TableDeclaration, ...]:
        waiting = TableDeclaration(WAITING, self._row, TIME.name)
        return waiting, *(zset(name, columns) for name, columns in self._key_state.tables.items())

    @property
    def holds(self) -> Holds:
        tables = (WAITING, NUMBERED)
        return {c.name: dict.fromkeys(tables, (own.name,)) for c, own in zip(self.columns, self._stored, strict=True)}

    @cached_property
    def _key_state(self) -> KeyedState:
        tables = {NUMBERED: (*self._row, NUMBER), COUNTED: (*self.key_columns, NUMBER, AT)}
        return KeyedState(self.hash_columns, tables, COUNTED, self.ttl)

    @cached_property
    def parts(self) -> dict[str, Select]:
        sqls = [*(sql for _, sql in self.keys), *(quote_name(c.name) for c in self.columns), self.time]
        items = ", ".join(f"{sql} AS {c.name}" for sql, c in zip(sqls, self._row, strict=True))
        return {WAITING: encoded(self._row, Relation(f"(SELECT {items} FROM _rows)"))}

    @cached_property
    def outputs(self) -> tuple[Column, ...]:
        types = ("TIMESTAMP", "TIMESTAMP", "TIMESTAMP", "BIGINT")
        return (*self.columns, *(Column(name, type) for name, type in zip(BOUNDS, types, strict=True)))

    @cached_property
    def _late(self) -> LateOutput:
        pairs = zip(self.columns, self._stored, strict=True)
        columns = tuple((own, own.name) for c, own in pairs if c.name != ARRIVED.name)
        return LateOutput(0, columns, TIME.name, UNTIL_PASSED)

    @cached_property
    def side_outputs(self) -> dict[str, tuple[Column, ...]]:
        return late_outputs([self._late] if self.emits_late else [])

    @cached_property
    def _named(self) -> Items:
        """The stored columns of a row under their own names."""
        pairs = zip(self._stored, self.columns, strict=True)
        return Items(", ".join(f"{c.name} AS {quote_name(own.name)}" for c, own in pairs))

    def current(self, relations: Relations, watermark: str) -> Select:
        """Return the waiting and numbered rows, then `key_times`. `window_id` is the next window, NULL if waiting.

        The bounds are NULL: the window is not complete.
        """
        tables = self._key_state.current(relations)
        following = f"max({NUMBER.name}) OVER ({self._by}) // {self.slide} + 1"
        numbered = f"SELECT *, {following} AS window_id FROM {tables[NUMBERED]}"
        both = f"SELECT *, NULL AS window_id FROM {relations[WAITING]} UNION ALL BY NAME {numbered}"
        bounds = [f"CAST(NULL AS TIMESTAMP) AS {name}" for name in BOUNDS[:3]]
        # No names that a user would give to columns.
        of = {name: f"{INTERNAL}of_{name}" for name in self.hash_columns}
        keys = [f"{name} AS {hidden}" for name, hidden in of.items()]
        items = ", ".join([self._named, *bounds, "CAST(window_id AS BIGINT) AS window_id", *keys])
        rows = Select(f"SELECT {items} FROM ({both})")
        return self._key_state.timed(rows, list(of.values()), self.outputs, tables, all=True)

    @property
    def key_times(self) -> tuple[Column, ...]:
        return self._key_state.times(self.outputs)

    @property
    def _by(self) -> str:
        return f"PARTITION BY {names(self.key_columns)}" if self.keys else ""

    @property
    def remembered(self) -> tuple[ExpiringState, ...]:
        return (self._key_state.remembered,)

    def step(
        self,
        con: duckdb.DuckDBPyConnection,
        state: Bucket,
        inputs: Inputs,
        times: StepTimes,
    ) -> Iterator[pa.RecordBatch | SideRows]:
        """Take a batch, number the rows that the watermark has passed, and yield the rows of complete windows."""
        in_time = []
        for port, piece in inputs:
            rows = state.read(piece) if isinstance(piece, Segment) else piece
            if self.by_instant:
                in_time.append(rows)
                continue
            if times.watermark is not None and rows.num_rows:
                passed = pc.less_equal(rows.column(TIME.name).cast(pa.int64()), times.watermark)
                behind, rows = rows.filter(passed), rows.filter(pc.invert(passed))
                if port.never_late:
                    in_time.append(behind)
                else:
                    state.count("late_rows", behind.num_rows)
                    if self.emits_late:
                        yield from self._late.rows(con, [behind], times.watermark)
            state.append(WAITING, rows, times.batch)
        if self.by_instant or times.watermark is not None:
            if self._final(con, state, in_time, times.watermark):
                self._number(con, state, times)
                yield from self._complete(con)
                self._remember(con, state, times)
            self._key_state.sweep(con, state, times)
        state.event_timer = state.forget(con, WAITING, NEVER if times.watermark is None else times.watermark)

    def _final(
        self, con: duckdb.DuckDBPyConnection, state: Bucket, in_time: list[pa.Table], watermark: EventTime | None
    ) -> int:
        """Create `_final`, the rows to number, and return how many there are."""
        [waiting, *_] = self.tables
        passed = None if self.by_instant else state.relation(WAITING, up_to=watermark)
        rows = f"SELECT * FROM {passed or empty_relation(waiting)}"
        if in_time:
            con.register("_in_time", pa.concat_tables(in_time, promote_options="permissive"))
            rows += f" UNION ALL SELECT {typed(self._row)} FROM _in_time"
        return keep_and_count(con, "_final", Select(rows))[1]

    def _number(self, con: duckdb.DuckDBPyConnection, state: Bucket, times: StepTimes) -> None:
        """Create `_new`, rows with their new numbers, and `_after`, the number of rows of each key before and after."""
        if self.keys:
            keep(con, TOUCHED, Select(f"SELECT DISTINCT {names(self.key_columns)} FROM _final"))
        self._key_state.load(con, state, times)
        joined = self._key_state.same("_final", "_before")
        order = f"{self._by} ORDER BY {', '.join(c.name for c in (TIME, *self._ties))}"
        numbered = f"row_number() OVER ({order}) + _count"
        counts = (
            f"SELECT _final.*, coalesce(_before.{NUMBER.name}, 0) AS _count "
            f"FROM _final LEFT JOIN _old_{COUNTED} _before ON {joined}"
        )
        keep(con, "_new", Select(f"SELECT {names(self._row)}, {numbered} AS {NUMBER.name}, _count FROM ({counts})"))
        by = f"GROUP BY {names(self.key_columns)}" if self.keys else "HAVING count(*) > 0"
        listed = "".join(f"{c.name}, " for c in self.key_columns)
        number = f"max({NUMBER.name}) AS {NUMBER.name}, min(_count) AS _count"
        keep(con, "_after", Select(f"SELECT {listed}{number}, CAST(1 AS BIGINT) AS {WEIGHT} FROM _new {by}"))

    @cached_property
    def _numbered(self) -> Relation:
        """The numbered rows of keys that have changed, with the key's number of rows before and after."""
        numbered = names((*self._row, NUMBER))
        both = f"SELECT {numbered} FROM _old_{NUMBERED} UNION ALL SELECT {numbered} FROM _new"
        same = self._key_state.same("_row_", "_after")
        counts = f"_after._count AS _before, _after.{NUMBER.name} AS _until"
        return Relation(f"(SELECT _row_.*, {counts} FROM ({both}) _row_ JOIN _after ON {same})")

    def _complete(self, con: duckdb.DuckDBPyConnection) -> Iterator[pa.RecordBatch]:
        """Yield the rows of every window whose last row got its number in this batch."""
        number, slide = NUMBER.name, self.slide
        first = f"greatest((({number} - 1) // {slide} + 1) * {slide}, (_before // {slide} + 1) * {slide})"
        last = f"least({number} + {self.size - 1}, _until)"
        ends = f"SELECT *, unnest(generate_series({first}, {last}, {slide})) AS _end FROM {self._numbered}"
        window = ", ".join([*(c.name for c in self.key_columns), "_end"])
        start, end = (f"{f}({TIME.name}) OVER (PARTITION BY {window})" for f in ("min", "max"))
        bounds = f"{start} AS _first, {end} AS _last"
        first_time, last_time = (self._shown_time(name) for name in ("_first", "_last"))
        shown = (first_time, last_time, window_time(last_time), f"CAST(_end // {slide} AS BIGINT)")
        items = ", ".join(f"{sql} AS {name}" for sql, name in zip(shown, BOUNDS, strict=True))
        rows = f"SELECT {self._named}, {items} FROM (SELECT *, {bounds} FROM ({ends}))"
        yield from leaving(con, self.outputs, Select(rows))

    def _shown_time(self, time: str) -> str:
        """Return the SQL of a stored time as the bound of a window."""
        return f"CAST(make_timestamptz(epoch_us({time})) AS TIMESTAMP)" if self.by_instant else time

    def _remember(self, con: duckdb.DuckDBPyConnection, state: Bucket, times: StepTimes) -> None:
        """Store the rows that later windows need, and the number of rows of each key."""
        needed = f"{NUMBER.name} > (_until // {self.slide} + 1) * {self.slide} - {self.size}"
        columns = names((*self._row, NUMBER))
        needed_rows = f"(SELECT {columns}, CAST(1 AS BIGINT) AS {WEIGHT} FROM {self._numbered} WHERE {needed})"
        counted = ", ".join(
            [*self.hash_columns, NUMBER.name, f"CAST({to_millis(times.time)} AS BIGINT) AS {AT.name}", WEIGHT]
        )
        self._key_state.store(con, state, NUMBERED, Relation(needed_rows), times)
        self._key_state.store(con, state, COUNTED, Relation(f"(SELECT {counted} FROM _after)"), times)
