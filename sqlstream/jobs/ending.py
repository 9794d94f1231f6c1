"""Stops, drains and drops jobs of a warehouse, also jobs that another process runs."""

from __future__ import annotations

import time
from collections.abc import Callable

from sqlstream.connectors.interface import SinkContext
from sqlstream.connectors.registry import built_in
from sqlstream.connectors.tables import discard_written
from sqlstream.connectors.warehouse.publishing import discard_published
from sqlstream.errors import DamageError, JobError, OtherVersionError, SqlStreamError, UsageError, missing
from sqlstream.warehouse.checks import checks, drop_check
from sqlstream.warehouse.jobs import TABLE, JobRecord, read_record
from sqlstream.warehouse.leases import lock_job
from sqlstream.warehouse.locks import SessionLock
from sqlstream.warehouse.paths import JobPaths, Warehouse
from sqlstream.warehouse.status import DRAINED, FINISHED, STOPPED, effective_status, request_stop

STOP_SECONDS = 60.0
# Draining closes all windows, in large batches.
DRAIN_SECONDS = 600.0
POLL_SECONDS = 0.05


def running(warehouse: Warehouse) -> list[str]:
    """Return the names of the jobs that a process runs now."""
    job_names = []
    for name in warehouse.jobs():
        status = effective_status(warehouse.fs, warehouse.job(name))
        if status is not None and status.is_active:
            job_names.append(name)
    return job_names


def running_with(warehouse: Warehouse, table: str) -> list[str]:
    """Return the names of the jobs that a process runs now and that read or write a table, by its name."""
    job_names = []
    for name in running(warehouse):
        record = read_record(warehouse.fs, warehouse.job(name))
        tables = () if record is None else (*(s.table for s in record.scans), *(s.table for s in record.sinks))
        if table.lower() in map(str.lower, tables):
            job_names.append(name)
    return job_names


def stop(warehouse: Warehouse, name: str, *, drain: bool = False, timeout: float | None = None) -> None:
    """Request a stop of a job that a process runs, and wait for its end: see `ask` and `await_end`."""
    ask(warehouse, name, drain=drain)
    await_end(warehouse, name, drain=drain, timeout=timeout)


def ask(warehouse: Warehouse, name: str, *, drain: bool = False) -> None:
    """Request that a job stops after its running batch; with `drain`, that it closes all windows first.

    Raises UsageError when there is no such job, or no process runs it.
    """
    paths = existing(warehouse, name)
    status = effective_status(warehouse.fs, paths)
    if status is None or not status.is_active:
        hint = None
        if drain and status is not None and status.state not in (DRAINED, FINISHED):
            hint = "Run it, and drain it then: its windows are closed by the process that runs it."
        raise UsageError(f'job "{name}" is not running', detail=f"It is {status.state}." if status else None, hint=hint)
    request_stop(warehouse.fs, paths, drain=drain)


def await_end(warehouse: Warehouse, name: str, *, drain: bool = False, timeout: float | None = None) -> None:
    """Wait for the end of a job that was asked to stop, at most `timeout` seconds (default: 60, with `drain` 600).

    Raises JobError if the job has not ended by then, or if it ended without closing its windows although it was to be drained.
    """
    fs, paths = warehouse.fs, warehouse.job(name)
    timeout = timeout if timeout is not None else DRAIN_SECONDS if drain else STOP_SECONDS
    deadline = time.monotonic() + timeout
    while (status := effective_status(fs, paths)) is not None and status.is_active:
        if time.monotonic() > deadline:
            hint = "Its batch may be a long one; look again."
            raise JobError(f'job "{name}" did not stop within {timeout:.0f} s', hint=hint)
        time.sleep(POLL_SECONDS)
    if drain and status is not None and status.state not in (DRAINED, FINISHED):
        hint = "Run it again, and drain it then: it continues after its last committed batch."
        message = f'job "{name}" ended before all its windows were closed: it is {status.state}'
        raise JobError(message, detail=status.error, hint=hint)


