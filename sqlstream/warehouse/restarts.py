"""The restarts of a job, which `sqlstream.restarts` shows: the last ones, in a file of the job."""

from __future__ import annotations

from sqlstream.errors import DamageError
from sqlstream.units import Duration, ProcessingTime
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.paths import JobPaths
from sqlstream.warehouse.records import Record, UnreadableFormat, read_json, read_sealed, write_sealed

KEPT = 100


class Restart(Record, frozen=True, tag_field="format", tag=1):
    """A restart after an outage: when the job failed, its newest version then (-1: none), the error, and the wait (`delay`).

    `strategy` is the restart strategy with its limits, for people.
    """

    failed_at: ProcessingTime
    version: int
    error: str
    delay: Duration
    strategy: str | None = None


class Restarts(Record, frozen=True, tag_field="format", tag=1):
    """The number of restarts of a job, and the last KEPT of them, oldest first."""

    count: int = 0
    last: tuple[Restart, ...] = ()


def read_restarts(fs: Filesystem, job: JobPaths) -> Restarts:
    """Return the restarts of a job; none if the file is missing or damaged: only messages depend on it."""
    try:
        return read_json(read_sealed(fs, job.restarts), Restarts)
    except (FileNotFoundError, DamageError, UnreadableFormat):
        return Restarts()


def add_restarts(fs: Filesystem, job: JobPaths, *restarts: Restart) -> int:
    """Record restarts, oldest first; return the number of restarts so far, with these."""
    before = read_restarts(fs, job)
    after = Restarts(before.count + len(restarts), (*before.last, *restarts)[-KEPT:])
    write_sealed(fs, job.restarts, after.to_json())
    return after.count
