"""Nodes that emit rows in the order of time: calls with OVER, and ORDER BY."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal

from msgspec import structs

from sqlstream.duck.aggregates.functions import ALIASES, FUNCTIONS, Kind
from sqlstream.errors import Span
from sqlstream.logical.plan.expressions import AggregateItem, Expression, Field, Schema, arrived, column_names, declared
from sqlstream.logical.plan.node import (
    FEW_VALUES,
    Keys,
    LateReads,
    Node,
    SingleInput,
    WindowColumns,
    WindowSize,
    bound_of_keys,
    named_columns,
)
from sqlstream.logical.plan.settings import CallSettings, NodeValues, OrderSettings
from sqlstream.logical.plan.stateful import DropsLateRows, StatefulNode, WithTimeToLive
from sqlstream.logical.plan.values import CallForms, forms, single_keys
from sqlstream.logical.plan.words import ONCE_IN_ORDER, plain_call, plain_list, quoted_name, sql_list
from sqlstream.units import NO_TIME, Duration, seconds

RANKS = ("row_number", "rank", "dense_rank")
# Cuts the rows of a key into n parts; of a rank the function is `ntile(n)`.
NTILE = "ntile"
# Functions that are not aggregates, and pick a row by its position.
POSITIONAL = ("lag", "lead", "first_value", "last_value", "nth_value")
# Over a frame from the first row of the partition on, these need one stored row: the first or the last one.
EDGES = ("first", "arbitrary", "any_value", "first_value", "last", "last_value")
# Aggregates that need all rows of such a frame: they have no partial result to which a row can be added.
_KEEPING = frozenset(
    {
        *("array_agg", "entropy", "group_concat", "histogram", "histogram_exact", "json_group_array"),
        *("json_group_object", "json_group_structure", "list", "listagg", "lttb", "mad", "median", "mode"),
        *("percentile", "percentile_cont", "percentile_disc", "quantile", "quantile_cont", "quantile_disc"),
        "string_agg",
    }
)


@dataclass(frozen=True, slots=True)
class OverFrame:
    """The frame of a call with OVER: from `preceding` before a row to `following` after it.

    In mode `rows` bounds count rows; in mode `range` they are microseconds, and rows of equal order are all in the frame or all
    out of it. A negative bound lies on the other side of the row. `preceding` None: from the first row of the partition.
    """

    mode: Literal["rows", "range"]
    preceding: int | None
    following: int = 0

    def __str__(self) -> str:
        first = "unbounded" if self.preceding is None else str(self.preceding)
        return f"{self.mode} {first} preceding" + (f" {self.following} following" if self.following else "")


@dataclass(frozen=True, slots=True)
class OverItem:
    """A call with OVER: the call, its frame, and whether it ignores NULLs."""

    call: AggregateItem
    frame: OverFrame
    ignore_nulls: bool = False

    @property
    def reads_order(self) -> bool:
        """Whether the result depends on the order of rows that are equal in the ORDER BY of its OVER."""
        call = self.call
        if call.function in RANKS:
            return call.function == "row_number"
        if self.frame.mode == "rows" or call.function in POSITIONAL:
            return True
        if call.distinct and not call.order_by:
            return False
        shape = FUNCTIONS.get(ALIASES.get(call.function, call.function))
        return call.python is not None or (shape is not None and shape.ordered and shape.kind is not Kind.QUANTILE)

    @property
    def keeps_partition(self) -> bool:
        """Whether the call needs all rows of the partition up to the current one in state."""
        call, frame = self.call, self.frame
        if frame.preceding is not None or call.function in RANKS:
            return False
        if frame.following or call.distinct or call.order_by or call.function in _KEEPING:
            return True
        if call.python is not None:
            return not call.python.extends
        return call.function in POSITIONAL and call.function not in EDGES

    def __str__(self) -> str:
        return f"{self.call}{self.manner}"

    @property
    def accumulator(self) -> str | None:
        """The type of the accumulator that is stored for a user's function that does not merge; None for other calls."""
        function = self.call.python
        # The SQL of the call has the type for a function that merges.
        if function is None or function.merges or self.frame.preceding is not None or self.keeps_partition:
            return None
        return function.accumulator

    def settings(self, calls: CallForms) -> CallSettings:
        """Return the values that identify the call within its node; all calls of the node share `calls`."""
        call, frame = calls.call(self.call), self.frame
        return structs.replace(
            call,
            accumulator=self.accumulator or call.accumulator,
            frame=(frame.mode, frame.preceding, frame.following),
            ignore_nulls=self.ignore_nulls,
        )

    @property
    def manner(self) -> str:
        """The text after the call and its name: IGNORE NULLS, the frame, and the accumulator."""
        accumulator = f" keeping {self.accumulator}" if self.accumulator is not None else ""
        return f"{' ignore nulls' if self.ignore_nulls else ''} [{self.frame}]{accumulator}"


