"""What savepoints, restores, forks and another parallelism take, with a state of many keys; `__main__` starts it in a process.

Seconds are those of a clock, and of all processors in this process: on Spark the workers have no part in these steps. A
restore and a fork are measured from the start of the job until it runs, less what the same start takes without them.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from sqlstream import Session
from sqlstream.errors import SourceText
from sqlstream.jobs.job import Job
from sqlstream.jobs.savepoints.named_savepoints import drop_savepoint, take_savepoint
from sqlstream.jobs.savepoints.restore_plans import Restore
from sqlstream.local.engine import LocalEngine
from sqlstream.runtime.engine import Layout
from sqlstream.warehouse.paths import Warehouse
from tests.bench.changing_work import OUTPUT, ChangingWork, changing_work
from tests.bench.child import answer
from tests.bench.data import COLUMNS
from tests.kinds import jobs_of

IN_PROCESS, SPARK = "in this process", "Spark"
ENGINES = (IN_PROCESS, SPARK)
WORK = "group_by_many_some"
# How often a step is done; the median counts.
RUNS = 3
# Small batches whose time is taken, without savepoints, and each with one beside it.
BATCHES = 15
# The numbers of tasks, one after the other.
PARALLELISMS = (2, 8, 3)
WAIT_SECONDS = 600.0
ALONE, BESIDE = "a batch of 10,000 rows", "a batch while a savepoint is taken"


@dataclass(frozen=True, slots=True)
class Task:
    engine: str
    data: str
    folder: str


@dataclass(frozen=True, slots=True)
class Step:
    """A step by what it is called, and its seconds; those of processors only where they are known."""

    name: str
    seconds: float
    processor_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class SavingRun:
    """The steps of one engine, and the rows of the state."""

    steps: list[Step]
    state_rows: int


class _ManyTasks(LocalEngine):
    """The engine that is this process, with as many buckets as Spark has."""

    def layout(self, partitions: int) -> Layout:
        return Layout(partitions, tuple(range(partitions)))


class _Run:
    def __init__(self, task: Task):
        self.engine, self.data, self.folder = task.engine, Path(task.data), Path(task.folder)
        self.work = changing_work(WORK)
        (self.folder / "in").mkdir(parents=True)
        self.session = Session(
            str(self.folder), conf={"execution.checkpointing.interval": "0 s"}, notice=lambda text: None
        )
        self.steps: list[Step] = []
        self.given = 0

    def run(self) -> SavingRun:
        """Run all steps."""
        with self.session:
            job = self.start()
            self.give(job)
            rows = sum(operator.state_rows for operator in job.progress.operators.values())
            self.while_running(job)
            self.stop(job)
            self.while_stopped()
        return SavingRun(self.steps, rows)

    def while_running(self, job: Job) -> None:
        """Take savepoints between batches and beside them."""
        for _ in range(2):
            self.give(job)
        self.step("savepoint", lambda: self.taken(), lambda: self.dropped())
        # A savepoint is taken from another process, as `sqlstream savepoint` does, which has been started before.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
            other.submit(_take, self.session.project.warehouse).result()
            self.dropped()
            alone, beside = self.by_turns(job, other)
        for name, runs in ((ALONE, alone), (BESIDE, beside)):
            seconds, spent = (statistics.median(values) for values in zip(*runs, strict=True))
            self.steps.append(Step(name, seconds, spent if self.engine == IN_PROCESS else None))

    def by_turns(self, job: Job, other: Executor) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
        """Measure batches alone, and batches beside which a savepoint is taken: what disturbs the machine disturbs both."""
        alone, beside = [], []
        for _ in range(BATCHES):
            alone.append(self.measured(lambda: self.give(job)))
            taking = other.submit(_take, self.session.project.warehouse)
            beside.append(self.measured(lambda: self.give(job)))
            taking.result()
            self.dropped()
        return alone, beside

    def while_stopped(self) -> None:
        """Copy, restore, fork, and change the parallelism."""
        outside = self.folder / "outside"
        self.step("savepoint --to DIR", lambda: self.taken(outside / str(time.time_ns())))
        self.taken()
        plain = statistics.median(self.started() for _ in range(RUNS))
        for name, restore, fork in (
            ("run --from", Restore("saved"), ""),
            ("run --from --as", Restore("saved", is_fork=True), "beside"),
        ):
            seconds = []
            for _ in range(RUNS):
                if (fork or OUTPUT) in self.session.warehouse.jobs():
                    self.session.drop(fork or OUTPUT)
                seconds.append(self.started(restore=restore, fork=fork) - plain)
            self.steps.append(Step(name, max(statistics.median(seconds), 0.0)))
        self.session.drop("beside")
        for before, now in pairwise(PARALLELISMS):
            spent = time.process_time()
            seconds_now = self.started(parallelism=now) - plain
            self.steps.append(Step(f"parallelism {before} -> {now}", seconds_now, time.process_time() - spent))

    def step(self, name: str, act: Callable[[], object], undo: Callable[[], object] = lambda: None) -> None:
        """Take the time of something that can be done again when it was undone."""
        runs = []
        for _ in range(RUNS):
            runs.append(self.measured(act))
            undo()
        seconds, spent = (statistics.median(values) for values in zip(*runs, strict=True))
        self.steps.append(Step(name, seconds, spent))

    def measured(self, act: Callable[[], object]) -> tuple[float, float]:
        """Return the seconds of a clock, and of the processors."""
        began, used = time.perf_counter(), time.process_time()
        act()
        return time.perf_counter() - began, time.process_time() - used

    def taken(self, to: Path | None = None) -> None:
        take_savepoint(self.session.warehouse, OUTPUT, "saved", None if to is None else str(to))

    def dropped(self) -> None:
        drop_savepoint(self.session.warehouse, "saved")

    def start(self, *, parallelism: int = PARALLELISMS[0], restore: Restore | None = None, fork: str = "") -> Job:
        script = f"SET 'parallelism.default' = '{parallelism}'; {_script(self.work, fork or OUTPUT)}"
        [planned] = jobs_of([one for one in self.session.compile(SourceText("bench", script)) if one is not None])
        engine = _ManyTasks() if self.engine == IN_PROCESS else None
        return self.session._jobs.start(replace(planned, name=fork or OUTPUT), {}, engine=engine, restore=restore)

    def started(self, *, parallelism: int = PARALLELISMS[0], restore: Restore | None = None, fork: str = "") -> float:
        """Start the job, and stop it when it runs; return the seconds of the start."""
        began = time.perf_counter()
        job = self.start(parallelism=parallelism, restore=restore, fork=fork)
        seconds = time.perf_counter() - began
        self.stop(job)
        return seconds

    def stop(self, job: Job) -> None:
        job.stop()
        if not job.wait(WAIT_SECONDS):
            raise RuntimeError("the job does not stop")

    def give(self, job: Job) -> float:
        """Give the next batch of rows to the job; return the seconds until they are committed."""
        before = job.progress.rows_in
        name = f"part-{self.given:05d}-0.parquet"
        # There are fewer files than batches here: those that touch some keys come again, under other names.
        files = len(list(self.data.glob("part-*-0.parquet")))
        number = 1 + (self.given - 1) % (files - 1) if self.given else 0
        source = self.data / f"part-{number:05d}-0.parquet"
        wanted = before + (self.work.touched if self.given else self.work.keys)
        self.given += 1
        began = time.perf_counter()
        (self.folder / "in" / name).hardlink_to(source)
        while job.progress.rows_in < wanted:
            if job.wait(0.002) or time.perf_counter() - began > WAIT_SECONDS:
                raise RuntimeError(f"the job has not read {name}")
        return time.perf_counter() - began


def _take(warehouse: str) -> None:
    take_savepoint(Warehouse(warehouse), OUTPUT, "saved", None)


def _script(work: ChangingWork, table: str) -> str:
    bids = ", ".join(f"{name} {type}" for name, type in COLUMNS.items())
    columns = ", ".join(f"{name} {type}" for name, type in work.columns.items())
    return f"""
    CREATE TABLE bids ({bids}) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'parquet',
        'source.monitor-interval' = '5 ms', 'source.max-bytes-per-batch' = '10 GB');
    CREATE TABLE {table} ({columns}, PRIMARY KEY ({", ".join(work.key)}) NOT ENFORCED);
    INSERT INTO {table} {work.query.format(bids="bids")}"""


def measure(task: Task) -> SavingRun:
    """Run a task in this process."""
    return _Run(task).run()


if __name__ == "__main__":
    answer(Task, measure)
