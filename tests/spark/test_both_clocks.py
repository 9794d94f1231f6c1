"""Jobs with operators of event time and of the clock, on Spark: they end, go on, and need no row for the clock.

In a session of another zone the windows of the clock are by its local time.
"""

from __future__ import annotations

import io
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from sqlstream import Session
from tests.kinds import job_of
from tests.local.test_both_clocks import TABLE
from tests.local.test_clock_in_zones import EVENTS, ROWS
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
