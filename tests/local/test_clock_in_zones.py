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

# Rows in the order of the clock, beside windows that make its watermark a local time.
ORDERED = f"""{TABLE}
SET 'pipeline.name' = 'job';
CREATE TABLE ranked (k BIGINT, place BIGINT, before BIGINT, near BIGINT);
CREATE TABLE pairs (ks STRING, n BIGINT);
CREATE TABLE sorted (k BIGINT);
EXECUTE STATEMENT SET BEGIN
INSERT INTO ranked SELECT k, ROW_NUMBER() OVER w, LAG(k) OVER w, COUNT(*) OVER (w RANGE INTERVAL '25' MINUTE PRECEDING)
FROM t WINDOW w AS (ORDER BY p);
INSERT INTO pairs SELECT LISTAGG(CAST(k AS STRING), '-'), window_id FROM TUMBLE_ROWS(TABLE t, DESCRIPTOR(p), 2)
GROUP BY window_id, window_start, window_end;
INSERT INTO sorted SELECT k FROM t ORDER BY p;
INSERT INTO out SELECT window_start, COUNT(*) FROM TUMBLE(TABLE t, DESCRIPTOR(p), INTERVAL '60' MINUTE)
GROUP BY window_start, window_end;
END;
"""
# Of each row of ORDERED its key, number and the key before it, and how many rows came in the 25 minutes before it.
RANKED = [(5, 1, None, 1), (4, 2, 5, 2), (3, 3, 4, 2), (2, 4, 3, 2), (1, 5, 2, 2)]


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


def ordered(session: Session) -> list[list[tuple[object, ...]]]:
    """Return the rows of the tables of ORDERED that have come so far."""
    ranked = session.query("FROM ranked ORDER BY place").fetchall()
    return [ranked, session.query("FROM pairs ORDER BY n").fetchall()]


def test_rows_are_in_the_order_of_instants_when_clocks_are_set_back(tmp_path: Path, clock: WrongClock) -> None:
    script = ORDERED.format(zone="Europe/Berlin")
    set_to(clock, "2026-10-25T02:10:00+02:00")
    put(tmp_path, "a", (5, 1))
    with session(tmp_path) as s:
        job = start(s, script)
        wait_for_rows(job, 1)
        set_to(clock, "2026-10-25T02:30:00+02:00")
        put(tmp_path, "b", (4, 1))
        wait_for_rows(job, 2)
        set_to(clock, "2026-10-25T02:50:00+02:00")
        put(tmp_path, "c", (3, 1))
        wait_for_rows(job, 3)
        assert ordered(s)[0] == RANKED[:3]
        job.stop()
        assert job.wait(SECONDS)
    # It is 02:10 again.
    set_to(clock, "2026-10-25T02:10:00+01:00")
    put(tmp_path, "d", (2, 1))
    with session(tmp_path) as s:
        job = start(s, script)
        wait_for_rows(job, 4)
        set_to(clock, "2026-10-25T02:30:00+01:00")
        put(tmp_path, "e", (1, 1))
        wait_for_rows(job, 5)
        assert ordered(s)[0] == RANKED
        set_to(clock, "2026-10-25T03:00:01+01:00")
        wait_until(lambda: rows(s) == [("2026-10-25 02:00:00", 5)])
        assert ordered(s) == [RANKED, [("5-4", 1), ("3-2", 2)]]
        assert sorted(s.query("FROM sorted").fetchall()) == [(k,) for k in range(1, 6)]
        assert s.query("SELECT SUM(late_rows) FROM sqlstream.operators").fetchall() == [(0,)]
        job.stop()
        assert job.wait(SECONDS)
        assert s.verify("job")
