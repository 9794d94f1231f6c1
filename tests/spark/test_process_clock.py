"""What a process function does by the clock, on Spark: timers fire when no row comes, also after a restart, and values expire."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path

import pytest

from sqlstream import Session
from tests.kinds import job_of
from tests.processes import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("shared_jvm")]

FUNCTION = """
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from sqlstream import Context, Row, ValueState, process, state


@dataclass
class Told:
    what: str
    x: int


@process
class Reminders:
    last: ValueState[int] = state(ttl="1 s")
    rows: ValueState[int] = state()

    def process(self, ctx: Context, row: Row) -> Iterator[Told]:
        yield Told("row", self.last.value or 0)
        self.last.value = row.x
        self.rows.value = (self.rows.value or 0) + 1
        ctx.timers.after(timedelta(seconds=row.seconds), "remind")

    def on_timer(self, ctx: Context) -> Iterator[Told]:
        yield Told("reminder", self.rows.value)
"""
SCRIPT = """
SET 'sqlstream.unbounded-state' = 'allow';
CREATE TABLE IF NOT EXISTS given (k INT, x BIGINT, seconds BIGINT)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'source.monitor-interval' = '50 ms');
CREATE TABLE IF NOT EXISTS told (k INT, what STRING, x BIGINT);
INSERT INTO told SELECT * FROM reminders(TABLE given PARTITION BY k, uid => 'reminders');
"""


def put(project: Path, k: int, x: int, seconds: int) -> None:
    name = f"{len(os.listdir(project / 'in')):03}.json"
    (project / name).write_text(f'{{"k": {k}, "x": {x}, "seconds": {seconds}}}\n')
    os.replace(project / name, project / "in" / name)


@pytest.mark.one_in(3, of="jobs on Spark")
def test_timers_fire_and_values_expire_by_the_clock(tmp_path: Path) -> None:
    for folder in ("in", "udfs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "udfs" / "reminders.py").write_text(FUNCTION)
    with Session(str(tmp_path), output=io.StringIO(), notice=lambda text: None) as session:

        def told(k: int) -> list[tuple[object, ...]]:
            return session.query(f"SELECT what, x FROM told WHERE k = {k} ORDER BY ALL").fetchall()

        job = job_of(session.sql(SCRIPT))
        put(tmp_path, 1, 7, 1)
        wait_until(lambda: told(1) == [("reminder", 1), ("row", 0)])
        # The timer of another key is due when nobody runs the job.
        put(tmp_path, 2, 5, 1)
        wait_until(lambda: ("row", 0) in told(2))
        job.stop()
        job.wait()
        time.sleep(1.1)  # of the clock, which is what is tested
        job = job_of(session.sql(SCRIPT))
        put(tmp_path, 1, 8, 1)
        wait_until(lambda: told(1) == [("reminder", 1), ("reminder", 2), ("row", 0), ("row", 0)])
        wait_until(lambda: told(2) == [("reminder", 1), ("row", 0)])
        assert session.query("SELECT count(*) FROM state.told.reminders_timers").fetchall() == [(0,)]
        job.stop()
        job.wait()
