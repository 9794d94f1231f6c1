"""The databases that a worker keeps for its jobs."""

from __future__ import annotations

import pytest

from sqlstream.runtime import worker
from sqlstream.testing import Stream

SCRIPT = "CREATE TABLE t (k BIGINT); CREATE TABLE {0} (k BIGINT); INSERT INTO {0} SELECT k + {1} FROM t"


def test_a_database_in_use_is_not_given_to_another_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "KEPT", 1)
    with Stream(SCRIPT.format("one", 1)) as one, Stream(SCRIPT.format("two", 2)) as two:
        [first], [second] = ([run.job for run in stream.runs.values()] for stream in (one, two))
        with worker.connection(first) as con:
            with worker.connection(second):
                assert worker._key(first) in worker._databases
            assert con.execute("SELECT 1").fetchall() == [(1,)]
        # Nobody uses it any more.
        worker.release(second)
        with worker.connection(second):
            assert worker._key(first) not in worker._databases


def test_what_a_worker_keeps_goes_although_a_resource_cannot_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    with Stream(SCRIPT.format("one", 1)) as stream:
        [run] = stream.runs.values()
        with worker.connection(run.job):
            pass
        forgotten: list[str] = []
        monkeypatch.setattr(worker, "forget_folder", forgotten.append)
        kept = worker._databases[worker._key(run.job)]

        def fail() -> None:
            raise OSError("the resource does not answer")

        monkeypatch.setattr(kept.database, "close", fail)
        with pytest.raises(OSError, match="does not answer"):
            worker.release(run.job)
        assert forgotten
