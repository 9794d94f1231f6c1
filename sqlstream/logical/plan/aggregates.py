"""Nodes that aggregate, in windows and without a window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal

from sqlstream.errors import Span
from sqlstream.logical.plan.arrival_calls import reads_order
from sqlstream.logical.plan.expressions import (
    AggregateItem,
    Expression,
    Field,
    Item,
    Schema,
    arrived,
    declared,
    visible,
)
from sqlstream.logical.plan.graph import walk
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
)
from sqlstream.logical.plan.relational import Expand
from sqlstream.logical.plan.settings import NodeValues, WindowSettings
from sqlstream.logical.plan.stateful import StatefulNode, WithTimeToLive
from sqlstream.logical.plan.values import CallForms, named_forms
from sqlstream.logical.plan.windows import (
    SessionWindow,
    TimeWindows,
    WindowEndNode,
    bound_of_windows,
    growth_of_late_rows,
)
from sqlstream.logical.plan.words import (
    AT_WINDOW_END,
    ON_CHANGE,
    in_table,
    plain_call,
    plain_item,
    quoted_name,
    sql_items,
)
from sqlstream.units import NO_TIME, Duration, duration


@dataclass(frozen=True, slots=True)
class EarlyByTime:
    """Early results of open windows, whenever `every` of processing time ("time") or event time ("event") has passed."""

    every: Duration
    by: Literal["time", "event"]

    def __str__(self) -> str:
        return f"{duration(self.every)} of {'event time' if self.by == 'event' else 'processing time'}"

    @property
    def setting(self) -> tuple[int, Literal["time", "event", "rows"]]:
        return self.every, self.by


@dataclass(frozen=True, slots=True)
class EarlyByRows:
    """An early result of an open window after every `rows` rows."""

    rows: int

    def __str__(self) -> str:
        return f"{self.rows} rows"

    @property
    def setting(self) -> tuple[int, Literal["time", "event", "rows"]]:
        return self.rows, "rows"


# Records of jobs and digests of plans contain its `setting`.
EarlyFire = EarlyByTime | EarlyByRows


class Aggregating(StatefulNode):
    """A node with a result per key, and per window if it has one."""

    keys: tuple[Item, ...]
    aggregates: tuple[AggregateItem, ...]

    @property
    def has_ties(self) -> bool:
        return any(map(reads_order, self.aggregates))

    @property
    def is_by_arrival(self) -> bool:
        return any(arrived(call.order_by) for call in self.aggregates)

    @property
    def key_text(self) -> str:
        return ", ".join(map(plain_item, self.keys))

    @property
    def calls_text(self) -> str:
        return ", ".join(map(plain_call, self.aggregates))

    @property
    def key_columns(self) -> tuple[str, ...]:
        return tuple(k.name for k in self.keys)

    @property
    def keys_by_name(self) -> tuple[tuple[str, tuple[Expression, ...]], ...]:
        return tuple((k.name, (k.expression,)) for k in self.keys)

    @property
    def key_items(self) -> tuple[Item, ...]:
        return self.keys

    @property
    def call_items(self) -> tuple[tuple[AggregateItem, str], ...]:
        return tuple((call, "") for call in self.aggregates)


@dataclass(frozen=True)
class WindowAggregate(Aggregating, WindowEndNode):
    """Aggregates rows per key and event-time window.

    Emits one row per (key, window) when the watermark passes the window's end, then forgets the window. Keeps partial
    results of open windows; a row that arrives after its window has closed is dropped and counted, and stored if `late_rows`
    names a table for it. `shown` is the select list above: the view of the state has these columns, too.

    With `lateness` a window is forgotten that much later, and rows that arrive until then update its result.
    With `early` results of open windows are emitted, too, and updated.
    """

    node_kind: ClassVar[str] = "window_aggregate"

    name: str
    keys: tuple[Item, ...]
    window: WindowColumns
    aggregates: tuple[AggregateItem, ...]
    shown: tuple[Item, ...] = ()
    lateness: Duration = NO_TIME
    early: EarlyFire | None = None
    late_rows: str | None = None
    late_reads: LateReads | None = None
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def values(self) -> NodeValues:
        early = self.early.setting if self.early is not None else None
        calls = CallForms()
        return NodeValues(
            self.node_kind,
            name=self.name,
            keys=named_forms(self.keys),
            calls=tuple(calls.call(a) for a in self.aggregates),
            settings=WindowSettings(self.window.end, self.lateness, early, self.late_rows),
        )

    @property
    def corrects(self) -> bool:
        """Whether it retracts and replaces results that it has emitted."""
        return self.lateness > 0 or self.early is not None

    @property
    def label(self) -> str:
        if self.lateness:
            return "ALLOWED_LATENESS"
        return "EARLY_FIRE" if self.early else "GROUP BY in windows"

    @property
    def description(self) -> str:
        keys, calls = sql_items(self.keys) or "no key", ", ".join(map(str, self.aggregates)) or "no aggregate"
        firing = f" lateness {duration(self.lateness)}" if self.lateness else ""
        firing += f" early every {self.early}" if self.early is not None else ""
        late = in_table(self.late_rows)
        return f"WindowAggregate{quoted_name(self.name)} by {keys} per {self.window.end}{firing}{late}: {calls}"

    @property
    def title(self) -> str:
        return f"aggregate {self.input.windows_text}"

    @property
    def emission(self) -> str:
        if not self.corrects:
            return f"a row per key and window, {AT_WINDOW_END}"
        early = "early results of open windows, " if self.early else ""
        later = f", corrections for {duration(self.lateness)} more" if self.lateness else ""
        return f"{early}a row per key and window {AT_WINDOW_END}{later}"

    @property
    def has_processing_timers(self) -> bool:
        return isinstance(self.early, EarlyByTime) and self.early.by == "time"

    @property
    def leaving_time(self) -> str | None:
        return None if self.corrects else self.window.end or self.window.time or self.window.start

    def late_columns(self, index: int) -> Schema:
        """Return the columns of a late row, without the bounds of its window and the number of its grouping set."""
        return visible(without_windows(self.input, self.window))

    def drops_for(self, below: Node) -> bool:
        """True for sessions, which it may make itself."""
        return isinstance(below, SessionWindow)

    @cached_property
    def expressions(self) -> tuple[Expression, ...]:
        return _expressions(self.keys, self.aggregates)

    @cached_property
    def schema(self) -> Schema:
        bounds = (Field(name, "TIMESTAMP") for name in self.window.names)
        return (*_fields(self.keys), *bounds, *(Field(a.name, a.type) for a in self.aggregates))

    @property
    def times_read(self) -> tuple[tuple[int, str], ...]:
        """A bound of its windows: it works by the time over which they are made."""
        return tuple((0, name) for name in self.window.names[:1])

    @property
    def clock_times(self) -> tuple[str, ...]:
        return self.window.names if self.goes_by_clock else ()

    @property
    def time_attributes(self) -> tuple[str, ...]:
        return (self.window.time,) if self.window.time is not None else ()

    @property
    def never_late(self) -> bool:
        return not self.corrects

    @property
    def window_columns(self) -> WindowColumns | None:
        """None if results are corrected: no watermark says that a window's last result has left, so bounds are plain columns."""
        return None if self.corrects else self.window

    @cached_property
    def window_size(self) -> WindowSize | None:
        return self.input.window_size

    @property
    def changelog_origin(self) -> Node | None:
        return self if self.corrects else None

    @property
    def grows(self) -> bool:
        """Always: there are more and more windows, even if their results are corrected."""
        return True

    @cached_property
    def unique_keys(self) -> Keys:
        own = frozenset(k.name for k in self.keys)
        return tuple(own | bounds for bounds in self._telling_bounds())

    def _telling_bounds(self) -> Iterator[frozenset[str]]:
        """Yield sets of columns in which no two windows of one key are equal."""
        bounds = [b for b in (self.window.end, self.window.time, self.window.start) if b is not None]
        window_nodes = [n for n in walk(self.input) if isinstance(n, TimeWindows | SessionWindow)]
        # Several windows of different sizes may have one of their bounds in common.
        alone = self.window_size is not None or (len(window_nodes) == 1 and isinstance(window_nodes[0], SessionWindow))
        yield from (frozenset({b}) for b in bounds) if alone else (frozenset(bounds),)

    @property
    def state_bound(self) -> str:
        return bound_of_windows(self.window_size, self.lateness, self.late_rows)

    @property
    def state_growth(self) -> str | None:
        return growth_of_late_rows(self.late_rows)


