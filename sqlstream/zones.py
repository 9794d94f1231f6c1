"""Time zones: the clock as a local time, and back."""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from sqlstream.units import SECOND, EventTime, ProcessingTime

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# More than a local time can differ from UTC, or be set back.
_FARTHEST: Final = 48 * 3600 * SECOND


def local_clock(time: ProcessingTime, zone: str) -> EventTime:
    """Return how far the clock is in a time zone: the local time at an instant, which never goes back.

    When clocks are set back, an hour of local time comes twice. During the first one the result stands at its beginning. So a
    window with rows of both is open until the second one has passed its end, as in Flink, and no row of the clock is late.

    >>> noon = ProcessingTime(1_767_268_800 * SECOND)
    >>> local_clock(noon, "UTC") - noon, local_clock(noon, "Europe/Berlin") - noon
    (0, 3600000000)
    """
    if zone == "UTC":
        return EventTime(time)
    local = _local(time, zone)
    before, after = (local.replace(fold=fold).utcoffset() or timedelta() for fold in (0, 1))
    if local.fold == 0 and after < before:
        # Offsets change at whole seconds.
        at = time // SECOND
        until = range(int((before - after).total_seconds()) + 1)
        passed = bisect_left(
            until, True, key=lambda s: _local(ProcessingTime((at + s) * SECOND), zone).utcoffset() == after
        )
        local = _local(ProcessingTime((at + passed) * SECOND), zone)
    return _micros(local)


@lru_cache(maxsize=64)
def instant_of(clock: EventTime, zone: str) -> ProcessingTime:
    """Return the first instant at which the clock has reached a local time of a zone: see `local_clock`.

    >>> noon = ProcessingTime(1_767_268_800 * SECOND)
    >>> instant_of(local_clock(noon, "Europe/Berlin"), "Europe/Berlin") == noon
    True
    """
    if zone == "UTC":
        return ProcessingTime(clock)
    instants = range(clock - _FARTHEST, clock + _FARTHEST)
    return ProcessingTime(instants[bisect_left(instants, clock, key=lambda at: local_clock(ProcessingTime(at), zone))])


def _local(time: ProcessingTime, zone: str) -> datetime:
    return (_EPOCH + timedelta(microseconds=time)).astimezone(ZoneInfo(zone))


def _micros(local: datetime) -> EventTime:
    return EventTime((local.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1))
