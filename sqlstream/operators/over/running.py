"""Calls with OVER over all rows up to the current one, computed from a stored partial result of the older rows.

DuckDB's functions merge partial results; users' functions are `scans`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.duck.aggregates.aggregate_call import AggregateCall
from sqlstream.duck.aggregates.calls import partials
from sqlstream.duck.aggregates.partial_columns import FRAME
from sqlstream.duck.internal_columns import INTERNAL, internal
from sqlstream.duck.sql import Items, Relation, Select, quote_name, quote_text
from sqlstream.operators.over.calls import AFTER, BEFORE, FIRST, ID, LAST, POSITION, RANKS, OverCall
from sqlstream.operators.over.scans import Scans


@dataclass(frozen=True, slots=True)
class RunningColumn:
    """A state column of partial results: its type, and three SQL expressions.

    `partial`, an aggregate, computes it from rows; `merge`, an aggregate, from rows of partial results; `running` merges all
    partial results up to a row, over the window FRAME.
    """

    type: str
    partial: str
    merge: str
    running: str


@dataclass(frozen=True)
class Running:
    """Calls over all rows up to the current one (and its peers): their state columns, one row per partition, and results.

    If several rows have the extreme key, arg_min and arg_max take the first of these rows with `by_position`, and otherwise the
    one with the extreme value.
    """

    calls: tuple[OverCall, ...]
    by_position: bool = False

    @cached_property
    def _scans(self) -> Scans:
        return Scans(tuple(c for c in self.calls if c.call.python is not None))

    @cached_property
    def _merging(self) -> tuple[OverCall, ...]:
        return tuple(c for c in self.calls if c.call.python is None)

    @property
    def scans(self) -> bool:
        """Whether some calls are users' functions, whose results `results` reads from the rows of `totals`."""
        return bool(self._scans.calls)

    @cached_property
    def _partials(self) -> dict[str, tuple[dict[str, RunningColumn], str]]:
        """The state columns of each call, by their names, and the SQL of its result over them, by the call's name."""
        by_call: dict[str, tuple[dict[str, RunningColumn], str]] = {}
        merging = [c for c in self._merging if c.call.function not in (*FIRST, *LAST)]
        for call, partial in zip(merging, partials([_counted(c.call) for c in merging], internal("p")), strict=True):
            texts = zip(partial.columns, partial.partial, partial.merge, partial.running, strict=True)
            columns = {name: RunningColumn(type, *rest) for (name, type), *rest in texts}
            if self.by_position and call.call.function.startswith(("arg_min", "arg_max")) and not call.call.limited:
                columns = {name: _first_extreme(call, name, column) for name, column in columns.items()}
            by_call[call.name] = (
                columns,
                f"{partial.final} - {BEFORE}" if call.call.function == "rank" else partial.final,
            )
        edges: dict[tuple[str, str], str] = {}
        for call in (c for c in self._merging if c not in merging):
            column = _edge(call)
            name = edges.setdefault((column.partial, column.running), f"{INTERNAL}e_{len(edges)}")
            named = replace(column, merge=column.merge.format(name), running=column.running.format(name))
            by_call[call.name] = ({name: named}, f"struct_extract({name}, 'v')")
        return by_call

    @cached_property
    def _columns(self) -> dict[str, RunningColumn]:
        """The state columns of partial results, by name; calls can share one."""
        return {name: column for columns, _ in self._partials.values() for name, column in columns.items()}

    @property
    def held(self) -> Mapping[str, tuple[str, ...]]:
        """The names of the state columns of each call, by the call's name."""
        return {**{name: tuple(columns) for name, (columns, _) in self._partials.items()}, **self._scans.held}

    @property
    def columns(self) -> tuple[Column, ...]:
        """All state columns, without keys."""
        return (*(Column(name, column.type) for name, column in self._columns.items()), *self._scans.columns)

    def totals(self, partition: Sequence[str], rows: Relation) -> Select:
        """Return one row per partition: its columns, the merged partial results, and what scans need.

        `partition` are the columns of the partition. `rows` are the batch's rows with their `row_items`, and the partial results
        in state, both with ID (NULL for state), POSITION, BEFORE and AFTER.
        """
        merged = [f"{column.merge} AS {name}" for name, column in self._columns.items()]
        if self.scans:
            return self._scans.scanned(partition, merged, rows)
        by = f" GROUP BY {', '.join(partition)}" if partition else ""
        return Select(f"SELECT {', '.join([*partition, *merged])} FROM {rows}{by}")

    @property
    def stored(self) -> Items:
        """The state columns over the rows of `totals`."""
        return Items(", ".join([*self._columns, *self._scans.totals]))

    @property
    def row_items(self) -> Items:
        """Partial results of one row of the context, and arguments of scans: aggregates, for a SELECT that groups by ID."""
        own = [f"{column.partial} AS {name}" for name, column in self._columns.items()]
        return Items(", ".join([*own, *self._scans.row_items]))

    def shown(self, used_names: Collection[str]) -> Iterator[tuple[Column, str]]:
        """Yield the columns of a view with their SQL over the state columns: the results so far, then users' accumulators.

        An accumulator whose name is in `used_names`, in lower case, is left out.
        """
        for c in self._merging:
            yield Column(c.name, c.call.result_type), self._partials[c.name][1]
        yield from self._scans.shown(used_names)

    def results(self, partition: str, rows: Relation, totals: Relation) -> Sequence[Select]:
        """Return queries to join by ID: each has ID and the result columns of some of the calls, together of all of them.

        `partition` is the SQL behind PARTITION BY, `rows` what the method `totals` reads, `totals` its rows, which only scans
        read.
        """
        selects = [self._scans.results(totals)] if self.scans else []
        for mode, last in (("rows", "CURRENT ROW"), ("range", f"{AFTER} FOLLOWING")):
            calls = [c for c in self._merging if ("rows" if c.call.function in RANKS else c.frame.mode) == mode]
            if not calls:
                continue
            used = {n: column for c in calls for n, column in self._partials[c.name][0].items()}
            running = ", ".join(f"{column.running} AS {name}" for name, column in used.items())
            window = (
                f"{FRAME} AS (PARTITION BY {partition} ORDER BY {POSITION} ROWS BETWEEN UNBOUNDED PRECEDING AND {last})"
            )
            inner = f"SELECT {ID}, {BEFORE}, {running} FROM {rows} WINDOW {window}"
            finals = ", ".join(f"{self._partials[c.name][1]} AS {quote_name(c.name)}" for c in calls)
            selects.append(Select(f"SELECT {ID}, {finals} FROM ({inner}) WHERE {ID} IS NOT NULL"))
        return selects


