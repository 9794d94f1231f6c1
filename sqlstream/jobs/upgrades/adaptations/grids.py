"""Windows that are sums of older windows: each bound of the new windows is a bound of the old ones, too."""

from __future__ import annotations

from collections.abc import Sequence

from sqlstream.jobs.upgrades.adaptations.transfer import CannotAdapt
from sqlstream.jobs.upgrades.settings_words import windows_words
from sqlstream.logical.plan.state_settings import GridWindows, Windows
from sqlstream.operators.windows.assigners import END
from sqlstream.operators.windows.grid import Grid
from sqlstream.operators.windows.slices import SLICE
from sqlstream.units import duration


def sums_of(old: Sequence[Windows], new: Sequence[Windows]) -> tuple[Grid, Grid]:
    """Return the grids of old and new windows. Raises CannotAdapt unless the new windows are sums of slices of the old ones."""
    before, after = _single(old), _single(new)
    if before is None or after is None:
        raise CannotAdapt(f"windows: were {windows_words(old) or 'none'}, are {windows_words(new) or 'none'}")
    if (before.time, before.zone) != (after.time, after.zone):
        raise CannotAdapt(f"windows are by {_time(after)}, and were by {_time(before)}")
    grids = _grid(before), _grid(after)
    if not _divides(*grids):
        raise CannotAdapt(
            f"windows of {_size(after)} are not sums of the stretches of {duration(before.slide)} that were kept"
        )
    return grids


def _single(windows: Sequence[Windows]) -> GridWindows | None:
    """Return the only windows if they lie on a grid, else None."""
    one = windows[0] if len(windows) == 1 else None
    return one if isinstance(one, GridWindows) else None


def _grid(windows: GridWindows) -> Grid:
    return Grid(windows.size, windows.slide, windows.offset, cumulative=windows.kind == "CUMULATE")


def _time(windows: GridWindows) -> str:
    return f"{windows.time.text} in {windows.zone}" if windows.zone else windows.time.text


def _size(windows: GridWindows) -> str:
    every = "" if windows.slide == windows.size else f" every {duration(windows.slide)}"
    return f"{duration(windows.size)}{every}"


def _cuts(grid: Grid) -> set[int]:
    """Return where bounds of windows lie in a slide: at its beginning, and at the end of windows that it does not divide."""
    return {grid.offset % grid.slide, (grid.offset + grid.size) % grid.slide}


def _divides(old: Grid, new: Grid) -> bool:
    """Tell whether every bound of the new windows is a bound of the old ones, and every old row was in a window."""
    if old.slide > old.size or new.slide % old.slide:
        return False
    return all(cut % old.slide in _cuts(old) for cut in _cuts(new))


def columns(before: Grid, after: Grid) -> dict[str, str]:
    """Return the SQL of the time columns of new windows over the rows of old windows, by column."""
    # The last microsecond of the slice of a row; all of the slice is in the same new window.
    within = f"({SLICE} - 1)" if before.overlaps else f"(epoch_us({END}) - 1)"
    end = after.slice_end(within)
    if not after.overlaps:
        return {END: f"make_timestamp({end})"}
    return {SLICE: end, END: f"make_timestamp({after.last_end_sql(end)})"}
