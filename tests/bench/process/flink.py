"""PyFlink's `KeyedProcessFunction` over the same rows: Python in processes of its own or in Flink's threads, heap or RocksDB.

As for Flink SQL, its REST interface says how far it is. Each input is one file per core, in the order of its batches: so all
readers go through event time together.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from tests.bench.data import DELAY_SECONDS
from tests.bench.flink import Flink, flink_files
from tests.bench.process.data import Task, rows_in
from tests.bench.process.work import EVERY, PATIENCE_SECONDS, THRESHOLD, ProcessWork
from tests.bench.throughput import Run

# The state backend, and how Python runs.
SYSTEMS = {
    "PyFlink, heap": ("hashmap", "process"),
    "PyFlink, RocksDB": ("rocksdb", "process"),
    "PyFlink threads, heap": ("hashmap", "thread"),
    "PyFlink threads, RocksDB": ("rocksdb", "thread"),
}
OUTPUT = "emitted"
PROGRAM = Path(__file__).with_name("flink_job.py")


def measure(flink: Flink, task: Task, work: ProcessWork, log: Path) -> Run:
    """Run a work; a failure is a `CalledProcessError`."""
    folder = Path(task.folder)
    for name in work.inputs:
        for core in range(task.cores):
            _join_files(sorted((Path(task.data) / name).glob(f"*-{core}.parquet")), folder / "in" / name, core)
    request = {
        "job": work.name,
        "settings": _settings(flink, task, folder / "job"),
        "statements": list(_tables(work, folder / "in", folder / OUTPUT)),
        "output": OUTPUT,
        "threshold": THRESHOLD,
        "patience_millis": PATIENCE_SECONDS * 1000,
        "every": EVERY,
    }
    # On one machine, Flink would run Python in the program that starts the job, all tasks in one process.
    run = flink.program(PROGRAM, request, log, _python_worker_execution_mode="process")
    files = [path for path in (folder / OUTPUT).iterdir() if not path.name.startswith(".")]
    with duckdb.connect() as con:
        rows = f"read_parquet({[str(file) for file in files]})"
        [summary] = con.execute(work.summary(rows, task.closed_until)).fetchall()
    rate = run.rate(rows_in(folder / "in"), task.warm_up / task.batches)
    return Run(rate.per_second, task.rows_per_batch / rate.per_second * 1000, run.whole_seconds, list(summary))


def _join_files(files: list[Path], folder: Path, core: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = pa.concat_tables(pq.read_table(file) for file in files)
    pq.write_table(rows, folder / f"part-{core}.parquet", use_deprecated_int96_timestamps=True)


def _settings(flink: Flink, task: Task, folder: Path) -> dict[str, str]:
    backend, mode = SYSTEMS[task.system]
    python = str(flink.environment / "bin" / "python")
    return {
        "pipeline.jars": ";".join(f"file://{jar}" for jar in flink.jars),
        "pipeline.object-reuse": "true",
        "parallelism.default": str(task.cores),
        "taskmanager.numberOfTaskSlots": str(task.cores),
        "taskmanager.memory.managed.size": "1g",
        "state.backend.type": backend,
        "execution.checkpointing.interval": "10 s",
        "execution.checkpointing.dir": f"file://{folder}/checkpoints",
        "python.executable": python,
        "python.client.executable": python,
        "python.execution-mode": mode,
        "python.fn-execution.bundle.size": "10000",
        "python.fn-execution.bundle.time": "1000",
        # State of all keys stays with Python: with less, most reads of it are calls to Flink.
        "python.state.cache-size": "1000000",
        "python.map-state.read-cache-size": "1000000",
        "python.map-state.write-cache-size": "1000000",
        "table.local-time-zone": "UTC",
        "restart-strategy.type": "none",
    }


def _tables(work: ProcessWork, data: Path, output: Path) -> list[str]:
    found = []
    for name, given in work.inputs.items():
        mark = f", WATERMARK FOR ts AS ts - INTERVAL '{DELAY_SECONDS}' SECOND" if work.timed else ""
        found.append(f"CREATE TABLE {name} ({_columns(given)}{mark}) WITH ({flink_files(data / name)})")
    return [*found, f"CREATE TABLE {OUTPUT} ({_columns(work.columns)}) WITH ({flink_files(output)})"]


def _columns(types: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {'TIMESTAMP(3)' if type == 'TIMESTAMP' else type}" for name, type in types.items())