def _counted(call: AggregateCall) -> AggregateCall:
    """Return a rank as a count of rows (row_number, rank), or of first peers (dense_rank); other calls as they are."""
    if call.function not in RANKS:
        return call
    first = f"{BEFORE} = 0" if call.function == "dense_rank" else None
    return AggregateCall("count", (), (), filter=first, result_type="BIGINT")


def _first_extreme(call: OverCall, name: str, column: RunningColumn) -> RunningColumn:
    """Return the column of the row with the extreme key, a struct of its key and its value: of several rows the first one."""
    way = "_".join(call.call.function.split("_")[:2])
    fields = ("n", "k") if call.call.function.endswith("nulls_last") else ("k",)
    key = f"struct_pack({', '.join(f'{f} := struct_extract({name}, {quote_text(f)})' for f in fields)})"
    return replace(
        column,
        merge=f"{way}({name}, {key} ORDER BY {POSITION}) FILTER (WHERE {name} IS NOT NULL)",
        running=f"{way}({name}, {key}) FILTER (WHERE {name} IS NOT NULL) OVER {FRAME}",
    )


def _edge(call: OverCall) -> RunningColumn:
    """Return the column of the first or last value, in a struct, since it may be NULL; its name replaces `{0}` in the SQL."""
    value, type = call.call.arguments[0], call.call.argument_types[0]
    conditions = [f"({call.call.filter})"] if call.call.filter else []
    if call.ignore_nulls or call.call.function == "any_value":
        conditions.append(f"({value}) IS NOT NULL")
    struct = f"struct_pack(v := {value})"
    struct = f"CASE WHEN {' AND '.join(conditions)} THEN {struct} END" if conditions else struct
    way = "last" if call.call.function in LAST else "first"
    return RunningColumn(
        f"STRUCT(v {type})",
        f"any_value({struct})",
        f"{way}({{0}} ORDER BY {POSITION}) FILTER (WHERE {{0}} IS NOT NULL)",
        f"{way}_value({{0}} IGNORE NULLS) OVER {FRAME}",
    )
