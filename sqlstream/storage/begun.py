"""What the next batch of a job reads, fixed before the batch starts: a repeated batch reads the same."""

from __future__ import annotations

import contextlib

from sqlstream.errors import DamageError, SqlStreamError
from sqlstream.storage.descriptors import Descriptors
from sqlstream.storage.joblog import JobLog, LogEntry
from sqlstream.units import ProcessingTime
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.leases import check_held
from sqlstream.warehouse.paths import JobPaths
from sqlstream.warehouse.records import Record, UnreadableFormat, read_json, read_sealed, write_sealed


class BegunBatch(Record, frozen=True, tag_field="format", tag=1):
    """A batch that has begun: its version, the last descriptor that has been read when it ends, and its processing time.

    The descriptor is an earlier batch's if this one reads none. Sinks may have rows of the batch before it is committed.
    """

    version: int
    sequence: int
    time: ProcessingTime


def write_begun(fs: Filesystem, job: JobPaths, begun: BegunBatch) -> None:
    """Record what a batch reads, before the batch starts. Raises JobError when another process may run the job by now."""
    check_held(job)
    write_sealed(fs, job.begun, begun.to_json())


def _read(fs: Filesystem, job: JobPaths) -> BegunBatch:
    try:
        return read_json(read_sealed(fs, job.begun), BegunBatch)
    except UnreadableFormat as other:
        raise other.error(f'what job "{job.name}" has begun to read') from other


def read_begun(fs: Filesystem, job: JobPaths, version: int) -> BegunBatch | None:
    """Return the batch of a version if it has begun, else None.

    If a later batch has begun as well (its predecessors' commits were lost, or are not in a copy of the job), or the record is
    damaged, the log says what the batch read, if it has an entry.
    """
    try:
        begun = _read(fs, job)
        if begun.version == version:
            return begun
    except FileNotFoundError:
        return None
    except DamageError:
        pass
    with contextlib.suppress(DamageError):
        entry = JobLog(fs, job.log).entry(version)
        if entry is not None:
            return BegunBatch(version, entry.sequence, entry.committed_at)
    return None


def is_of_finished(fs: Filesystem, job: JobPaths, version: int) -> bool:
    """Return whether the record is intact, and of a batch up to a version."""
    try:
        return _read(fs, job).version <= version
    except (FileNotFoundError, SqlStreamError):
        return False


def may_have_begun(fs: Filesystem, job: JobPaths, entry: LogEntry) -> bool:
    """Return whether the batch after an entry's version may have begun: then sinks may have rows of it."""
    if read_begun(fs, job, entry.version + 1) is not None:
        return True
    return any(number > entry.sequence for number in Descriptors(fs, job.splits).numbers())
