"""One run of one system over one data set. `__main__` starts each in a process of its own, so that its memory can be told.

python -m tests.bench.throughput '{"system": "sqlstream", "work": "tumbling_many", ...}'  prints a Run as JSON
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import duckdb

from tests.bench import plain_spark
from tests.bench.child import answer
from tests.bench.commits import batch_seconds
from tests.bench.rates import steady_clock
from tests.bench.work import OUTPUT, Work, duckdb_query, sqlstream_script, work_named
from tests.kinds import job_of

# On Spark, and on its own engine.
SQLSTREAM, IN_PROCESS = "sqlstream", "sqlstream in process"
DUCKDB = "DuckDB batch"
DUCKDB_RUNS = 3


@dataclass(frozen=True, slots=True)
class Task:
    """What to run: a system, a work, its input, and where it may write."""

    system: str
    work: str
    data: str
    rows: int
    files: int
    closed_until: int
    batches: int
    warm_up: int
    cores: int
    folder: str

    @property
    def files_per_batch(self) -> int:
        return self.files // self.batches


@dataclass(frozen=True, slots=True)
class Run:
    """What came of it.

    `rows_per_second` is over all warm batches together, `batch_ms` is the median of one; `whole_seconds` counts everything
    from the start of the process's work (the session, too) to its end.
    """

    rows_per_second: float
    batch_ms: float
    whole_seconds: float
    summary: list[int]


def options_of(system: str, cores: int) -> dict[str, str]:
    """Return the options of sqlstream's session for SQLSTREAM or IN_PROCESS."""
    engine = {"execution.engine": "local"} if system == IN_PROCESS else {}
    return {"parallelism.default": str(cores), **engine}


def measure(task: Task) -> Run:
    """Run a task in this process."""
    work = work_named(task.work)
    systems = {SQLSTREAM: _sqlstream, IN_PROCESS: _sqlstream, DUCKDB: _duckdb}
    with steady_clock():
        return systems.get(task.system, _spark)(task, work)


def _warm(task: Task, checkpoint: Path, begun: float, summary: list[int]) -> Run:
    whole = time.monotonic() - begun
    seconds = batch_seconds(checkpoint, task.batches, task.warm_up)
    rows = task.rows // task.batches
    return Run(rows * len(seconds) / sum(seconds), statistics.median(seconds) * 1000, whole, summary)


def _sqlstream(task: Task, work: Work) -> Run:
    from sqlstream import Session

    begun = time.monotonic()
    folder = Path(task.folder)
    (folder / "project").mkdir(parents=True)
    warehouse = folder / "warehouse"
    with Session(str(folder / "project"), str(warehouse), options_of(task.system, task.cores)) as session:
        job = job_of(session.sql(sqlstream_script(work, task.data, task.files_per_batch)))
        job.wait()
        summary = session.query(work.summary(OUTPUT, task.closed_until)).fetchall()[0]
    return _warm(task, warehouse / "jobs" / OUTPUT / "checkpoint", begun, list(summary))


def _spark(task: Task, work: Work) -> Run:
    begun = time.monotonic()
    folder = Path(task.folder)
    folder.mkdir(parents=True)
    plain_spark.run(
        work, task.data, task.files_per_batch, task.cores, folder, rocksdb=task.system == plain_spark.ROCKSDB_STORE
    )
    whole_ended = time.monotonic()
    with duckdb.connect() as con:
        rows = f"read_parquet('{folder}/{OUTPUT}/*.parquet')"
        [summary] = con.execute(work.summary(rows, task.closed_until)).fetchall()
    run = _warm(task, folder / "checkpoint", begun, list(summary))
    return Run(run.rows_per_second, run.batch_ms, whole_ended - begun, run.summary)


def _duckdb(task: Task, work: Work) -> Run:
    begun = time.monotonic()
    folder = Path(task.folder)
    folder.mkdir(parents=True)
    target = folder / "result.parquet"
    seconds = []
    with duckdb.connect(config={"threads": task.cores, "preserve_insertion_order": False}) as con:
        for _ in range(DUCKDB_RUNS):
            start = time.perf_counter()
            con.execute(f"COPY ({duckdb_query(work, task.data)}) TO '{target}' (FORMAT parquet, COMPRESSION lz4)")
            seconds.append(time.perf_counter() - start)
        [summary] = con.execute(work.summary(f"read_parquet('{target}')", task.closed_until)).fetchall()
    median = statistics.median(seconds)
    return Run(task.rows / median, median * 1000, time.monotonic() - begun, list(summary))


if __name__ == "__main__":
    answer(Task, measure)
