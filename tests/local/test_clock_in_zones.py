"""Windows of the clock in sessions of a time zone: they follow its local time, also where that is set back or forward."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path

import pytest

from sqlstream import Session
from tests.clocks import WrongClock, set_clock
from tests.local.test_engine import put, session, start, wait_for_rows
from tests.processes import SECONDS, wait_until

TABLE = """
SET 'table.local-time-zone' = '{zone}';
CREATE TABLE t (k BIGINT, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'parquet', 'source.monitor-interval' = '10 ms');
CREATE TABLE out (s TIMESTAMP(3), n BIGINT);
"""
ROWS = f"""{TABLE}
INSERT INTO out SELECT window_start, COUNT(*) FROM TUMBLE(TABLE (SELECT p FROM t), DESCRIPTOR(p), INTERVAL '{{size}}' MINUTE)
GROUP BY window_start, window_end;
"""
# The operator of the windows of the clock has the clock beside the watermark of the table.
EVENTS = f"""{TABLE}
CREATE VIEW v AS SELECT k, COUNT(*) AS n, PROCTIME() AS p FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY k, window_start, window_end;
INSERT INTO out SELECT window_start, SUM(n) FROM TUMBLE(TABLE v, DESCRIPTOR(p), INTERVAL '{{size}}' MINUTE)
GROUP BY window_start, window_end;
"""


def set_to(clock: WrongClock, instant: str) -> None:
    clock.wrong = datetime.fromisoformat(instant).timestamp() - time.time()


def rows(session: Session) -> list[tuple[str, int]]:
    return session.query("SELECT CAST(s AS TEXT), n FROM out ORDER BY ALL").fetchall()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> WrongClock:
    return set_clock(monkeypatch, WrongClock())


@pytest.mark.parametrize(("script", "first"), [(ROWS, 3), (EVENTS, 2)], ids=["of rows", "of windows of event time"])
def test_a_window_has_the_rows_of_both_hours_when_clocks_are_set_back(
    tmp_path: Path, clock: WrongClock, script: str, first: int
) -> None:
    script = script.format(zone="Europe/Berlin", size=30)
    set_to(clock, "2026-10-25T02:10:00+02:00")
    put(tmp_path, "a", (1, 1), (1, 11))
    with session(tmp_path) as s:
        job = start(s, script)
        wait_for_rows(job, 2)
        # By the first of the two hours the window is over. It goes on in the second one.
        set_to(clock, "2026-10-25T02:50:00+02:00")
        put(tmp_path, "b", (1, 21))
        wait_for_rows(job, 3)
        assert rows(s) == []
        job.stop()
        assert job.wait(SECONDS)
    set_to(clock, "2026-10-25T02:20:00+01:00")
    put(tmp_path, "c", (1, 31))
    with session(tmp_path) as s:
        job = start(s, script)
        wait_for_rows(job, 4)
        assert rows(s) == []
        set_to(clock, "2026-10-25T02:30:00+01:00")
        wait_until(lambda: rows(s) == [("2026-10-25 02:00:00", first)])
        set_to(clock, "2026-10-25T03:00:01+01:00")
        wait_until(lambda: rows(s) == [("2026-10-25 02:00:00", first), ("2026-10-25 02:30:00", 1)])
        assert s.query("SELECT SUM(late_rows) FROM sqlstream.operators").fetchall() == [(0,)]
        job.stop()
        assert job.wait(SECONDS)


@pytest.mark.parametrize("script", [ROWS, EVENTS], ids=["of rows", "of windows of event time"])
@pytest.mark.parametrize(
    ("zone", "at", "before", "end", "window"),
    [
        pytest.param(
            "Europe/Berlin",
            "2026-03-29T01:50:00+01:00",
            "2026-03-29T01:59:00+01:00",
            "2026-03-29T03:00:01+02:00",
            "2026-03-29 01:00:00",
            id="clocks are set forward",
        ),
        pytest.param(
            "America/New_York",
            "2026-01-05T12:10:00-05:00",
            "2026-01-05T12:59:00-05:00",
            "2026-01-05T13:00:01-05:00",
            "2026-01-05 12:00:00",
            id="west of Greenwich",
        ),
    ],
)
def test_a_window_closes_at_its_end_by_local_time(
    tmp_path: Path, clock: WrongClock, script: str, zone: str, at: str, before: str, end: str, window: str
) -> None:
    set_to(clock, at)
    put(tmp_path, "a", (1, 1), (1, 11))
    with session(tmp_path) as s:
        job = start(s, script.format(zone=zone, size=60))
        wait_for_rows(job, 2)
        set_to(clock, before)
        put(tmp_path, "b", (1, 11))
        wait_for_rows(job, 3)
        assert rows(s) == []
        set_to(clock, end)
        wait_until(lambda: rows(s) == [(window, 3 if script == ROWS else 1)])
        assert s.query("SELECT SUM(late_rows) FROM sqlstream.operators").fetchall() == [(0,)]
        job.stop()
        assert job.wait(SECONDS)