class TimeOrderedNode(SingleInput, StatefulNode):
    """A node that emits every row once, in the order of the column `time`, as the watermark passes it.

    Over processing time a row leaves in the batch in which it arrives, so it is as late, or as much on time, as before.
    """

    time: str
    order: tuple[Expression, ...]

    @property
    def passes_rows_on(self) -> bool:
        return True

    @property
    def is_by_arrival(self) -> bool:
        return bool(arrived(self.order))

    @property
    def reads_time(self) -> bool:
        """Whether rows wait for the watermark, or expire by it."""
        return not self.leaves_at_once or self.keeps_by_time

    @property
    def keeps_by_time(self) -> bool:
        """Whether it keeps emitted rows until they are too old for the frames of later rows."""
        return False

    @property
    def clock_times(self) -> tuple[str, ...]:
        """The input's `clock_times` if rows leave at once; else only those that are its time attributes."""
        below = self.input.clock_times
        if self.leaves_at_once:
            return below
        return tuple(time for time in self.time_attributes if time in below)

    @property
    @abstractmethod
    def waits(self) -> bool:
        """Whether a row may leave after the watermark has passed it, because it waits for later rows."""

    @cached_property
    def by_clock(self) -> bool:
        """Whether the order is by processing time."""
        return self.time in self.input.processing_times

    @property
    def times_read(self) -> tuple[tuple[int, str], ...]:
        return ((0, self.time),)

    @cached_property
    def time_attributes(self) -> tuple[str, ...]:
        if self.leaves_at_once and not self.reads_by_clock:
            return self.input.time_attributes
        return () if self.waits else tuple(t for t in self.input.time_attributes if t == self.time)

    @cached_property
    def batch_times(self) -> tuple[str, ...]:
        return self.input.batch_times if self.leaves_at_once else ()

    @cached_property
    def leaves_at_once(self) -> bool:
        return self.by_clock and not self.waits

    @cached_property
    def never_late(self) -> bool:
        return self.input.never_late if self.leaves_at_once else not self.waits

    @property
    def window_columns(self) -> WindowColumns | None:
        return None if self.waits else self.input.window_columns

    @cached_property
    def window_size(self) -> WindowSize | None:
        return self.input.window_size

    @cached_property
    def changelog_origin(self) -> Node | None:
        return self.input.changelog_origin

    @property
    def has_processing_timers(self) -> bool:
        return False

    @property
    def waits_for_later_rows(self) -> bool:
        return self.waits

    @property
    def leaving_time(self) -> str | None:
        return None if self.waits or self.time in self.input.batch_times else self.time

    @property
    def computes_when_leaving(self) -> bool:
        return True


