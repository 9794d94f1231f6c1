"""One run of one system over one work of `changing_work`; `__main__` starts each in a process of its own.

The batch is the median time from commit to commit of those after the warm-up. DuckDB computes the whole answer anew after
every batch: what a program without incremental operators would do at each trigger.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from tests.bench import plain_spark
from tests.bench.changing_work import OUTPUT, ChangingWork, changing_work
from tests.bench.child import answer
from tests.bench.commits import batch_seconds
from tests.bench.data import COLUMNS
from tests.bench.rates import steady_clock
from tests.bench.throughput import IN_PROCESS, SQLSTREAM, options_of
from tests.kinds import job_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DUCKDB_ANEW = "DuckDB, all anew"
DUCKDB_RUNS = 3


@dataclass(frozen=True, slots=True)
class Task:
    system: str
    work: str
    data: str
    cores: int
    folder: str


@dataclass(frozen=True, slots=True)
class BatchRun:
    """The median batch, how many rows a second that is, the seconds of the whole run, and a checksum."""

    batch_ms: float
    rows_per_second: float
    whole_seconds: float
    summary: list[int]


def measure(task: Task) -> BatchRun:
    """Run a task in this process."""
    work = changing_work(task.work)
    Path(task.folder).mkdir(parents=True)
    begun = time.monotonic()
    with steady_clock():
        if task.system in (SQLSTREAM, IN_PROCESS):
            seconds, summary = _sqlstream(task, work)
        elif task.system == DUCKDB_ANEW:
            seconds, summary = _duckdb(task, work)
        else:
            seconds, summary = _spark(task, work)
    median = statistics.median(seconds)
    return BatchRun(median * 1000, work.touched / median, time.monotonic() - begun, summary)


def _sqlstream(task: Task, work: ChangingWork) -> tuple[list[float], list[int]]:
    from sqlstream import Session

    folder = Path(task.folder)
    (folder / "project").mkdir()
    warehouse = folder / "warehouse"
    with Session(str(folder / "project"), str(warehouse), options_of(task.system, task.cores)) as session:
        job = job_of(session.sql(work.script(Path(task.data), task.cores)))
        job.wait()
        summary = session.query(work.summary(OUTPUT)).fetchall()[0]
    seconds = batch_seconds(warehouse / "jobs" / OUTPUT / "checkpoint", work.batches + 1, work.warm_up)
    return seconds, list(summary)


def _spark(task: Task, work: ChangingWork) -> tuple[list[float], list[int]]:
    from pyspark.sql import functions as F

    folder = Path(task.folder)
    spark = plain_spark.session(task.cores, rocksdb=task.system == plain_spark.ROCKSDB_STORE)
    schema = ", ".join(f"{name} {type}" for name, type in COLUMNS.items())
    bids = spark.readStream.schema(schema).option("maxFilesPerTrigger", task.cores).parquet(task.data)

    def write(rows: DataFrame, batch: int) -> None:
        # Which of a key's rows is the last one, a reader has to find out.
        rows.selectExpr("*", f"{batch}L AS batch").write.mode("append").parquet(str(folder / OUTPUT))

    frame = bids.groupBy("auction").agg(
        F.count("*").alias("n"), F.sum("price").alias("total"), F.max("price").alias("highest")
    )
    writer = frame.writeStream.outputMode("update").foreachBatch(write)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    writer.start().awaitTermination()
    spark.stop()
    rows = f"read_parquet('{folder}/{OUTPUT}/*.parquet')"
    last = (
        f"(SELECT * FROM {rows} QUALIFY row_number() OVER (PARTITION BY {', '.join(work.key)} ORDER BY batch DESC) = 1)"
    )
    with duckdb.connect() as con:
        [summary] = con.execute(work.summary(last)).fetchall()
    return batch_seconds(folder / "checkpoint", work.batches + 1, work.warm_up), list(summary)


def _duckdb(task: Task, work: ChangingWork) -> tuple[list[float], list[int]]:
    target = Path(task.folder) / "result.parquet"
    query = work.query.format(bids=f"read_parquet('{task.data}/*.parquet')")
    seconds = []
    with duckdb.connect(config={"threads": task.cores, "preserve_insertion_order": False}) as con:
        for _ in range(DUCKDB_RUNS):
            begun = time.perf_counter()
            con.execute(f"COPY ({query}) TO '{target}' (FORMAT parquet, COMPRESSION lz4)")
            seconds.append(time.perf_counter() - begun)
        [summary] = con.execute(work.summary(f"read_parquet('{target}')")).fetchall()
    return seconds, list(summary)


if __name__ == "__main__":
    answer(Task, measure)
