"""The node of count windows: windows of so many rows of a key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from sqlstream.duck.internal_columns import ARRIVED
from sqlstream.errors import Span
from sqlstream.logical.plan.expressions import Expression, Field, Schema
from sqlstream.logical.plan.growth import Ends, Growth, all_end, forget_keys
from sqlstream.logical.plan.node import (
    FEW_VALUES,
    Keys,
    LateReads,
    Node,
    Overlap,
    SingleInput,
    WindowColumns,
    WindowSize,
)
from sqlstream.logical.plan.settings import CountSettings, NodeValues
from sqlstream.logical.plan.state_settings import RowWindows
from sqlstream.logical.plan.stateful import DropsLateRows, WithTimeToLive, columns_by_name
from sqlstream.logical.plan.windows import BOUND_FIELDS, BOUNDS, UNTIL_PASSED, WINDOW_ID
from sqlstream.logical.plan.words import quoted_name
from sqlstream.units import Duration, duration


@dataclass(frozen=True)
class CountWindows(WithTimeToLive, SingleInput, DropsLateRows):
    """Emits each row once for every window of rows that holds it, when the watermark has passed the window's last row.

    The rows of a key are numbered by time once the watermark has passed them; rows of equal time by the column ARRIVED or,
    without it, by all columns. Every `slide` rows there is a window of the last `size` rows; the first windows have fewer rows
    if `size` is greater than `slide`. Adds the times of the first and the last row as `window_start` and `window_end`,
    `window_time` (as for TimeWindows), and `window_id`, which counts the windows of a key. Keeps rows that a window may still
    need, up to `size` of every key; a row behind the watermark is dropped and counted. `ttl`: see Aggregate; it begins when a
    row gets its number.

    With a `zone` the times are instants of the clock, and bounds are local times of the zone. Rows are then numbered by the
    instant, in the batch in which they come: when clocks are set back, the watermark, a local time, stands for an hour.
    """

    node_kind: ClassVar[str] = "count_windows"

    name: str
    keys: tuple[str, ...]
    time_column: str
    size: int
    slide: int
    ttl: Duration | None = None
    late_reads: LateReads | None = None
    zone: str | None = None
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def passes_rows_on(self) -> bool:
        return True

    @property
    def has_ties(self) -> bool:
        return not self.input.covers_key((*self.keys, self.time_column))

    @property
    def is_by_arrival(self) -> bool:
        return any(f.name == ARRIVED.name for f in self.input.schema)

    @property
    def values(self) -> NodeValues:
        settings = CountSettings(self.time_column, self.size, self.slide, self.zone)
        return NodeValues(self.node_kind, name=self.name, keys=tuple((key,) for key in self.keys), settings=settings)

    @property
    def label(self) -> str:
        return "count windows"

    @property
    def description(self) -> str:
        every = "" if self.slide == self.size else f" slide {self.slide}"
        keys = ", ".join(self.keys) or "no key"
        zone = f" in {self.zone}" if self.zone else ""
        return f"CountWindows{quoted_name(self.name)} {self.time_column} by {keys}{every} size {self.size} rows{zone}"

    @property
    def title(self) -> str:
        every = f" every {self.slide} rows" if self.slide != self.size else ""
        return f"collect count windows of {self.size} rows{every}"

    @property
    def windows_text(self) -> str:
        return f"in count windows of {self.size} rows by {self.time_column}"

    @property
    def reads_time(self) -> bool:
        return not self.zone

    @property
    def drops_late_rows(self) -> bool:
        return not self.zone

    @property
    def makes_windows(self) -> bool:
        return True

    @property
    def overlap(self) -> Overlap:
        return Overlap(-(-self.size // self.slide), f"{self.size} rows every {self.slide}")

    def windows_setting(self, inlined: Callable[[Expression], str]) -> RowWindows:
        return RowWindows(self.size, self.slide, self.zone)

    @property
    def key_text(self) -> str:
        return ", ".join(self.keys)

    @property
    def emission(self) -> str:
        if self.zone:
            return "the rows of a window, in the batch in which its last row comes"
        return "the rows of a window, when the watermark has passed its last row"

    @property
    def key_columns(self) -> tuple[str, ...]:
        return self.keys

    @property
    def keys_by_name(self) -> tuple[tuple[str, tuple[Expression, ...]], ...]:
        return columns_by_name(self.input, self.keys)

    @property
    def has_processing_timers(self) -> bool:
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
        if self.state_growth is None or all_end(self, ends):
            return None
        return Growth(self.label, self.state_growth, f"Let {forget_keys(self)}")

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return ()

    @cached_property
    def schema(self) -> Schema:
        return (*self.input.schema, *BOUND_FIELDS, Field(WINDOW_ID, "BIGINT"))

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
    def batch_times(self) -> tuple[str, ...]:
        return ()

    @property
    def leaves_at_once(self) -> bool:
        return False

    @property
    def never_late(self) -> bool:
        return True

    @cached_property
    def delay_below(self) -> Duration:
        return Duration(self.delay_of(self.input) + UNTIL_PASSED)

    @property
    def window_columns(self) -> WindowColumns | None:
        return WindowColumns(*BOUNDS)

    @property
    def window_size(self) -> WindowSize | None:
        return None

    @cached_property
    def changelog_origin(self) -> Node | None:
        """As the input's, but planning refuses it: a retraction would renumber all later rows."""
        return self.input.changelog_origin

    @property
    def unique_keys(self) -> Keys:
        return ()

    @property
    def state_bound(self) -> str:
        rows = f"{self.size} rows" + (" for every key" if self.keys else "")
        ttl = f", which is forgotten when no row has come for it for {duration(self.ttl)}" if self.ttl else ""
        waiting = "" if self.zone else ", and the watermark: rows wait until it has passed them"
        return f"its size, {rows}{ttl}{waiting}"

    @cached_property
    def state_growth(self) -> str | None:
        keyed = any(f.type not in FEW_VALUES for f in self.input.schema if f.name in self.keys)
        return f"it keeps up to {self.size} rows for every key" if keyed and not self.ttl else None
