"""The node that assigns rows to windows of months."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from sqlstream.errors import Span
from sqlstream.logical.plan.expressions import Expression
from sqlstream.logical.plan.node import WindowSize
from sqlstream.logical.plan.settings import MonthSettings, NodeValues
from sqlstream.logical.plan.state_settings import CalendarWindows, Sql
from sqlstream.logical.plan.windows import TimeWindows, time_of
from sqlstream.units import NO_TIME, Duration, duration


@dataclass(frozen=True)
class MonthWindows(TimeWindows):
    """Assigns rows to windows of whole months, which follow each other; a window is as long as its months.

    Windows are aligned to the time `shift` months and the `offset` after the beginning of 1970. With a `zone`, the calendar is
    the calendar of the zone.
    """

    node_kind: ClassVar[str] = "month_windows"

    time_column: str
    months: int
    shift: int = 0
    offset: Duration = NO_TIME
    zone: str | None = None
    span: Span | None = field(default=None, compare=False, repr=False)
    kind: Literal["TUMBLE"] = field(default="TUMBLE", init=False)

    @property
    def values(self) -> NodeValues:
        settings = MonthSettings(self.time_column, self.months, self.shift, self.offset, self.zone)
        return NodeValues(self.node_kind, settings=settings)

    @property
    def description(self) -> str:
        offset = f" offset {text}" if (text := offset_text(self.shift, self.offset)) else ""
        zone = f" in {self.zone}" if self.zone else ""
        return f"{self.kind.capitalize()} {self.time_column} size {months_text(self.months)}{offset}{zone}"

    def windows_setting(self, inlined: Callable[[Expression], str]) -> CalendarWindows:
        return CalendarWindows(Sql(inlined(time_of(self))), self.months, self.shift, self.offset, self.zone)

    @property
    def windows_text(self) -> str:
        return f"in tumbling windows of {months_text(self.months)} by {self.time_column}"

    @property
    def window_size(self) -> WindowSize | None:
        return WindowSize(months_text(self.months), None, offset_text(self.shift, self.offset))


def months_text(months: int) -> str:
    """Return the text of a number of months, in years if these are whole.

    >>> months_text(1), months_text(15), months_text(24)
    ('1 month', '15 months', '2 years')
    """
    count, unit = (months // 12, "year") if months % 12 == 0 else (months, "month")
    return f"{count} {unit}{'' if count == 1 else 's'}"


def offset_text(months: int, length: Duration) -> str:
    """Return the text of an offset of months and a length, empty if both are 0.

    >>> offset_text(3, Duration(5 * 86_400_000_000)), offset_text(0, NO_TIME)
    ('3 months 5 d', '')
    """
    return " ".join([*([months_text(months)] if months else []), *([duration(length)] if length else [])])
