"""Which windows rows are in."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal

from sqlstream.errors import Span
from sqlstream.logical.plan.expressions import Expression, Field, Schema
from sqlstream.logical.plan.node import FEW_VALUES, Keys, LateReads, Node, PassThrough, SingleInput, WindowColumns
from sqlstream.logical.plan.settings import CountSettings, GridSettings, NodeValues, SessionSettings
from sqlstream.logical.plan.values import form
from sqlstream.units import MICROSECOND, MILLISECOND, NO_TIME, Duration, duration

# What a window table function adds to its input.
BOUNDS = ("window_start", "window_end", "window_time")
# And by rows.
WINDOW_ID = "window_id"
# How far window_time is before window_end.
WINDOW_TIME = MILLISECOND
# The watermark has passed a row when it is beyond its time, that is when it has reached the next microsecond: until then further
# rows of that time may come.
UNTIL_PASSED = MICROSECOND
_BOUND_FIELDS = tuple(Field(name, "TIMESTAMP") for name in BOUNDS)


@dataclass(frozen=True)
class TimeWindows(PassThrough):
    """Emits each row once for every window [start, end) that holds its event time.

    TUMBLE windows follow each other; HOP windows begin every `slide`; CUMULATE windows end every `slide` after the start that
    all of one `size` share. They are aligned to the epoch plus the offset. Adds `window_start`,
    `window_end` and `window_time` (end - 1 ms). Keeps no state. With a `zone`, the times are instants, and windows of days begin
    at the zone's midnight.
    """

    node_kind: ClassVar[str] = "time_windows"

    kind: Literal["TUMBLE", "HOP", "CUMULATE"]
    time_column: str
    size: Duration
    slide: Duration
    offset: Duration = NO_TIME
    zone: str | None = None
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def values(self) -> NodeValues:
        settings = GridSettings(self.kind, self.time_column, self.size, self.slide, self.offset, self.zone)
        return NodeValues(self.node_kind, settings=settings)

    @property
    def label(self) -> str:
        return self.kind

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return ()

    @cached_property
    def schema(self) -> Schema:
        return (*self.input.schema, *_BOUND_FIELDS)

    @property
    def time_attributes(self) -> tuple[str, ...]:
        return ("window_time",)

    @cached_property
    def leaves_at_once(self) -> bool:
        """Above windows over event time nothing goes by processing time."""
        return self.time_column in self.input.processing_times

    @property
    def window_columns(self) -> WindowColumns | None:
        return WindowColumns(*BOUNDS)

    @property
    def window_size(self) -> Duration | None:
        return None if self.kind == "CUMULATE" else self.size

    @property
    def unique_keys(self) -> Keys:
        return ()


@dataclass(frozen=True)
class AtWindowEnd(SingleInput):
    """A node that emits what is final of a window, once, when the watermark passes the window's end."""

    @property
    def batch_times(self) -> tuple[str, ...]:
        return ()

    @property
    def leaves_at_once(self) -> bool:
        return False

    @property
    def on_time(self) -> bool:
        return True

    @property
    def changelog_origin(self) -> Node | None:
        """Nothing retracts what is final, also where the input is a changelog."""
        return None


@dataclass(frozen=True)
class SessionWindow(AtWindowEnd):
    """Emits each row with the bounds of its session, when the watermark passes the session's end.

    Rows of equal keys that follow each other within the gap are one session; its end is the gap after its last
    row. A gap that is an expression is each row's own: rows whose times, and gaps behind them, touch are one session. Keeps
    the rows of open sessions, and forgets them with the session. A row that comes after its session has closed is dropped and
    counted, and kept where `late_rows` names a table for it.
    """

    node_kind: ClassVar[str] = "session_window"

    name: str
    keys: tuple[str, ...]
    time_column: str
    gap: Duration | Expression
    late_rows: str | None = None
    late_reads: LateReads | None = None
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def values(self) -> NodeValues:
        gap = form(self.gap) if isinstance(self.gap, Expression) else self.gap
        settings = SessionSettings(self.time_column, gap, self.late_rows)
        return NodeValues(self.node_kind, name=self.name, keys=tuple((key,) for key in self.keys), settings=settings)

    @property
    def label(self) -> str:
        return "SESSION"

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return (self.gap,) if isinstance(self.gap, Expression) else ()

    @cached_property
    def schema(self) -> Schema:
        return (*self.input.schema, *_BOUND_FIELDS)

    @property
    def time_attributes(self) -> tuple[str, ...]:
        return ("window_time",)

    @property
    def window_columns(self) -> WindowColumns | None:
        return WindowColumns(*BOUNDS)

    @property
    def window_size(self) -> Duration | None:
        return None

    @property
    def unique_keys(self) -> Keys:
        return ()

    @property
    def state_bound(self) -> str:
        return bound_of_sessions(NO_TIME, self.late_rows)

    @property
    def state_growth(self) -> str | None:
        return growth_of_late_rows(self.late_rows)


