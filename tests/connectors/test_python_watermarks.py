"""How far sources of the user's own are: a watermark for each partition, of its rows or as the source says."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from sqlstream import Session
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import JobError, SourceText
from sqlstream.local.engine import LocalEngine
from sqlstream.testing import Stream
from sqlstream.units import ProcessingTime
from sqlstream.warehouse.locks import JobLock, SessionLock
from sqlstream.warehouse.status import Status, write_status
from tests.processes import SECONDS, wait_until

JOB = """
CREATE TABLE t (ts {type}, WATERMARK FOR ts AS ts) WITH ('connector' = 'python', 'class' = 'tests.connectors.own_connectors.{of}',
    'file' = '{file}', 'source.monitor-interval' = '0 s', 'scan.watermark.idle-timeout' = '10 s');
CREATE TABLE counts (second INT, n BIGINT);
INSERT INTO counts SELECT CAST(epoch(window_start) - epoch(TIMESTAMP '2026-01-01') AS INT), COUNT(*)
FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end;
"""
PARTITIONS = (
    'SELECT "partition", holds_minimum, idle_since IS NOT NULL FROM sqlstream.watermarks WHERE "partition" IS NOT NULL'
)


def put(file: Path, **partitions: tuple[list[int], object]) -> Path:
    """Write the rows of partitions, and how far they are."""
    content = {name: {"rows": rows, "reached": reached} for name, (rows, reached) in partitions.items()}
    new = file.with_suffix(".new")
    new.write_text(json.dumps(content))
    return new.rename(file)


def job(of: str, file: Path, type: str = "TIMESTAMP(3)") -> str:
    return JOB.format(of=of, file=file, type=type)


def pull(stream: Stream, times: int = 1) -> None:
    for _ in range(times):
        stream.runs["counts"].pull()


def counts(stream: Stream) -> list[tuple[Any, ...]]:
    return sorted(stream.query("SELECT second, n FROM counts"))


def late(stream: Stream) -> list[tuple[Any, ...]]:
    return stream.query("SELECT late_rows FROM sqlstream.operators")


def test_partitions_have_watermarks_of_their_own(tmp_path: Path) -> None:
    file = put(tmp_path / "f", a=([1, 25, 45, 65], None), b=([2, 3, 4, 21], None), c=([], None))
    with Stream(job("Gauges", file)) as stream:
        pull(stream, 2)
        # One has no row, and holds the others until it is idle.
        assert counts(stream) == []
        stream.advance(9_000)
        put(file, a=([1, 25, 45, 65, 66], None), b=([2, 3, 4, 21, 22], None), c=([], None))
        pull(stream)
        stream.advance(2_000)
        assert counts(stream) == [(0, 4)]
        assert sorted(stream.query(PARTITIONS)) == [("a", False, False), ("b", True, False), ("c", False, True)]
        stream.restart()
        put(file, a=([1, 25, 45, 65, 66], None), b=([2, 3, 4, 21, 22, 31], None), c=([1, 33], None))
        pull(stream)
        # Only what was idle has a row that is late.
        assert (counts(stream), late(stream)) == ([(0, 4), (20, 3)], [(1,)])


def test_a_source_says_how_far_it_is(tmp_path: Path) -> None:
    file = put(tmp_path / "f", a=([25, 1], None), b=([], 12))
    with Stream(job("Promising", file)) as stream:
        pull(stream)
        # Rows alone close no window, nor does one partition that knows.
        assert counts(stream) == []
        put(file, a=([25, 1, 3, 2, 35], 20), b=([], 31))
        pull(stream)
        # What it says holds for rows that come later: those that are there are read first.
        assert counts(stream) == []
        pull(stream)
        assert counts(stream) == [(0, 3)]
        stream.restart()
        pull(stream)
        # Without a row.
        put(file, a=([25, 1, 3, 2, 35], 40), b=([], 41))
        pull(stream)
        assert counts(stream) == [(0, 3), (20, 1), (30, 1)]
        assert late(stream) == [(0,)]
        marks = stream.query('SELECT "partition", watermark::VARCHAR FROM sqlstream.watermarks')
        at = [f"2026-01-01 00:00:{second}" for second in (40, 41)]
        assert [(p, m) for p, m in marks if p] == [("a", at[0]), ("b", at[1])]


def test_a_source_that_falls_behind_its_rows_goes_on_saying_how_far_it_is(tmp_path: Path) -> None:
    """More rows come than are read: it is asked again when what was there is read, not each time."""
    rows = list(range(10))
    file = put(tmp_path / "f", a=(rows, 10))
    with Stream(job("Promising", file)) as stream:
        pull(stream)
        for _ in range(4):
            assert counts(stream) == []
            rows += [rows[-1] + n for n in (1, 2, 3)]
            put(file, a=(rows, rows[-1] + 1))
            pull(stream)
        assert stream.query("SELECT rows_in FROM sqlstream.jobs") == [(10,)]
        assert counts(stream) == [(0, 10)]


def test_what_it_says_moves_it_so_that_it_is_not_idle(tmp_path: Path) -> None:
    file = put(tmp_path / "f", a=([1, 2], 3), b=([11, 12], 13))
    with Stream(job("Promising", file)) as stream:
        pull(stream)
        for reached in range(4, 9):
            put(file, a=([1, 2], reached), b=([11, 12], 13 + reached))
            stream.advance(9_000)
            pull(stream)
        assert counts(stream) == []
        stream.advance(11_000)
        # Now all are, and what all have passed is known.
        put(file, a=([1, 2], 8), b=([11, 12], 30))
        pull(stream)
        assert counts(stream) == [(0, 2), (10, 2)]


def test_a_source_that_goes_on_without_rows_is_not_called_idle_while_its_job_runs(tmp_path: Path) -> None:
    asked = 'SELECT idle_since IS NOT NULL FROM sqlstream.watermarks WHERE "partition" IS NULL'
    file = put(tmp_path / "f", a=([1], 2))
    with Stream(job("Promising", file)) as stream:
        pull(stream)
        for reached in (9, 10):
            # The second time a window closes, which makes a batch.
            stream.advance(9_000)
            put(file, a=([1], reached))
            pull(stream)
        assert counts(stream) == [(0, 1)]
        commits = stream.runs["counts"].commits
        fs, paths = commits.warehouse.fs, commits.paths
        with SessionLock.open(commits.warehouse) as session:
            JobLock.acquire(fs, paths, session)
            write_status(
                fs, paths, Status("RUNNING", os.getpid(), socket.gethostname(), ProcessingTime(0), ProcessingTime(0))
            )
            # Of other sources it would be asked how long ago, by now, the last row came: half a century.
            assert stream.query("SELECT status FROM sqlstream.jobs") == [("RUNNING",)]
            assert stream.query(asked) == [(False,)]


def test_instants_are_those_of_the_zone(tmp_path: Path) -> None:
    midnight = 15 * 3600
    file = put(tmp_path / "f", a=([1, midnight - 1, midnight], midnight - 1))
    script = job("InUtc", file, "TIMESTAMP_LTZ(3)").replace("INTERVAL '10' SECOND", "INTERVAL '1' DAY")
    with Stream("SET 'table.local-time-zone' = 'Asia/Tokyo';" + script) as stream:
        pull(stream, 2)
        assert counts(stream) == []
        put(file, a=([1, midnight - 1, midnight], midnight))
        pull(stream)
        assert counts(stream) == [(0, 2)]


def test_what_is_no_time_is_named(tmp_path: Path) -> None:
    file = put(tmp_path / "f", a=([], "soon"))
    said = r'of table "t" raised TypeError: watermark\(\) returns a datetime.datetime or None, not a str'
    with Stream(job("Promising", file)) as stream, pytest.raises(JobError, match=said):
        pull(stream)


def test_a_window_of_a_running_job_closes_without_a_row(tmp_path: Path) -> None:
    file = put(tmp_path / "f", a=([1, 2, 25], 5))
    script = job("Promising", file).replace("'0 s'", "'10 ms'")
    with Session(str(tmp_path), conf={"execution.checkpointing.interval": "0 s"}, notice=lambda text: None) as session:
        [planned] = [one for one in session.compile(SourceText("script", script)) if isinstance(one, PlannedJob)]
        running = session._jobs.start(planned, {}, engine=LocalEngine())
        wait_until(lambda: running.progress.rows_in == 3)
        put(file, a=([1, 2, 25], 15))
        wait_until(lambda: session.query("SELECT * FROM counts").fetchall() == [(0, 2)])
        told = session.sql("EXPLAIN SELECT ts FROM t")
        assert told is not None
        assert "ts, watermark as the source says, idle after 10 s" in str(told)
        running.stop()
        assert running.wait(SECONDS)


@pytest.mark.slow
def test_rows_whose_batch_is_longer_ago_than_the_timeout_move_it(tmp_path: Path) -> None:
    """When the job looks at the partitions again all of them are idle, and nobody saw how far they were before."""
    script = job("Gauges", put(tmp_path / "f", a=([1, 12], None), b=([2, 25], None))).replace("'10 s'", "'100 ms'")
    with Session(str(tmp_path), conf={"execution.checkpointing.interval": "1 s"}, notice=lambda text: None) as session:
        [planned] = [one for one in session.compile(SourceText("script", script)) if isinstance(one, PlannedJob)]
        running = session._jobs.start(planned, {}, engine=LocalEngine())
        wait_until(lambda: session.query("SELECT * FROM counts").fetchall() == [(0, 2)])
        # The slower one is at 12.
        assert session.query(PARTITIONS).fetchall() == [("a", True, True), ("b", False, True)]
        running.stop()
        assert running.wait(SECONDS)
