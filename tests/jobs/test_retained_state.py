"""What is left of a job that is dropped, as 'execution.checkpointing.externalized-retention' says."""

from __future__ import annotations

from pathlib import Path

import pytest

from sqlstream import Session
from tests.jobs.test_state_checks import JOB, done, put, start

OPTION = "execution.checkpointing.externalized-retention"


@pytest.mark.parametrize(
    ("setting", "is_kept"),
    [
        ("", False),
        (f"SET '{OPTION}' = 'NO_EXTERNALIZED_CHECKPOINTS';", False),
        (f"SET '{OPTION}' = 'RETAIN_ON_CANCELLATION';", True),
        ("SET 'execution.checkpointing.externalized-checkpoint-retention' = 'RETAIN_ON_CANCELLATION';", True),
    ],
)
def test_what_a_dropped_job_leaves(tmp_path: Path, setting: str, is_kept: bool) -> None:
    said: list[str] = []
    with Session(str(tmp_path), conf={"sqlstream.unbounded-state": "allow"}, notice=said.append) as session:
        put(session, "1", (1, 5), (2, 7))
        job = start(session, f"{setting} {JOB}")
        done(session, job, 2)
        job.stop()
        assert job.wait(60)
        session.drop("sums")
        assert session.query("SELECT job FROM sqlstream.jobs").fetchall() == []
        kept = session.query("SELECT savepoint, job FROM sqlstream.savepoints").fetchall()
        assert len(kept) == is_kept
        if is_kept:
            [(name, of)] = kept
            assert of == "sums"
            assert any(f'savepoint "{name}" keeps' in text for text in said)
            rows = session.query(f'SELECT k, s FROM savepoint."{name}".aggregate_1').fetchall()
            assert sorted(rows) == [(1, 5), (2, 7)]
