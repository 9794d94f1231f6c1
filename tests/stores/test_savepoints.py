"""Savepoints in an object store: files are copied there, and one goes back, forks and moves as on a disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from sqlstream import Session
from sqlstream.jobs.savepoints import drop_savepoint, take_savepoint
from tests.jobs.savepoint_jobs import FIRST, FORK, JOB, SECOND, batch, put, results, rows_of, run_over

pytestmark = pytest.mark.slow


def test_a_savepoint_in_a_bucket(bucket: str, tmp_path: Path) -> None:
    both = [*FIRST, *SECOND]

    def session() -> Session:
        conf = {"execution.checkpointing.interval": "0 s"}
        return Session(str(tmp_path), f"{bucket}/warehouse", conf, notice=lambda text: None)

    put(tmp_path, "a", FIRST)
    with session() as s:
        run_over(s, FIRST)
        take_savepoint(s.warehouse, JOB, "first")
        take_savepoint(s.warehouse, JOB, "copy", f"{bucket}/elsewhere")
        put(tmp_path, "b", SECOND)
        run_over(s, both)
        assert rows_of(s, "SELECT k, n, epoch(last)::BIGINT FROM savepoint.first.by_key") == batch(FIRST)[1]
        run_over(s, both, FORK, restore="first", name="other")
        run_over(s, both, restore=f"{bucket}/elsewhere")
        assert results(s) == results(s, "windows_b", "totals_b") == batch(both)
        assert rows_of(s, "SELECT savepoint FROM sqlstream.savepoints") == [("first",)]
        drop_savepoint(s.warehouse, "first")
        assert not list(s.warehouse.fs.walk(f"{s.warehouse.root}/savepoints"))
