"""Nodes that rank rows, in windows and over all rows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

from sqlstream.errors import Span
from sqlstream.logical.plan.aggregates import without_windows
from sqlstream.logical.plan.canonical import canonical
from sqlstream.logical.plan.expressions import Expression, Field, Schema, arrived, column_names, declared, visible
from sqlstream.logical.plan.node import (
    FEW_VALUES,
    ChangelogNode,
    Keys,
    LateReads,
    Node,
    SingleInput,
    WindowColumns,
    WindowSize,
    bound_of_keys,
    named_columns,
)
from sqlstream.logical.plan.over import NTILE
from sqlstream.logical.plan.relational import Filter, Projection
from sqlstream.logical.plan.settings import NodeValues, RankSettings
from sqlstream.logical.plan.stateful import StatefulNode, WithTimeToLive
from sqlstream.logical.plan.values import form, forms, single_keys
from sqlstream.logical.plan.windows import WindowEndNode, bound_of_windows, growth_of_late_rows
from sqlstream.logical.plan.words import AT_WINDOW_END, ON_CHANGE, in_table, plain_list, quoted_name, sql_list
from sqlstream.units import NO_TIME, Duration


class Numbering(StatefulNode):
    """A node that adds a column with the rank of a row among the rows of its key, and window if it has one.

    The last item of `order` can be the order of arrival. ROW_NUMBER and NTILE number rows that are equal in `order` by all their
    columns.
    """

    input: Node
    column: str
    function: str
    keys: tuple[Expression, ...]
    order: tuple[Expression, ...]

    @property
    def bounds(self) -> tuple[str, ...]:
        """The columns of the bounds of its windows."""
        return ()

    @property
    def has_ties(self) -> bool:
        # Equal rows have the same RANK.
        named = (e.column for e in (*self.keys, *declared(self.order)) if e.column is not None)
        return self.numbers_rows and not self.input.covers_key((*self.bounds, *named))

    @property
    def numbers_rows(self) -> bool:
        """Whether rows that are equal in the order can have different ranks."""
        return self.function == "row_number" or not self.counts_rows

    @property
    def counts_rows(self) -> bool:
        """Whether no row behind another one can change its rank, so that a limit needs the first rows only."""
        return not self.function.startswith(NTILE)

    @property
    def call(self) -> str:
        """The SQL of the call, without OVER."""
        return f"{self.function}()" if self.counts_rows else self.function

    @property
    def is_by_arrival(self) -> bool:
        return bool(arrived(self.order))

    @property
    def key_text(self) -> str:
        return plain_list(self.keys)

    @property
    def key_columns(self) -> tuple[str, ...]:
        return column_names(self.keys)

    @property
    def keys_by_name(self) -> tuple[tuple[str, tuple[Expression, ...]], ...]:
        return tuple((k.column or k.sql, (k,)) for k in self.keys)

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return (*self.keys, *self.order)

    @cached_property
    def schema(self) -> Schema:
        return (*self.input.schema, Field(self.column, "BIGINT"))


@dataclass(frozen=True)
class WindowRank(Numbering, WindowEndNode):
    """Emits each row with its rank among the rows of its window and keys, when the watermark passes the window's end.

    With a `limit` it emits only rows up to that rank. Keeps the rows of open windows (that can still be within the limit), and
    forgets them with the window; rows that arrive after their window has closed are dropped and counted, and stored if
    `late_rows` names a table for them. The SQL of the items of `order` includes their direction. `named_bounds` are the window
    bounds that the query names in PARTITION BY.
    """

    node_kind: ClassVar[str] = "window_rank"

    name: str
    column: str
    function: str
    keys: tuple[Expression, ...]
    window: WindowColumns
    order: tuple[Expression, ...]
    limit: int | None = None
    late_rows: str | None = None
    late_reads: LateReads | None = None
    span: Span | None = field(default=None, compare=False, repr=False)
    named_bounds: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @property
    def values(self) -> NodeValues:
        settings = RankSettings(
            self.function, self.column, forms(self.order), self.limit, self.window.end, self.late_rows
        )
        return NodeValues(self.node_kind, name=self.name, keys=single_keys(self.keys), settings=settings)

    @property
    def bounds(self) -> tuple[str, ...]:
        return tuple(name for name in self.window.names if name is not None)

    @property
    def passes_rows_on(self) -> bool:
        return True

    @property
    def label(self) -> str:
        return f"{self.function.upper()} in windows"

    @property
    def description(self) -> str:
        keys, order = sql_list(self.keys) or "no key", sql_list(self.order)
        ranked = f"{self.function} by {keys} per {self.window.end} order {order}{_limit(self.limit)} AS {self.column}"
        return f"WindowRank{quoted_name(self.name)} {ranked}{in_table(self.late_rows)}"

    @property
    def title(self) -> str:
        return f"{_ranks(self.function, self.order, self.limit)} {self.input.windows_text}"

    @property
    def emission(self) -> str:
        return f"rows with their rank, {AT_WINDOW_END}"

    def late_columns(self, index: int) -> Schema:
        """Return the columns of a late row, without the bounds of its window and the number of its grouping set."""
        return visible(without_windows(self.input, self.window))

    def _over(self, children: tuple[Node, ...]) -> Node:
        """Return a Rank over a child that has no window bounds any more, since its results are corrected."""
        [below] = children
        return replace(self, input=below) if below.window_columns is not None else self.over_changes(below)

    def over_changes(self, changes: Node) -> Rank:
        """Return the same ranks over window results that are corrected: the named bounds are keys like any other."""
        bounds = (Expression.of_column(name, "TIMESTAMP") for name in self.named_bounds)
        keys = (*bounds, *self.keys)
        return Rank(changes, self.name, self.column, self.function, keys, self.order, self.limit, span=self.span)

    @property
    def times_read(self) -> tuple[tuple[int, str], ...]:
        """A bound of its windows: it works by the time over which they are made."""
        return tuple((0, name) for name in self.window.names[:1])

    @property
    def clock_times(self) -> tuple[str, ...]:
        return self.window.names if self.goes_by_clock else ()

    @cached_property
    def time_attributes(self) -> tuple[str, ...]:
        return self.input.time_attributes

    @cached_property
    def window_columns(self) -> WindowColumns | None:
        return self.input.window_columns

    @cached_property
    def window_size(self) -> WindowSize | None:
        return self.input.window_size

    @property
    def unique_keys(self) -> Keys:
        return ()

    @property
    def state_bound(self) -> str:
        return bound_of_windows(self.window_size, NO_TIME, self.late_rows)

    @property
    def state_growth(self) -> str | None:
        return growth_of_late_rows(self.late_rows)


@dataclass(frozen=True)
class Rank(Numbering, WithTimeToLive, SingleInput, ChangelogNode):
    """Emits each row with its rank among all rows of equal keys, and updates the ranks that further rows change.

    With a `limit` it emits only rows up to that rank; append-only rows beyond it are not stored. Keeps all other rows until
    they are retracted. The SQL of the items of `order` includes their direction. `ttl`: see Aggregate. With `by_clock` the order
    is by processing time, ascending. With `keeps_times` it has time attributes, for an operator above (see
    `time_domains.with_times`). With `passes_arrival` its rows have the column ARRIVED, for an operator above.
    """

    node_kind: ClassVar[str] = "rank"

    name: str
    column: str
    function: str
    keys: tuple[Expression, ...]
    order: tuple[Expression, ...]
    limit: int | None = None
    ttl: Duration | None = None
    span: Span | None = field(default=None, compare=False, repr=False)
    by_clock: bool = field(default=False, compare=False, repr=False)
    keeps_times: bool = field(default=True, repr=False)
    passes_arrival: bool = False

    @property
    def values(self) -> NodeValues:
        settings = RankSettings(self.function, self.column, forms(self.order), self.limit)
        return NodeValues(self.node_kind, name=self.name, keys=single_keys(self.keys), settings=settings)

    @property
    def passes_rows_on(self) -> bool:
        return True

    def passing_arrival(self, below: Node) -> Node:
        return replace(self, input=below, passes_arrival=True)

    @property
    def label(self) -> str:
        return f"{self.function.upper()} over rows of no window"

    @property
    def description(self) -> str:
        keys, order = sql_list(self.keys) or "no key", sql_list(self.order)
        ranked = f"{self.function} by {keys} order {order}{_limit(self.limit)} AS {self.column}"
        return f"Rank{quoted_name(self.name)} {ranked}"

    @property
    def title(self) -> str:
        return f"{_ranks(self.function, self.order, self.limit)} over all rows"

    @property
    def emission(self) -> str:
        return f"rows with their rank, {ON_CHANGE}"

    @cached_property
    def schema(self) -> Schema:
        """The columns and the rank, without ARRIVED unless it `passes_arrival`: rows that differ only in ARRIVED are equal."""
        below = self.input.schema
        return (*(below if self.passes_arrival else visible(below)), Field(self.column, "BIGINT"))

    @property
    def has_processing_timers(self) -> bool:
        return False

    @property
    def leaving_time(self) -> str | None:
        return None

    @property
    def changes_are_timed(self) -> bool:
        return True

    def without_times(self) -> Node:
        return replace(self, keeps_times=False)

    @cached_property
    def time_attributes(self) -> tuple[str, ...]:
        """The input's event times, if it is append-only and its rows come straight from tables, so that they can be late.

        Both an addition and a retraction then leave in the batch of an arriving row.
        """
        has_times = self.keeps_times and not self.input.is_changelog and not self.input.never_late
        return self.input.time_attributes if has_times else ()

    @cached_property
    def clock_times(self) -> tuple[str, ...]:
        """The processing times of an append-only input: a retraction has the time at which its row arrived."""
        return self.input.processing_times if self.keeps_times and not self.input.is_changelog else ()

    @cached_property
    def unique_keys(self) -> Keys:
        partition = named_columns(self, self.keys)
        if self.function != "row_number" or len(partition) < len(self.keys):
            return ()
        return (partition,) if self.limit == 1 and partition else (partition | {self.column},)

    @property
    def state_bound(self) -> str:
        all_rows = self.limit is None or self.input.is_changelog
        own = "the number of rows of the result below" if all_rows else f"its limit: {self.limit} rows"
        return bound_of_keys(self, self.ttl) or own

    @cached_property
    def state_growth(self) -> str | None:
        if self.ttl or not self.input.grows:
            return None
        if self.limit is None or self.input.is_changelog:
            return "it keeps every row of its input"
        keyed = any(k.type not in FEW_VALUES for k in self.keys)
        return f"it keeps {self.limit} row{'' if self.limit == 1 else 's'} for every key" if keyed else None


def _ranks(function: str, order: tuple[Expression, ...], limit: int | None) -> str:
    first = f", the first {limit}" if limit is not None else ""
    return f"{function.upper()} by {plain_list(declared(order))}{first}"


def _limit(limit: int | None) -> str:
    return f" limit {limit}" if limit is not None else ""


def whole_ranks(node: Filter) -> Rank | WindowRank | None:
    """Return the rank below a filter that demands no more than the rank's limit; None for any other filter."""
    below, projections = node.input, list[Projection]()
    while isinstance(below, Projection):
        projections.append(below)
        below = below.input
    if not isinstance(below, Rank | WindowRank) or below.limit is None:
        return None
    name: str | None = below.column
    for projection in reversed(projections):
        name = next((i.name for i in projection.items if i.expression.column == name), None)
    n, rank = below.limit, Expression.of_column(name, "").sql if name is not None else ""
    # ORDER BY .. LIMIT is bound to the third form.
    same = [
        f"{rank} <= {n}",
        f"{rank} < {n + 1}",
        f"{rank} > 0 AND {rank} <= {n}",
        *([f"{rank} = 1"] if n == 1 else []),
    ]
    return below if form(node.predicate) in map(canonical, same) else None