@dataclass(frozen=True)
class CountWindows(SingleInput):
    """Emits each row once for every window of rows that holds it, when the watermark has passed the window's last row.

    The rows of a key are numbered by time once the watermark has passed them: those of one time in the order of all their
    columns. Every `slide` rows there is a window of the last `size`; the first ones have fewer where the size is greater. Adds
    the times of its first and its last row as `window_start` and `window_end`, `window_time` (1 ms before), and `window_id`,
    which counts the windows of a key. Keeps rows that a window may still need, up to `size` of every key; a row behind the
    watermark is dropped and counted. `ttl`: as of Aggregate, a row having come when it got its number.
    """

    node_kind: ClassVar[str] = "count_windows"

    name: str
    keys: tuple[str, ...]
    time_column: str
    size: int
    slide: int
    ttl: Duration | None = None
    late_reads: LateReads | None = None
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def values(self) -> NodeValues:
        settings = CountSettings(self.time_column, self.size, self.slide)
        return NodeValues(self.node_kind, name=self.name, keys=tuple((key,) for key in self.keys), settings=settings)

    @property
    def label(self) -> str:
        return "count windows"

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return ()

    @cached_property
    def schema(self) -> Schema:
        return (*self.input.schema, *_BOUND_FIELDS, Field(WINDOW_ID, "BIGINT"))

    @property
    def time_attributes(self) -> tuple[str, ...]:
        return ("window_time",)

    @property
    def batch_times(self) -> tuple[str, ...]:
        return ()

    @property
    def leaves_at_once(self) -> bool:
        return False

    @property
    def on_time(self) -> bool:
        return True

    @cached_property
    def delay_below(self) -> Duration:
        return Duration(self.input.delay + UNTIL_PASSED)

    @property
    def window_columns(self) -> WindowColumns | None:
        return WindowColumns(*BOUNDS)

    @property
    def window_size(self) -> Duration | None:
        return None

    @cached_property
    def changelog_origin(self) -> Node | None:
        """A row that is taken away would move all after it: planning refuses a changelog below."""
        return self.input.changelog_origin

    @property
    def unique_keys(self) -> Keys:
        return ()

    @property
    def forgets_keys(self) -> bool:
        return bool(self.ttl)

    @property
    def state_bound(self) -> str:
        kept = f"{self.size} rows" + (" for every key" if self.keys else "")
        ttl = f", which is forgotten when no row has come for it for {duration(self.ttl)}" if self.ttl else ""
        return f"its size, {kept}{ttl}, and the watermark: rows wait until it has passed them"

    @cached_property
    def state_growth(self) -> str | None:
        keyed = any(f.type not in FEW_VALUES for f in self.input.schema if f.name in self.keys)
        return f"it keeps up to {self.size} rows for every key" if keyed and not self.ttl else None


def bound_of_windows(size: Duration | None, lateness: Duration, late_rows: str | None) -> str:
    """Return what bounds the state of windows."""
    span = f" of {size / 1_000_000:g} s" if size else ""
    return f"watermark: a window{span} is forgotten when the watermark passes its end{_later(lateness, late_rows)}"


def bound_of_sessions(lateness: Duration, late_rows: str | None) -> str:
    """Return what bounds the state of sessions."""
    return f"watermark: a session is forgotten when the watermark passes its end{_later(lateness, late_rows)}"


def growth_of_late_rows(late_rows: str | None) -> str | None:
    """Return what windows keep more and more of, where a table is named for late rows."""
    return "it keeps every late row" if late_rows is not None else None


def _later(lateness: Duration, late_rows: str | None) -> str:
    by = f" by {lateness / 1_000_000:g} s" if lateness else ""
    return by + ("; late rows are kept" if late_rows else "")
