"""The restarts of a job, as `sqlstream.restarts` shows them: the last ones, in a file of the job."""

from __future__ import annotations

from sqlstream.errors import DamageError
from sqlstream.units import Duration, ProcessingTime
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.paths import JobPaths
from sqlstream.warehouse.records import OtherFormat, Record, read_json, read_sealed, write_sealed

KEPT = 100


class Restart(Record, frozen=True, tag_field="format", tag=1):
    """An outage: when it was, the last batch that was committed then (-1: none), the error, how long the job waits.

    `strategy` is the restart strategy with its limits, for people.
    """

    failed_at: ProcessingTime
    version: int
    error: str
    delay: Duration
    strategy: str | None = None


class Restarts(Record, frozen=True, tag_field="format", tag=1):
    """How often a job has started again, and the last of these times, oldest first."""

    count: int = 0
    last: tuple[Restart, ...] = ()


def read_restarts(fs: Filesystem, job: JobPaths) -> Restarts:
    """Return the restarts of a job; a file that is damaged says nothing, and nothing but messages depends on it."""
    try:
        return read_json(read_sealed(fs, job.restarts), Restarts)
    except (FileNotFoundError, DamageError, OtherFormat):
        return Restarts()


def add_restart(fs: Filesystem, job: JobPaths, restart: Restart) -> int:
    """Write down a restart; return how many there were, with this one."""
    found = read_restarts(fs, job)
    made = Restarts(found.count + 1, (*found.last, restart)[-KEPT:])
    write_sealed(fs, job.restarts, made.to_json())
    return made.count
