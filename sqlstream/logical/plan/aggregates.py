"""Aggregates: in windows, and without a window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal

from sqlstream.errors import Span
from sqlstream.logical.plan.expressions import AggregateItem, Expression, Field, Item, Schema
from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.node import (
    FEW_VALUES,
    Keys,
    LateReads,
    Node,
    SingleInput,
    Updating,
    WindowColumns,
    bound_of_keys,
)
from sqlstream.logical.plan.relational import Expand
from sqlstream.logical.plan.settings import NodeValues, WindowSettings
from sqlstream.logical.plan.stateful import StatefulNode, WithTimeToLive
from sqlstream.logical.plan.values import CallForms, named_forms
from sqlstream.logical.plan.windows import (
    AtWindowEnd,
    SessionWindow,
    TimeWindows,
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
class EarlyFire:
    """How often an open window's result is emitted: after so much processing or event time, or so many rows."""

    # A Duration, or a number of rows.
    every: int
    by: Literal["time", "event", "rows"]

    def __str__(self) -> str:
        if self.by == "rows":
            return f"{self.every} rows"
        return f"{duration(Duration(self.every))} of {'event time' if self.by == 'event' else 'processing time'}"


class Aggregating(StatefulNode):
    """A node whose results are of the rows of each key."""

    keys: tuple[Item, ...]
    aggregates: tuple[AggregateItem, ...]

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
class WindowAggregate(Aggregating, AtWindowEnd):
    """Aggregates rows per key and event-time window.

    Emits one row per (key, window) when the watermark passes the window's end, then forgets the window. Keeps partial
    results of open windows; a row that comes after its window has closed is dropped and counted, and kept where `late_rows`
    names a table for it. `shown` is the select list over it: its state's view has these columns, too.

    With a `lateness` a window is forgotten so much later, and rows that come until then change its result.
    With `early` results of open windows are emitted, too, and changed.
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
        early = (self.early.every, self.early.by) if self.early is not None else None
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
        """Whether results that were emitted are retracted."""
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
        return self.early is not None and self.early.by == "time"

    @property
    def leaving_time(self) -> str | None:
        return None if self.corrects else self.window.end or self.window.time or self.window.start

    def late_columns(self, place: int) -> Schema:
        """Return the columns of a row, without the window that it is in."""
        return without_windows(self.input, self.window)

    def drops_for(self, below: Node) -> bool:
        """It may make the sessions below itself."""
        return isinstance(below, SessionWindow)

    @cached_property
    def expressions(self) -> tuple[Expression, ...]:
        return _expressions(self.keys, self.aggregates)

    @cached_property
    def schema(self) -> Schema:
        bounds = (Field(name, "TIMESTAMP") for name in self.window.names)
        return (*_fields(self.keys), *bounds, *(Field(a.name, a.type) for a in self.aggregates))

    @property
    def time_attributes(self) -> tuple[str, ...]:
        return (self.window.time,) if self.window.time is not None else ()

    @property
    def on_time(self) -> bool:
        return not self.corrects

    @property
    def window_columns(self) -> WindowColumns | None:
        """None where results change: nothing says when the last one of a window has come, so its bounds are columns as others."""
        return None if self.corrects else self.window

    @cached_property
    def window_size(self) -> Duration | None:
        return self.input.window_size

    @property
    def changelog_origin(self) -> Node | None:
        return self if self.corrects else None

    @property
    def grows(self) -> bool:
        """There are more and more windows, also where their results change."""
        return True

    @cached_property
    def unique_keys(self) -> Keys:
        own = frozenset(k.name for k in self.keys)
        return tuple(own | bounds for bounds in self._telling_bounds())

    def _telling_bounds(self) -> Iterator[frozenset[str]]:
        """Yield sets of columns that tell the windows of one key apart."""
        bounds = [b for b in (self.window.end, self.window.time, self.window.start) if b is not None]
        made = [n for n in walk(self.input) if isinstance(n, TimeWindows | SessionWindow)]
        # Several windows of different sizes may have one of their bounds in common.
        alone = self.window_size is not None or (len(made) == 1 and isinstance(made[0], SessionWindow))
        yield from (frozenset({b}) for b in bounds) if alone else (frozenset(bounds),)

    @property
    def state_bound(self) -> str:
        return bound_of_windows(self.window_size, self.lateness, self.late_rows)

    @property
    def state_growth(self) -> str | None:
        return growth_of_late_rows(self.late_rows)


@dataclass(frozen=True)
class Aggregate(Aggregating, WithTimeToLive, SingleInput, Updating):
    """Aggregates all rows of a key so far.

    Emits a key's result when its first row comes, and changes it with every further one; takes it back when no row is left.
    Without keys there is one result from the first batch on, whatever rows there are; so there is of each grouping set without
    keys: `empty_sets` are the numbers of those, in the last key, with NULL in the others. Keeps partial results of every key,
    and where rows can be taken away, the rows. `shown` is the select list over it. A key without a row for so long as `ttl`
    is forgotten (0: never; None: as long as the session says).
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
        """The one result of all rows is always there."""
        return bool(self.keys)

    @property
    def has_processing_timers(self) -> bool:
        return False

    @property
    def depends_on_expiry(self) -> bool:
        """A key that is forgotten begins anew with its next row, which a batch can tell from the times of rows."""
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
        """What bounds partial results; planning knows where rows are kept instead."""
        return bound_of_keys(self, self.ttl) or "the number of groups"

    @cached_property
    def state_growth(self) -> str | None:
        if self.ttl or not self.input.grows:
            return None
        if self.input.is_changelog:
            return "it keeps every row of its input"
        if any(a.distinct or a.order_by for a in self.aggregates):
            return "it keeps every value that it has seen"
        sets = {n.column for n in walk(self.input) if isinstance(n, Expand)}
        keyed = any(k.expression.type not in FEW_VALUES and k.expression.column not in sets for k in self.keys)
        return "it keeps a row for every key" if keyed else None


def _fields(keys: tuple[Item, ...]) -> Iterator[Field]:
    return (Field(k.name, k.expression.type) for k in keys)


def _expressions(keys: tuple[Item, ...], calls: tuple[AggregateItem, ...]) -> tuple[Expression, ...]:
    return (*(k.expression for k in keys), *(e for call in calls for e in call.expressions))


def without_windows(node: Node, window: WindowColumns) -> Schema:
    """Return the columns of the rows of windows, without those that say which window and which grouping set a row is in."""
    hidden = {window.start, window.end, window.time} | ({node.column} if isinstance(node, Expand) else set())
    return tuple(f for f in node.schema if f.name not in hidden)
