"""Nodes of relational algebra: filters, projections, LATERAL, unions and set operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, product
from typing import ClassVar, Literal

from sqlstream.duck.sql import unquoted
from sqlstream.errors import Span
from sqlstream.logical.plan.expressions import Expression, Field, Item, Schema
from sqlstream.logical.plan.node import (
    FEW_VALUES,
    ChangelogNode,
    Keys,
    Node,
    PassThrough,
    SingleInput,
    Stateless,
    WindowColumns,
    WindowSize,
    bound_of_keys,
    passed_on,
)
from sqlstream.logical.plan.settings import FilterSettings, LateralSettings, NodeValues, SetsSettings, SideSettings
from sqlstream.logical.plan.stateful import WithTimeToLive
from sqlstream.logical.plan.values import form, named_forms
from sqlstream.logical.plan.words import ON_CHANGE, quoted_name, sql_items
from sqlstream.units import Duration

# The most unique keys of a projection that are derived.
_MOST_KEYS = 16


@dataclass(frozen=True)
class Filter(PassThrough):
    """Keeps the rows for which the predicate is true. Keeps no state.

    Rows for which `unfit` is true are malformed: a text in them is read as a number, and is none. The predicate is not true for
    them; `unfit` tells them from others for which it is not.
    """

    node_kind: ClassVar[str] = "filter"

    predicate: Expression
    unfit: Expression | None = field(default=None, compare=False, repr=False)

    @property
    def values(self) -> NodeValues:
        return NodeValues(self.node_kind, settings=FilterSettings(form(self.predicate)))

    @property
    def label(self) -> str:
        return "WHERE"

    @property
    def description(self) -> str:
        return f"Filter {self.predicate.sql}"

    @property
    def effect(self) -> str:
        return f"where {unquoted(self.predicate.sql)}"

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return (self.predicate,)

    @cached_property
    def unique_keys(self) -> Keys:
        """The unique keys of its input, without columns that have one value in all remaining rows."""
        claims = self.predicate.claims
        names = frozenset().union(*self.input.unique_keys)
        first = {n for n in names & self.row_numbers if claims.at_most.get(n) == 1}
        several = claims.numbers & {f.name for f in self.schema if f.type == "VARCHAR"}
        alike = first | (names & claims.constants - several)
        return tuple(key - alike for key in self.input.unique_keys if key - alike)

    @cached_property
    def row_numbers(self) -> frozenset[str]:
        return self.input.row_numbers


@dataclass(frozen=True)
class Projection(PassThrough):
    """Computes new columns from each row. An item with UNNEST turns a row into several, or none. Keeps no state."""

    node_kind: ClassVar[str] = "projection"

    items: tuple[Item, ...]

    @property
    def values(self) -> NodeValues:
        return NodeValues(self.node_kind, items=named_forms(self.items))

    @property
    def label(self) -> str:
        return "SELECT"

    @property
    def description(self) -> str:
        return f"Project {sql_items(self.items)}"

    @property
    def effect(self) -> str:
        return ""

    @cached_property
    def expressions(self) -> tuple[Expression, ...]:
        return tuple(i.expression for i in self.items)

    @cached_property
    def schema(self) -> Schema:
        return tuple(Field(i.name, i.expression.type) for i in self.items)

    @cached_property
    def time_attributes(self) -> tuple[str, ...]:
        below = self.input.time_attributes
        own = self.processing_times if self.reads_by_clock else ()
        return tuple(i.name for i in self.items if i.expression.column in below or i.name in own)

    @cached_property
    def batch_times(self) -> tuple[str, ...]:
        below = self.input.batch_times
        return tuple(i.name for i in self.items if i.expression.column in below or i.expression.is_now)

    @cached_property
    def clock_times(self) -> tuple[str, ...]:
        """The input's `clock_times` that it passes on and, if rows are never retracted, columns with the current time."""
        below, is_final = self.input.clock_times, not self.input.is_changelog
        return tuple(i.name for i in self.items if i.expression.column in below or (is_final and i.expression.is_now))

    @cached_property
    def window_columns(self) -> WindowColumns | None:
        below = self.input.window_columns
        if below is None:
            return None
        columns = WindowColumns(*(passed_on(self.items, c) for c in (below.start, below.end, below.time)))
        return columns if columns.end is not None else None

    @cached_property
    def unique_keys(self) -> Keys:
        """The unique keys of its input, under the names of this node; a column may have several names."""
        below = [
            [[i.name for i in self.items if i.expression.column == name] for name in sorted(key)]
            for key in self.input.unique_keys
        ]
        return tuple(islice((frozenset(names) for key in below for names in product(*key)), _MOST_KEYS))

    @cached_property
    def row_numbers(self) -> frozenset[str]:
        below = self.input.row_numbers
        return frozenset(i.name for i in self.items if i.expression.column in below)


