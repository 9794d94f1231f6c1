"""The machine's clock is set while a job runs, by five hours: timers fire, and no row is late for that."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from sqlstream import Context, Row, Session, ValueState, process, state
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import SourceText
from sqlstream.jobs.job import Job
from sqlstream.local.engine import LocalEngine
from tests.clocks import HOURS, WrongClock, set_clock
from tests.processes import SECONDS, wait_until

MINUTE = 60.0
FILES = "WITH ('connector' = 'filesystem', 'path' = '{}', 'format' = 'json', 'source.monitor-interval' = '10 ms'{})"
TIMERS = f"""
CREATE TABLE t (k BIGINT) {FILES.format("t", "")};
CREATE TABLE alarms (k BIGINT, rows_before BIGINT);
INSERT INTO alarms SELECT k, "value" FROM silent(TABLE t PARTITION BY k);
"""
IDLE = ", 'scan.watermark.idle-timeout' = '10 min'"
WATERMARK = "WATERMARK FOR ts AS ts - INTERVAL '1' SECOND"
WINDOWS = f"""
CREATE TABLE a (ts TIMESTAMP(3), {WATERMARK}) {FILES.format("a", IDLE)};
CREATE TABLE b (ts TIMESTAMP(3), {WATERMARK}) {FILES.format("b", IDLE)};
CREATE TABLE counts (begun TIMESTAMP(3), n BIGINT);
INSERT INTO counts WITH w AS (SELECT window_start, COUNT(*) AS n
    FROM TUMBLE(TABLE (SELECT ts FROM a UNION ALL SELECT ts FROM b), DESCRIPTOR(ts), INTERVAL '1' MINUTE)
    GROUP BY window_start, window_end) SELECT window_start, n FROM w;
"""


@process
class Silent:
    """Says of a key how many rows it had, when none has come for ten minutes by the clock."""

    n: ValueState[int] = state(ttl="1 h")

    def process(self, ctx: Context, row: Row) -> None:
        self.n.value = (self.n.value or 0) + 1
        ctx.timers.after(timedelta(minutes=10), "silent")

    def on_timer(self, ctx: Context) -> Iterator[int]:
        yield self.n.value or 0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> WrongClock:
    return set_clock(monkeypatch, WrongClock())


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    for name in ("t", "a", "b"):
        (tmp_path / name).mkdir()
    with Session(str(tmp_path), conf={"execution.checkpointing.interval": "0 s"}, notice=lambda text: None) as opened:
        opened.register(Silent)
        yield opened


def start(session: Session, script: str) -> Job:
    [planned] = [one for one in session.compile(SourceText("script", script)) if isinstance(one, PlannedJob)]
    return session._jobs.start(planned, {}, engine=LocalEngine())


def put(session: Session, table: str, job: Job, *rows: object) -> None:
    """Write a file of rows, and wait until the job has read it."""
    before = job.progress.rows_in
    folder = Path(session.project.root) / table
    hidden = folder / ".next"
    hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
    hidden.rename(folder / f"{before}.json")
    wait_until(lambda: (job.progress.rows_in == before + len(rows) and job.is_waiting) or job.wait(0))
    assert job.status == "RUNNING"


def alarms(session: Session) -> list[tuple[int, int]]:
    return sorted(session.query("SELECT k, rows_before FROM alarms").fetchall())


@pytest.mark.slow
def test_timers_fire_after_the_clock_was_set_back(session: Session, clock: WrongClock) -> None:
    clock.wrong = HOURS
    job = start(session, TIMERS)
    put(session, "t", job, {"k": 1})
    clock.wrong = HOURS + 11 * MINUTE
    wait_until(lambda: alarms(session) == [(1, 1)])
    # From now on it is right: the time of the job stands still until the clock is there again.
    clock.wrong = 0
    put(session, "t", job, {"k": 1}, {"k": 2})
    put(session, "t", job, {"k": 2})
    clock.wrong = HOURS + 12 * MINUTE
    put(session, "t", job, {"k": 3})
    assert alarms(session) == [(1, 1)]
    clock.wrong = HOURS + 30 * MINUTE
    wait_until(lambda: alarms(session) == [(1, 1), (1, 2), (2, 2), (3, 1)])


def test_no_row_is_late_because_the_clock_was_set_forward(session: Session, clock: WrongClock) -> None:
    job = start(session, WINDOWS)
    put(session, "a", job, {"ts": "2026-01-01 00:00:30"}, {"ts": "2026-01-01 00:02:30"})
    put(session, "b", job, {"ts": "2026-01-01 00:00:10"})
    for wrong in (HOURS, 0.0, -HOURS, HOURS):
        clock.wrong = wrong
        put(session, "a", job, {"ts": "2026-01-01 00:03:30"})
        put(session, "b", job, {"ts": "2026-01-01 00:00:20"})
    job.stop(drain=True)
    assert job.wait(SECONDS)
    counts = sorted((begun.minute, n) for begun, n in session.query("SELECT begun, n FROM counts").fetchall())
    assert counts == [(0, 6), (2, 1), (3, 4)]
    assert session.query("SELECT sum(late_rows) FROM sqlstream.operators").fetchall() == [(0,)]
