"""Jobs with operators of event time and of the clock, on Spark: they end, go on, and need no row for the clock.

In a session of another zone the windows of the clock are by its local time, and rows in the order of the clock by the instant.
"""

from __future__ import annotations

import io
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from sqlstream import Session
from tests.clocks import WrongClock, set_clock
from tests.kinds import job_of
from tests.local.test_both_clocks import TABLE
from tests.local.test_clock_in_zones import EVENTS, ORDERED, RANKED, ROWS, ordered, set_to
from tests.local.test_engine import put
from tests.processes import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("shared_jvm")]


def session(folder: Path) -> Session:
    return Session(str(folder), output=io.StringIO(), notice=lambda text: None)


def test_a_bounded_job_ends_with_its_windows_of_both_times_closed(tmp_path: Path) -> None:
    put(tmp_path, "a", (1, 1), (1, 2), (2, 3))
    put(tmp_path, "b", (1, 11), (1, 25))
    with session(tmp_path) as s:
        job = job_of(s.sql(TABLE.format(options=", 'source.max-files-per-batch' = '1'", size="'100000' DAY")))
        job.wait()
        assert job.status == "FINISHED"
        assert sorted(s.query("SELECT k, n FROM of_event").fetchall()) == [(1, 1), (1, 1), (1, 2), (2, 1)]
        # The window of the clock would close in the year 2243; it closes with the input.
        assert s.query("SELECT n FROM of_both").fetchall() == [(5,)]


@pytest.mark.one_in(2)
def test_windows_of_the_clock_close_without_a_row_after_a_restart(tmp_path: Path) -> None:
    script = TABLE.format(options=", 'source.monitor-interval' = '50 ms'", size="'3' SECOND")
    put(tmp_path, "a", (1, 1), (1, 2), (2, 15))
    with session(tmp_path) as s:
        job = job_of(s.sql(script))
        wait_until(lambda: s.query("SELECT k, n FROM of_event").fetchall() == [(1, 2)])
        job.stop()
        job.wait()
    with session(tmp_path) as s:
        job = job_of(s.sql(script))
        wait_until(lambda: s.query("SELECT n FROM of_both").fetchall() == [(2,)])
        job.stop()
        job.wait()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("script", [ROWS, EVENTS], ids=["of rows", "of windows of event time"])
def test_windows_of_the_clock_follow_the_zone_of_the_session(tmp_path: Path, script: str) -> None:
    zone = "America/New_York"
    script = script.format(zone=zone, size=1).replace("MINUTE", "SECOND")
    put(tmp_path, "a", (1, 1), (2, 15))
    before = datetime.now(ZoneInfo(zone)).replace(tzinfo=None)
    with session(tmp_path) as s:
        job = job_of(s.sql(script))
        wait_until(lambda: bool(s.query("FROM out").fetchall()))
        job.stop()
        job.wait()
        [(start,)] = s.query("SELECT s FROM out").fetchall()
    assert before - timedelta(seconds=1) <= start <= before + timedelta(minutes=5)


@pytest.mark.one_in(2)
def test_rows_are_in_the_order_of_instants_when_clocks_are_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, script = set_clock(monkeypatch, WrongClock()), ORDERED.format(zone="Europe/Berlin")
    for name, key, moments in (
        ("a", 5, ["2026-10-25T02:10:00+02:00"]),
        ("b", 4, ["2026-10-25T02:30:00+02:00"]),
        ("c", 3, ["2026-10-25T02:50:00+02:00"]),
        ("d", 2, ["2026-10-25T02:10:00+01:00"]),
        ("e", 1, ["2026-10-25T02:30:00+01:00", "2026-10-25T03:00:01+01:00"]),
    ):
        set_to(clock, moments[0])
        put(tmp_path, name, (key, 1))
        # Each run of the job takes a row.
        with session(tmp_path) as s:
            job = job_of(s.sql(script))
            wait_until(lambda s=s, key=key: len(ordered(s)[0]) == 6 - key)
            if len(moments) > 1:
                set_to(clock, moments[1])
                wait_until(lambda s=s: len(ordered(s)[1]) == 2)
            job.stop()
            job.wait()
    with session(tmp_path) as s:
        assert ordered(s) == [RANKED, [("5-4", 1), ("3-2", 2)]]