@dataclass(frozen=True)
class Over(WithTimeToLive, TimeOrderedNode, DropsLateRows):
    """Emits each row once, with the results of calls over the rows of its key around it, when these are final.

    Results are final when the watermark passes the row's time; over processing time, in the batch in which the row arrives. If a
    frame includes later rows, these must be final, too, or the input must have ended.

    The first item of `order` is the time; the SQL of items includes their direction. The last item can be the order of arrival,
    which does not tell the peers of a RANGE frame apart. Rows that are equal in `order` are ordered by all their columns.
    Keeps rows that wait, and what frames still need of emitted rows: rows as far back as a frame reaches, and for a frame without
    a bound a partial result per key. A row behind the watermark is dropped and counted. `ttl`: see Aggregate. A `zone` is set if
    rows are kept for a frame of processing time in another time zone than UTC.
    """

    node_kind: ClassVar[str] = "over"

    name: str
    keys: tuple[Expression, ...]
    time: str
    order: tuple[Expression, ...]
    calls: tuple[OverItem, ...]
    ttl: Duration | None = None
    late_reads: LateReads | None = None
    zone: str | None = None
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def has_ties(self) -> bool:
        named = (e.column for e in (*self.keys, *declared(self.order)) if e.column is not None)
        return any(item.reads_order for item in self.calls) and not self.input.covers_key(named)

    @property
    def values(self) -> NodeValues:
        calls = CallForms()
        return NodeValues(
            self.node_kind,
            name=self.name,
            keys=single_keys(self.keys),
            calls=tuple(item.settings(calls) for item in self.calls),
            settings=OrderSettings(forms(self.order), self.zone),
        )

    @property
    def following(self) -> int:
        """The number of rows after a row that frames of ROWS include."""
        return max(0, max((c.frame.following for c in self.calls if c.frame.mode == "rows"), default=0))

    @property
    def waits(self) -> bool:
        return any(c.frame.following > 0 for c in self.calls)

    @property
    def keeps_by_time(self) -> bool:
        return any(c.frame.mode == "range" and c.frame.preceding is not None for c in self.calls)

    @property
    def rows_kept(self) -> int:
        """The number of a key's last rows that frames of ROWS, and calls that wait for later rows, need in state."""
        frames = [c.frame for c in self.calls if c.frame.mode == "rows"]
        return max(0, max((f.preceding or 0 for f in frames), default=0)) + self.following

    @property
    def label(self) -> str:
        return "OVER"

    @property
    def description(self) -> str:
        keys, calls = sql_list(self.keys) or "no key", ", ".join(map(str, self.calls))
        return f"Over{quoted_name(self.name)} by {keys} order {sql_list(self.order)}: {calls}"

    @property
    def title(self) -> str:
        by_clock_alone = self.by_clock and not self.keys and len(declared(self.order)) == 1
        if by_clock_alone and all(c.call.function == "row_number" for c in self.calls):
            return "number the rows as they come"
        return "OVER: rows in the order of time"

    @property
    def key_text(self) -> str:
        return plain_list(self.keys)

    @property
    def calls_text(self) -> str:
        return ", ".join(plain_call(c.call) + c.manner for c in self.calls)

    @property
    def emission(self) -> str:
        if self.waits:
            return "each row once, when the watermark passes the later rows that it needs"
        return once_in_order(self.by_clock)

    @property
    def key_columns(self) -> tuple[str, ...]:
        return column_names(self.keys)

    @property
    def keys_by_name(self) -> tuple[tuple[str, tuple[Expression, ...]], ...]:
        return tuple((k.column or k.sql, (k,)) for k in self.keys)

    @property
    def call_items(self) -> tuple[tuple[AggregateItem, str], ...]:
        return tuple((one.call, one.manner) for one in self.calls)

    @property
    def emits_its_rows(self) -> bool:
        return True

    @property
    def drops_late_rows(self) -> bool:
        """False over processing time, which no row is behind."""
        return not self.by_clock

    @cached_property
    def expressions(self) -> tuple[Expression, ...]:
        return (*self.keys, *self.order, *(e for c in self.calls for e in c.call.expressions))

    @cached_property
    def schema(self) -> Schema:
        return (*self.input.schema, *(Field(c.call.name, c.call.type) for c in self.calls))

    @cached_property
    def unique_keys(self) -> Keys:
        partition = named_columns(self, self.keys)
        return tuple(partition | {n} for n in self._numbers()) if len(partition) == len(self.keys) else ()

    @cached_property
    def row_numbers(self) -> frozenset[str]:
        return frozenset(self._numbers())

    def _numbers(self) -> list[str]:
        return [c.call.name for c in self.calls if c.call.function == "row_number"]

    @property
    def state_bound(self) -> str:
        frames = [c.frame for c in self.calls if c.frame.mode == "range"]
        span = Duration(max((f.preceding or 0 for f in frames), default=0))
        later = Duration(max((f.following for f in frames), default=0))
        waits = f"watermark: a row is emitted when the watermark is {_seconds(later)} beyond it"
        phrases = [f"rows are kept for {_seconds(Duration(span + later))}"] if span else []
        if rows := self.rows_kept:
            phrases.append(f"{rows} row{'' if rows == 1 else 's'} of each key {'is' if rows == 1 else 'are'} kept")
        own = ", ".join([waits if later else bound_in_order(self.by_clock), *phrases])
        return bound_of_keys(self, self.ttl) or own

    @cached_property
    def state_growth(self) -> str | None:
        if self.ttl or not self.input.grows:
            return None
        if any(c.keeps_partition for c in self.calls):
            return "it keeps every row of its input"
        if all(k.type in FEW_VALUES for k in self.keys):
            return None
        if rows := self.rows_kept:
            return f"it keeps {rows} row{'' if rows == 1 else 's'} for every key"
        return "it keeps a row for every key" if any(c.frame.preceding is None for c in self.calls) else None


