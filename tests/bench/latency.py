"""The cost of a batch with one row in it: files arrive one at a time at a job that waits for them.

    python -m tests.bench.latency '{"system": "sqlstream", ...}'  prints a Latency as JSON

A file's row moves the watermark, so an empty batch follows it on Spark, in both systems; the next file waits for that one, too.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sqlstream.storage.snapshot import JobHistory
from tests.bench import plain_spark
from tests.bench.child import answer
from tests.bench.commits import commit_times
from tests.bench.data import small_files
from tests.bench.throughput import IN_PROCESS, SQLSTREAM, options_of
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
    job = _sqlstream if task.system in (SQLSTREAM, IN_PROCESS) else _spark
    with job(task, arriving) as running:
        dropped, batches = [], []
        for number, path in enumerate(waiting):
            dropped.append(_drop(path, arriving))
            batches.append(_awaited(running, number))
        times = commit_times(running.checkpoint)
        data = range(task.warm_up, task.files)
        batch = [times[batches[n]] - running.begun(n) for n in data]
        file = [times[batches[n]] - dropped[n] for n in data]
    return Latency(statistics.median(batch) * 1000, statistics.median(file) * 1000)


@dataclass(frozen=True, slots=True)
class _Running:
    """A job that runs: where its commits are, and by the number of a file when its batch began, and which batch that was.

    `batch` returns None until the job is ready for the next file.
    """

    checkpoint: Path
    begun: Callable[[int], float]
    batch: Callable[[int], int | None]


def _drop(path: Path, folder: Path) -> float:
    """Let a file arrive; return when it did."""
    os.utime(path)
    at = time.time()
    path.rename(folder / path.name)
    return at


def _awaited(running: _Running, number: int) -> int:
    """Wait for the batch of a file; return its number."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (batch := running.batch(number)) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the batch of file {number} was not committed")
        time.sleep(0.005)
    return batch


def _followed(checkpoint: Path, number: int) -> int | None:
    """Return the number of the batch of a file, once the empty one after it is committed."""
    return 2 * number if (checkpoint / "commits" / str(2 * number + 1)).exists() else None


@contextmanager
def _sqlstream(task: Task, arriving: Path) -> Iterator[_Running]:
    from sqlstream import Session

    folder = Path(task.folder)
    project, warehouse = folder / "project", folder / "warehouse"
    project.mkdir()
    script = sqlstream_script(work_named(WORK), str(arriving), 1, monitored=True)
    options = {**options_of(task.system, task.cores), "pipeline.name": JOB}
    root = warehouse / "jobs" / JOB

    def begun(number: int) -> float:
        """When the batch was decided, as its descriptor says."""
        line = (root / "splits" / "next" / f"{number:010d}.json").read_text().splitlines()[0]
        return float(json.loads(line)["time"]) / 1000

    with Session(str(project), str(warehouse), options) as session:
        job = job_of(session.sql(script))

        def with_row(number: int) -> int | None:
            """Return the first batch after which the job has read the row; an empty one may follow it, or not."""
            if job.progress.rows_in <= number:
                return None
            # Its log is there before its commit.
            entries = JobHistory(session.warehouse, JOB).entries
            return next((entry.version for entry in entries if entry.rows_in > number), None)

        followed = partial(_followed, root / "checkpoint")
        yield _Running(root / "checkpoint", begun, followed if task.system == SQLSTREAM else with_row)
        job.stop()
        job.wait()


@contextmanager
def _spark(task: Task, arriving: Path) -> Iterator[_Running]:
    folder = Path(task.folder)
    checkpoint = folder / "checkpoint"

    def begun(number: int) -> float:
        """When Spark noticed that there was data."""
        metadata = json.loads((checkpoint / "offsets" / str(2 * number)).read_text().splitlines()[1])
        return float(metadata["batchTimestampMs"]) / 1000

    rocksdb = task.system == plain_spark.ROCKSDB_STORE
    with plain_spark.running(work_named(WORK), str(arriving), 1, task.cores, folder, rocksdb=rocksdb):
        yield _Running(checkpoint, begun, partial(_followed, checkpoint))


if __name__ == "__main__":
    answer(Task, measure)
