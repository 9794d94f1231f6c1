"""The batches of a job in this process: one that had begun is repeated as it was, and empty ones run only when they must."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sqlstream.errors import JobError, SqlStreamError
from sqlstream.runtime.commits import Commits
from sqlstream.storage.begun import read_begun
from sqlstream.warehouse.commits import last_committed
from tests.clocks import HOURS, WrongClock, set_clock
from tests.jobs.savepoint_jobs import FIRST, INPUT, SECOND, open_session, put, start
from tests.processes import SECONDS, wait_until

TIMED = f"""{INPUT}
SET 'pipeline.name' = 'timed';
CREATE TABLE timed (k BIGINT, seen TIMESTAMP(3));
CREATE VIEW arrived AS SELECT k, PROCTIME() AS p FROM t;
INSERT INTO timed SELECT k, CAST(PROCTIME() AS TIMESTAMP(3))
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY p) AS n FROM arrived) WHERE n = 1;
"""
COUNTED = f"""{INPUT}
SET 'pipeline.name' = 'counted';
CREATE TABLE counted (k BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED);
INSERT INTO counted SELECT k, COUNT(*) FROM t GROUP BY k;
"""
WINDOWS = f"""{INPUT}
SET 'pipeline.name' = 'windows';
CREATE TABLE windows (k BIGINT, n BIGINT);
INSERT INTO windows SELECT k, COUNT(*) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY k, window_start, window_end;
"""


def test_a_batch_that_had_begun_is_repeated_with_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sinks outside of the warehouse may have rows of it, which must be the same ones."""
    clock = set_clock(monkeypatch, WrongClock())
    put(tmp_path, "a", FIRST)
    with monkeypatch.context() as patch, open_session(tmp_path) as session:

        def dying(*arguments: Any) -> None:
            raise JobError("the process died")

        patch.setattr(Commits, "commit", dying)
        with pytest.raises(SqlStreamError, match="the process died"):
            start(session, TIMED).wait(SECONDS)
    clock.wrong = HOURS
    with open_session(tmp_path) as session:
        begun = read_begun(session.warehouse.fs, session.warehouse.job("timed"), 0)
        assert begun is not None
        job = start(session, TIMED)
        wait_until(lambda: len(session.query("FROM timed").fetchall()) == 2)
        job.stop()
        assert job.wait(SECONDS)
        times = session.query("SELECT DISTINCT epoch_ms(seen) FROM timed").fetchall()
        assert times == [(begun.time // 1000,)]


def versions(folder: Path, script: str, job: str) -> int:
    """Run a job over two files, the second of which comes when the first is read; return how many batches there were."""
    put(folder, "a", FIRST)
    with open_session(folder) as session:
        running = start(session, script)
        wait_until(lambda: running.progress.rows_in == len(FIRST))
        put(folder, "b", SECOND)
        wait_until(lambda: running.progress.rows_in == len(FIRST) + len(SECOND))
        running.stop()
        assert running.wait(SECONDS)
        version = last_committed(session.warehouse.fs, session.warehouse.job(job))
        assert version is not None
        return version + 1


def test_a_watermark_that_calls_no_operator_waits_for_the_next_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sqlstream.local.run.QUIET_SECONDS", SECONDS)
    # The two files, and an empty batch when the job stops.
    assert versions(tmp_path, COUNTED, "counted") == 3


def test_windows_close_without_further_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqlstream.local.run.QUIET_SECONDS", SECONDS)
    put(tmp_path, "a", FIRST)
    with open_session(tmp_path) as session:
        running = start(session, WINDOWS)
        wait_until(lambda: session.query("FROM windows ORDER BY k").fetchall() == [(1, 2), (2, 1)])
        running.stop()
        assert running.wait(SECONDS)


def test_a_watermark_is_seen_when_there_has_been_no_input_for_a_moment(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    with open_session(tmp_path) as session:
        running = start(session, COUNTED)
        wait_until(lambda: running.progress.watermark is not None)
        running.stop()
        assert running.wait(SECONDS)
