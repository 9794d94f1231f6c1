"""The tools that look at state, beside a job that runs on Spark: diff, why, ttl, verify, and a state check that stops it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sqlstream.errors import JobError
from tests.jobs.savepoint_jobs import (
    FIRST,
    JOB,
    SCRIPT,
    SECOND,
    THIRD,
    batch,
    open_session,
    put,
    rows_of,
    wait_until_done,
)
from tests.kinds import job_of
from tests.processes import SECONDS

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("shared_jvm")]


@pytest.mark.one_in(3, of="jobs on Spark")
def test_a_job_that_runs_is_looked_at_verified_and_stopped_by_a_check(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    both = [*FIRST, *SECOND]
    with open_session(tmp_path) as s:
        s.sql(f"CREATE STATE CHECK few ON {JOB}.by_key AS (SELECT k, n FROM state.{JOB}.by_key WHERE n > 4)")
        job = job_of(s.sql(SCRIPT))
        wait_until_done(s, job, FIRST)
        job.savepoint("first")
        [(before,)] = s.query("SELECT max(version) FROM sqlstream.snapshots").fetchall()
        put(tmp_path, "b", SECOND)
        wait_until_done(s, job, both)
        [(after,)] = s.query("SELECT max(version) FROM sqlstream.snapshots").fetchall()
        assert job.status == "RUNNING"

        columns = "change, reason, before.k, before.n, after.k, after.n"
        changes = [
            ("changed", "input", 1, 3, 1, 4),
            ("changed", "input", 2, 1, 2, 2),
            ("added", "input", None, None, 3, 1),
        ]
        for older in (before, "first"):
            assert s.diff(f"{JOB}.by_key", older, after).project(columns).fetchall() == changes
        closed = s.diff(f"{JOB}.by_window", "first", after).filter("change = 'removed'").project("reason").distinct()
        assert closed.fetchall() == [("window closed",)]
        known = s.why(f"{JOB}.by_key", {"k": 1}).filter("part = 'state'").project("content->>'n'").fetchall()
        assert known == [("4",)]
        windows = s.why(f"{JOB}.by_window", {"k": 1}).filter("part = 'window'").project("text").fetchall()
        assert [text.split(" closes")[0] for (text,) in windows] == [
            "window from 1970-01-01 00:00:20 to 1970-01-01 00:00:30"
        ]
        assert s.ttl(f"{JOB}.by_key", "1 h").project("keys, keys_now").fetchall() == [(3, 3)]

        report = job.verify()
        assert report
        assert report.read == (("t", len(both)),)
        assert {d.cause for table in report.tables for d in table.differences} == {"due"}
        assert job.verify(at=before).read == (("t", len(FIRST)),)

        # The next row of key 1 breaks the check. What it found is there, and is right.
        put(tmp_path, "c", THIRD)
        with pytest.raises(JobError, match='state check "few" is broken by 1 row'):
            job.wait(SECONDS)
        everything = [*both, *THIRD]
        assert rows_of(s, f"SELECT k, n, epoch(last)::BIGINT FROM state.{JOB}.by_key") == batch(everything)[1]
        assert job.verify()
