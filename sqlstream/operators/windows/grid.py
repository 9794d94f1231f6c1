"""The windows of TUMBLE, HOP and CUMULATE on the time axis, and the slices that overlapping windows share.

A slice is a stretch of time with no window bound inside it: all of its rows are in the same windows. Windows are [start, end).
Times are microseconds since the epoch, in SQL too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np

from sqlstream.duck.sql import Condition
from sqlstream.units import MILLISECOND, NO_TIME, Duration, EventTime

Time = TypeVar("Time", EventTime, "np.ndarray[tuple[int], np.dtype[np.int64]]")


@dataclass(frozen=True, slots=True)
class Grid:
    """Windows of length `size` that start every `slide`, aligned to the epoch plus `offset`.

    Cumulative windows start every `size`, and one ends every `slide` up to the next start.
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
        """Whether every window ends at a whole millisecond."""
        return not any(n % MILLISECOND for n in (self.size, self.slide, self.offset))

    @property
    def _start_every(self) -> Duration:
        return self.size if self.cumulative else self.slide

    @property
    def _first_cut(self) -> int:
        """The distance from a start to the first bound after it: an end, where `slide` does not divide `size`."""
        return self.size % self.slide or self.slide

    def holds(self, time: str) -> Condition | None:
        """Return the condition that a window contains a time, None if windows leave no gaps."""
        gaps = not self.cumulative and self.slide > self.size
        return Condition(f"{remainder(f'{time} - {self.offset}', self.slide)} < {self.size}") if gaps else None

    def slice_end(self, time: str) -> str:
        """Return the SQL of the end of the slice that contains a time."""
        since = remainder(f"{time} - {self.offset}", self.slide)
        cut = self._first_cut
        if cut == self.slide:
            return f"({time} - {since} + {self.slide})"
        return f"({time} - {since} + CASE WHEN {since} < {cut} THEN {cut} ELSE {self.slide} END)"

    def first_end(self, time: Time) -> Time:
        """Return the first window end at a time or after it; for the end of a slice, that window contains the slice."""
        return cast("Time", time + (self.offset + self.size - time) % self.slide)

    def first_end_sql(self, time: str) -> str:
        """Return the SQL of `first_end`."""
        return f"({time} + {remainder(f'{self.offset + self.size} - ({time})', self.slide)})"

    def last_end_sql(self, slice_end: str) -> str:
        """Return the SQL of the end of the last window that contains a slice."""
        before = f"{slice_end} - 1"
        return f"({before} - {remainder(f'{before} - {self.offset}', self._start_every)} + {self.size})"

    def start(self, end: EventTime) -> EventTime:
        """Return the start of the window that ends at `end`."""
        if not self.cumulative:
            return EventTime(end - self.size)
        return EventTime(end - 1 - (end - 1 - self.offset) % self.size)

    def start_sql(self, end: str) -> str:
        """Return the SQL of `start`."""
        if not self.cumulative:
            return f"({end} - {self.size})"
        return f"({end} - 1 - {remainder(f'{end} - 1 - {self.offset}', self.size)})"


def remainder(value: str, modulus: int) -> str:
    """Return the SQL of the remainder that is not negative, also for times before the epoch."""
    return f"((({value}) % {modulus} + {modulus}) % {modulus})"