@dataclass(frozen=True)
class Expand(PassThrough):
    """Emits each row once for every grouping set, with the set's number in the column `column`. Keeps no state."""

    node_kind: ClassVar[str] = "expand"

    column: str
    numbers: tuple[int, ...]

    @property
    def values(self) -> NodeValues:
        return NodeValues(self.node_kind, settings=SetsSettings(self.column, self.numbers))

    @property
    def label(self) -> str:
        return "GROUPING SETS"

    @property
    def description(self) -> str:
        return f"Expand {self.column} {', '.join(map(str, self.numbers))}"

    @property
    def effect(self) -> str:
        return ""

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return ()

    @cached_property
    def schema(self) -> Schema:
        return (*self.input.schema, Field(self.column, "INTEGER"))

    @property
    def unique_keys(self) -> Keys:
        return ()


@dataclass(frozen=True)
class Elements:
    """The elements of a list as rows: `values` is the list, such as the result of a table function, computed once per row.

    With `fields` an element is a struct whose fields are the columns, else the element is the only column. With `numbered` there
    is one more column, the number of the element, from 1 on.
    """

    values: Expression
    fields: bool
    numbered: bool

    @property
    def sql(self) -> str:
        """The list as it appears in the plan's text."""
        return f"unnest({self.values.sql}){' with ordinality' if self.numbered else ''}"


@dataclass(frozen=True)
class Lateral(PassThrough):
    """Joins each row with the rows that are computed from its own values, the columns `columns`.

    `rows` are the elements of a list, or a SELECT over the values of the row. A row without any is left out; with `outer` it is
    emitted once, with NULLs. Keeps no state. `key` are columns that are unique among the rows that one row yields: empty if it
    yields at most one, None if nothing is known.
    """

    node_kind: ClassVar[str] = "lateral"

    rows: Expression | Elements
    columns: Schema
    outer: bool
    key: frozenset[str] | None = None

    @property
    def values(self) -> NodeValues:
        if isinstance(self.rows, Elements):
            numbered = self.rows.numbered
            settings = LateralSettings(form(self.rows.values), self.outer, elements=True, numbered=numbered)
        else:
            settings = LateralSettings(form(self.rows), self.outer)
        return NodeValues(self.node_kind, settings=settings)

    @property
    def label(self) -> str:
        return "LATERAL"

    @property
    def description(self) -> str:
        return f"Lateral{' outer' if self.outer else ''} {self.rows.sql}"

    @property
    def effect(self) -> str:
        return f"for each row, the rows of {unquoted(self.rows.sql)}"

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return (self.rows.values if isinstance(self.rows, Elements) else self.rows,)

    @cached_property
    def schema(self) -> Schema:
        return (*self.input.schema, *self.columns)

    @cached_property
    def unique_keys(self) -> Keys:
        key = self.key
        return tuple(names | key for names in self.input.unique_keys) if key is not None else ()