@dataclass(frozen=True)
class Aggregate(Aggregating, WithTimeToLive, SingleInput, ChangelogNode):
    """Aggregates all rows of a key so far.

    Emits a key's result when its first row arrives, updates it with every further row, and retracts it when no row is left.
    Without keys there is one result from the first batch on, even without rows; likewise for each grouping set without keys:
    `empty_sets` are the numbers of these sets, which the last key holds; the other keys are NULL. Keeps partial results of every
    key, and the rows themselves if a result cannot be updated by a retraction. `shown` is the select list above. A key for which
    no row arrives for `ttl` is forgotten (0: never; None: not set, the session's time to live applies).
    """

    node_kind: ClassVar[str] = "aggregate"

    name: str
    keys: tuple[Item, ...]
    aggregates: tuple[AggregateItem, ...]
    shown: tuple[Item, ...] = ()
    ttl: Duration | None = None
    empty_sets: tuple[int, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def values(self) -> NodeValues:
        calls = CallForms()
        return NodeValues(
            self.node_kind,
            name=self.name,
            keys=named_forms(self.keys),
            calls=tuple(calls.call(a, retracts=self.input.is_changelog) for a in self.aggregates),
        )

    @property
    def label(self) -> str:
        return "GROUP BY without a window" if self.aggregates else "DISTINCT"

    @property
    def description(self) -> str:
        retracts = self.input.is_changelog
        calls = ", ".join(a.retracting if retracts else str(a) for a in self.aggregates) or "no aggregate"
        return f"Aggregate{quoted_name(self.name)} by {sql_items(self.keys) or 'no key'}: {calls}"

    @property
    def title(self) -> str:
        return "aggregate without a window" if self.aggregates else "rows without duplicates (DISTINCT)"

    @property
    def emission(self) -> str:
        return f"a row per key, {ON_CHANGE}"

    @property
    def can_forget(self) -> bool:
        """Whether it has keys: the result over all rows is never forgotten."""
        return bool(self.keys)

    @property
    def has_processing_timers(self) -> bool:
        return False

    @property
    def depends_on_expiry(self) -> bool:
        """Never: a batch query can tell from the times of rows when a key was forgotten and begins anew."""
        return False

    @property
    def leaving_time(self) -> str | None:
        return None

    @cached_property
    def expressions(self) -> tuple[Expression, ...]:
        return _expressions(self.keys, self.aggregates)

    @cached_property
    def schema(self) -> Schema:
        return (*_fields(self.keys), *(Field(a.name, a.type) for a in self.aggregates))

    @property
    def unique_keys(self) -> Keys:
        return (frozenset(k.name for k in self.keys),) if self.keys else ()

    @property
    def state_bound(self) -> str:
        """What bounds partial results; planning replaces it if rows are stored instead."""
        return bound_of_keys(self, self.ttl) or "the number of groups"

    @cached_property
    def state_growth(self) -> str | None:
        if self.ttl or not self.input.grows:
            return None
        if self.input.is_changelog:
            return "it keeps every row of its input"
        if any(a.distinct or declared(a.order_by) for a in self.aggregates):
            return "it keeps every value that it has seen"
        sets = {n.column for n in walk(self.input) if isinstance(n, Expand)}
        keyed = any(k.expression.type not in FEW_VALUES and k.expression.column not in sets for k in self.keys)
        return "it keeps a row for every key" if keyed else None


def _fields(keys: tuple[Item, ...]) -> Iterator[Field]:
    return (Field(k.name, k.expression.type) for k in keys)


def _expressions(keys: tuple[Item, ...], calls: tuple[AggregateItem, ...]) -> tuple[Expression, ...]:
    return (*(k.expression for k in keys), *(e for call in calls for e in call.expressions))


def without_windows(node: Node, window: WindowColumns) -> Schema:
    """Return the columns of a node without the bounds of `window` and the number of the grouping set."""
    hidden = {window.start, window.end, window.time} | ({node.column} if isinstance(node, Expand) else set())
    return tuple(f for f in node.schema if f.name not in hidden)
