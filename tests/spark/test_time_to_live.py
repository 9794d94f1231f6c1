"""A time to live may be set, and changed, whenever a job goes on: it holds for the state that is there."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest

from sqlstream import Session
from tests.kinds import job_of

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("shared_jvm")]

SCRIPT = """
SET 'execution.end-of-input' = 'wait';
SET 'sqlstream.unbounded-state' = 'allow';
SET 'table.exec.state.ttl' = '{ttl}';
CREATE TABLE a (k INT) WITH ('connector' = 'filesystem', 'path' = 'a', 'format' = 'json');
CREATE TABLE counts (k INT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED);
INSERT INTO counts SELECT k, COUNT(*) AS n FROM a GROUP BY k;
"""


def put(project: Path, name: str, *keys: int) -> None:
    (project / "a" / name).write_text("".join(f'{{"k": {k}}}\n' for k in keys))


@pytest.mark.thorough
def test_a_changed_time_to_live_holds_for_existing_state(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with Session(str(tmp_path), output=io.StringIO(), notice=lambda text: None) as session:

        def run(ttl: str) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
            job = job_of(session.sql(SCRIPT.format(ttl=ttl)))
            job.wait()
            state = session.query("SELECT k, n FROM state.counts.aggregate_1 ORDER BY k").fetchall()
            return session.query("FROM counts ORDER BY k").fetchall(), state

        put(tmp_path, "1.json", 1, 2, 2)
        assert run("0") == ([(1, 1), (2, 2)], [(1, 1), (2, 2)])
        put(tmp_path, "2.json", 1)
        assert run("1 h") == ([(1, 2), (2, 2)], [(1, 2), (2, 2)])
        time.sleep(1.1)  # of the clock, which is what is tested
        put(tmp_path, "3.json", 1)
        table, state = run("1 s")
        # What was forgotten stays in the table; what came again began anew.
        assert table == [(1, 1), (2, 2)]
        assert state == [(1, 1)]
