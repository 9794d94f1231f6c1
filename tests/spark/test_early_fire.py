"""Results of open windows come on Spark, too, when the time has come and no row does."""

from __future__ import annotations

import io
import os
from datetime import datetime
from pathlib import Path

import pytest

from sqlstream import Session
from tests.kinds import job_of
from tests.processes import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("shared_jvm")]

SCRIPT = """
SET 'sqlstream.unbounded-state' = 'allow';
CREATE TABLE a (k INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'a', 'format' = 'json', 'source.monitor-interval' = '50 ms');
CREATE TABLE counts (k INT, e TIMESTAMP, n BIGINT, PRIMARY KEY (k, e) NOT ENFORCED);
INSERT INTO counts
SELECT /*+ EARLY_FIRE('2 s'), ALLOWED_LATENESS('1 min'), LATE_ROWS('too_late') */ k, window_end, COUNT(*)
FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY k, window_start, window_end;
"""


def at(second: int) -> datetime:
    return datetime(2026, 1, 1, 10, second // 60, second % 60)


def put(project: Path, *rows: tuple[int, int]) -> None:
    name = f"{len(os.listdir(project / 'a')):03}.json"
    (project / name).write_text("".join(f'{{"k": {k}, "ts": "{at(second)}"}}\n' for k, second in rows))
    os.replace(project / name, project / "a" / name)


@pytest.mark.thorough
def test_open_windows_are_emitted_when_no_row_comes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    put(tmp_path, (1, 1), (1, 2), (2, 3))
    with Session(str(tmp_path), output=io.StringIO(), notice=lambda text: None) as session:

        def counts() -> list[tuple[object, ...]]:
            return session.query("FROM counts ORDER BY ALL").fetchall()

        job = job_of(session.sql(SCRIPT))
        wait_until(lambda: counts() == [(1, at(10), 2), (2, at(10), 1)])
        put(tmp_path, (1, 4))
        wait_until(lambda: counts() == [(1, at(10), 3), (2, at(10), 1)])
        # The window ends, a late row corrects it, and another one is too late.
        put(tmp_path, (2, 5), (3, 15))
        wait_until(lambda: counts()[:2] == [(1, at(10), 3), (2, at(10), 2)])
        put(tmp_path, (1, 6), (3, 100))
        wait_until(lambda: counts()[0] == (1, at(10), 4))
        put(tmp_path, (2, 7))
        late = "SELECT k, _event_time, _watermark FROM state.counts.too_late"
        wait_until(lambda: session.query(late).fetchall() == [(2, at(7), at(100))])
        assert session.query("SELECT late_rows FROM sqlstream.operators").fetchall() == [(1,)]
        job.stop()
        job.wait()
