"""OVER and ORDER BY over a time attribute: each row is emitted once, with its results, when its position in the order is final.

Rows wait in the table `rows`, whose rows expire by event time; they stay there as long as a RANGE frame reaches back to them. The
last rows of each partition, as many as ROWS frames need, and its partial results are Z-sets, in which a batch reads and changes
only the partitions that it has rows of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import ARRIVED, INTERNAL
from sqlstream.duck.sql import (
    Condition,
    Relation,
    Relations,
    Select,
    all_of,
    names,
    no_rows,
    quote_name,
    quote_text,
    rows_where,
    subquery,
    union_all,
)
from sqlstream.duck.time_variables import NEVER
from sqlstream.duck.types import encoded
from sqlstream.logical.plan.state_settings import FrameReach
from sqlstream.operators.keyed_state import AT as TOUCHED_AT
from sqlstream.operators.keyed_state import TOUCHED, KeyedState
from sqlstream.operators.late_rows import LateOutput, late_outputs
from sqlstream.operators.operator import Holds, Inputs, Operator, SideRows, StepTimes
from sqlstream.operators.over.calls import AFTER, BEFORE, ID, POSITION, OverCall
from sqlstream.operators.over.context import AT, COUNT, NEW, TURN, OverContext
from sqlstream.operators.over.running import Running
from sqlstream.operators.scratch import BATCH_ROWS, keep
from sqlstream.storage.bucket import Bucket
from sqlstream.storage.segments import Segment
from sqlstream.storage.zsets import KEYS, WEIGHT, current, repeated, zset
from sqlstream.units import END_OF_INPUT, NO_TIME, Duration, EventTime, to_millis
from sqlstream.warehouse.declarations import ExpiringState, TableDeclaration

# The state tables: rows that expire by time, the last rows of each partition, and its partial results.
ROWS, LAST, TOTALS = "rows", "last", "totals"
# Temporary tables: the partial results of rows of a batch and of its partitions' state, and their totals, where calls are scans.
_RUNNING, _TOTALS = Relation("_running"), Relation("_totals")
# The watermark (microseconds) up to which a row stays in the table ROWS.
UNTIL = "_until"


@dataclass(frozen=True)
class OverOperator(Operator):
    """Emits the rows of each partition in the order of time, with the results of calls over the rows around them.

    `keys` are the columns of the partition with their SQL; `time` is the SQL of the time attribute, `order` has the SQL of the
    further items of ORDER BY. With `by_clock` the time is the processing time of the batch in UTC, and rows are emitted at once.
    With `sorts` the rows of a batch are emitted in order. The last rows and partial results of a key expire when none of its
    rows has become final for `ttl` (0: never). Late rows are dropped; with `emits_late` they are a side output.

    Rows that are equal in time and `order` are ordered by the items `tie_breakers` (the order of arrival, if any), then by all
    columns. With `is_total` no two arriving rows are equal in `tie_breakers`. With a `zone` the watermark is the clock as a local
    time of it.
    """

    keys: tuple[tuple[Column, str], ...]
    columns: tuple[Column, ...]
    time: str
    order: tuple[str, ...] = ()
    calls: tuple[OverCall, ...] = ()
    by_clock: bool = False
    sorts: bool = False
    ttl: Duration = NO_TIME
    emits_late: bool = False
    tie_breakers: tuple[str, ...] = ()
    is_total: bool = False
    zone: str | None = None

    @property
    def kind(self) -> str:
        return "sort" if self.sorts else "over"

    # -- what is stored

    @cached_property
    def hash_columns(self) -> tuple[str, ...]:
        return tuple(f"k{i}" for i in range(len(self.keys)))

    @cached_property
    def _context(self) -> OverContext:
        keys = (Column(name, c.type) for name, (c, _) in zip(self.hash_columns, self.keys, strict=True))
        return OverContext(tuple(keys), self.columns, self.order, self.calls, self.by_clock, self.tie_breakers)

    @cached_property
    def _running(self) -> Running:
        return Running(tuple(c for c in self.calls if c.runs), by_position=bool(self.tie_breakers))

    @cached_property
    def _framed(self) -> tuple[OverCall, ...]:
        return tuple(c for c in self.calls if not c.runs)

    @cached_property
    def _span(self) -> Duration:
        """How long after its time a row stays in state for the RANGE frames of later rows."""
        return max((c.time_before for c in self._framed), default=NO_TIME)

    @property
    def _stay(self) -> Duration:
        """How long after its event time a row stays in the table ROWS."""
        return Duration(self._span + self._context.later)

    @cached_property
    def _last_rows(self) -> int | None:
        """How many of a partition's last rows the table LAST stores, None: all."""
        counts = [c.rows_before for c in self._framed]
        finite = [n for n in counts if n is not None]
        return max(finite, default=0) + self._context.following if len(finite) == len(counts) else None

    @cached_property
    def _totals(self) -> tuple[Column, ...]:
        return (*self._context.keys, *self._running.columns)

    @cached_property
    def _partition_state(self) -> KeyedState:
        """The state that does not expire by event time: last rows, partial results, and when a key was last touched."""
        tables = {LAST: self._context.stored} if self._last_rows != 0 else {}
        if self._running.calls:
            tables[TOTALS] = self._totals
        return KeyedState(self.hash_columns, {**tables, KEYS: (*self._context.keys, TOUCHED_AT)}, KEYS, self.ttl)

    @property
    def reach(self) -> FrameReach:
        """How far the frames of all calls reach."""
        return FrameReach(self._span, self._context.later, self._context.following, self._last_rows)

    @property
    def _has_partition_state(self) -> bool:
        return self._last_rows != 0 or bool(self._running.calls)

    @cached_property
    def tables(self) -> tuple[TableDeclaration, ...]:
        waiting = TableDeclaration(ROWS, (*self._context.stored, Column(UNTIL, "BIGINT")), UNTIL)
        zsets = self._partition_state.tables if self._has_partition_state else {}
        return (waiting, *(zset(name, columns) for name, columns in zsets.items()))

    @property
    def holds(self) -> Holds:
        tables = [t for t in (ROWS, LAST) if t in {declared.name for declared in self.tables}]
        state_columns = {c.name: dict.fromkeys(tables, (f"c{i}",)) for i, c in enumerate(self.columns)}
        return {**state_columns, **{name: {TOTALS: columns} for name, columns in self._running.held.items()}}

    @cached_property
    def parts(self) -> dict[str, Select]:
        """`rows`: the columns of the table ROWS."""
        keys = [f"{sql} AS {name}" for name, (_, sql) in zip(self.hash_columns, self.keys, strict=True)]
        columns = [f"{quote_name(c.name)} AS c{i}" for i, c in enumerate(self.columns)]
        micros = f"epoch_us({self.time})"
        turn = [f"0 AS {TURN}"] if self.by_clock else []
        items = ", ".join([*keys, *columns, f"{micros} AS {AT}", *turn, f"{self._until(micros)} AS {UNTIL}"])
        return {ROWS: encoded(self.tables[0].columns, Relation(f"(SELECT {items} FROM _rows)"))}

    def _until(self, micros: str) -> str:
        """Return the SQL of UNTIL for a row's time in microseconds: the watermark at which no frame needs the row any more."""
        if self.zone is None:
            return f"{micros} + {self._stay + 1}"
        # The clock as a watermark is never later than the local time of now.
        return f"epoch_us(timezone({quote_text(self.zone)}, make_timestamptz({micros} + {self._stay}))) + 1"

    @cached_property
    def outputs(self) -> tuple[Column, ...]:
        return (*self.columns, *(Column(c.name, c.call.result_type) for c in self.calls))

    @cached_property
    def _late(self) -> LateOutput:
        columns = ((c, f"c{i}") for i, c in enumerate(self.columns) if c.name != ARRIVED.name)
        return LateOutput(0, tuple(columns), f"make_timestamp({AT})")

    @cached_property
    def side_outputs(self) -> dict[str, tuple[Column, ...]]:
        return late_outputs([self._late] if self.emits_late else [])

    @property
    def remembered(self) -> tuple[ExpiringState, ...]:
        return (self._partition_state.remembered,) if self._has_partition_state else ()

    # -- a batch

    def step(
        self,
        con: duckdb.DuckDBPyConnection,
        state: Bucket,
        inputs: Inputs,
        times: StepTimes,
    ) -> Iterator[pa.RecordBatch | SideRows]:
        """Emit late rows as the side output, then the rows whose positions became final, with the results of their calls.

        A row is late if the watermark is greater than its time. Its position is final if the watermark exceeds its time by more
        than RANGE frames reach to later rows. If ROWS frames reach to later rows, these must be final, too, or the input has
        ended. The event timer is the watermark at which the next row becomes final.
        """
        if self.by_clock:
            older_rows = state.relation(ROWS)
            arrived = [state.read(rows) if isinstance(rows, Segment) else rows for _, rows in inputs]
            keep(con, "_new", self._of_clock(con, arrived, times.batch))
        else:
            late = self._arrive(state, inputs, times)
            if self.emits_late and times.watermark is not None:
                yield from self._late.rows(con, late, times.watermark)
            older_rows = self._pass(con, state, times.watermark)
        ends = times.watermark == END_OF_INPUT and self._context.following > 0
        [(due,)] = con.execute("SELECT count(*) FROM _new").fetchall()
        if due or (ends and state.relation(LAST) is not None):
            self._gather(con, state, older_rows, times, ends=ends)
            self._remember(con, state, times)
            yield from con.sql(self._emitted(ends=ends)).to_arrow_reader(BATCH_ROWS)
        if self._has_partition_state:
            self._partition_state.sweep(con, state, times)
        state.event_timer = self._wake_at(con, state, times.watermark)

    def _arrive(self, state: Bucket, inputs: Inputs, times: StepTimes) -> list[pa.Table]:
        """Store rows that are not late; return the others."""
        late = []
        for port, rows in inputs:
            passed = None if port.never_late else times.watermark
            last = None if passed is None else min(passed + self._stay, END_OF_INPUT)
            if isinstance(rows, Segment):
                if last is None or (rows.low is not None and rows.low > last):
                    state.adopt(ROWS, [rows])
                    continue
                rows = state.read(rows)
            if last is not None:
                behind = pc.less_equal(rows.column(UNTIL), last)
                state.count("late_rows", pc.sum(behind).as_py() or 0)
                if self.emits_late:
                    late.append(rows.filter(behind))
                rows = rows.filter(pc.invert(behind))
            state.append(ROWS, rows, times.batch)
        return late

    def _of_clock(self, con: duckdb.DuckDBPyConnection, arrived: Sequence[pa.Table], batch: int) -> Select:
        """Return the rows of the batch, with the columns of the table ROWS; TURN is the number of the batch."""
        [table, *_] = self.tables
        if not arrived:
            return no_rows(table.columns)
        con.register("_arrived", pa.concat_tables(arrived, promote_options="permissive"))
        values = [(str(batch) if c.name == TURN else quote_name(c.name), c) for c in table.columns]
        items = ", ".join(f"CAST({v} AS {c.type}) AS {quote_name(c.name)}" for v, c in values)
        return Select(f"SELECT {items} FROM _arrived")

    def _pass(self, con: duckdb.DuckDBPyConnection, state: Bucket, watermark: EventTime | None) -> Relation | None:
        """Make the temporary table `_new` of the rows that have become final since the last batch.

        Return the other rows in the table ROWS that the watermark has passed; None if no frame needs them.
        """
        if (
            watermark is None
            or (reached := state.relation(ROWS, up_to=min(EventTime(watermark + self._stay), END_OF_INPUT))) is None
        ):
            keep(con, "_new", no_rows(self.tables[0].columns))
            return None
        # Conditions on the time column: its bounds in each file's metadata let DuckDB skip rows.
        final = [f"{UNTIL} <= {min(watermark + self._span, END_OF_INPUT)}"]
        if state.closed is not None:
            final.append(f"{UNTIL} > {min(state.closed + self._span, END_OF_INPUT)}")
        keep(con, "_new", Select(f"SELECT * FROM {reached} WHERE {all_of(final)}"))
        return rows_where(reached, Condition(f"NOT ({all_of(final)})")) if self._stay else None

    def _gather(
        self,
        con: duckdb.DuckDBPyConnection,
        state: Bucket,
        older_rows: Relation | None,
        times: StepTimes,
        *,
        ends: bool,
    ) -> None:
        """Make the temporary tables that calls are computed over, of the new rows and of their partitions' rows in state.

        `_context` has the rows, `_running` and `_totals` the partial results and scans of `Running`.
        """
        context, stored = self._context, names(self._context.stored)
        last = state.relation(LAST) if self._last_rows != 0 else None
        if self.keys:
            by = ", ".join(self.hash_columns)
            more = f" UNION SELECT {by} FROM {last}" if ends and last is not None else ""
            keep(con, TOUCHED, Select(f"SELECT DISTINCT {by} FROM _new{more}"))
        if self._has_partition_state:
            self._partition_state.load(con, state, times)
        rows = [Select(f"SELECT {stored}, true AS {NEW} FROM _new")]
        if older_rows is not None:
            rows.append(Select(f"SELECT {stored}, false FROM ({self._partition_state.touched(older_rows)})"))
        if self._last_rows != 0:
            # Rows that are still in the table ROWS come from there.
            held = "true" if state.closed is None else self._is_held(str(state.closed))
            older = f" WHERE NOT ({held})" if self._span else ""
            last_rows = repeated(context.stored, Relation(f"_old_{LAST}"))
            rows.append(Select(f"SELECT {stored}, false FROM ({last_rows}){older}"))
        keep(con, "_context", context.of(union_all(rows), is_total=self.is_total and not self._keeps_equals(con, rows)))
        if self._running.calls:
            by = ", ".join([ID, POSITION, BEFORE, AFTER, *context.partition_columns])
            partials = f"SELECT {by}, {self._running.row_items} FROM _context WHERE {NEW} GROUP BY {by}"
            keys = "".join(f"{k} AS {INTERNAL}{k}, " for k in self.hash_columns)
            none = f"0 AS {POSITION}, 0 AS {BEFORE}, 0 AS {AFTER}"
            before = f"SELECT {keys}{names(self._running.columns)}, {none} FROM _old_{TOTALS}"
            keep(con, _RUNNING, Select(f"{partials} UNION ALL BY NAME {before}"))
            if self._running.scans:
                # In a table of its own, so that users' functions run once, although it is read twice.
                keep(con, _TOTALS, self._running.totals(context.partition_columns, _RUNNING))

    def _is_held(self, watermark: str) -> Condition:
        """Return the condition that a row in state is still in the table ROWS, at a watermark in microseconds."""
        if self.zone is None:
            return Condition(f"{AT} >= {watermark} - {self._span}")
        return Condition(f"{self._until(AT)} > {watermark}")

    def _keeps_equals(self, con: duckdb.DuckDBPyConnection, rows: Sequence[Select]) -> bool:
        """Whether some rows may share a position in the order of arrival.

        The job stored such rows while columns decided ties; their position is negative, before all others.
        """
        position = next(f"c{i}" for i, c in enumerate(self.columns) if c.name == ARRIVED.name)
        [(count,)] = con.execute(f"SELECT count(*) FROM ({union_all(rows)}) WHERE {position} < 0").fetchall()
        return bool(count)

    def _emitted(self, *, ends: bool) -> Select:
        """Return the emitted rows, with the results of the calls."""
        partition = self._context.partition
        items = ["*", *(f"{c.over_rows(partition)} AS {quote_name(c.name)}" for c in self._framed)]
        rows = Relation(f"(SELECT {', '.join(items)} FROM _context)")
        if self._running.calls:
            joined = [f" JOIN ({sql}) USING ({ID})" for sql in self._running.results(partition, _RUNNING, _TOTALS)]
            rows = Relation(f"(SELECT * FROM {rows}{''.join(joined)})")
        order = f" ORDER BY {POSITION}" if self.sorts else ""
        return Select(f"{encoded(self.outputs, rows)} WHERE {self._context.is_due(ends=ends)}{order}")

    # -- what stays

    def _remember(self, con: duckdb.DuckDBPyConnection, state: Bucket, times: StepTimes) -> None:
        """Store the rows and partial results of the context that calls over later rows need."""
        context = self._context
        if self.by_clock and self._span:
            state.append(ROWS, con.sql(encoded(self.tables[0].columns, Relation("_new"))).to_arrow_table(), times.batch)
        if not self._has_partition_state:
            return
        if self._last_rows is None:
            listed = names(context.stored)
            added = f"SELECT {listed}, 1 AS {WEIGHT} FROM _new"
            both = Relation(f"(SELECT {listed}, {WEIGHT} FROM _old_{LAST} UNION ALL {added})")
            self._partition_state.store(con, state, LAST, both, times)
        elif self._last_rows:
            newest = f"_context WHERE {POSITION} > {COUNT} - {self._last_rows}"
            newest_rows = Relation(f"(SELECT {context.restored}, 1 AS {WEIGHT} FROM {newest})")
            self._partition_state.store(con, state, LAST, newest_rows, times)
        if self._running.calls:
            keys = "".join(f"{INTERNAL}{k} AS {k}, " for k in self.hash_columns)
            totals = _TOTALS
            if not self._running.scans:
                totals = subquery(self._running.totals(context.partition_columns, _RUNNING))
            new = Relation(f"(SELECT {keys}{self._running.stored}, 1 AS {WEIGHT} FROM {totals})")
            self._partition_state.store(con, state, TOTALS, new, times)
        by = ", ".join([*self.hash_columns, ""])
        touched = f"SELECT DISTINCT {by}{to_millis(times.time)} AS {TOUCHED_AT.name}, 1 AS {WEIGHT} FROM "
        keys_now = Relation(f"({touched}{TOUCHED if self.keys else '_context'})")
        self._partition_state.store(con, state, KEYS, keys_now, times)

    def _wake_at(self, con: duckdb.DuckDBPyConnection, state: Bucket, watermark: EventTime | None) -> EventTime | None:
        """Return the watermark at which the position of the next row becomes final; None if no row waits."""
        if not self.by_clock and (first := self._first_waiting(con, state, watermark)) is not None:
            return EventTime(first - self._span)
        waits = self._context.following > 0 and watermark != END_OF_INPUT and state.relation(LAST) is not None
        return END_OF_INPUT if waits else None

    def _first_waiting(
        self, con: duckdb.DuckDBPyConnection, state: Bucket, watermark: EventTime | None
    ) -> EventTime | None:
        earliest = state.forget(con, ROWS, NEVER if watermark is None else watermark)
        if earliest is None or watermark is None or not self._span:
            return earliest
        reached = min(EventTime(watermark + self._span), END_OF_INPUT)
        waiting = f"{state.relation(ROWS)} WHERE {UNTIL} > {reached}"
        [(first,)] = con.execute(f"SELECT min({UNTIL}) FROM {waiting}").fetchall()
        return None if first is None else EventTime(first)

    # -- the view

    @cached_property
    def viewed(self) -> tuple[Column, ...]:
        """The columns of `current`: rows, computed keys, running results, `state`, `_updated_at`, with a `ttl` `_expires_at`."""
        return (*self._shown, *(self._partition_state.times(self._shown) if self._has_partition_state else ()))

    @cached_property
    def _shown(self) -> tuple[Column, ...]:
        """The columns of `current` without the times of keys."""
        output_names = {c.name.lower() for c in self.outputs}
        running = (column for column, _ in self._running.shown(output_names))
        state = next(n for n in ("state", "_state", "__state") if n not in output_names)
        rows = (c for c in self.columns if c.name != ARRIVED.name)
        return (*rows, *(c for c, _ in self._computed_keys), *running, Column(state, "VARCHAR"))

    @property
    def _computed_keys(self) -> list[tuple[Column, str]]:
        """The keys that are no columns of the rows, each with its state column."""
        output_names = {c.name.lower() for c in self.outputs}
        pairs = zip(self.keys, self.hash_columns, strict=True)
        return [(c, name) for (c, _), name in pairs if c.name.lower() not in output_names]

    def current(self, relations: Relations, watermark: str) -> Select:
        """Return the rows in state, and the running results of each partition.

        The column `state` tells the rows apart: `waiting` (for its position to be final), `kept` (for frames of later rows) or
        `total`, with the running results.
        """
        context = self._context
        live_rows = self._partition_state.current(relations) if self._has_partition_state else {}
        computed = [f"{name} AS {quote_name(c.name)}" for c, name in self._computed_keys]
        named = ", ".join([*context.named, *computed])
        state = quote_name(self._shown[-1].name)
        # Names that no column of a user has.
        keys_of = [f"{INTERNAL}of_{name}" for name in self.hash_columns]
        of = [f"{name} AS {hidden}" for name, hidden in zip(self.hash_columns, keys_of, strict=True)]
        waits = (
            "'kept'"
            if self.by_clock
            else f"CASE WHEN {AT} >= {watermark} - {context.later} THEN 'waiting' ELSE 'kept' END"
        )
        selects = [f"SELECT {', '.join([named, *of])}, {waits} AS {state} FROM {relations[ROWS]}"]
        if self._last_rows != 0:
            last = f"SELECT {names(context.stored)}, false AS {NEW} FROM ({current(context.stored, live_rows[LAST])})"
            older = f" WHERE NOT ({self._is_held(watermark)})" if self._span else ""
            # At the end of the input nothing waits.
            waits = f"{POSITION} > {COUNT} - {context.following} AND {watermark} < {-NEVER}"
            columns = ", ".join(
                [*(quote_name(c.name) for c in self.columns), *(f"{INTERNAL}{item}" for item in [*computed, *of])]
            )
            row_state = f"CASE WHEN {waits} THEN 'waiting' ELSE 'kept' END"
            selects.append(f"SELECT {columns}, {row_state} AS {state} FROM ({context.of(Select(last + older))})")
        if self._running.calls:
            stored = {sql: name for name, (_, sql) in zip(self.hash_columns, self.keys, strict=True)}
            keys = [f"{stored[n]} AS {n}" for c in self.columns if (n := quote_name(c.name)) in stored]
            output_names = {c.name.lower() for c in self.outputs}
            totals = [f"{sql} AS {quote_name(c.name)}" for c, sql in self._running.shown(output_names)]
            items = ", ".join([*keys, *computed, *of, *totals, f"'total' AS {state}"])
            selects.append(f"SELECT {items} FROM (SELECT *, 0 AS {BEFORE} FROM {live_rows[TOTALS]})")
        rows = Select(" UNION ALL BY NAME ".join(selects))
        if not self._has_partition_state:
            return Select(f"SELECT {names(self._shown)} FROM ({rows})")
        return self._partition_state.timed(rows, keys_of, self._shown, live_rows, all=True)
