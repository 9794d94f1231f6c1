"""One run of one system over one work of `join_work`; `__main__` starts each in a process of its own."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import duckdb

from tests.bench import plain_spark
from tests.bench.child import answer
from tests.bench.commits import batch_seconds
from tests.bench.data import DELAY_SECONDS
from tests.bench.join_work import OUTPUT, JoinWork, join_work
from tests.bench.rates import steady_clock
from tests.bench.throughput import DUCKDB, IN_PROCESS, SQLSTREAM, Run, options_of
from tests.kinds import job_of

# Spark's join state: formats 2 and 4, of which the second one needs the RocksDB store.
STATE_2, STATE_4 = "Spark, heap store, join state 2", "Spark, RocksDB store, join state 4"
DUCKDB_RUNS = 3


@dataclass(frozen=True, slots=True)
class Task:
    system: str
    work: str
    data: str
    batches: int
    rows_per_batch: int
    warm_up: int
    cores: int
    folder: str


def measure(task: Task) -> Run:
    """Run a task in this process."""
    work = join_work(task.work)
    Path(task.folder).mkdir(parents=True)
    systems = {SQLSTREAM: _sqlstream, IN_PROCESS: _sqlstream, DUCKDB: _duckdb}
    with steady_clock():
        return systems.get(task.system, _spark)(task, work)


def _run(task: Task, checkpoint: Path, whole: float, summary: list[int]) -> Run:
    seconds = batch_seconds(checkpoint, task.batches, task.warm_up)
    rate = task.rows_per_batch * len(seconds) / sum(seconds)
    return Run(rate, statistics.median(seconds) * 1000, whole, summary)


def _sqlstream(task: Task, work: JoinWork) -> Run:
    from sqlstream import Session

    begun, folder = time.monotonic(), Path(task.folder)
    (folder / "project").mkdir()
    warehouse = folder / "warehouse"
    with Session(str(folder / "project"), str(warehouse), options_of(task.system, task.cores)) as session:
        job = job_of(session.sql(work.script(Path(task.data), task.cores)))
        job.wait()
        whole = time.monotonic() - begun
        summary = session.query(work.summary(OUTPUT)).fetchall()[0]
    return _run(task, warehouse / "jobs" / OUTPUT / "checkpoint", whole, list(summary))


def _spark(task: Task, work: JoinWork) -> Run:
    begun, folder = time.monotonic(), Path(task.folder)
    spark = plain_spark.session(task.cores, rocksdb=task.system == STATE_4)
    spark.conf.set("spark.sql.streaming.join.stateFormatVersion", "4" if task.system == STATE_4 else "2")
    for name, given in work.inputs.items():
        schema = ", ".join(f"{column} {type}" for column, type in given.columns.items())
        rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", task.cores).parquet(f"{task.data}/{name}")
        if given.timed:
            rows = rows.withWatermark("ts", f"{DELAY_SECONDS} seconds")
        rows.createOrReplaceTempView(name)
    writer = spark.sql(work.spark).writeStream.format("parquet").outputMode("append")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    writer.start(str(folder / OUTPUT)).awaitTermination()
    spark.stop()
    whole = time.monotonic() - begun
    with duckdb.connect() as con:
        [summary] = con.execute(work.summary(f"read_parquet('{folder}/{OUTPUT}/*.parquet')")).fetchall()
    return _run(task, folder / "checkpoint", whole, list(summary))


def _duckdb(task: Task, work: JoinWork) -> Run:
    begun, target = time.monotonic(), Path(task.folder) / "result.parquet"
    seconds = []
    with duckdb.connect(config={"threads": task.cores, "preserve_insertion_order": False}) as con:
        rows = 0
        for name in work.inputs:
            con.execute(f"CREATE VIEW {name} AS FROM read_parquet('{task.data}/{name}/*.parquet')")
            [(count,)] = con.execute(f"SELECT count(*) FROM {name}").fetchall()
            rows += count
        for _ in range(DUCKDB_RUNS):
            start = time.perf_counter()
            con.execute(f"COPY ({work.duckdb}) TO '{target}' (FORMAT parquet, COMPRESSION lz4)")
            seconds.append(time.perf_counter() - start)
        [summary] = con.execute(work.summary(f"read_parquet('{target}')")).fetchall()
    median = statistics.median(seconds)
    return Run(rows / median, median * 1000, time.monotonic() - begun, list(summary))


if __name__ == "__main__":
    answer(Task, measure)
