"""What a batch takes of the driver and of the tasks as the state has more and more buckets; a simulation in this process.

The job runs on the local engine, which calls the same code as Spark's driver and workers do, one bucket after the other. Every
batch touches every bucket. What is measured is the processor time of the thread that runs the job, so other programs disturb it
little. What Spark takes to start so many tasks is not in it: batches on Spark are measured by the clock, with fewer buckets.
"""

from __future__ import annotations

import contextlib
import functools
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pytest

from sqlstream import Session
from sqlstream.errors import SourceText
from sqlstream.local import batches
from sqlstream.local.engine import LocalEngine
from sqlstream.runtime import commits, frames, job_thread, tasks
from sqlstream.runtime.engine import Layout
from sqlstream.runtime.feed import Feed
from sqlstream.runtime.labels import spread_labels
from sqlstream.storage.retention import sweep
from tests.kinds import job_of, jobs_of
from tests.processes import wait_until

COUNTS = (8, 32, 128, 256, 512, 1000)
# On Spark, with as many tasks at a time as there are cores.
SPARK_COUNTS = (2, 8, 32, 128)
ROWS, BATCHES, WARM_UP = 100_000, 6, 2
JOB = "counts"
SQL = """
SET 'sqlstream.unbounded-state' = 'allow';
SET 'parallelism.default' = '{buckets}';
CREATE TABLE events (k BIGINT, v BIGINT) WITH (
    'connector' = 'filesystem', 'path' = 'in', 'format' = 'parquet', 'source.monitor-interval' = '0 s',
    'source.max-files-per-batch' = '1');
CREATE TABLE counts (k BIGINT, n BIGINT, total BIGINT, PRIMARY KEY (k) NOT ENFORCED);
INSERT INTO counts SELECT k, COUNT(*), SUM(v) FROM events GROUP BY k;
"""
LABELS, PLAN, COMMIT, SWEEP = "labels", "plan", "commit", "sweep"
_DRIVER, _JVM, _WORKERS = "driver", "jvm", "workers"
FRAMES, SCAN, OPERATORS = "frames", "scan", "operators"


@dataclass(frozen=True, slots=True)
class BucketsRun:
    """Milliseconds of the processor for a batch, medians; of `sweep` for each time, of `labels` once at the start.

    `scan` has `frames` in it. `log_bytes` is the size of the batch's entry in the job's log.
    """

    buckets: int
    labels: float
    plan: float
    commit: float
    sweep: float
    scan: float
    frames: float
    operators: float
    log_bytes: int

    @property
    def text(self) -> str:
        driver = self.plan + self.commit
        return (
            f"{self.buckets:5} buckets: driver {driver:7.1f} ms a batch (plan {self.plan:.1f}, commit {self.commit:.1f}), "
            f"sweep {self.sweep:.0f} ms, labels {self.labels:.0f} ms, log {self.log_bytes / 1000:.0f} kB; tasks: scan "
            f"{self.scan:.0f} ms (frames {self.frames:.1f}), operators {self.operators:.0f} ms "
            f"({self.operators / self.buckets:.2f} a bucket)"
        )


@dataclass(frozen=True, slots=True)
class SparkRun:
    """Milliseconds of a batch on Spark, medians: by the clock, and of the processor in the driver, its JVM and the workers."""

    buckets: int
    clock: float
    driver: float
    jvm: float
    workers: float

    @property
    def text(self) -> str:
        return (
            f"{self.buckets:5} buckets on Spark, {os.cpu_count()} cores: {self.clock:,.0f} ms a batch; processor: driver "
            f"{self.driver:.0f} ms, JVM {self.jvm:.0f} ms, workers {self.workers:.0f} ms"
        )


class _ManyTasks(LocalEngine):
    """The engine that is this process, with as many buckets as Spark would have."""

    def layout(self, partitions: int) -> Layout:
        return Layout(partitions, tuple(range(partitions)))


