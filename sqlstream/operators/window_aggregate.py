"""Aggregates per key and event-time window: partial results go in, results come out when a window closes.

A batch only appends what its rows amount to; state is read back when the watermark closes windows. Aggregates that cannot
be merged (DISTINCT, ORDER BY inside, mode, ...) keep their values in a table of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.catalog import Column
from sqlstream.operators.aggregates import AggregateCall, Partial, Strategy, Values, partials, strategy, values
from sqlstream.operators.step import Clock, Port
from sqlstream.storage.manifests import TableDeclaration
from sqlstream.storage.segments import Segment, encoded, quote_name
from sqlstream.storage.tables import Bucket

PARTIALS = "partials"
START = "_window_start"
END = "_window_end"
# How many input rows a partial row stands for: lateness is counted in rows.
ROWS = "_rows"
BATCH_ROWS = 100_000
# Before any event time: nothing is forgotten, no window is closed.
NEVER = -(2**62)


@dataclass(frozen=True)
class WindowAggregate:
    """The operator: group columns, the window's size (None: the start is one of the group columns), the aggregate calls.

    `end` is the DuckDB expression of the window's end over the input rows. Output columns are the keys, the window bounds
    under the names in `bounds` (start, end, time), and one per call.
    """

    keys: tuple[tuple[Column, str], ...]
    end: str
    size: int | None
    start: str | None
    bounds: tuple[str | None, str | None, str | None]
    calls: tuple[tuple[str, AggregateCall], ...]

    @property
    def kind(self) -> str:
        return "window_aggregate"

    @cached_property
    def group(self) -> tuple[tuple[Column, str], ...]:
        """The stored group columns and the expressions that make them: keys, the end, the start where it is not end - size."""
        start = () if self.size is not None else ((Column(START, "TIMESTAMP"), str(self.start)),)
        # Stored under names of our own: a user's name could be one of ours.
        keys = ((Column(f"k{i}", column.type), sql) for i, (column, sql) in enumerate(self.keys))
        return (*keys, *start, (Column(END, "TIMESTAMP"), self.end))

    @cached_property
    def hash_columns(self) -> tuple[str, ...]:
        """The columns whose hash picks the bucket."""
        return tuple(f"k{i}" for i in range(len(self.keys))) or (END,)

    @cached_property
    def partial_calls(self) -> tuple[tuple[str, Partial], ...]:
        found = [(n, c) for n, c in self.calls if strategy(c) is not Strategy.VALUES and not self._counts_rows(c)]
        return tuple(zip([n for n, _ in found], partials([c for _, c in found], "p"), strict=True))

    @cached_property
    def partial_columns(self) -> dict[str, tuple[str, str, str]]:
        """The stored columns of partial results, by name: type, SQL over input rows, SQL that merges. Calls may share one."""
        columns = {}
        for _, p in self.partial_calls:
            for (name, type), made, merge in zip(p.columns, p.partial, p.merge, strict=True):
                columns[name] = (type, made, merge)
        return columns

    @cached_property
    def value_calls(self) -> tuple[tuple[str, Values, str], ...]:
        """The calls that keep values: result name, values, and the table that they share with equal ones."""
        tables: dict[object, str] = {}
        found = []
        for name, call in self.calls:
            if strategy(call) is Strategy.VALUES:
                kept = values(call)
                same = (kept.columns, kept.collect, kept.filter, kept.distinct)
                table = tables.setdefault(same, f"values_{len(tables)}")
                number = list(tables.values()).index(table) + 1
                found.append((name, values(call, f"{table}_", f"_part = {number}"), table))
        return tuple(found)

    @cached_property
    def value_tables(self) -> dict[str, Values]:
        return {table: kept for _, kept, table in self.value_calls}

    @staticmethod
    def _counts_rows(call: AggregateCall) -> bool:
        """COUNT(*) is what `_rows` holds anyway."""
        return call.function in ("count", "count_star") and not call.arguments and call.filter is None

    @cached_property
    def tables(self) -> tuple[TableDeclaration, ...]:
        group = tuple(c for c, _ in self.group)
        columns = (*group, Column(ROWS, "BIGINT"), *(Column(n, t) for n, (t, _, _) in self.partial_columns.items()))
        merge = f"SELECT {self._names}, {', '.join(self._merged())} FROM {{rows}} GROUP BY {self._names}"
        declared = [TableDeclaration(PARTIALS, columns, END, merge)]
        for table, kept in self.value_tables.items():
            stored = (*group, *(Column(n, t) for n, t in kept.columns))
            names = ", ".join(quote_name(c.name) for c in stored)
            unique = f"SELECT DISTINCT {names} FROM {{rows}}" if kept.distinct else None
            declared.append(TableDeclaration(table, stored, END, unique))
        return tuple(declared)

    @property
    def _names(self) -> str:
        return ", ".join(quote_name(c.name) for c, _ in self.group)

    def _merged(self) -> list[str]:
        """The select items that merge partial rows of one group into one."""
        merges = [f"{merge} AS {quote_name(n)}" for n, (_, _, merge) in self.partial_columns.items()]
        return [f"CAST(sum({ROWS}) AS BIGINT) AS {ROWS}", *merges]

    @cached_property
    def parts(self) -> dict[str, str]:
        """What the fragment before the exchange computes from `_rows`: SQL per part, in the form in which it is stored."""
        select = ", ".join(f"{sql} AS {quote_name(c.name)}" for c, sql in self.group)
        by = ", ".join(str(i + 1) for i in range(len(self.group)))
        items = [f"count(*) AS {ROWS}"]
        items += [f"{made} AS {quote_name(n)}" for n, (_, made, _) in self.partial_columns.items()]
        found = {PARTIALS: f"SELECT {select}, {', '.join(items)} FROM _rows GROUP BY {by}"}
        for table, kept in self.value_tables.items():
            made = zip(kept.collect, kept.columns, strict=True)
            collected = ", ".join(f"{sql} AS {quote_name(n)}" for sql, (n, _) in made)
            distinct = "DISTINCT " if kept.distinct else ""
            where = f" WHERE {kept.filter}" if kept.filter else ""
            found[table] = f"SELECT {distinct}{select}, {collected} FROM _rows{where}"
        return {t.name: encoded(t.columns, f"({found[t.name]})") for t in self.tables}

    @cached_property
    def outputs(self) -> tuple[Column, ...]:
        """The columns of the result."""
        bounds = (Column(name, "TIMESTAMP") for name in self.bounds if name is not None)
        calls = (Column(name, call.result_type) for name, call in self.calls)
        return (*(c for c, _ in self.keys), *bounds, *calls)

    def current(self, relations: Mapping[str, str]) -> str:
        """Return the SELECT of the current result over the state tables, given as FROM-able SQL by name."""
        finals = {name: p.final for name, p in self.partial_calls}
        finals |= {name: ROWS for name, call in self.calls if self._counts_rows(call)}
        merged = self._merged()
        rows = [f"SELECT {'0 AS _part, ' if self.value_calls else ''}* FROM {relations[PARTIALS]}"]
        for number, table in enumerate(self.value_tables, 1):
            kept = self.value_tables[table]
            distinct = "DISTINCT " if kept.distinct else ""
            stored = ", ".join([self._names, *(quote_name(n) for n, _ in kept.columns)])
            rows.append(f"SELECT {number} AS _part, * FROM (SELECT {distinct}{stored} FROM {relations[table]})")
        for name, kept, _ in self.value_calls:
            merged.append(f"{kept.final} AS r{len(finals)}")
            finals[name] = f"r{len(finals)}"
        inner = " UNION ALL BY NAME ".join(rows)
        combined = f"SELECT {self._names}, {', '.join(merged)} FROM ({inner}) GROUP BY {self._names}"
        items = [f"k{i} AS {quote_name(c.name)}" for i, (c, _) in enumerate(self.keys)] + self._bounds()
        items += [f"{finals[name]} AS {quote_name(name)}" for name, _ in self.calls]
        return f"SELECT {', '.join(items)} FROM ({combined})"

    def _bounds(self) -> list[str]:
        start, end, time = self.bounds
        begin = START if self.size is None else f"{END} - to_microseconds({self.size})"
        items = [(begin, start), (END, end), (f"{END} - INTERVAL 1 MILLISECOND", time)]
        return [f"{sql} AS {quote_name(name)}" for sql, name in items if name is not None]

    def step(
        self,
        con: duckdb.DuckDBPyConnection,
        state: Bucket,
        inputs: Iterable[tuple[Port, pa.Table | Segment]],
        clock: Clock,
    ) -> Iterator[pa.RecordBatch]:
        """Take the rows of a batch, then emit and forget every window that the watermark has closed."""
        for port, rows in inputs:
            if isinstance(rows, Segment):
                if port.on_time or clock.watermark is None or (rows.low is not None and rows.low > clock.watermark):
                    state.adopt(port.part, [rows])
                    continue
                rows = state.read(rows)
            accepted = rows if port.on_time else self._drop_late(port, rows, state, clock)
            state.append(port.part, accepted, clock.batch)
        if clock.watermark is not None:
            yield from self._fire(con, state, clock.watermark)
        state.wake_at = state.forget(con, PARTIALS, NEVER if clock.watermark is None else clock.watermark)

    def _drop_late(self, port: Port, rows: pa.Table, state: Bucket, clock: Clock) -> pa.Table:
        if clock.watermark is None or rows.num_rows == 0:
            return rows
        end = rows.column(END).cast(pa.int64())
        late = pc.less_equal(end, clock.watermark)
        if not pc.any(late).as_py():
            return rows
        if port.part == PARTIALS:
            dropped = pc.sum(pc.filter(rows.column(ROWS), late)).as_py()
            state.counters["late_rows"] = state.counters.get("late_rows", 0) + dropped
        return rows.filter(pc.invert(late))

    def _fire(self, con: duckdb.DuckDBPyConnection, state: Bucket, watermark: int) -> Iterator[pa.RecordBatch]:
        relations = {t.name: state.relation(t.name, up_to=watermark) for t in self.tables}
        if relations[PARTIALS] is not None:
            empty = {t.name: empty_relation(t) for t in self.tables}
            sql = self.current({name: sql or empty[name] for name, sql in relations.items()})
            yield from con.sql(encoded(self.outputs, f"({sql})")).to_arrow_reader(BATCH_ROWS)


def empty_relation(table: TableDeclaration) -> str:
    """Return a FROM-able relation with the table's columns and no rows."""
    columns = ", ".join(f"CAST(NULL AS {c.type}) AS {quote_name(c.name)}" for c in table.columns)
    return f"(SELECT {columns} WHERE false)"
