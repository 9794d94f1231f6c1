"""Rows that are stored until their window closes: rows with the bounds of their window, and with their rank in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.duck.sql import Items, Relation, Relations, Select, names, quote_name, same_columns
from sqlstream.operators.groups import ComputedColumns, Groups, stored_columns
from sqlstream.operators.operator import Holds
from sqlstream.operators.windows.assigners import END, PARTIALS, WindowAssigner, window_time
from sqlstream.warehouse.declarations import MERGED, TableDeclaration

# An item of ORDER BY, as sqlglot prints it.
_ITEM = re.compile(r"(?P<value>.*?)(?: ASC)?(?P<down> DESC)?(?: NULLS (?P<nulls>FIRST|LAST))?", re.DOTALL)
# DuckDB finds the n extreme values of a group without sorting it, as long as n is small.
_FEW = 1000


@dataclass(frozen=True)
class Ranking:
    """A ranking function per key and window: its output name, its ORDER BY items, the last rank to emit (None: all).

    `function` is the name of a function without arguments, or `ntile(n)`, which has no limit.

    With `is_total` no two arriving rows are equal in `order`, which ends with the order of arrival. Rows in state may still be
    equal: all rows that a job has stored while columns decided ties share one position there. With `has_key` DuckDB's
    create_sort_key orders values as ORDER BY does.
    """

    name: str
    function: str
    order: tuple[str, ...]
    limit: int | None
    is_total: bool = False
    has_key: bool = False

    def call(self, partition: str, columns: tuple[Column, ...]) -> str:
        """Return the SQL window function over `partition`. ROW_NUMBER and NTILE break ties by all columns, in their order."""
        is_call = self.function.endswith(")")
        tie_breakers = [quote_name(c.name) for c in columns] if self.function == "row_number" or is_call else []
        order = ", ".join([*self.order, *tie_breakers])
        return f"{self.function}{'' if is_call else '()'} OVER (PARTITION BY {partition} ORDER BY {order})"

    def call_of_new(self, partition: str, columns: tuple[Column, ...]) -> str:
        """Return the SQL window function over rows that arrive, none of which are in state."""
        if not self.is_total:
            return self.call(partition, columns)
        order = ", ".join(self.order)
        if self.limit == 1 and self.has_key:
            # DuckDB finds the first row by a single value without sorting.
            order = f"create_sort_key({', '.join(map(_sort_key, self.order))})"
        return f"{self.function}() OVER (PARTITION BY {partition} ORDER BY {order})"

    def candidates(self, rows: Relation, partition: Sequence[str]) -> Relation:
        """Return `rows` without some that the first ORDER BY item excludes, which makes sorting far cheaper.

        `partition` is the SQL of the keys and window bounds.
        """
        item = _ITEM.fullmatch(self.order[0])
        if item is None or self.limit is None or not 0 < self.limit <= _FEW or self.function == "dense_rank":
            return rows
        last, reaches = ("list_min(max", ">=") if item["down"] else ("list_max(min", "<=")
        group_names = [f"_group{i}" for i in range(len(partition))]
        groups = ", ".join(f"{sql} AS {name}" for sql, name in zip(partition, group_names, strict=True))
        valued = f"(SELECT *, {groups}, {item['value']} AS _value FROM {rows})"
        by = ", ".join(group_names)
        # Groups with fewer values than the limit have no bound: all their rows count.
        bound = f"SELECT {by}, {last}(_value, {self.limit})) AS _bound FROM {valued}"
        bounds = f"({bound} GROUP BY {by} HAVING count(_value) >= {self.limit})"
        same = same_columns("_row_", "_bound_", group_names)
        held = f"_bound IS NULL OR _value {reaches} _bound" + (" OR _value IS NULL" if item["nulls"] == "FIRST" else "")
        columns = f"_row_.* EXCLUDE ({by}, _value)"
        return Relation(f"(SELECT {columns} FROM {valued} _row_ LEFT JOIN {bounds} _bound_ ON {same} WHERE {held})")


def _sort_key(item: str) -> str:
    """Return an item of ORDER BY as two arguments of DuckDB's create_sort_key.

    >>> print(_sort_key('"ts" DESC NULLS LAST'), _sort_key('"n"'))
    "ts", 'DESC NULLS LAST' "n", 'ASC NULLS LAST'
    """
    parts = _ITEM.fullmatch(item)
    assert parts is not None
    return f"{parts['value']}, '{'DESC' if parts['down'] else 'ASC'} NULLS {parts['nulls'] or 'LAST'}'"


@dataclass(frozen=True)
class WindowRows:
    """The rows of windows, with the bounds of their window (`bounds`) and their rank in it (`ranking`), each if not None.

    `bounds` are the names of the columns of start, end and time to add; None adds none.
    """

    groups: Groups[WindowAssigner]
    columns: tuple[Column, ...]
    bounds: tuple[str, str, str] | None = None
    ranking: Ranking | None = None

    @cached_property
    def _stored(self) -> ComputedColumns:
        """The stored columns of the rows, each with its SQL over input rows."""
        return stored_columns(self.columns)

    @cached_property
    def tables(self) -> tuple[TableDeclaration, ...]:
        group = self.groups.columns
        columns = (*group, *(c for c, _ in self._stored))
        merge = None
        if self.ranking is not None and self.ranking.limit is not None:
            # Rows beyond the limit among some rows are beyond it among all rows.
            stored_names = ", ".join(c.name for c in columns)
            rows = f"(SELECT {', '.join([*(c.name for c in group), self._named()])} FROM {MERGED})"
            items = ", ".join([*(c.name for c in group), *(f"{sql} AS {c.name}" for c, sql in self._stored)])
            ranked = f"SELECT {items}, {self._rank(self.ranking)} AS _rank FROM {rows}"
            merge = Select(f"SELECT {stored_names} FROM ({ranked}) WHERE _rank <= {self.ranking.limit}")
        return (TableDeclaration(PARTIALS, columns, END, merge),)

    @property
    def holds(self) -> Holds:
        names = (c.name for c in self.columns)
        return {name: {PARTIALS: (own.name,)} for name, (own, _) in zip(names, self._stored, strict=True)}

    def _named(self) -> Items:
        """The stored columns under the names of the input."""
        return Items(", ".join(f"{c.name} AS {sql}" for c, sql in self._stored))

    def _rank(self, ranking: Ranking) -> str:
        return ranking.call(self.groups.names, self.columns)

    @cached_property
    def computed(self) -> dict[str, Select]:
        groups, ranking = self.groups, self.ranking
        bounds = [f"{sql} AS {c.name}" for c, sql in groups.windows.value_columns]
        items = ", ".join([*groups.key_items, *bounds, *(f"{sql} AS {c.name}" for c, sql in self._stored)])
        if ranking is None or ranking.limit is None:
            return {PARTIALS: Select(f"SELECT {items} FROM {groups.source}")}
        partition = [*(sql for _, sql in groups.keys), *(sql for _, sql in groups.windows.value_columns)]
        rank = ranking.call_of_new(", ".join(partition), self.columns)
        candidates = ranking.candidates(groups.source, partition)
        return {PARTIALS: Select(f"SELECT {items} FROM {candidates} QUALIFY {rank} <= {ranking.limit}")}

    @cached_property
    def outputs(self) -> tuple[Column, ...]:
        added = tuple(Column(name, "TIMESTAMP") for name in self.bounds or ())
        rank = (Column(self.ranking.name, "BIGINT"),) if self.ranking is not None else ()
        return (*self.columns, *added, *rank)

    def result(self, relations: Relations) -> Select:
        return self.of_rows(relations[PARTIALS])

    def of_rows(self, rows: Relation) -> Select:
        items: list[str] = [self._named()]
        if self.bounds is not None:
            start, end, time = map(quote_name, self.bounds)
            items += [f"{self.groups.windows.start} AS {start}, {END} AS {end}, {window_time(END)} AS {time}"]
        if self.ranking is None:
            return Select(f"SELECT {', '.join(items)} FROM {rows}")
        rank = quote_name(self.ranking.name)
        named = f"(SELECT {self.groups.names}, {', '.join(items)} FROM {rows})"
        ranked = Select(f"SELECT {names(self.columns)}, {self._rank(self.ranking)} AS {rank} FROM {named}")
        if self.ranking.limit is None:
            return ranked
        return Select(f"SELECT * FROM ({ranked}) WHERE {rank} <= {self.ranking.limit}")

    def present(self, partials: Relation) -> Relation:
        return partials
