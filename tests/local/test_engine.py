"""Jobs on the engine that is this process: what a session asks of an engine, without Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sqlstream import Session
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import DataError, SourceText
from sqlstream.jobs.job import Job
from sqlstream.local.engine import LocalEngine
from sqlstream.runtime.engine import Engine
from sqlstream.spark.engine import SparkEngine
from sqlstream.testing import Stream
from sqlstream.warehouse.commits import last_committed
from tests.processes import SECONDS, wait_until

COUNTS = """
CREATE TABLE t (k BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'parquet'{options});
CREATE TABLE counts (k BIGINT, n BIGINT);
INSERT INTO counts SELECT k, count(*) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY k, window_start, window_end;
"""
FOLLOWED = COUNTS.format(options=", 'source.monitor-interval' = '10 ms'")
BOUNDED = COUNTS.format(options=", 'source.max-files-per-batch' = '1'")


def put(folder: Path, name: str, *rows: tuple[int, int]) -> None:
    """Write a file of keys and seconds."""
    table = pa.table(
        {"k": [k for k, _ in rows], "ts": pa.array([s * 1_000_000 for _, s in rows], pa.timestamp("us"))},
    )
    (folder / "in").mkdir(exist_ok=True)
    pq.write_table(table, folder / f".{name}")
    (folder / f".{name}").rename(folder / "in" / f"{name}.parquet")


@contextmanager
def session(folder: Path) -> Iterator[Session]:
    with Session(str(folder), conf={"execution.checkpointing.interval": "0 s"}, notice=lambda text: None) as opened:
        yield opened


def start(session: Session, script: str) -> Job:
    """Start the job of a script as a session does, in this process."""
    [planned] = [one for one in session.compile(SourceText("script", script)) if isinstance(one, PlannedJob)]
    return session._jobs.start(planned, {}, engine=LocalEngine())


def counts(session: Session) -> list[tuple[int, int]]:
    return sorted(session.query("SELECT k, n FROM counts").fetchall())


def wait_for_rows(job: Job, rows: int) -> None:
    """Wait until a job has read so many rows, and closed the windows that they close."""
    deadline = time.monotonic() + SECONDS
    while not (job.progress.rows_in == rows and job.is_waiting):
        assert not job.wait(0.01), "it has ended"
        assert time.monotonic() < deadline


def test_a_bounded_job_ends_with_its_windows_closed(tmp_path: Path) -> None:
    put(tmp_path, "a", (1, 1), (1, 2), (2, 3))
    put(tmp_path, "b", (1, 11), (1, 25))
    with session(tmp_path) as s:
        job = start(s, BOUNDED)
        assert job.wait(SECONDS)
        assert job.status == "FINISHED"
        assert job.progress.rows_in == 5
        assert counts(s) == [(1, 1), (1, 1), (1, 2), (2, 1)]
        assert s.query("SELECT status, engine FROM sqlstream.jobs").fetchall() == [("FINISHED", "local")]
        # It is skipped the next time, as on Spark.
        assert start(s, BOUNDED).status == "FINISHED"


def test_a_job_that_was_stopped_goes_on(tmp_path: Path) -> None:
    put(tmp_path, "a", (1, 1), (1, 2))
    with session(tmp_path) as s:
        job = start(s, FOLLOWED)
        wait_for_rows(job, 2)
        job.stop()
        assert job.wait(SECONDS)
        assert job.status == "STOPPED"
    put(tmp_path, "b", (1, 3), (1, 15))
    with session(tmp_path) as s:
        job = start(s, FOLLOWED)
        wait_for_rows(job, 4)
        # A window closes in the batch after the one whose rows close it.
        wait_until(lambda: counts(s) == [(1, 3)])
        job.stop(drain=True)
        assert job.wait(SECONDS)
        assert job.status == "DRAINED"
        assert counts(s) == [(1, 1), (1, 3)]


@pytest.mark.parametrize("window_closes", [False, True])
def test_a_batch_that_was_not_committed_is_run_again(tmp_path: Path, window_closes: bool) -> None:
    """The process dies after a batch, before its commit, or before the empty batch in which a window closes."""
    put(tmp_path, "a", (1, 1), (1, 2))
    put(tmp_path, "b", (1, 3), (1, 15))
    with session(tmp_path) as s:
        job = start(s, FOLLOWED)
        wait_for_rows(job, 4)
        wait_until(lambda: counts(s) == [(1, 3)])
        job.stop()
        assert job.wait(SECONDS)
        paths = s.warehouse.job("counts")
        newest = last_committed(s.warehouse.fs, paths)
        assert newest is not None
        for version in range(newest, newest - (1 if window_closes else 2), -1):
            s.warehouse.fs.delete(f"{paths.commits}/{version}")
        s.warehouse.fs.delete(paths.status)
        assert counts(s) == []
    with session(tmp_path) as s:
        job = start(s, FOLLOWED)
        wait_for_rows(job, 4)
        wait_until(lambda: counts(s) == [(1, 3)])
        job.stop()
        assert job.wait(SECONDS)
        assert counts(s) == [(1, 3)]


def test_what_a_job_fails_of_is_its_error(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.parquet").write_text("no parquet")
    with session(tmp_path) as s:
        job = start(s, BOUNDED)
        with pytest.raises(Exception, match=r"a\.parquet"):
            job.wait(SECONDS)
        assert job.status == "FAILED"
        assert s.query("SELECT status, engine FROM sqlstream.jobs").fetchall() == [("FAILED", "local")]


def test_all_engines_are_engines() -> None:
    """What the type checker checks: a session knows engines by the protocol alone."""
    kinds: tuple[type[Engine], ...] = (LocalEngine, SparkEngine)
    assert len(kinds) == 2


def test_a_row_that_fails_behind_many_others_is_named() -> None:
    script = """
        CREATE TABLE given (k INT, v STRING);
        CREATE TABLE kept (k INT, n INT);
        INSERT INTO kept SELECT k, CAST(v AS INT) FROM given;
    """
    with Stream(script) as stream, pytest.raises(DataError) as caught:
        stream.batch("given", [(k, "x" if k == 4000 else "1") for k in range(5000)])
    assert caught.value.message.startswith("row 4001 of file")
    assert caught.value.detail == "row: k=4000, v=x"
