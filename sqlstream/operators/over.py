"""Rows in the order of time, with calls over the rows around them: each leaves once, when its place is final.

Rows wait in a table that forgets by time; as long as a frame of time reaches back to them they stay there. The last rows of a
partition, as many as frames of rows need, and its partial results are Z-sets: a batch reads and changes those of the partitions
that it has rows of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.catalog import Column
from sqlstream.operators.over_calls import AFTER, BEFORE, ID, PLACE, RANKS, OverCall, Running, reach
from sqlstream.operators.step import Clock, Port
from sqlstream.storage.manifests import TableDeclaration
from sqlstream.storage.segments import Segment, encoded, quote_name
from sqlstream.storage.tables import WEIGHTS, Bucket
from sqlstream.storage.views import NEVER, WATERMARK
from sqlstream.storage.zsets import WEIGHT, WEIGHT_COLUMN, current, difference, names, repeated, summed, zset

ROWS, LAST, TOTALS = "rows", "last", "totals"
# A row's time in microseconds, and that up to which it stays in the first table.
AT, UNTIL = "_at", "_until"
# The batch that a row came in, where rows are in the order of the clock.
TURN = "_turn"
BATCH_ROWS = 100_000
END_OF_TIME = 2**63 - 1


@dataclass(frozen=True)
class Over:
    """The operator: keys, the columns of the rows, the SQL of their time, the rest of the order, and the calls.

    `following` rows must be final before a row is: their partitions keep that many rows back. With `by_clock` the time is the
    batch's, and rows leave at once. With `sorts` rows leave in order.
    """

    keys: tuple[tuple[Column, str], ...]
    columns: tuple[Column, ...]
    time: str
    order: tuple[str, ...] = ()
    calls: tuple[OverCall, ...] = ()
    by_clock: bool = False
    sorts: bool = False

    @property
    def kind(self) -> str:
        return "sort" if self.sorts else "over"

    # -- what is stored

    @cached_property
    def following(self) -> int:
        return max(0, max((c.frame.following for c in self.calls), default=0))

    @cached_property
    def _running(self) -> Running:
        return Running(tuple(c for c in self.calls if c.runs))

    @cached_property
    def _framed(self) -> tuple[OverCall, ...]:
        return tuple(c for c in self.calls if not c.runs)

    @cached_property
    def _span(self) -> int:
        """How long (microseconds) a row stays for the frames of rows after it."""
        return max((c.time_before for c in self._framed), default=0)

    @cached_property
    def _kept(self) -> int | None:
        """How many of a partition's last rows stay, None: all."""
        found = [c.rows_before for c in self._framed]
        known = [n for n in found if n is not None]
        return max(known, default=0) + self.following if len(known) == len(found) else None

    @cached_property
    def hash_columns(self) -> tuple[str, ...]:
        return tuple(f"k{i}" for i in range(len(self.keys)))

    @cached_property
    def _stored(self) -> tuple[Column, ...]:
        """The columns of a row in either table."""
        keys = (Column(name, c.type) for name, (c, _) in zip(self.hash_columns, self.keys, strict=True))
        columns = (Column(f"c{i}", c.type) for i, c in enumerate(self.columns))
        turn = (Column(TURN, "BIGINT"),) if self.by_clock else ()
        return (*keys, *columns, Column(AT, "BIGINT"), *turn)

    @cached_property
    def _totals(self) -> tuple[Column, ...]:
        keys = self._stored[: len(self.keys)]
        return (*keys, *(Column(name, column.type) for name, column in self._running.columns.items()))

    @cached_property
    def tables(self) -> tuple[TableDeclaration, ...]:
        declared = [TableDeclaration(ROWS, (*self._stored, Column(UNTIL, "BIGINT")), UNTIL)]
        if self._kept != 0:
            declared.append(zset(LAST, self._stored))
        if self._running.calls:
            declared.append(zset(TOTALS, self._totals))
        return tuple(declared)

    @cached_property
    def parts(self) -> dict[str, str]:
        """What the fragment before the exchange computes from `_rows`, in the form in which it is stored."""
        keys = [f"{sql} AS {name}" for name, (_, sql) in zip(self.hash_columns, self.keys, strict=True)]
        columns = [f"{quote_name(c.name)} AS c{i}" for i, c in enumerate(self.columns)]
        micros = f"epoch_us({self.time})"
        turn = [f"0 AS {TURN}"] if self.by_clock else []
        items = ", ".join([*keys, *columns, f"{micros} AS {AT}", *turn, f"{micros} + {self._span + 1} AS {UNTIL}"])
        return {ROWS: encoded(self.tables[0].columns, f"(SELECT {items} FROM _rows)")}

    @cached_property
    def outputs(self) -> tuple[Column, ...]:
        return (*self.columns, *(Column(c.name, c.call.result_type) for c in self.calls))

    # -- a batch

    def step(
        self,
        con: duckdb.DuckDBPyConnection,
        state: Bucket,
        inputs: Iterable[tuple[Port, pa.Table | Segment]],
        clock: Clock,
    ) -> Iterator[pa.RecordBatch]:
        """Take the rows of a batch, then emit those whose place is final."""
        known = state.relation(ROWS) if self.by_clock else None
        arrived = self._arrive(state, inputs, clock)
        if self.by_clock:
            _keep(con, "_new", self._of_clock(con, arrived, clock.batch))
        else:
            known = self._passed(con, state, clock.watermark)
        ends = clock.watermark == END_OF_TIME and self.following > 0
        [(due,)] = con.execute("SELECT count(*) FROM _new").fetchall()
        if due or (ends and state.relation(LAST) is not None):
            self._gather(con, state, known, ends=ends)
            self._remember(con, state, clock.batch)
            yield from con.sql(self._emitted(ends=ends)).to_arrow_reader(BATCH_ROWS)
        state.wake_at = self._wake_at(con, state, clock.watermark)

    def _arrive(
        self, state: Bucket, inputs: Iterable[tuple[Port, pa.Table | Segment]], clock: Clock
    ) -> Sequence[pa.Table]:
        """Store rows that are not late; return those of the clock, which leave at once."""
        arrived = []
        for port, rows in inputs:
            if self.by_clock:
                arrived.append(state.read(rows) if isinstance(rows, Segment) else rows)
                continue
            # What was emitted in order came by then: nothing that an operator below emits comes behind it.
            passed = state.closed if port.on_time else clock.watermark
            last = None if passed is None else min(passed + self._span, END_OF_TIME)
            if isinstance(rows, Segment):
                if last is None or (rows.low is not None and rows.low > last):
                    state.adopt(ROWS, [rows])
                    continue
                rows = state.read(rows)
            if last is not None:
                late = pc.less_equal(rows.column(UNTIL), last)
                state.count("late_rows", pc.sum(late).as_py() or 0)
                rows = rows.filter(pc.invert(late))
            state.append(ROWS, rows, clock.batch)
        return arrived

    def _of_clock(self, con: duckdb.DuckDBPyConnection, arrived: Sequence[pa.Table], batch: int) -> str:
        [table, *_] = self.tables
        if not arrived:
            return _nothing(table.columns)
        con.register("_arrived", pa.concat_tables(arrived, promote_options="permissive"))
        values = [(str(batch) if c.name == TURN else quote_name(c.name), c) for c in table.columns]
        return f"SELECT {', '.join(f'CAST({v} AS {c.type}) AS {quote_name(c.name)}' for v, c in values)} FROM _arrived"

    def _passed(self, con: duckdb.DuckDBPyConnection, state: Bucket, watermark: int | None) -> str | None:
        """Keep the rows that the watermark has passed since the last batch; return those that it had passed by then."""
        [table, *_] = self.tables
        reached = None if watermark is None else state.relation(ROWS, up_to=min(watermark + self._span, END_OF_TIME))
        if reached is None:
            _keep(con, "_new", _nothing(table.columns))
            return None
        since = "" if state.closed is None else f" WHERE {AT} >= {state.closed}"
        _keep(con, "_new", f"SELECT * FROM {reached}{since}")
        if state.closed is None or not self._span:
            return None
        return f"(SELECT * FROM {reached} WHERE {AT} < {state.closed})"

    def _gather(self, con: duckdb.DuckDBPyConnection, state: Bucket, known: str | None, *, ends: bool) -> None:
        """Keep the context: the rows that have become final, and of their partitions those before that are still known."""
        stored = names(self._stored)
        last, totals = (state.relation(t) if t in {d.name for d in self.tables} else None for t in (LAST, TOTALS))
        if self.keys:
            by = ", ".join(self.hash_columns)
            more = f" UNION SELECT {by} FROM {last}" if ends and last is not None else ""
            _keep(con, "_touched", f"SELECT DISTINCT {by} FROM _new{more}")
        if self._kept != 0:
            _keep(con, "_last", summed(self._stored, self._of_touched(last, self._stored)))
        if self._running.calls:
            _keep(con, "_totals", summed(self._totals, self._of_touched(totals, self._totals)))
        rows = [f"SELECT {stored}, true AS __new FROM _new"]
        if known is not None:
            rows.append(f"SELECT {stored}, false FROM {self._of_touched(known, self._stored)}")
        if self._kept != 0:
            # What the first table still holds is not taken from here.
            held = "true" if state.closed is None else f"{AT} >= {state.closed - self._span}"
            older = f" WHERE NOT ({held})" if self._span else ""
            rows.append(f"SELECT {stored}, false FROM ({repeated(self._stored, '_last')}){older}")
        _keep(con, "_context", self._placed(" UNION ALL ".join(rows)))
        if self._running.calls:
            by = ", ".join([ID, PLACE, BEFORE, AFTER, *(f"__{k}" for k in self.hash_columns)])
            made = f"SELECT {by}, {self._running.made} FROM _context WHERE __new GROUP BY {by}"
            renamed = "".join(f", {k} AS __{k}" for k in self.hash_columns)
            before = f"SELECT 0 AS {PLACE}, 0 AS {BEFORE}, 0 AS {AFTER}{renamed}, {', '.join(self._running.columns)} FROM _totals"
            _keep(con, "_running", f"{made} UNION ALL BY NAME {before}")

    def _of_touched(self, rows: str | None, columns: Sequence[Column]) -> str:
        """Return, to go behind FROM, those of some rows whose partitions are touched."""
        if rows is None:
            return f"({_nothing((*columns, WEIGHT_COLUMN))})"
        if not self.keys:
            return rows
        same = " AND ".join(f"_state.{k} IS NOT DISTINCT FROM _touched.{k}" for k in self.hash_columns)
        return f"(SELECT * FROM {rows} _state SEMI JOIN _touched ON {same})"

    def _placed(self, rows: str) -> str:
        """Return the SELECT of rows with their columns under their own names, and their place in their partition."""
        partition = self._partition
        turn = [f"{TURN} AS __turn"] if self.by_clock else []
        own = [f"c{i} AS {quote_name(c.name)}" for i, c in enumerate(self.columns)]
        keys = [f"{k} AS __{k}" for k in self.hash_columns]
        named = f"SELECT {', '.join([*keys, *own, f'{AT} AS __at', *turn, '__new'])} FROM ({rows})"
        by_time = ["__at", *(["__turn"] if self.by_clock else []), *self.order]
        whole = ", ".join([*by_time, *(quote_name(c.name) for c in self.columns)])
        items = [f"row_number() OVER (PARTITION BY {partition} ORDER BY {whole}) AS {PLACE}"]
        equal = f"0 AS {BEFORE}, 0 AS {AFTER}"
        if any(c.frame.mode == "range" or c.call.function in RANKS for c in self.calls):
            items.append(f"rank() OVER (PARTITION BY {partition} ORDER BY {', '.join(by_time)}) AS __first")
            all_equal = f"count(*) OVER (PARTITION BY {partition}, __first)"
            equal = f"{PLACE} - __first AS {BEFORE}, {all_equal} - 1 - {BEFORE} AS {AFTER}"
        spans = sorted(
            {c.time_before for c in self._framed if c.frame.mode == "range" and c.frame.preceding is not None}
        )
        for span in spans:
            frame = f"RANGE BETWEEN {span} PRECEDING AND CURRENT ROW"
            items.append(f"count(*) OVER (PARTITION BY {partition} ORDER BY __at {frame}) AS __in_{span}")
        if self._kept or self.following:
            items.append(f"count(*) OVER (PARTITION BY {partition}) AS __count")
        if self.following:
            items.append(f"count(*) FILTER (NOT __new) OVER (PARTITION BY {partition}) AS __old")
        placed = f"SELECT *, {', '.join(items)} FROM ({named})"
        reached = [f"__in_{span} - 1 - {AFTER} AS {reach(span)}" for span in spans]
        return f"SELECT *, {', '.join([f'row_number() OVER () AS {ID}', equal, *reached])} FROM ({placed})"

    @property
    def _partition(self) -> str:
        return ", ".join(f"__{k}" for k in self.hash_columns) or "true"

    def _is_due(self, *, ends: bool) -> str:
        if not self.following:
            return "__new"
        waits = f"(__new OR {PLACE} > __old - {self.following})"
        return waits if ends else f"{waits} AND {PLACE} <= __count - {self.following}"

    def _emitted(self, *, ends: bool) -> str:
        """Return the SELECT of the rows that leave, with the results of the calls."""
        partition = self._partition
        items = ["*", *(f"{c.over_rows(partition)} AS {quote_name(c.name)}" for c in self._framed)]
        rows = f"(SELECT {', '.join(items)} FROM _context)"
        if self._running.calls:
            joined = [f" JOIN ({sql}) USING ({ID})" for sql in self._running.results(partition, "_running")]
            rows = f"(SELECT * FROM {rows}{''.join(joined)})"
        order = f" ORDER BY {PLACE}" if self.sorts else ""
        return f"{encoded(self.outputs, rows)} WHERE {self._is_due(ends=ends)}{order}"

    # -- what stays

    def _remember(self, con: duckdb.DuckDBPyConnection, state: Bucket, batch: int) -> None:
        """Store what later rows need of those in the context."""
        stored = self._stored
        if self.by_clock and self._span:
            [table, *_] = self.tables
            state.append(ROWS, con.sql(encoded(table.columns, "_new")).to_arrow_table(), batch)
        if self._kept != 0:
            keys = [f"__{k} AS {k}" for k in self.hash_columns]
            own = [f"{quote_name(c.name)} AS c{i}" for i, c in enumerate(self.columns)]
            turn = [f"__turn AS {TURN}"] if self.by_clock else []
            items = ", ".join([*keys, *own, f"__at AS {AT}", *turn, f"1 AS {WEIGHT}"])
            if self._kept is None:
                added = f"SELECT {names(stored)}, CAST(1 AS BIGINT) AS {WEIGHT} FROM _new"
            else:
                newest = f"(SELECT {items} FROM _context WHERE {PLACE} > __count - {self._kept})"
                added = difference(stored, newest, "_last")
            self._change(con, state, LAST, stored, added, batch)
        if self._running.calls:
            by = "".join(f"__{k} AS {k}, " for k in self.hash_columns)
            grouped = f" GROUP BY {', '.join(f'__{k}' for k in self.hash_columns)}" if self.keys else ""
            new = f"(SELECT {by}{self._running.merged}, 1 AS {WEIGHT} FROM _running{grouped})"
            self._change(con, state, TOTALS, self._totals, difference(self._totals, new, "_totals"), batch)

    @staticmethod
    def _change(
        con: duckdb.DuckDBPyConnection, state: Bucket, table: str, columns: Sequence[Column], sql: str, batch: int
    ) -> None:
        rows = con.sql(encoded((*columns, WEIGHT_COLUMN), f"({sql})")).to_arrow_table()
        state.append(table, rows, batch)
        state.count(WEIGHTS, pc.sum(rows.column(WEIGHT)).as_py() or 0)

    def _wake_at(self, con: duckdb.DuckDBPyConnection, state: Bucket, watermark: int | None) -> int | None:
        """Return the time at which the next row is final, if one waits."""
        if not self.by_clock and (first := self._first_waiting(con, state, watermark)) is not None:
            return first - self._span
        waits = self.following > 0 and watermark != END_OF_TIME and state.relation(LAST) is not None
        return END_OF_TIME if waits else None

    def _first_waiting(self, con: duckdb.DuckDBPyConnection, state: Bucket, watermark: int | None) -> int | None:
        earliest = state.forget(con, ROWS, NEVER if watermark is None else watermark)
        if earliest is None or watermark is None or not self._span:
            return earliest
        reached = min(watermark + self._span, END_OF_TIME)
        [(first,)] = con.execute(
            f"SELECT min({UNTIL}) FROM {state.relation(ROWS)} WHERE {UNTIL} > {reached}"
        ).fetchall()
        return None if first is None else int(first)

    # -- the view

    @cached_property
    def viewed(self) -> tuple[Column, ...]:
        """The columns of the view: those of the rows, what is known of partitions so far, and what a row of it is."""
        taken = {c.name.lower() for c in self.outputs}
        keys = (c for c, _ in self.keys if c.name.lower() not in taken)
        running = (Column(c.name, c.call.result_type) for c in self._running.calls)
        state = next(n for n in ("state", "_state", "__state") if n not in taken)
        return (*self.columns, *keys, *running, Column(state, "VARCHAR"))

    def current(self, relations: Mapping[str, str]) -> str:
        """Return the SELECT of the rows that wait and those that are kept, and of what is known of partitions so far."""
        named = ", ".join([*(f"c{i} AS {quote_name(c.name)}" for i, c in enumerate(self.columns)), *self._other_keys])
        waits = "'kept'" if self.by_clock else f"CASE WHEN {AT} >= {WATERMARK} THEN 'waiting' ELSE 'kept' END"
        state = quote_name(self.viewed[-1].name)
        found = [f"SELECT {named}, {waits} AS {state} FROM {relations[ROWS]}"]
        if self._kept != 0:
            last = f"({current(self._stored, relations[LAST])})"
            if self.following:
                found.append(self._viewed_last(last, named, state))
            else:
                older = f" WHERE {AT} < {WATERMARK} - {self._span}" if self._span else ""
                found.append(f"SELECT {named}, 'kept' AS {state} FROM {last}{older}")
        if self._running.calls:
            totals = f"({summed(self._totals, relations[TOTALS])})"
            own = {sql: k for k, (_, sql) in zip(self.hash_columns, self.keys, strict=True)}
            keys = [f"{k} AS {name}" for c in self.columns if (k := own.get(name := quote_name(c.name)))]
            items = ", ".join([*keys, *self._other_keys, *self._running.finals, f"'total' AS {state}"])
            found.append(f"SELECT {items} FROM (SELECT *, 0 AS {BEFORE} FROM {totals})")
        return f"SELECT {names(self.viewed)} FROM ({' UNION ALL BY NAME '.join(found)})"

    @property
    def _other_keys(self) -> list[str]:
        """The keys that are no columns of the rows, under their names in the view."""
        shown = {c.name for c in self.viewed}
        own = {c.name for c in self.columns}
        pairs = zip(self.hash_columns, self.keys, strict=True)
        return [f"{k} AS {quote_name(c.name)}" for k, (c, _) in pairs if c.name in shown - own]

    def _viewed_last(self, last: str, named: str, state: str) -> str:
        """Return the SELECT of the last rows of partitions; of those the newest wait for further ones."""
        by = ", ".join(self.hash_columns) or "true"
        own = [f"c{i} AS {quote_name(c.name)}" for i, c in enumerate(self.columns)]
        order = ", ".join(
            [AT, *([TURN] if self.by_clock else []), *self.order, *(quote_name(c.name) for c in self.columns)]
        )
        rows = f"SELECT *, {', '.join(own)} FROM {last}"
        placed = f"SELECT *, row_number() OVER (PARTITION BY {by} ORDER BY {order}) AS {PLACE} FROM ({rows})"
        counted = f"SELECT *, count(*) OVER (PARTITION BY {by}) AS __count FROM ({placed})"
        waits = f"{PLACE} > __count - {self.following} AND {WATERMARK} < {-NEVER}"
        return f"SELECT {named}, CASE WHEN {waits} THEN 'waiting' ELSE 'kept' END AS {state} FROM ({counted})"


def _keep(con: duckdb.DuckDBPyConnection, name: str, sql: str) -> None:
    con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")


def _nothing(columns: Sequence[Column]) -> str:
    items = ", ".join(f"CAST(NULL AS {c.type}) AS {quote_name(c.name)}" for c in columns)
    return f"SELECT {items} WHERE false"
