"""A job that counts in windows, keeps sums by key, and how it is run in this process, for the tests of savepoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from sqlstream import Session
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import SourceText
from sqlstream.jobs.job import Job
from sqlstream.jobs.savepoints.restore_plans import Restore
from sqlstream.local.engine import LocalEngine
from sqlstream.warehouse.commits import last_committed
from tests.local.test_engine import wait_for_rows
from tests.processes import SECONDS, wait_until

INPUT = """
CREATE TABLE t (k BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'parquet', 'source.monitor-interval' = '10 ms');
"""
# An operator with open windows, and one whose result changes.
BOTH = """
CREATE TABLE {windows} (k BIGINT, n BIGINT);
CREATE TABLE {totals} (k BIGINT, n BIGINT, last TIMESTAMP(3), PRIMARY KEY (k) NOT ENFORCED);
EXECUTE STATEMENT SET BEGIN
INSERT INTO {windows} WITH by_window AS (
    SELECT k, count(*) AS n FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY k, window_start, window_end
) SELECT k, n FROM by_window;
INSERT INTO {totals} WITH by_key AS (SELECT k, count(*) AS n, max(ts) AS last FROM t GROUP BY k) SELECT * FROM by_key;
END;
"""
FORK = INPUT + BOTH.format(windows="windows_b", totals="totals_b")
SCRIPT = INPUT + BOTH.format(windows="windows", totals="totals")
JOB = "windows_set"
Rows = Sequence[tuple[int, int]]
FIRST: Rows = [(1, 1), (1, 2), (2, 3), (1, 12)]
SECOND: Rows = [(2, 14), (3, 15), (1, 23)]
THIRD: Rows = [(1, 24), (4, 31), (2, 45)]


def put(folder: Path, name: str, rows: Rows) -> None:
    """Write a file of keys and seconds."""
    table = pa.table(
        {"k": [k for k, _ in rows], "ts": pa.array([s * 1_000_000 for _, s in rows], pa.timestamp("us"))},
    )
    (folder / "in").mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / f".{name}")
    (folder / f".{name}").rename(folder / "in" / f"{name}.parquet")


def open_session(folder: Path, notices: list[str] | None = None) -> Session:
    said = [] if notices is None else notices
    return Session(str(folder), conf={"execution.checkpointing.interval": "0 s"}, notice=said.append)


def planned(session: Session, script: str = SCRIPT) -> PlannedJob:
    [job] = [one for one in session.compile(SourceText("script", script)) if isinstance(one, PlannedJob)]
    return job


def start(session: Session, script: str = SCRIPT, *, restore: str | None = None, name: str | None = None) -> Job:
    """Start the job of a script in this process; from a savepoint, and as a fork with a name, if these are given."""
    job = planned(session, script)
    request = Restore(restore, is_fork=name is not None) if restore is not None else None
    job = replace(job, name=name or job.name)
    return session._jobs.start(job, {}, engine=LocalEngine(), restore=request)


def run_over(
    session: Session, rows: Rows, script: str = SCRIPT, *, restore: str | None = None, name: str | None = None
) -> None:
    """Run a job until it has read some rows, in all since it began, and stop it."""
    job = start(session, script, restore=restore, name=name)
    wait_until_done(session, job, rows)
    job.stop()
    assert job.wait(SECONDS)


def wait_until_done(session: Session, job: Job, rows: Rows, *, mark: int | None = None) -> None:
    """Wait until a job has read some rows, in all since it began, and closed the windows that they close.

    `mark` is the second of the watermark, where it is not that of the last row.
    """
    wait_for_rows(job, len(rows))
    mark = (max(second for _, second in rows) if mark is None else mark) * 1_000_000
    wait_until(
        lambda: job.progress.watermark is not None and job._run is not None and job._run.totals.watermark == mark
    )
    committed = session.warehouse.job(job.name)
    wait_until(
        lambda: job._run is not None and last_committed(session.warehouse.fs, committed) == job._run.totals.version
    )


def rows_of(session: Session, sql: str) -> list[tuple[object, ...]]:
    return sorted(session.query(sql).fetchall(), key=repr)


def batch(rows: Rows, *, drained: bool = False) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    """Return what DuckDB says of all rows: counts of the windows that are closed, and totals by key."""
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t (k BIGINT, s BIGINT)")
        con.executemany("INSERT INTO t VALUES (?, ?)", rows)
        closed = "true" if drained else "(s // 10 + 1) * 10 <= (SELECT max(s) FROM t)"
        windows = con.execute(f"SELECT k, count(*) FROM t WHERE {closed} GROUP BY k, s // 10").fetchall()
        totals = con.execute("SELECT k, count(*), max(s) FROM t GROUP BY k").fetchall()
    return sorted(windows, key=repr), sorted(totals, key=repr)


def results(session: Session, windows: str = "windows", totals: str = "totals") -> object:
    seconds = "epoch(last)::BIGINT"
    return rows_of(session, f"SELECT * FROM {windows}"), rows_of(session, f"SELECT k, n, {seconds} FROM {totals}")
