"""Incremental aggregates per group: their state tables, and the result that is computed from them.

Mergeable calls store partial aggregates. Calls that cannot be merged (DISTINCT, ORDER BY inside, mode, ...) store their input
values in a table of their own. A batch only appends its partials and values; a result reads the state back and merges it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.duck.aggregates.aggregate_call import AggregateCall
from sqlstream.duck.aggregates.calls import CollectedValues, Partial, partials, strategy, values
from sqlstream.duck.aggregates.partial_columns import Strategy
from sqlstream.duck.sql import Relation, Relations, Select, names, quote_name
from sqlstream.operators.groups import Grouping, Groups
from sqlstream.operators.operator import Holds
from sqlstream.operators.windows.assigners import END, PARTIALS, ROWS, window_time
from sqlstream.warehouse.declarations import MERGED, TableDeclaration


@dataclass(frozen=True)
class GroupedCalls:
    """Aggregate calls over groups of rows with equal keys and, where rows are in windows, equal windows.

    Output columns are the keys, the window's start, end and time under the names in `bounds` (None: left out), and one per
    call. `calls` are pairs of output name and call.
    """

    groups: Groups[Grouping]
    bounds: tuple[str | None, str | None, str | None]
    calls: tuple[tuple[str, AggregateCall], ...]

    @cached_property
    def partial_calls(self) -> tuple[tuple[str, Partial], ...]:
        """The mergeable calls, as (output name, partial). COUNT(*) is not among them: each partial row counts its rows anyway."""
        calls = [(n, c) for n, c in self.calls if strategy(c) is not Strategy.VALUES and not self._counts_rows(c)]
        return tuple(zip([n for n, _ in calls], partials([c for _, c in calls], "p"), strict=True))

    @cached_property
    def partial_columns(self) -> dict[str, tuple[str, str, str]]:
        """The stored columns of partials, by name: (type, SQL over input rows, SQL that merges). Calls may share a column."""
        columns = {}
        for _, p in self.partial_calls:
            for (name, type), sql, merge in zip(p.columns, p.partial, p.merge, strict=True):
                columns[name] = (type, sql, merge)
        return columns

    @cached_property
    def value_calls(self) -> tuple[tuple[str, CollectedValues, str], ...]:
        """The calls that cannot be merged: (output name, collected values, table). Calls with equal values share a table."""
        tables: dict[object, str] = {}
        calls = []
        for name, call in self.calls:
            if strategy(call) is Strategy.VALUES:
                collection = values(call)
                same = (collection.columns, collection.collect, collection.filter, collection.distinct)
                table = tables.setdefault(same, f"values_{len(tables)}")
                number = list(tables.values()).index(table) + 1
                calls.append((name, values(call, f"{table}_", f"_part = {number}"), table))
        return tuple(calls)

    @cached_property
    def value_tables(self) -> dict[str, CollectedValues]:
        """The tables of collected values, by name."""
        return {table: collection for _, collection, table in self.value_calls}

    @cached_property
    def holds(self) -> Holds:
        """The state columns that store each call, by output name and then by table."""
        columns = {name: {PARTIALS: tuple(n for n, _ in p.columns)} for name, p in self.partial_calls}
        columns |= {name: {PARTIALS: (ROWS,)} for name, call in self.calls if self._counts_rows(call)}
        tables = self.value_tables
        return columns | {name: {t: tuple(n for n, _ in tables[t].columns)} for name, _, t in self.value_calls}

    @staticmethod
    def _counts_rows(call: AggregateCall) -> bool:
        """Tell whether a call is COUNT(*): the column ROWS has its value anyway."""
        return call.function in ("count", "count_star") and not call.arguments and call.filter is None

    @cached_property
    def tables(self) -> tuple[TableDeclaration, ...]:
        """PARTIALS, then the tables of collected values. Compaction merges their rows where the windows are `mergeable`."""
        group = self.groups.columns
        columns = (*group, Column(ROWS, "BIGINT"), *(Column(n, t) for n, (t, _, _) in self.partial_columns.items()))
        by = ", ".join(c.name for c in group)
        merge = Select(f"SELECT {by}, {', '.join(self.merged())} FROM {MERGED} GROUP BY {by}")
        declared = [TableDeclaration(PARTIALS, columns, END, merge if self.groups.windows.mergeable else None)]
        for table, collection in self.value_tables.items():
            stored = (*group, *(Column(n, t) for n, t in collection.columns))
            unique = Select(f"SELECT DISTINCT {names(stored)} FROM {MERGED}") if collection.distinct else None
            declared.append(TableDeclaration(table, stored, END, unique if self.groups.windows.mergeable else None))
        return tuple(declared)

    def merged(self) -> list[str]:
        """Return select items that merge the partial rows of a group into one: the number of input rows, then each column."""
        merges = [f"{merge} AS {quote_name(n)}" for n, (_, _, merge) in self.partial_columns.items()]
        return [f"CAST(sum({ROWS}) AS BIGINT) AS {ROWS}", *merges]

    @cached_property
    def computed(self) -> dict[str, Select]:
        """The pre-aggregation, by table: what the upstream fragment computes over `_rows`, with the declared types."""
        windows, source, keys = self.groups.windows, self.groups.source, self.groups.key_items
        items = [*keys, *(f"{sql} AS {c.name}" for c, sql in windows.columns), f"count(*) AS {ROWS}"]
        items += [f"{sql} AS {quote_name(n)}" for n, (_, sql, _) in self.partial_columns.items()]
        # Keys by their index in the select list, the rest by its SQL: an alias could be the name of an input column.
        by = ", ".join([*(str(i + 1) for i in range(len(keys))), *windows.group_by])
        selects = {PARTIALS: Select(f"SELECT {', '.join(items)} FROM {source} GROUP BY {by}")}
        for table, collection in self.value_tables.items():
            pairs = zip(collection.collect, collection.columns, strict=True)
            collected = [f"{sql} AS {quote_name(n)}" for sql, (n, _) in pairs]
            stored = ", ".join([*keys, *(f"{sql} AS {c.name}" for c, sql in windows.value_columns), *collected])
            distinct = "DISTINCT " if collection.distinct else ""
            where = f" WHERE {collection.filter}" if collection.filter else ""
            selects[table] = Select(f"SELECT {distinct}{stored} FROM {source}{where}")
        return selects

    @cached_property
    def outputs(self) -> tuple[Column, ...]:
        """The columns of the result: keys, window bounds, one per call."""
        bounds = (Column(name, "TIMESTAMP") for name in self.bounds if name is not None)
        calls = (Column(name, call.result_type) for name, call in self.calls)
        return (*(c for c, _ in self.groups.keys), *bounds, *calls)

    @cached_property
    def accumulators(self) -> tuple[tuple[Column, str], ...]:
        """The accumulators of mergeable user-defined aggregates, as (column to show, name of the stored column)."""
        calls = dict(self.calls)
        columns = ((name, *p.columns) for name, p in self.partial_calls if calls[name].python is not None)
        return tuple((Column(f"{name}_accumulator", type), stored) for name, (stored, type) in columns)

    def result(self, relations: Relations, *, accumulators: bool = False) -> Select:
        """Return the result over rows that are assigned to windows; `accumulators` adds the columns of that name."""
        finals = self._finals
        merged = self.merged()
        rows = [f"SELECT {'0 AS _part, ' if self.value_calls else ''}* FROM {relations[PARTIALS]}"]
        for number, table in enumerate(self.value_tables, 1):
            collection = self.value_tables[table]
            distinct = "DISTINCT " if collection.distinct else ""
            stored = ", ".join([self.groups.names, *(quote_name(n) for n, _ in collection.columns)])
            rows.append(f"SELECT {number} AS _part, * FROM (SELECT {distinct}{stored} FROM {relations[table]})")
        for name, collection, _ in self.value_calls:
            merged.append(f"{collection.final} AS r{len(finals)}")
            finals[name] = f"r{len(finals)}"
        inner = " UNION ALL BY NAME ".join(rows)
        combined = f"(SELECT {self.groups.names}, {', '.join(merged)} FROM ({inner}) GROUP BY {self.groups.names})"
        return self._named(finals, Relation(combined), accumulators=accumulators)

    def result_of_merged(self, rows: Relation, *, accumulators: bool = False) -> Select:
        """Return the result over PARTIALS with one row for each group, if all calls are mergeable."""
        return self._named(self._finals, rows, accumulators=accumulators)

    @property
    def _finals(self) -> dict[str, str]:
        """The SQL of the result of each mergeable call over the merged row of its group, by output name."""
        finals = {name: p.final for name, p in self.partial_calls}
        return finals | {name: ROWS for name, call in self.calls if self._counts_rows(call)}

    def _named(self, finals: Mapping[str, str], rows: Relation, *, accumulators: bool) -> Select:
        """Return the result of merged rows of groups; `finals` is the SQL of each call's result over them."""
        items = [
            f"{k} AS {quote_name(c.name)}" for k, (c, _) in zip(self.groups.key_names, self.groups.keys, strict=True)
        ] + self._bounds()
        items += [f"{finals[name]} AS {quote_name(name)}" for name, _ in self.calls]
        if accumulators:
            items += [f"{quote_name(stored)} AS {quote_name(c.name)}" for c, stored in self.accumulators]
        return Select(f"SELECT {', '.join(items)} FROM {rows}")

    def _bounds(self) -> list[str]:
        start, end, time = self.bounds
        items = [(self.groups.windows.start, start), (END, end), (window_time(END), time)]
        return [f"{sql} AS {quote_name(name)}" for sql, name in items if name is not None]

    def present(self, partials: Relation) -> Relation:
        """Return the partials unchanged: each belongs to a group."""
        return partials
