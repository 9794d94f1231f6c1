"""The clock as a local time: it never goes back, and stands while local times will come again."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlstream.functions.process.context import event_micros
from sqlstream.units import SECOND, EventTime, ProcessingTime
from sqlstream.zones import instant_of, local_clock

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
