"""Event times and Spark's: order is kept, nothing is before the first, the end is after everything; the clock in time zones."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlstream.functions.process.context import event_micros
from sqlstream.runtime.times import (
    FIRST,
    LAST,
    from_spark_millis,
    instant_of,
    local_clock,
    timer_millis,
    to_spark_micros,
)
from sqlstream.units import END_OF_INPUT, SECOND, EventTime, ProcessingTime

any_time = st.integers(-(2**62), 2**62).map(EventTime)


@given(any_time)
def test_a_watermark_comes_back_in_whole_milliseconds(time: EventTime) -> None:
    back = from_spark_millis(to_spark_micros(time) // 1000)
    clamped = min(max(time, FIRST), LAST)
    assert back == (None if clamped < FIRST + 1000 else clamped // 1000 * 1000)


@given(any_time, any_time)
def test_order_is_kept(a: EventTime, b: EventTime) -> None:
    a, b = sorted((a, b))
    assert to_spark_micros(None) <= to_spark_micros(a) <= to_spark_micros(b) < to_spark_micros(END_OF_INPUT)
    assert timer_millis(a) <= timer_millis(b)


@given(any_time, any_time)
def test_a_timer_is_due_when_the_watermark_has_reached_it_and_not_before(time: EventTime, watermark: EventTime) -> None:
    due = timer_millis(time) <= to_spark_micros(watermark) // 1000
    reached = from_spark_millis(to_spark_micros(watermark) // 1000)
    if time > LAST:
        assert not due, "what lies beyond the last instant waits for the end"
    else:
        assert due == (reached is not None and max(time, FIRST) <= reached)


def test_the_end_of_input_is_later_than_every_time() -> None:
    end = to_spark_micros(END_OF_INPUT) // 1000
    assert from_spark_millis(end) == END_OF_INPUT
    assert from_spark_millis(end - 1) == LAST
    assert timer_millis(EventTime(LAST + 1)) == end
    assert timer_millis(END_OF_INPUT) == end


@pytest.mark.parametrize("time", [EventTime(t) for t in (0, -1, 1, -1000, 1_767_261_600_123_456)])
def test_a_timer_is_rounded_up(time: EventTime) -> None:
    assert (timer_millis(time) * 1000 + FIRST) - time in range(1000)


# Lord Howe Island sets its clocks back by half an hour, Troll by two hours.
zones = st.sampled_from(
    ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Antarctica/Troll", "Asia/Kolkata"]
)
# Hours of the year 2026, in half hours and some seconds more, so that many are at or beside a change.
instants = st.tuples(st.integers(0, 2 * 8760), st.integers(-1, 1)).map(
    lambda of: ProcessingTime(1_767_225_600 * SECOND + of[0] * 1800 * SECOND + of[1])
)


def local_time(time: ProcessingTime, zone: str) -> EventTime:
    return EventTime(event_micros(datetime.fromtimestamp(time / SECOND, ZoneInfo(zone)).replace(tzinfo=None)))


@given(instants, zones)
def test_the_clock_is_the_least_local_time_from_now_on(time: ProcessingTime, zone: str) -> None:
    later = (ProcessingTime(time - time % (900 * SECOND) + 900 * SECOND * n) for n in range(1, 20))
    assert local_clock(time, zone) == min(local_time(time, zone), *(local_time(at, zone) for at in later))


@given(instants, zones)
def test_the_instant_of_a_clock_is_the_first_at_which_it_is_reached(time: ProcessingTime, zone: str) -> None:
    clock = local_clock(time, zone)
    instant = instant_of(clock, zone)
    assert instant <= time
    assert local_clock(instant, zone) == clock
    assert local_clock(ProcessingTime(instant - 1), zone) < clock


@pytest.mark.parametrize(
    ("instant", "local"),
    [
        ("2026-10-25T01:59:59+02:00", "2026-10-25T01:59:59"),
        ("2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00"),
        ("2026-10-25T02:45:00+02:00", "2026-10-25T02:00:00"),
        ("2026-10-25T02:00:00+01:00", "2026-10-25T02:00:00"),
        ("2026-10-25T02:45:00+01:00", "2026-10-25T02:45:00"),
        ("2026-03-29T01:59:59+01:00", "2026-03-29T01:59:59"),
        ("2026-03-29T03:00:00+02:00", "2026-03-29T03:00:00"),
    ],
)
def test_the_clock_stands_while_local_times_will_come_again(instant: str, local: str) -> None:
    time = ProcessingTime(int(datetime.fromisoformat(instant).timestamp()) * SECOND)
    assert local_clock(time, "Europe/Berlin") == event_micros(datetime.fromisoformat(local))
