"""One run of sqlstream, Spark or DuckDB over one work of `work`; the benchmark starts each in a process of its own.

python -m tests.bench.process.run '{"system": "sqlstream", "work": "alerts", ...}'  prints a Run as JSON
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import duckdb

from tests.bench.child import answer
from tests.bench.commits import batch_seconds
from tests.bench.process import flink, spark
from tests.bench.process.data import Task
from tests.bench.process.work import OUTPUT, ProcessWork, process_work
from tests.bench.rates import steady_clock
from tests.bench.throughput import DUCKDB, Run
from tests.kinds import job_of

DUCKDB_RUNS = 3
FUNCTIONS = Path(__file__).with_name("functions.py")


def systems_of(work: ProcessWork, *, has_flink: bool) -> list[str]:
    """Return the systems that run a work. PyFlink has no batches, so it has none that touch few keys."""
    sparks = spark.SYSTEMS if work.peers else ()
    flinks = flink.SYSTEMS if has_flink and not work.touched else ()
    return [*work.functions, *sparks, *flinks, DUCKDB]


def measure(task: Task) -> Run:
    """Run a task in this process."""
    work = process_work(task.work)
    Path(task.folder).mkdir(parents=True)
    with steady_clock():
        if task.system == DUCKDB:
            return _duckdb(task, work)
        return _spark(task, work) if task.system in spark.SYSTEMS else _sqlstream(task, work)


def _run(task: Task, checkpoint: Path, whole: float, summary: list[int]) -> Run:
    seconds = batch_seconds(checkpoint, task.batches, task.warm_up)
    rate = task.rows_per_batch * len(seconds) / sum(seconds)
    return Run(rate, statistics.median(seconds) * 1000, whole, summary)


def _sqlstream(task: Task, work: ProcessWork) -> Run:
    from sqlstream import Session

    begun, folder = time.monotonic(), Path(task.folder)
    (folder / "project" / "udfs").mkdir(parents=True)
    (folder / "project" / "udfs" / "functions.py").write_text(FUNCTIONS.read_text())
    warehouse = folder / "warehouse"
    script = work.script(work.functions[task.system], Path(task.data), task.cores)
    with Session(str(folder / "project"), str(warehouse), {"parallelism.default": str(task.cores)}) as session:
        job = job_of(session.sql(script))
        job.wait()
        whole = time.monotonic() - begun
        [summary] = session.query(work.summary(OUTPUT, task.closed_until)).fetchall()
    return _run(task, warehouse / "jobs" / OUTPUT / "checkpoint", whole, list(summary))


def _spark(task: Task, work: ProcessWork) -> Run:
    begun, folder = time.monotonic(), Path(task.folder)
    spark.run(work, Path(task.data), folder, task.cores, pandas=task.system == spark.PANDAS)
    whole = time.monotonic() - begun
    with duckdb.connect() as con:
        [summary] = con.execute(
            work.summary(f"read_parquet('{folder}/{OUTPUT}/*.parquet')", task.closed_until)
        ).fetchall()
    return _run(task, folder / "checkpoint", whole, list(summary))


def _duckdb(task: Task, work: ProcessWork) -> Run:
    begun, target = time.monotonic(), Path(task.folder) / "result.parquet"
    seconds = []
    query = work.duckdb.format_map({name: _arrived(task, name) for name in work.inputs})
    with duckdb.connect(config={"threads": task.cores}) as con:
        for _ in range(DUCKDB_RUNS):
            start = time.perf_counter()
            con.execute(f"COPY ({query}) TO '{target}' (FORMAT parquet, COMPRESSION lz4)")
            seconds.append(time.perf_counter() - start)
        [summary] = con.execute(work.summary(f"read_parquet('{target}')", task.closed_until)).fetchall()
    median = statistics.median(seconds)
    return Run(task.rows_per_batch * task.batches / median, median * 1000, time.monotonic() - begun, list(summary))


def _arrived(task: Task, name: str) -> str:
    """Return the rows of an input with the order in which those of a key arrive."""
    files = f"read_parquet('{task.data}/{name}/*.parquet', filename = true, file_row_number = true)"
    return f"(SELECT *, (filename, file_row_number) AS arrival FROM {files})"


if __name__ == "__main__":
    answer(Task, measure)
