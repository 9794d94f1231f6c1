"""Windows whose stretches of time are sums of older ones: where the bounds of the new windows are bounds of the old ones, too."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlstream.jobs.upgrades.adaptations.carrying import CannotAdapt
from sqlstream.operators.windows.assigners import END
from sqlstream.operators.windows.grid import Grid
from sqlstream.operators.windows.slices import SLICE
from sqlstream.units import NO_TIME, Duration, duration, parse_duration

_WINDOWS = re.compile(
    r"(?P<kind>TUMBLE|HOP|CUMULATE) (?P<time>.*?)(?: every (?P<slide>[\d.]+ \w+))? size (?P<size>[\d.]+ \w+)"
    r"(?: offset (?P<offset>-?[\d.]+ \w+))?(?P<zone> in .*)?"
)
_SESSION = re.compile(r"SESSION (?P<time>.*) gap (?P<gap>[\d.]+ \w+)")


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows as a shape describes them: where they lie, and of which time."""

    grid: Grid
    time: str
    kind: str

    @classmethod
    def parse(cls, text: str) -> Windows | None:
        """Return the windows that a setting describes, None where it is of others (sessions, or windows made below)."""
        found = _WINDOWS.fullmatch(text)
        if found is None:
            return None
        size = parse_duration(found["size"])
        slide = parse_duration(found["slide"]) if found["slide"] else size
        offset = parse_duration(found["offset"]) if found["offset"] else NO_TIME
        grid = Grid(size, slide, offset, cumulative=found["kind"] == "CUMULATE")
        return cls(grid, f"{found['time']}{found['zone'] or ''}", found["kind"])


def session_gap(text: str) -> tuple[str, Duration] | None:
    """Return the time and the gap of sessions that a setting describes."""
    found = _SESSION.fullmatch(text)
    return (found["time"], parse_duration(found["gap"])) if found else None


def sums_of(old: str, new: str) -> tuple[Windows, Windows]:
    """Return the windows of two settings where the new ones are sums of stretches of the old ones. Raises CannotAdapt."""
    before, after = Windows.parse(old), Windows.parse(new)
    if before is None or after is None:
        raise CannotAdapt(f"windows: were {old or 'none'}, are {new or 'none'}")
    if before.time != after.time:
        raise CannotAdapt(f"windows are by {after.time}, and were by {before.time}")
    if not _divides(before.grid, after.grid):
        raise CannotAdapt(
            f"windows of {_said(after)} are not sums of the stretches of {duration(_stretch(before.grid))} that were kept"
        )
    return before, after


def _said(windows: Windows) -> str:
    every = "" if windows.grid.slide == windows.grid.size else f" every {duration(windows.grid.slide)}"
    return f"{duration(windows.grid.size)}{every}"


def _stretch(grid: Grid) -> Duration:
    return grid.slide


def _cuts(grid: Grid) -> set[int]:
    """Return where bounds lie in a stretch of `slide`: at its beginning, and where a window ends that it does not divide."""
    return {grid.offset % grid.slide, (grid.offset + grid.size) % grid.slide}


def _divides(old: Grid, new: Grid) -> bool:
    """Tell whether every bound of the new windows is one of the old ones, and no old row was in no window."""
    if old.slide > old.size or new.slide % old.slide:
        return False
    return all(cut % old.slide in _cuts(old) for cut in _cuts(new))


def columns(before: Windows, after: Windows) -> dict[str, str]:
    """Return the SQL of the time columns of new windows over rows of old ones, by the column."""
    # The last microsecond of what a row stands for, which is in the same new window as all of it.
    within = f"({SLICE} - 1)" if before.grid.overlaps else f"(epoch_us({END}) - 1)"
    end = after.grid.slice_end(within)
    if not after.grid.overlaps:
        return {END: f"make_timestamp({end})"}
    return {SLICE: end, END: f"make_timestamp({after.grid.last_end_sql(end)})"}