@dataclass(frozen=True)
class Sort(TimeOrderedNode):
    """Emits rows in the order of their time, then by the rest of `order`, as the watermark passes them.

    Keeps rows that the watermark has not passed. A row behind the watermark is dropped and counted.
    """

    node_kind: ClassVar[str] = "sort"

    name: str
    time: str
    order: tuple[Expression, ...]
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def has_ties(self) -> bool:
        return not self.input.covers_key(e.column for e in declared(self.order) if e.column is not None)

    @property
    def values(self) -> NodeValues:
        return NodeValues(self.node_kind, name=self.name, settings=OrderSettings(forms(self.order)))

    @property
    def waits(self) -> bool:
        return False

    @property
    def label(self) -> str:
        return "ORDER BY"

    @property
    def description(self) -> str:
        return f"Sort{quoted_name(self.name)} {sql_list(self.order)}"

    @property
    def title(self) -> str:
        return f"sort by {plain_list(declared(self.order))}"

    @property
    def key_text(self) -> str:
        return ""

    @property
    def emission(self) -> str:
        return once_in_order(self.by_clock)

    @property
    def key_columns(self) -> tuple[str, ...]:
        return ()

    @property
    def keys_by_name(self) -> tuple[tuple[str, tuple[Expression, ...]], ...]:
        return ()

    @property
    def key_ttl(self) -> Duration:
        return NO_TIME

    def named(self, name: str) -> Node:
        """The node itself: ORDER BY takes no name from a view."""
        return self

    @property
    def can_forget(self) -> bool:
        return False

    @property
    def depends_on_expiry(self) -> bool:
        return False

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return self.order

    @cached_property
    def schema(self) -> Schema:
        return self.input.schema

    @property
    def unique_keys(self) -> Keys:
        return ()

    @property
    def state_bound(self) -> str:
        return bound_in_order(self.by_clock)

    @property
    def state_growth(self) -> str | None:
        return None


def once_in_order(by_clock: bool) -> str:
    """Return the text of when rows leave in the order of event time, or of processing time."""
    return "each row once, in the batch in which it comes" if by_clock else ONCE_IN_ORDER


def bound_in_order(by_clock: bool) -> str:
    """Return the text of the bound of rows that wait to leave in the order of event time, or of processing time."""
    return (
        "the batch: a row is emitted at once"
        if by_clock
        else "watermark: a row is emitted when the watermark passes it"
    )


def _seconds(length: Duration) -> str:
    return f"{seconds(length):g} s"