class _Times:
    """Processor seconds by part and batch."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = defaultdict(lambda: [0.0])

    def call(self, part: str, function: Callable[..., Any], *, is_whole: bool = False) -> Callable[..., Any]:
        """Return a function that counts what it takes; with `is_whole` as a batch of its own."""

        @functools.wraps(function)
        def timed(*arguments: Any, **named: Any) -> Any:
            began = time.thread_time()
            try:
                return function(*arguments, **named)
            finally:
                self._add(part, time.thread_time() - began)
                if is_whole:
                    self.spent[part].append(0.0)

        return timed

    def iterate(self, part: str, function: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        """Return a function whose iterator counts what it takes, and not what is done with its elements."""

        @functools.wraps(function)
        def timed(*arguments: Any, **named: Any) -> Iterator[Any]:
            found = iter(function(*arguments, **named))
            while True:
                began = time.thread_time()
                try:
                    one = next(found)
                except StopIteration:
                    return
                finally:
                    self._add(part, time.thread_time() - began)
                yield one

        return timed

    def _add(self, part: str, seconds: float) -> None:
        self.spent[part][-1] += seconds

    def next_batch(self) -> None:
        for part in (PLAN, COMMIT, SCAN, FRAMES, OPERATORS):
            self.spent[part].append(0.0)

    def millis(self, part: str) -> float:
        """Return the median of a batch, without those of the warm-up; of a part that is whole, that of all times."""
        found = self.spent[part][:-1]
        return statistics.median(found[WARM_UP if part != SWEEP else 0 :] or [0.0]) * 1000


@contextmanager
def _measured(times: _Times) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for owner, name, part in (
            (Feed, "compose", PLAN),
            (Feed, "write", PLAN),
            (commits.Commits, "commit", COMMIT),
            (batches, "write_commit", COMMIT),
            (frames, "_frame", FRAMES),
        ):
            patch.setattr(owner, name, times.call(part, getattr(owner, name)))
        patch.setattr(job_thread, "sweep", times.call(SWEEP, sweep, is_whole=True))
        # Often, so that there are some.
        patch.setattr(job_thread, "SWEEP_SECONDS", 0.5)
        patch.setattr(frames, "_by_bucket", times.iterate(FRAMES, frames._by_bucket))
        patch.setattr(tasks, "run_scan", times.iterate(SCAN, tasks.run_scan))
        patch.setattr(tasks.Advance, "run", times.iterate(OPERATORS, tasks.Advance.run))
        yield


def measure(folder: Path, buckets: int) -> BucketsRun:
    """Run a job over so many buckets."""
    (folder / "in").mkdir(parents=True)
    times = _Times()
    began = time.thread_time()
    spread_labels(buckets, buckets)
    labels = (time.thread_time() - began) * 1000
    with _measured(times), Session(str(folder), notice=lambda text: None) as session:
        script = SourceText("bench", SQL.format(buckets=buckets))
        [planned] = jobs_of([one for one in session.compile(script) if one is not None])
        job = session._jobs.start(planned, {}, engine=_ManyTasks())
        for number in range(BATCHES):
            _write(folder, number)
            rows = (number + 1) * ROWS
            wait_until(lambda rows=rows: job.progress.rows_in >= rows or job.wait(0), 1200)
            times.next_batch()
        wait_until(lambda: len(times.spent[SWEEP]) > 1, 1200)
        job.stop()
        job.wait()
        assert not job.error
        found = session.query("SELECT count(*), sum(n) FROM counts").fetchall()
        assert found == [(ROWS, ROWS * BATCHES)], found
    entry = max((folder / "warehouse" / "jobs" / JOB / "log").glob("*.json"))
    parts = {part: times.millis(part) for part in (PLAN, COMMIT, SWEEP, SCAN, FRAMES, OPERATORS)}
    return BucketsRun(buckets, labels, **parts, log_bytes=entry.stat().st_size)


def measure_on_spark(folder: Path, buckets: int) -> SparkRun:
    """Run the job on Spark, on this machine's cores."""
    (folder / "in").mkdir(parents=True)
    settings = {"spark.master": f"local[{os.cpu_count()},4]"}
    seconds, spent = [], [_spent()]
    with Session(str(folder), conf=settings, notice=lambda text: None) as session:
        job = job_of(session.sql(SQL.format(buckets=buckets)))
        for number in range(BATCHES):
            began = time.monotonic()
            _write(folder, number)
            rows = (number + 1) * ROWS
            wait_until(lambda rows=rows: job.progress.rows_in >= rows or job.wait(0), 1200)
            seconds.append(time.monotonic() - began)
            spent.append(_spent())
        job.stop()
        job.wait()
        assert not job.error
    parts = [
        statistics.median(after[part] - before[part] for before, after in pairwise(spent[WARM_UP:])) * 1000
        for part in (_DRIVER, _JVM, _WORKERS)
    ]
    return SparkRun(buckets, statistics.median(seconds[WARM_UP:]) * 1000, *parts)


def _spent() -> dict[str, float]:
    """Return the processor seconds of this process, of the JVM, and of the workers so far."""
    found = {_DRIVER: time.process_time(), _JVM: 0.0, _WORKERS: 0.0}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            part = _JVM if process.name() == "java" else _WORKERS
            # Workers that have ended are counted by the process that has started them.
            ended = times.children_user + times.children_system if part == _WORKERS else 0.0
            found[part] += times.user + times.system + ended
    return found


def _write(folder: Path, number: int) -> None:
    hidden = folder / f".{number}"
    duckdb.sql(f"COPY (SELECT range AS k, range % 1000 AS v FROM range({ROWS})) TO '{hidden}' (FORMAT parquet)")
    hidden.rename(folder / "in" / f"{number:05}.parquet")