def drop(
    warehouse: Warehouse,
    session: SessionLock,
    name: str,
    project: str,
    *,
    before: Callable[[JobRecord], None] = lambda record: None,
) -> None:
    """Delete a job that no process runs: its state, its checkpoint, its results, also in the project's folders, and its checks.

    `before` is called with the job's record, if it can be read, once the job's lock is held. Raises UsageError when there is no
    such job, or a process runs it.
    """
    paths = existing(warehouse, name)
    # A process writes that the job has ended shortly before it releases the lock.
    lock = lock_job(warehouse.fs, paths, session, in_turn=has_ended(warehouse, name))
    try:
        if isinstance(record := _record(warehouse, paths), JobRecord):
            before(record)
        discard(warehouse, name, project)
        for check in [*checks(warehouse, name)]:
            drop_check(warehouse, check.name)
    finally:
        lock.release()


def has_ended(warehouse: Warehouse, name: str) -> bool:
    """Return whether the status of a job is STOPPED, FINISHED or DRAINED; its process may not have exited yet."""
    status = effective_status(warehouse.fs, warehouse.job(name))
    return status is not None and status.state in (STOPPED, FINISHED, DRAINED)


def existing(warehouse: Warehouse, name: str) -> JobPaths:
    """Return the paths of a job. Raises UsageError when the warehouse has no job of this name, or the name is empty."""
    if not name:
        # The path would be the folder of all jobs.
        detail = None
        if warehouse.fs.exists(f"{warehouse.root}/jobs/job.json"):
            detail = (
                f'What lies in "{warehouse.root}/jobs" beside the folders of jobs was left by a job that had no name.'
                " Nothing reads it; delete it by hand."
            )
        raise UsageError("a job has a name", detail=detail, hint=missing("job", name, warehouse.jobs()))
    paths = warehouse.job(name)
    if _record(warehouse, paths) is None:
        raise UsageError(f'job "{name}" does not exist', hint=missing("job", name, warehouse.jobs()))
    return paths


def _record(warehouse: Warehouse, paths: JobPaths) -> JobRecord | SqlStreamError | None:
    try:
        return read_record(warehouse.fs, paths)
    except (DamageError, OtherVersionError) as error:
        # The job exists, and can be dropped.
        return error


def discard(warehouse: Warehouse, name: str, project: str, *, lock: bool = False) -> None:
    """Delete all that a job wrote; its lock stays, unless `lock` is set. The caller holds the lock.

    Results go before the record that names them, so that an interrupted call can be repeated.
    """
    assert name, "the folder of no name is that of all jobs"
    fs, paths = warehouse.fs, warehouse.job(name)
    # Commits without a record would look like a lost record, a status with a version that has no commit like lost commits.
    fs.delete(paths.status)
    fs.delete_tree(paths.commits)
    record = _record(warehouse, paths)
    kinds = [s.kind for s in record.sinks] if isinstance(record, JobRecord) else built_in()
    for sink in fs.entries(f"{paths.root}/output"):
        discard_written(kinds, SinkContext(fs, project, f"{paths.root}/output/{sink}"))
    written = {s.table.lower() for s in record.sinks if s.kind == TABLE} if isinstance(record, JobRecord) else set()
    for table in sorted(written | {t for t in warehouse.tables() if name.lower() in warehouse.writers(t)}):
        # A table that is published has one writer.
        discard_published(warehouse, table)
        fs.delete_tree(warehouse.table(table).job(name).root)
        if not warehouse.writers(table):
            fs.delete_tree(warehouse.table(table).root)
    if lock:
        fs.delete_tree(paths.root)
        return
    files = {f.name for f in fs.infos(paths.root)}
    for entry in fs.entries(paths.root):
        if not entry.startswith("lock"):
            (fs.delete if entry in files else fs.delete_tree)(f"{paths.root}/{entry}")
