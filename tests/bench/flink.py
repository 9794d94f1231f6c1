"""Flink SQL over the same rows: heap or RocksDB state, mini-batches, objects reused, a checkpoint every 10 s.

It reads the files of a folder in no order, and would drop rows as late: each table is one file per core for it, with every nth
row, so that all readers go through event time together. A run over the first batch tells how long a start takes; the rest of
the whole run's time is what the rest of the rows took.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pyspark

from tests.bench.data import DELAY_SECONDS
from tests.bench.join_work import JoinWork
from tests.bench.joining import Task
from tests.bench.throughput import Run

HEAP, ROCKSDB = "Flink, heap", "Flink, RocksDB"
BACKENDS = {HEAP: "hashmap", ROCKSDB: "rocksdb"}
# "result" is a word of Flink's SQL.
OUTPUT = "joined"


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
            interleave(files[: task.cores], folder / "first" / name, task.cores)
            interleave(files, folder / "all" / name, task.cores)
        start = self._join_seconds(task, work, folder / "first", folder / "start", log)
        whole = self._join_seconds(task, work, folder / "all", folder / "whole", log)
        files = [str(p) for p in (folder / "whole" / OUTPUT).iterdir() if not p.name.startswith(".")]
        with duckdb.connect() as con:
            [summary] = con.execute(work.summary(f"read_parquet({files})")).fetchall()
        rest = task.batches - 1
        return Run(task.rows_per_batch * rest / (whole - start), (whole - start) / rest * 1000, whole, list(summary))

    def _join_seconds(self, task: Task, work: JoinWork, data: Path, folder: Path, log: Path) -> float:
        statements = list(_statements(work, data, folder / OUTPUT))
        return self.seconds(statements, task.system, task.cores, folder, log)

    def seconds(self, statements: list[str], system: str, cores: int, folder: Path, log: Path) -> float:
        """Run statements, of which the last one is a job, in a process of their own; return what they took without its start."""
        folder.mkdir(parents=True)
        request = {
            "jars": self.jars,
            "cores": cores,
            "backend": BACKENDS[system],
            "checkpoints": str(folder / "checkpoints"),
            "statements": statements,
        }
        command = [str(self.environment / "bin" / "python"), "flink_job.py", json.dumps(request)]
        with log.open("ab") as errors:
            done = subprocess.run(command, cwd=Path(__file__).parent, stdout=subprocess.PIPE, stderr=errors, check=True)
        return float(json.loads(done.stdout.splitlines()[-1])["seconds"])


def interleave(files: list[str], folder: Path, parts: int) -> None:
    """Deal the rows of files out to `parts` files, each of which has its rows in their order.

    Times are INT96: in a row within a row, Flink reads no others.
    """
    folder.mkdir(parents=True)
    with duckdb.connect() as con:
        rows = f"SELECT *, row_number() OVER () % {parts} AS part FROM read_parquet({files})"
        for part in range(parts):
            chosen = con.sql(f"SELECT * EXCLUDE (part) FROM ({rows}) WHERE part = {part}").to_arrow_table()
            pq.write_table(chosen, folder / f"part-{part}.parquet", use_deprecated_int96_timestamps=True)


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