@dataclass(frozen=True)
class Union(Stateless):
    """Emits the rows of every input (UNION ALL). Columns match by position, and have the names of the first input.

    Keeps no state.
    """

    node_kind: ClassVar[str] = "union"

    inputs: tuple[Node, ...]

    @property
    def values(self) -> NodeValues:
        return NodeValues(self.node_kind)

    @property
    def children(self) -> tuple[Node, ...]:
        return self.inputs

    def _over(self, children: tuple[Node, ...]) -> Node:
        return replace(self, inputs=children)

    @property
    def label(self) -> str:
        return "UNION ALL"

    @property
    def description(self) -> str:
        return f"Union of {len(self.inputs)}"

    @property
    def effect(self) -> str:
        return ""

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return ()

    @cached_property
    def schema(self) -> Schema:
        return self.inputs[0].schema

    @cached_property
    def time_attributes(self) -> tuple[str, ...]:
        """The time attributes that all inputs share, unless a column has processing time in one and event time in another."""
        event = self._in_all_inputs(lambda node: tuple(t for t in node.time_attributes if t not in node.clock_times))
        times = self._in_all_inputs(lambda node: node.time_attributes)
        return tuple(time for time in times if time in event or time in self.clock_times)

    @cached_property
    def batch_times(self) -> tuple[str, ...]:
        return self._in_all_inputs(lambda node: node.batch_times)

    @cached_property
    def leaves_at_once(self) -> bool:
        return all(node.leaves_at_once for node in self.inputs)

    @cached_property
    def clock_times(self) -> tuple[str, ...]:
        return self._in_all_inputs(lambda node: node.clock_times)

    @cached_property
    def never_late(self) -> bool:
        return all(node.never_late for node in self.inputs)

    @cached_property
    def window_columns(self) -> WindowColumns | None:
        """The window columns of the first input, if all inputs have theirs at the same positions."""
        indexes = {_indexes(node) for node in self.inputs}
        window = self.inputs[0].window_columns
        if window is None or len(indexes) > 1 or self._mixes_times(window):
            return None
        return window

    @cached_property
    def window_size(self) -> WindowSize | None:
        sizes = {node.window_size for node in self.inputs}
        return sizes.pop() if len(sizes) == 1 else None

    @cached_property
    def changelog_origin(self) -> Node | None:
        return next((node.changelog_origin for node in self.inputs if node.is_changelog), None)

    @property
    def unique_keys(self) -> Keys:
        return ()

    @cached_property
    def grows(self) -> bool:
        return any(node.grows for node in self.inputs)

    def _mixes_times(self, window: WindowColumns) -> bool:
        """Return whether some inputs have windows over processing time, and others over event time."""
        names = [f.name for f in self.schema]
        ends = {names.index(name) for name in window.names}
        return len({bool(ends & _positions(node, node.clock_times)) for node in self.inputs}) > 1

    def _in_all_inputs(self, columns: Callable[[Node], tuple[str, ...]]) -> tuple[str, ...]:
        """Return the columns whose positions `columns` returns for every input, under the names of the first input."""
        shared = set.intersection(*(_positions(node, columns(node)) for node in self.inputs))
        return tuple(f.name for index, f in enumerate(self.schema) if index in shared)


def _positions(node: Node, columns: Iterable[str]) -> set[int]:
    """Return the positions of columns of a node."""
    names = [f.name for f in node.schema]
    return {names.index(name) for name in columns}


def _indexes(node: Node) -> tuple[int | None, ...] | None:
    """Return the positions of the window columns, None if there are none."""
    if (window := node.window_columns) is None:
        return None
    names = [f.name for f in node.schema]
    return tuple(None if c is None else names.index(c) for c in (window.start, window.end, window.time))


@dataclass(frozen=True)
class SetOperation(WithTimeToLive, SingleInput, ChangelogNode):
    """Emits the rows that are on both sides (intersect), or on the left side only (except), and updates them with every row.

    The column `side` of the input is 0 for rows of the left side, and 1 for rows of the right one. With `distinct` a row is in
    the result once, else as often as the counts on both sides demand. Keeps the count of a row on each side until both are 0.
    `ttl`: see Aggregate; the key is the row.
    """

    node_kind: ClassVar[str] = "set_operation"

    name: str
    function: Literal["intersect", "except"]
    side: str
    distinct: bool
    ttl: Duration | None = None
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def values(self) -> NodeValues:
        return NodeValues(
            self.node_kind, name=self.name, settings=SideSettings(self.function, self.side, self.distinct)
        )

    @property
    def label(self) -> str:
        return self.function.upper()

    @property
    def description(self) -> str:
        every = "" if self.distinct else " all"
        return f"{self.function.capitalize()}{every}{quoted_name(self.name)} by {self.side}"

    @property
    def title(self) -> str:
        where = "on both sides" if self.function == "intersect" else "on the first side only"
        return f"{self.function.upper()}{'' if self.distinct else ' ALL'}: rows that are {where}"

    @property
    def key_text(self) -> str:
        return "the row"

    @property
    def emission(self) -> str:
        return f"rows, {ON_CHANGE}"

    @property
    def key_columns(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.schema)

    @property
    def keys_by_name(self) -> tuple[tuple[str, tuple[Expression, ...]], ...]:
        return tuple((f.name, (Expression.of_column(f.name, f.type),)) for f in self.schema)

    @property
    def has_processing_timers(self) -> bool:
        return False

    @property
    def leaving_time(self) -> str | None:
        return None

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return ()

    @cached_property
    def schema(self) -> Schema:
        return tuple(f for f in self.input.schema if f.name != self.side)

    @property
    def unique_keys(self) -> Keys:
        return (frozenset(f.name for f in self.schema),) if self.distinct else ()

    @property
    def state_bound(self) -> str:
        return bound_of_keys(self, self.ttl) or "the number of rows of the result below"

    @cached_property
    def state_growth(self) -> str | None:
        if self.ttl or not self.input.grows or all(f.type in FEW_VALUES for f in self.schema):
            return None
        return "it keeps every row of both sides"
