"""Savepoints of jobs on Spark: taken while they run, and gone on from, beside each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from sqlstream import Session
from sqlstream.jobs.job import Job
from tests.jobs.savepoint_jobs import (
    FIRST,
    FORK,
    JOB,
    SCRIPT,
    SECOND,
    THIRD,
    Rows,
    batch,
    open_session,
    put,
    results,
    rows_of,
    wait_until_done,
)
from tests.jobs.upgrades.test_migrated_jobs import REPAIR, repaired
from tests.processes import SECONDS

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("shared_jvm")]


def run(s: Session, rows: Rows, script: str, savepoint: str | None = None, as_job: str | None = None) -> Job:
    """Run a job until it has read some rows."""
    job = s.sql(script, savepoint=savepoint, as_job=as_job)
    assert isinstance(job, Job)
    wait_until_done(s, job, rows)
    return job


@pytest.mark.thorough
def test_a_fork_and_the_job_itself_go_on_from_a_savepoint(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    with open_session(tmp_path) as s:
        job = run(s, FIRST, SCRIPT)
        job.savepoint("first")
        put(tmp_path, "b", SECOND)
        both = [*FIRST, *SECOND]
        wait_until_done(s, job, both)
        fork = run(s, both, FORK, "first", "other")
        assert results(s) == results(s, "windows_b", "totals_b") == batch(both)
        totals = "SELECT k, n, epoch(last)::BIGINT FROM savepoint.first.by_key"
        assert rows_of(s, totals) == batch(FIRST)[1]
        for one in (job, fork):
            one.stop()
            assert one.wait(SECONDS)
        # The fork goes on by its name. The job itself goes back first.
        put(tmp_path, "c", THIRD)
        everything = [*both, *THIRD]
        run(s, everything, f"SET 'pipeline.name' = 'other'; {FORK}")
        s.options.reset("pipeline.name")
        again = run(s, everything, SCRIPT, "first")
        assert again.name == JOB
        assert results(s) == results(s, "windows_b", "totals_b") == batch(everything)


@pytest.mark.one_in(3, of="jobs on Spark")
def test_a_job_goes_on_with_a_changed_query_and_with_migrated_state(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    changed = (
        SCRIPT.replace("last TIMESTAMP(3),", "last TIMESTAMP(3), since TIMESTAMP(3),")
        .replace("max(ts) AS last FROM t", "max(ts) AS last, min(ts) AS since FROM t")
        .replace("INTERVAL '10' SECOND)", "INTERVAL '10' SECOND) WHERE k <> 3")
    )
    notices: list[str] = []
    with open_session(tmp_path) as s:
        end(run(s, FIRST, SCRIPT))
    put(tmp_path, "b", SECOND)
    both = [*FIRST, *SECOND]
    with open_session(tmp_path, notices) as s:
        job = s.sql(changed, upgrade=True)
        assert isinstance(job, Job)
        wait_until_done(s, job, both)
        windows, totals = batch(both)
        assert rows_of(s, "SELECT k, n FROM windows") == [row for row in windows if row[0] != 3]
        assert rows_of(s, "SELECT k, n, epoch(last)::BIGINT FROM totals") == totals
        # What is new begins with the rows that come.
        since = {k: min(second for key, second in SECOND if key == k) for k, _ in SECOND}
        assert rows_of(s, "SELECT k, epoch(since)::BIGINT FROM totals") == sorted(since.items())
        [kept] = [notice.split('"')[1] for notice in notices if "keeps job" in notice]
        end(job)
    with open_session(tmp_path) as s:
        # And it goes back to the query that it had.
        end(run(s, both, SCRIPT, kept))
        assert results(s) == batch(both)
        put(tmp_path, "c", THIRD)
        everything = [*both, *THIRD]
        migrated = s.sql(SCRIPT, migrate=REPAIR.format(job=JOB))
        assert isinstance(migrated, Job)
        wait_until_done(s, migrated, everything)
        assert results(s) == repaired(everything)


def end(job: Job) -> None:
    job.stop()
    assert job.wait(SECONDS)
