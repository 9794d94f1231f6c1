"""Where the windows of TUMBLE, HOP and CUMULATE lie, and the slices that overlapping ones share.

A slice is a stretch of time that no window's bound divides: its rows are in the same windows. In SQL
times are microseconds since the epoch, too; windows are [start, end).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np

from sqlstream.units import MILLISECOND, NO_TIME, Duration, EventTime

Time = TypeVar("Time", EventTime, "np.ndarray[tuple[int], np.dtype[np.int64]]")


@dataclass(frozen=True, slots=True)
class Grid:
    """Windows of one size that start every `slide`, from the epoch plus the offset on.

    Cumulative ones start every `size`, and end every `slide` up to there.
    """

    size: Duration
    slide: Duration
    offset: Duration = NO_TIME
    cumulative: bool = False

    @property
    def overlaps(self) -> bool:
        """Whether a row can be in several windows."""
        return self.slide < self.size

    @property
    def in_milliseconds(self) -> bool:
        """Whether all windows end at whole milliseconds."""
        return not any(n % MILLISECOND for n in (self.size, self.slide, self.offset))

    @property
    def _start_every(self) -> Duration:
        return self.size if self.cumulative else self.slide

    @property
    def _first_cut(self) -> int:
        """How far behind a start the first bound lies, which is an end where `slide` does not divide `size`."""
        return self.size % self.slide or self.slide

    def holds(self, time: str) -> str | None:
        """Return the condition that a window holds a time, None where one always does."""
        gaps = not self.cumulative and self.slide > self.size
        return f"{remainder(f'{time} - {self.offset}', self.slide)} < {self.size}" if gaps else None

    def slice_end(self, time: str) -> str:
        """Return the SQL of the end of the slice that a time is in."""
        since = remainder(f"{time} - {self.offset}", self.slide)
        cut = self._first_cut
        if cut == self.slide:
            return f"({time} - {since} + {self.slide})"
        return f"({time} - {since} + CASE WHEN {since} < {cut} THEN {cut} ELSE {self.slide} END)"

    def first_end(self, time: Time) -> Time:
        """Return the first end of a window at a time or after it; for a slice's end, of a window that holds the slice."""
        return cast("Time", time + (self.offset + self.size - time) % self.slide)

    def first_end_sql(self, time: str) -> str:
        return f"({time} + {remainder(f'{self.offset + self.size} - ({time})', self.slide)})"

    def last_end_sql(self, slice_end: str) -> str:
        """Return the SQL of the end of the last window that holds a slice."""
        before = f"{slice_end} - 1"
        return f"({before} - {remainder(f'{before} - {self.offset}', self._start_every)} + {self.size})"

    def start(self, end: EventTime) -> EventTime:
        """Return the start of the window with an end."""
        if not self.cumulative:
            return EventTime(end - self.size)
        return EventTime(end - 1 - (end - 1 - self.offset) % self.size)

    def start_sql(self, end: str) -> str:
        """Return the SQL of the start of the window with an end."""
        if not self.cumulative:
            return f"({end} - {self.size})"
        return f"({end} - 1 - {remainder(f'{end} - 1 - {self.offset}', self.size)})"


def remainder(value: str, modulus: int) -> str:
    """Return the SQL of a remainder that is not negative, for times before the epoch too."""
    return f"((({value}) % {modulus} + {modulus}) % {modulus})"
