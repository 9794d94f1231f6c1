"""Rates: the rows between two points of a run, divided by the seconds between them, and what makes a run unfit to be quoted.

Every system tells how many rows it has read so far, and when: sqlstream and Spark at each commit, Flink by its REST interface.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

from sqlstream.storage.joblog import LogEntry

# The load of a machine that does nothing else, and seconds by which its clock may move against the monotonic one in a run.
QUIET_LOAD, CLOCK_DRIFT = 0.5, 0.1
WARM_SHARE = 0.25
_ADDITIONS = 10_000_000


class UnfitRunError(RuntimeError):
    """A run whose numbers contradict each other."""


@dataclass(frozen=True, slots=True)
class Point:
    """How many rows a run had read in all (from its beginning), so many seconds after its beginning."""

    rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Rate:
    """Rows read between two points, and the seconds between them."""

    rows: int
    seconds: float

    @property
    def per_second(self) -> float:
        return self.rows / self.seconds


def warm_rate(points: Iterable[Point], total: int, whole_seconds: float, share: float = WARM_SHARE) -> Rate:
    """Return the rate from the first point at which a share of all rows was read to the first one at which all were.

    Raises UnfitRunError if the points are not those of one run over `total` rows that took `whole_seconds`.

    >>> warm_rate([Point(0, 5.0), Point(250, 8.0), Point(500, 9.0), Point(1000, 11.0)], 1000, 12.0)
    Rate(rows=750, seconds=3.0)
    """
    run = list(points)
    for before, after in pairwise(run):
        if after.rows < before.rows or after.seconds < before.seconds:
            raise UnfitRunError(f"progress goes back: {before}, then {after}")
    if not run or run[-1].rows != total:
        raise UnfitRunError(f"the run read {run[-1].rows if run else 0:,} rows of {total:,}")
    first = next(point for point in run if point.rows >= total * share)
    last = next(point for point in run if point.rows == total)
    if last.rows <= first.rows or last.seconds <= first.seconds:
        raise UnfitRunError(f"nothing was read between the warm-up and the end: {first}, {last}")
    if first.seconds < 0 or last.seconds > whole_seconds:
        raise UnfitRunError(f"progress outside of the run, which took {whole_seconds:.1f} s: {first}, {last}")
    rate = Rate(last.rows - first.rows, last.seconds - first.seconds)
    if rate.per_second > total / (last.seconds - first.seconds):
        raise UnfitRunError(f"{rate.per_second:,.0f} rows/s would be more than all rows in {rate.seconds:.1f} s")
    return rate


def passes(points: Iterable[Point], total: int, ended: float | None = None) -> list[Point]:
    """Return the progress of a run through its input, whose rows it may have read several times: as many scans have it.

    A run that came to its end after `ended` seconds has read all rows, though nobody may have asked it since. Raises
    UnfitRunError if a run without that time has not read all rows equally often.

    >>> passes([Point(600, 1.0), Point(1500, 2.0)], 1000, ended=2.5)
    [Point(rows=300, seconds=1.0), Point(rows=750, seconds=2.0), Point(rows=1000, seconds=2.5)]
    """
    run = list(points)
    if not run:
        return []
    scans = -(-run[-1].rows // total)
    if ended is not None and run[-1].rows < scans * total:
        run.append(Point(scans * total, ended))
    if run[-1].rows != scans * total:
        raise UnfitRunError(f"the run read {run[-1].rows:,} rows, which is no multiple of {total:,}")
    return [Point(point.rows // scans, point.seconds) for point in run]


def log_points(entries: Iterable[LogEntry], begun: float) -> list[Point]:
    """Return the progress of a job that began at a time (seconds of the wall clock) by its log.

    `rows_in` of an entry counts from the beginning of the job, not of its batch.
    """
    return [Point(entry.rows_in, entry.committed_at / 1_000_000 - begun) for entry in entries if entry.rows_in]


@contextmanager
def steady_clock() -> Iterator[None]:
    """Raise UnfitRunError if the wall clock, by which commits are dated, was set meanwhile."""
    before = time.time() - time.monotonic()
    yield
    moved = time.time() - time.monotonic() - before
    if abs(moved) > CLOCK_DRIFT:
        raise UnfitRunError(f"the clock of the machine was moved by {moved:.2f} s")


def busy() -> str | None:
    """Return why the machine is not fit for measuring now, if it is not."""
    load = os.getloadavg()[0]
    return None if load <= QUIET_LOAD else f"the machine has a load of {load:.1f}: other programs run"


def addition_seconds() -> float:
    """Return the seconds of the processor that a plain loop of ten million additions takes: how fast the machine is now."""
    begun, total = time.process_time(), 0
    while total < _ADDITIONS:
        total += 1
    return time.process_time() - begun
