"""Event times and Spark's: order is kept, nothing is before the first, the end is after everything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlstream.runtime.times import (
    FIRST,
    LAST,
    from_spark_millis,
    timer_millis,
    to_spark_micros,
)
from sqlstream.units import END_OF_INPUT, EventTime

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
