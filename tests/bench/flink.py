"""Flink SQL over the same rows: heap or RocksDB state, settings of Flink's own runs of Nexmark, a checkpoint every 10 s.

It reads the files of a folder in no order, and would drop rows as late: each table is one file per core for it, with every nth
row, so that all readers go through event time together. How far it is, its REST interface says while it runs (see
`flink_progress`): so its rate is that of the same rows as sqlstream's.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

from tests.bench.data import DELAY_SECONDS
from tests.bench.join_work import JoinWork
from tests.bench.joining import Task
from tests.bench.rates import WARM_SHARE, Point, Rate, passes, warm_rate
from tests.bench.throughput import Run

BENCH = Path(__file__).parent
ROOT = BENCH.parents[1]

HEAP, ROCKSDB = "Flink, heap", "Flink, RocksDB"
BACKENDS = {HEAP: "hashmap", ROCKSDB: "rocksdb"}
# "result" is a word of Flink's SQL.
OUTPUT = "joined"
# Rows of a row group, the most that are in memory at a time.
ROW_GROUP = 1_000_000


@dataclass(frozen=True, slots=True)
class FlinkRun:
    """How many rows a job had read when, the seconds to its end, and those of its whole process, with the start of its JVM."""

    points: tuple[Point, ...]
    job_seconds: float
    whole_seconds: float

    def rate(self, total: int, share: float = WARM_SHARE) -> Rate:
        """Return the rate after a share of all rows was read."""
        return warm_rate(self.progress(total), total, self.whole_seconds, share)

    def progress(self, total: int) -> list[Point]:
        return passes(self.points, total, ended=self.job_seconds)


@dataclass(frozen=True, slots=True)
class Flink:
    """Flink's virtual environment, and the jars that read Parquet files; Hadoop's classes are those that PySpark brings."""

    environment: Path
    more_jars: tuple[str, ...] = ()

    @property
    def jars(self) -> list[str]:
        hadoop = Path(pyspark.__file__).parent / "jars"
        found = [*self.environment.glob("flink-sql-parquet-*.jar"), *hadoop.glob("hadoop-client-*.jar")]
        return [*(str(jar.resolve()) for jar in found), *self.more_jars]

    def join(self, task: Task, work: JoinWork, log: Path) -> Run:
        """Run a join of the benchmark; a failure is a `CalledProcessError`."""
        folder = Path(task.folder)
        for name in work.inputs:
            files = [str(file) for file in sorted((Path(task.data) / name).iterdir())]
            interleave(files, folder / "in" / name, task.cores)
        statements = list(_statements(work, folder / "in", folder / OUTPUT))
        run = self.run(statements, task.system, task.cores, folder / "job", log)
        written = [str(p) for p in (folder / OUTPUT).iterdir() if not p.name.startswith(".")]
        with duckdb.connect() as con:
            [summary] = con.execute(work.summary(f"read_parquet({written})")).fetchall()
        rate = run.rate(task.rows_per_batch * task.batches, task.warm_up / task.batches)
        # It has no batches: the time of as many rows.
        return Run(rate.per_second, task.rows_per_batch / rate.per_second * 1000, run.whole_seconds, list(summary))

    def run(self, statements: list[str], system: str, cores: int, folder: Path, log: Path) -> FlinkRun:
        """Run statements, of which the last one is a job, in a process of their own."""
        folder.mkdir(parents=True)
        request = {
            "jars": self.jars,
            "cores": cores,
            "backend": BACKENDS[system],
            "checkpoints": str(folder / "checkpoints"),
            "statements": statements,
        }
        return self.program(BENCH / "flink_job.py", request, log)

    def program(self, path: Path, request: dict[str, object], log: Path, **environment: str) -> FlinkRun:
        """Run a program of Flink's virtual environment, which prints its progress; a failure is a `CalledProcessError`."""
        command = [str(self.environment / "bin" / "python"), path.name, json.dumps(request)]
        # An interpreter inside of the JVM knows nothing of the virtual environment.
        [packages] = self.environment.glob("lib/python*/site-packages")
        variables = {**os.environ, "PYTHONPATH": f"{ROOT}:{packages}", **environment}
        begun = time.monotonic()
        with log.open("ab") as errors:
            done = subprocess.run(
                command, cwd=path.parent, stdout=subprocess.PIPE, stderr=errors, check=True, env=variables
            )
        answer = json.loads(done.stdout.splitlines()[-1])
        points = tuple(Point(rows, seconds) for rows, seconds in answer["points"])
        return FlinkRun(points, answer["seconds"], time.monotonic() - begun)


def interleave(files: list[str], folder: Path, parts: int) -> None:
    """Deal the rows of files out to `parts` files, each of which has its rows in their order.

    Times are INT96: in a row within a row, Flink reads no others.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with duckdb.connect() as con:
        rows = f"SELECT *, row_number() OVER () % {parts} AS part FROM read_parquet({files})"
        for part in range(parts):
            chosen = con.sql(f"SELECT * EXCLUDE (part) FROM ({rows}) WHERE part = {part}").to_arrow_reader(ROW_GROUP)
            path = folder / f"part-{part}.parquet"
            with pq.ParquetWriter(path, chosen.schema, use_deprecated_int96_timestamps=True) as writer:
                for group in _row_groups(chosen):
                    writer.write_table(group)


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Return the rows in tables of at least ROW_GROUP, but for the last one: DuckDB's batches can be smaller."""
    group: list[pa.RecordBatch] = []
    for batch in batches:
        group.append(batch)
        if sum(map(len, group)) >= ROW_GROUP:
            yield pa.Table.from_batches(group)
            group = []
    if group:
        yield pa.Table.from_batches(group)


def _statements(work: JoinWork, data: Path, output: Path) -> list[str]:
    """Return Flink's tables, and the INSERT."""
    found = []
    for name, given in work.inputs.items():
        columns = ", ".join(
            f"{c} {'TIMESTAMP(3)' if type == 'TIMESTAMP' else type}" for c, type in given.columns.items()
        )
        mark = f", WATERMARK FOR ts AS ts - INTERVAL '{DELAY_SECONDS}' SECOND" if given.timed else ""
        mark += f", PRIMARY KEY ({given.key}) NOT ENFORCED" if given.key else ""
        found.append(f"CREATE TABLE {name} ({columns}{mark}) WITH ({flink_files(data / name)})")
    columns = ", ".join(f"{name} {type}" for name, type in work.columns.items())
    found.append(f"CREATE TABLE {OUTPUT} ({columns}) WITH ({flink_files(output)})")
    return [*found, f"INSERT INTO {OUTPUT} {work.query}"]


def flink_files(path: Path) -> str:
    """Return the options of a table of Parquet files."""
    return (
        f"'connector' = 'filesystem', 'path' = 'file://{path}', 'format' = 'parquet', 'parquet.utc-timezone' = 'true'"
    )
