"""Converts event times, microseconds since 1970, to times of Spark, milliseconds since the year 1, and back.

Spark's watermark starts at 0 and only grows. Shifted so that 0 is the first instant that we know, "no watermark yet" and times
before 1970 need no special case in Spark.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

from sqlstream.functions.process.context import event_micros
from sqlstream.units import END_OF_INPUT, EventTime

# 0001-01-01 and 9999-12-31 23:59:59.999 in microseconds since 1970: Spark sees no time outside of them.
FIRST: Final = EventTime(-62_135_596_800_000_000)
LAST: Final = EventTime(253_402_300_799_999_000)
_SPARK_END = LAST - FIRST + 1000


def to_spark_micros(time: EventTime | None) -> int:
    """Return an event time as a value of Spark's watermark column, in microseconds since the year 1; None is 0."""
    if time == END_OF_INPUT:
        return _SPARK_END
    return 0 if time is None else min(max(time, FIRST), LAST) - FIRST


def from_spark_millis(millis: int) -> EventTime | None:
    """Return Spark's watermark, in milliseconds since the year 1, as an event time; None before the first row.

    >>> from_spark_millis(0) is None, from_spark_millis(62_135_596_801_000)
    (True, 1000000)
    """
    if millis * 1000 >= _SPARK_END:
        return END_OF_INPUT
    return None if millis <= 0 else EventTime(millis * 1000 + FIRST)


def to_spark_millis(watermark: EventTime | None) -> int:
    """Return a watermark as Spark's, in milliseconds since the year 1; None is 0."""
    return to_spark_micros(watermark) // 1000


def timer_millis(time: EventTime) -> int:
    """Return the Spark timer that is due once the watermark reaches an event time (rounded up to the millisecond)."""
    # No row advances the watermark beyond LAST: what is due later waits for the end of the input. A timer at 0 would be due
    # before there is a watermark, and Spark never calls it.
    return max(1, -(-(_SPARK_END if time > LAST else to_spark_micros(time)) // 1000))


def least(watermarks: Iterable[EventTime | None]) -> EventTime | None:
    """Return the least of watermarks; None if one of them is None, or there are none.

    >>> least([EventTime(5), EventTime(3)]), least([EventTime(5), None]), least([])
    (3, None, None)
    """
    values = list(watermarks)
    times = [watermark for watermark in values if watermark is not None]
    return min(times) if times and len(times) == len(values) else None


def in_millis(watermark: EventTime | None) -> EventTime | None:
    """Return a watermark in whole milliseconds, rounded down, within the times that Spark knows."""
    return from_spark_millis(to_spark_millis(watermark))


def event_time_of(time: datetime, zone: str = "UTC") -> EventTime:
    """Return a source's datetime as an event time; one with a time zone is converted to the local time of `zone`.

    >>> from datetime import UTC
    >>> noon = datetime(1970, 1, 1, 12, tzinfo=UTC)
    >>> event_time_of(noon) == event_time_of(noon.replace(tzinfo=None)) == 12 * 3600 * 1_000_000
    True
    >>> event_time_of(noon, "Europe/Berlin") - event_time_of(noon)
    3600000000
    >>> event_time_of(datetime.max.replace(tzinfo=UTC), "Asia/Tokyo") == event_time_of(datetime.max)
    True
    """
    if time.tzinfo is not None:
        # At the ends of Python's calendar, a zone could lead beyond it.
        with contextlib.suppress(OverflowError):
            time = time.astimezone(ZoneInfo(zone))
    return EventTime(event_micros(time.replace(tzinfo=None)))
