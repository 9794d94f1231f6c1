"""Run thousands of small batches, and say what a job's folder holds and what a batch takes on the way.

A file of one row is a batch, and files go when they have been read, so that only what the job keeps can grow. Nothing is
retained for queries but what always is (100 versions), so the folder is as large as it gets after a few hundred batches; a
growing number of files, of bytes, or a growing time per batch is a leak. Old files go after a minute, so the last figures of
a short run are too high. At every mark the job is stopped and started again in the same session.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from sqlstream import Session
from sqlstream.jobs.job import Job
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.paths import Warehouse
from tests.kinds import job_of
from tests.soak.beside import Queries, footprint

JOB = "soak"
SCRIPT = """
SET 'sqlstream.unbounded-state' = 'allow';
CREATE TABLE events (k BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'source.monitor-interval' = '0 s',
    'source.max-files-per-batch' = '1');
CREATE TABLE soak (k BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED);
INSERT INTO soak SELECT k % 10, COUNT(*) FROM events GROUP BY k % 10;
"""
# Files that wait, so that no batch waits for one; as many files stay after they were read.
AHEAD = 10
MEASURED = 100
DEADLINE_SECONDS = 120.0


def run_batches(marks: str, folder: Path | None, *, with_queries: bool = False) -> None:
    """Measure a job of small batches at some numbers of batches; with queries beside it its processes must not grow."""
    chosen = folder or Path(tempfile.mkdtemp(prefix="sqlstream-soak-"))
    (chosen / "in").mkdir(parents=True, exist_ok=True)
    options = {"parallelism.default": "1", "sqlstream.state.retention": "1 s"}
    footprints = []
    click.echo("batches  ms/batch  restart s  files  KiB  (by folder)")
    try:
        with Session(str(chosen), str(chosen / "warehouse"), options, notice=lambda text: None) as session:
            for mark in sorted(map(int, marks.split(","))):
                _measure(session, chosen, mark, with_queries=with_queries)
                footprints.append(held := footprint())
                click.echo(f"{'':7}  {held.megabytes} MB and {held.descriptors} descriptors in the processes of Python")
    finally:
        if folder is None:
            shutil.rmtree(chosen, ignore_errors=True)
    if with_queries and (grown := footprints[-1].growth(footprints[0])):
        raise click.ClickException(f"the processes have grown: {grown}")


def _measure(session: Session, folder: Path, mark: int, *, with_queries: bool) -> None:
    """Run the job up to a number of batches, then print a line; queries may go on beside it."""
    files = Feeder(folder)
    began = time.monotonic()
    with _running(session) as first:
        _wait(first, folder, files.next, files)
        restarted = time.monotonic() - began
        queries = Queries(folder)
        if with_queries:
            queries.start()
        before = time.monotonic()
        times = []
        for number in range(files.next, mark):
            _wait(first, folder, number, files)
            times.append(time.monotonic() - before)
            before = time.monotonic()
        if with_queries:
            queries.stop()
            click.echo(f"{'':7}  {queries.answers} answers")
    median = statistics.median(times[-MEASURED:]) * 1000
    found, size = sizes(folder / "warehouse" / "jobs" / JOB)
    shown = ", ".join(f"{name} {count}" for name, count in sorted(found.items()))
    total = sum(found.values())
    click.echo(f"{mark:7}  {median:8.0f}  {restarted:9.1f}  {total:5}  {sum(size.values()) >> 10:4}  {shown}")


class Feeder:
    """Keeps a few files ahead of the job; `next` is the first batch that has no row yet."""

    def __init__(self, folder: Path):
        self.folder = folder / "in"
        self.next = committed(folder) + 1
        self._written = max((int(path.stem) + 1 for path in self.folder.iterdir()), default=0)

    def keep_ahead(self, done: int) -> None:
        """Write the files of the next batches, and delete those of batches that are long done."""
        while self._written < done + AHEAD:
            path = self.folder / f"{self._written:08}.json"
            second = self._written % 60
            path.with_suffix(".tmp").write_text(json.dumps({"k": self._written, "ts": f"2026-01-01 00:00:{second:02}"}))
            path.with_suffix(".tmp").rename(path)
            (self.folder / f"{self._written - 3 * AHEAD:08}.json").unlink(missing_ok=True)
            self._written += 1


@contextmanager
def _running(session: Session) -> Iterator[Job]:
    job = job_of(session.sql(SCRIPT))
    yield job
    job.stop()
    job.wait()


def _wait(job: Job, folder: Path, batch: int, files: Feeder) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (done := committed(folder)) < batch:
        files.keep_ahead(done)
        if job.wait(0.005) or time.monotonic() > deadline:
            raise click.ClickException(f"batch {batch} was not committed")


def committed(folder: Path) -> int:
    """Return the last batch that was committed, -1 if there is none."""
    warehouse = Warehouse(str(folder / "warehouse"))
    found = last_committed(warehouse.fs, warehouse.job(JOB))
    return -1 if found is None else found


def sizes(job: Path) -> tuple[Counter[str], Counter[str]]:
    """Return the number of files, and of bytes, in each folder of a job and of its checkpoint."""
    files: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for root, _, names in os.walk(job):
        parts = Path(root).relative_to(job).parts
        name = "/".join(parts[: 2 if parts[:1] in (("checkpoint",), ("splits",)) else 1]) or "."
        files[name] += len(names)
        size[name] += sum(os.path.getsize(f"{root}/{n}") for n in names if os.path.exists(f"{root}/{n}"))
    return files, size
