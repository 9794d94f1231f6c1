"""Rescaling: the state of a job is spread over as many buckets as the job has tasks now."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import duckdb
from msgspec.structs import replace

from sqlstream.duck.key_hash import in_version
from sqlstream.jobs.redistribution import DistributedState
from sqlstream.physical.plan import StatefulStage
from sqlstream.runtime.tasks import bucket_metrics
from sqlstream.runtime.worker import JobSpec, connection
from sqlstream.storage.begun import read_begun
from sqlstream.storage.joblog import JobLog, LogEntry
from sqlstream.storage.metrics import OperatorMetrics
from sqlstream.storage.snapshot import named_manifest
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.jobs import TABLE
from sqlstream.warehouse.leases import check_held
from sqlstream.warehouse.paths import Warehouse


def newest_entry(warehouse: Warehouse, name: str) -> LogEntry | None:
    """Return the log entry of the newest version of a job, None before the first. Raises DamageError when it is missing."""
    version = last_committed(warehouse.fs, warehouse.job(name))
    log = JobLog(warehouse.fs, warehouse.job(name).log)
    if version is None:
        return None
    entry = log.entry(version)
    if entry is None:
        raise log.missing(version)
    return entry


def begun_outside(warehouse: Warehouse, job: JobSpec, entry: LogEntry | None) -> bool:
    """Return whether the next batch has begun, and a sink outside of the warehouse may have some of its rows.

    The batch must then be repeated with the same tasks: each task writes its own part of the rows, once.
    """
    next_version = entry.version + 1 if entry is not None else 0
    outside = any(sink.kind != TABLE for sink in job.plan.sinks)
    return outside and read_begun(warehouse.fs, warehouse.job(job.name), next_version) is not None


# Seconds between two notices, as for the progress of a running job.
TELL_SECONDS = 5.0


class SpreadProgress:
    """Gives notice of the progress of a rescaling, in stored rows, at most every TELL_SECONDS."""

    def __init__(self, job: str, notice: Callable[[str], None]):
        self._job, self._notice = job, notice
        self._rows = self._written = 0
        self._notice_time = time.monotonic()

    def begin(self, rows: int) -> None:
        """Set the number of stored rows to spread."""
        self._rows = rows

    def add(self, rows: int) -> None:
        """Count rows that have been spread, and give notice if the last notice is old enough."""
        self._written += rows
        if time.monotonic() - self._notice_time >= TELL_SECONDS:
            self._notice_time = time.monotonic()
            self._notice(f'job "{self._job}": {self._written:,} of {self._rows:,} stored rows spread')


def spread(job: JobSpec, entry: LogEntry, before: Sequence[int], progress: SpreadProgress | None = None) -> int:
    """Spread the state of a job, at its newest version, over the buckets `job.labels`; return the number of rows of state.

    `entry` is the log entry of that version, `before` has the labels so far. The last step writes the entry again, with the new
    manifests: a process that dies earlier has moved no state. Raises DamageError, and JobError when the job's lease is lost.
    """
    warehouse = Warehouse(job.warehouse)
    log = JobLog(warehouse.fs, warehouse.job(job.name).log)
    # A job that returns to one of these versions finds its state in the buckets of before.
    for older in log.entries(entry.version - 1, entry.version - LABELLED, faults=[]):
        if not older.labels:
            log.append(replace(older, labels=tuple(before)), durable=True)
    progress = progress or SpreadProgress(job.name, lambda text: None)
    states = {
        stage.name: _state(warehouse, job, stage, entry, progress)
        for stage in job.plan.stages
        if stage.name in entry.operators
    }
    progress.begin(sum(state.rows for state in states.values()))
    operators = dict(entry.operators)
    with _all_cores(job) as con:
        for name, state in states.items():
            buckets = state.over(con, job.labels, entry.version, job.retention) if state.manifests else {}
            metrics = {label: bucket_metrics(bucket, state.tables) for label, bucket in buckets.items()}
            operators[name] = OperatorMetrics.of(metrics)
    # Until here no state has moved; from here on, only older versions use the old buckets.
    check_held(warehouse.job(job.name))
    log.append(replace(entry, operators=operators, labels=job.labels), durable=True)
    return sum(metrics.state_rows for metrics in operators.values())


# How many older versions get their labels recorded. Manifests of versions before them are gone.
LABELLED = 10


def _state(
    warehouse: Warehouse, job: JobSpec, stage: StatefulStage, entry: LogEntry, progress: SpreadProgress
) -> DistributedState:
    paths, operator = warehouse.job(job.name).operator(stage.name), stage.operator
    manifests = {
        bucket: named_manifest(warehouse.fs, paths, bucket, name)
        for bucket, name in entry.state_manifests(stage.name).items()
    }
    hashed = in_version(operator.hashed, job.key_hash)
    return DistributedState(warehouse.fs, paths, operator.tables, hashed, manifests, progress.add)


@contextmanager
def _all_cores(job: JobSpec) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection with a thread per core: no task runs yet."""
    with connection(job) as con:
        con.execute(f"SET threads = {os.cpu_count() or 1}")
        try:
            yield con
        finally:
            # Where writing failed, the connection itself has a result that is still open.
            con.cursor().execute("SET threads = 1")
