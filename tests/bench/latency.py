"""The cost of a batch with one row in it: files arrive one at a time at a job that waits for them.

    python -m tests.bench.latency '{"system": "sqlstream", ...}'  prints a Latency as JSON

A file's row moves the watermark, so an empty batch follows it, in both systems; the next file waits for that one, too.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench import plain_spark
from tests.bench.child import answer
from tests.bench.commits import commit_times
from tests.bench.data import small_files
from tests.bench.work import sqlstream_script, work_named
from tests.kinds import job_of

WORK = "tumbling_many"
JOB = "small"
DEADLINE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Task:
    """How many files to drop, and how many of them only warm the system up."""

    system: str
    files: int
    warm_up: int
    cores: int
    folder: str


@dataclass(frozen=True, slots=True)
class Latency:
    """Medians over the warm batches, in milliseconds.

    `batch_ms` is from the start of the batch to its commit: the descriptor in sqlstream, the trigger in Spark.
    `file_ms` is from the arrival of the file, so it includes finding it.
    """

    batch_ms: float
    file_ms: float


def measure(task: Task) -> Latency:
    """Run a task in this process."""
    folder = Path(task.folder)
    waiting = small_files(folder / "waiting", task.files)
    arriving = folder / "arriving"
    arriving.mkdir()
    job = _sqlstream if task.system == "sqlstream" else _spark
    with job(task, arriving) as (checkpoint, begun):
        dropped = [_drop(path, arriving, checkpoint, 2 * number) for number, path in enumerate(waiting)]
        times = commit_times(checkpoint)
        data = range(task.warm_up, task.files)
        batch = [times[2 * n] - begun(n) for n in data]
        file = [times[2 * n] - dropped[n] for n in data]
    return Latency(statistics.median(batch) * 1000, statistics.median(file) * 1000)


def _drop(path: Path, folder: Path, checkpoint: Path, batch: int) -> float:
    """Let a file arrive and wait for its batch and the empty one after it; return when it arrived."""
    os.utime(path)
    at = time.time()
    path.rename(folder / path.name)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (checkpoint / "commits" / str(batch + 1)).exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"batch {batch + 1} was not committed")
        time.sleep(0.005)
    return at


@contextmanager
def _sqlstream(task: Task, arriving: Path) -> Iterator[tuple[Path, Callable[[int], float]]]:
    from sqlstream import Session

    folder = Path(task.folder)
    project, warehouse = folder / "project", folder / "warehouse"
    project.mkdir()
    script = sqlstream_script(work_named(WORK), str(arriving), 1, monitored=True)
    options = {"parallelism.default": str(task.cores), "pipeline.name": JOB}
    root = warehouse / "jobs" / JOB

    def begun(number: int) -> float:
        """When the batch was decided, as its descriptor says."""
        line = (root / "splits" / "next" / f"{number:010d}.json").read_text().splitlines()[0]
        return float(json.loads(line)["time"]) / 1000

    with Session(str(project), str(warehouse), options) as session:
        job = job_of(session.sql(script))
        yield root / "checkpoint", begun
        job.stop()
        job.wait()


@contextmanager
def _spark(task: Task, arriving: Path) -> Iterator[tuple[Path, Callable[[int], float]]]:
    folder = Path(task.folder)
    checkpoint = folder / "checkpoint"

    def begun(number: int) -> float:
        """When Spark noticed that there was data."""
        metadata = json.loads((checkpoint / "offsets" / str(2 * number)).read_text().splitlines()[1])
        return float(metadata["batchTimestampMs"]) / 1000

    rocksdb = task.system == plain_spark.ROCKSDB_STORE
    with plain_spark.running(work_named(WORK), str(arriving), 1, task.cores, folder, rocksdb=rocksdb):
        yield checkpoint, begun


if __name__ == "__main__":
    answer(Task, measure)
