"""Nodes that assign rows to windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal

from sqlstream.duck.sql import unquoted
from sqlstream.errors import Span
from sqlstream.logical.plan.expressions import Expression, Field, Schema
from sqlstream.logical.plan.growth import COUNTED_ANYWAY, Ends, Growth, all_end
from sqlstream.logical.plan.node import (
    Keys,
    LateReads,
    Node,
    Overlap,
    PassThrough,
    SingleInput,
    WindowColumns,
    WindowSize,
)
from sqlstream.logical.plan.settings import GridSettings, NodeValues, SessionSettings
from sqlstream.logical.plan.state_settings import GridWindows, SessionWindows, Sql
from sqlstream.logical.plan.stateful import DropsLateRows, columns_by_name
from sqlstream.logical.plan.values import form
from sqlstream.logical.plan.words import in_table, quoted_name
from sqlstream.units import MICROSECOND, MILLISECOND, NO_TIME, Duration, duration

# The columns that a window table function adds to its input.
BOUNDS = ("window_start", "window_end", "window_time")
# The further column of count windows.
WINDOW_ID = "window_id"
# How far window_time is before window_end.
WINDOW_TIME = MILLISECOND
# The watermark has passed a row when it has reached the microsecond after the row's time: until then rows of the same time may
# arrive.
UNTIL_PASSED = MICROSECOND
BOUND_FIELDS = tuple(Field(name, "TIMESTAMP") for name in BOUNDS)


class TimeWindows(PassThrough):
    """Assigns rows to windows by the times of the rows; the kinds of windows are subclasses.

    Emits each row once for every window [start, end) that contains its event time. Adds `window_start`, `window_end` and
    `window_time` (1 ms before the end, 1 us if the end is not a whole millisecond). Keeps no state. With a `zone`, the times are
    instants, and windows of days begin at the zone's midnight.
    """

    kind: Literal["TUMBLE", "HOP", "CUMULATE"]
    time_column: str
    zone: str | None

    @property
    def label(self) -> str:
        return self.kind

    @property
    def effect(self) -> str:
        return ""

    @property
    def makes_windows(self) -> bool:
        return True

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return ()

    @cached_property
    def schema(self) -> Schema:
        return (*self.input.schema, *BOUND_FIELDS)

    @property
    def times_read(self) -> tuple[tuple[int, str], ...]:
        return ((0, self.time_column),)

    @property
    def time_attributes(self) -> tuple[str, ...]:
        return ("window_time",)

    @cached_property
    def leaves_at_once(self) -> bool:
        """Whether the windows are over processing time."""
        return self.time_column in self.input.processing_times

    @cached_property
    def clock_times(self) -> tuple[str, ...]:
        by_clock = self.time_column in self.input.clock_times
        return (*self.input.clock_times, *BOUNDS) if by_clock else self.input.clock_times

    @property
    def window_columns(self) -> WindowColumns | None:
        return WindowColumns(*BOUNDS)

    @property
    def unique_keys(self) -> Keys:
        return ()


@dataclass(frozen=True)
class RegularWindows(TimeWindows):
    """Assigns rows to windows of one length at regular distances.

    TUMBLE windows follow each other. HOP windows begin every `slide`. CUMULATE windows within one `size` share their start, and
    end every `slide` after it. Windows are aligned to the epoch plus the offset.
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
    def description(self) -> str:
        offset = f" offset {duration(self.offset)}" if self.offset else ""
        zone = f" in {self.zone}" if self.zone else ""
        step = {"TUMBLE": "", "HOP": " slide", "CUMULATE": " step"}[self.kind]
        every = f"{step} {duration(self.slide)}" if step else ""
        return f"{self.kind.capitalize()} {self.time_column}{every} size {duration(self.size)}{offset}{zone}"

    @property
    def overlap(self) -> Overlap:
        return Overlap(-(-self.size // self.slide), f"{duration(self.size)} every {duration(self.slide)}")

    def windows_setting(self, inlined: Callable[[Expression], str]) -> GridWindows:
        time = Sql(inlined(time_of(self)))
        return GridWindows(self.kind, time, self.size, self.slide, self.offset, self.zone)

    @property
    def windows_text(self) -> str:
        size, slide = duration(self.size), duration(self.slide)
        windows = {
            "TUMBLE": f"tumbling windows of {size}",
            "HOP": f"hopping windows of {size} every {slide}",
            "CUMULATE": f"cumulative windows of {size} in steps of {slide}",
        }
        return f"in {windows[self.kind]} by {self.time_column}"

    @property
    def window_size(self) -> WindowSize | None:
        return None if self.kind == "CUMULATE" else WindowSize(duration(self.size), self.size)


class WindowEndNode(SingleInput, DropsLateRows):
    """A node that emits final results of a window, once, when the watermark passes the window's end."""

    late_rows: str | None

    @property
    def batch_times(self) -> tuple[str, ...]:
        return ()

    @property
    def leaves_at_once(self) -> bool:
        return False

    @property
    def never_late(self) -> bool:
        return True

    @property
    def changelog_origin(self) -> Node | None:
        """None: final results are never retracted, even if the input is a changelog."""
        return None

    @property
    def key_ttl(self) -> Duration:
        """0, since the watermark decides when a window is forgotten."""
        return NO_TIME

    @property
    def can_forget(self) -> bool:
        return False

    @property
    def depends_on_expiry(self) -> bool:
        return False

    @property
    def leaving_time(self) -> str | None:
        return None

    @property
    def emits_its_rows(self) -> bool:
        return True

    @property
    def timed_part(self) -> str:
        return "Its windows are"

    def growth(self, ends: Ends) -> Growth | None:
        """Return the growth of stored late rows, the only state without a bound."""
        if self.state_growth is None or all_end(self, ends):
            return None
        return Growth("LATE_ROWS", self.state_growth, COUNTED_ANYWAY)

    @property
    def has_processing_timers(self) -> bool:
        return False

    @property
    def reads_watermark(self) -> bool:
        """Also true if late rows are stored or read: the fragment below selects them by the watermark before the batch."""
        return self.late_rows is not None or self.late_reads is not None or super().reads_watermark


@dataclass(frozen=True)
class SessionWindow(WindowEndNode):
    """Emits each row with the bounds of its session, when the watermark passes the session's end.

    Rows of equal keys that follow each other within the gap are one session, which ends the gap after its last row. If `gap` is
    an expression, every row has its own gap: rows whose intervals [time, time + gap] touch are one session. Keeps the rows of
    open sessions, and forgets them with the session. A row that arrives after its session has closed is dropped and counted,
    and stored if `late_rows` names a table for it. With a `zone` the times are instants of the clock.
    """

    node_kind: ClassVar[str] = "session_window"

    name: str
    keys: tuple[str, ...]
    time_column: str
    gap: Duration | Expression
    late_rows: str | None = None
    late_reads: LateReads | None = None
    zone: str | None = None
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def passes_rows_on(self) -> bool:
        return True

    @property
    def values(self) -> NodeValues:
        gap = form(self.gap) if isinstance(self.gap, Expression) else self.gap
        settings = SessionSettings(self.time_column, gap, self.late_rows, self.zone)
        return NodeValues(self.node_kind, name=self.name, keys=tuple((key,) for key in self.keys), settings=settings)

    @property
    def label(self) -> str:
        return "SESSION"

    @property
    def description(self) -> str:
        keys = ", ".join(self.keys) or "no key"
        gap = self.gap.sql if isinstance(self.gap, Expression) else duration(self.gap)
        zone = f" in {self.zone}" if self.zone else ""
        return f"Session{quoted_name(self.name)} {self.time_column} by {keys} gap {gap}{zone}{in_table(self.late_rows)}"

    @property
    def title(self) -> str:
        return f"collect {self._sessions}"

    @property
    def windows_text(self) -> str:
        return f"in {self._sessions}"

    @property
    def makes_windows(self) -> bool:
        return True

    @property
    def has_sessions(self) -> bool:
        return True

    def windows_setting(self, inlined: Callable[[Expression], str]) -> SessionWindows:
        gap = Sql(inlined(self.gap)) if isinstance(self.gap, Expression) else self.gap
        return SessionWindows(Sql(inlined(time_of(self))), gap, self.zone)

    @property
    def _sessions(self) -> str:
        gap = unquoted(self.gap.sql) if isinstance(self.gap, Expression) else duration(self.gap)
        return f"sessions with a gap of {gap} by {self.time_column}"

    @property
    def key_text(self) -> str:
        return ", ".join(self.keys)

    @property
    def emission(self) -> str:
        return "the rows of a session, when the watermark passes its end"

    @property
    def key_columns(self) -> tuple[str, ...]:
        return self.keys

    @property
    def keys_by_name(self) -> tuple[tuple[str, tuple[Expression, ...]], ...]:
        return columns_by_name(self.input, self.keys)

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return (self.gap,) if isinstance(self.gap, Expression) else ()

    @cached_property
    def schema(self) -> Schema:
        return (*self.input.schema, *BOUND_FIELDS)

    @property
    def times_read(self) -> tuple[tuple[int, str], ...]:
        return ((0, self.time_column),)

    @property
    def clock_times(self) -> tuple[str, ...]:
        return BOUNDS if self.goes_by_clock else ()

    @property
    def time_attributes(self) -> tuple[str, ...]:
        return ("window_time",)

    @property
    def window_columns(self) -> WindowColumns | None:
        return WindowColumns(*BOUNDS)

    @property
    def window_size(self) -> WindowSize | None:
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


def bound_of_windows(size: WindowSize | None, lateness: Duration, late_rows: str | None) -> str:
    """Return the text of the bound of the state of windows of a size."""
    span = f" of {_length_text(size)}" if size is not None else ""
    return f"watermark: a window{span} is forgotten when the watermark passes its end{_later(lateness, late_rows)}"


def bound_of_sessions(lateness: Duration, late_rows: str | None) -> str:
    """Return the text of the bound of the state of sessions."""
    return f"watermark: a session is forgotten when the watermark passes its end{_later(lateness, late_rows)}"


def growth_of_late_rows(late_rows: str | None) -> str | None:
    """Return the text of the growth of windows that store late rows in a table, None without one."""
    return "it keeps every late row" if late_rows is not None else None


def _length_text(size: WindowSize) -> str:
    return size.text if size.length is None else f"{size.length / 1_000_000:g} s"


def _later(lateness: Duration, late_rows: str | None) -> str:
    by = f" by {lateness / 1_000_000:g} s" if lateness else ""
    return by + ("; late rows are kept" if late_rows else "")


def time_of(node: TimeWindows | SessionWindow) -> Expression:
    """Return the expression that reads the time column of a window function's input."""
    return next(Expression.of_column(f.name, f.type) for f in node.input.schema if f.name == node.time_column)
