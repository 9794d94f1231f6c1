"""Two jobs, one behind the other, until their input ends: what tests run in a process of its own, and kill.

The first copies files into the table `mid`, the second `mid` into files, a small batch at a time. `two_jobs.py PROJECT ROUNDS`
runs so many batches of each, and waits then.
"""

from __future__ import annotations

import itertools
import signal
import sys
from collections.abc import Iterator

from sqlstream.compiler.compiler import Compiler
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import SourceText
from sqlstream.jobs.launch import job_record, job_spec
from sqlstream.local.batches import LocalBatches
from sqlstream.options import Options
from sqlstream.runtime.commits import Commits
from sqlstream.runtime.feed import Feed
from sqlstream.units import EPOCH
from sqlstream.warehouse.jobs import read_record, write_record
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.records import read_sealed
from tests.kinds import jobs_of

SCRIPT = """
CREATE TABLE given (k BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'given', 'format' = 'parquet', 'source.max-files-per-batch' = '2');
CREATE TABLE mid (k BIGINT, ts TIMESTAMP(3)) WITH ('source.monitor-interval' = '0 s');
CREATE TABLE files (k BIGINT, part STRING) PARTITIONED BY (part)
WITH ('connector' = 'filesystem', 'path' = 'files', 'format' = 'parquet');
INSERT INTO mid SELECT k, ts FROM given;
INSERT INTO files SELECT k, CASE WHEN k % 3 > 0 THEN 'p/' || k % 3 END FROM mid;
"""
PARALLELISM = 2


def batches(project: str, planned: PlannedJob) -> Iterator[bool]:
    """Run a job batch by batch, first what an earlier process left; yield whether a batch was run."""
    warehouse = Warehouse(f"{project}/warehouse")
    paths = warehouse.job(planned.name)
    job = job_spec(planned, warehouse.root, range(PARALLELISM), project=project)
    if read_record(warehouse.fs, paths) is None:
        write_record(warehouse.fs, paths, job_record(planned, job, PARALLELISM))
    run = LocalBatches(Commits(job))
    feed = Feed(
        warehouse.fs,
        f"{paths.root}/splits",
        job.plan.scans,
        range(PARALLELISM),
        project=project,
        finish=True,
        warehouse=warehouse.root,
    )
    for sequence in range(run.commits.totals.sequence + 1, feed.sequence + 1):
        run.run(read_sealed(warehouse.fs, f"{feed.directory}/{sequence:010d}.json"), EPOCH)
    feed.commit(run.commits.totals.sequence)
    while True:
        descriptor = feed.compose()
        if descriptor is not None:
            feed.write(descriptor)
            run.run(read_sealed(warehouse.fs, f"{feed.directory}/{descriptor.sequence:010d}.json"), EPOCH)
            feed.commit(descriptor.sequence)
            feed.fold(descriptor.sequence)
        yield descriptor is not None or (feed.bounded and not feed.ended)


def main(project: str, rounds: int | None = None, script: str = SCRIPT) -> None:
    """Run the jobs of a script, a batch of each after the other."""
    compiler = Compiler(Options({"parallelism.default": str(PARALLELISM)}), project=project)
    jobs = [batches(project, planned) for planned in jobs_of(compiler.scripts([SourceText("jobs", script)]))]
    running = [True]
    for number in itertools.count():
        if number == rounds:
            signal.pause()
        if not any(running):
            break
        running = [next(job) for job in jobs]
        print("batch", flush=True)
    compiler.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None)
