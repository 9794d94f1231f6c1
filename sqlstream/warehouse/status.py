"""What a job is doing, as other processes see it, and what they ask of it."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from functools import partial
from typing import ClassVar, Final

import msgspec
from msgspec.structs import replace

from sqlstream.errors import DamageError
from sqlstream.units import ProcessingTime, now, upgraded_times
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.leases import is_being_run
from sqlstream.warehouse.paths import JobPaths
from sqlstream.warehouse.records import OtherFormat, Record, Upgrade, read_json, read_sealed, write_sealed

RUNNING: Final = "RUNNING"
FINISHED: Final = "FINISHED"
STOPPED: Final = "STOPPED"
# It waits after an outage, and goes on in the same process.
RESTARTING: Final = "RESTARTING"
# Its input was ended by hand: its windows are closed, so that it cannot go on.
DRAINED: Final = "DRAINED"
FAILED: Final = "FAILED"
# Never written: a job that says RUNNING or RESTARTING and whose process is gone.
LOST: Final = "LOST"
_DRAIN = "drain"


class Backlog(msgspec.Struct, frozen=True):
    """How much a source has that no batch was given yet, and what is counted, such as offsets or files."""

    count: int
    unit: str


class Status(Record, frozen=True, omit_defaults=True, tag_field="format", tag=2):
    """How a job is doing: RUNNING, RESTARTING, FINISHED, DRAINED, STOPPED or FAILED (and why).

    Of a job that has ended, `version` is the newest one that was committed. `backlog` is that of its sources, by their names, as
    of `updated_at`; a job that runs says it every ten seconds or so.
    """

    upgrades: ClassVar[Mapping[int, Upgrade]] = {1: partial(upgraded_times, names=("started_at", "updated_at"))}

    state: str
    pid: int
    host: str
    started_at: ProcessingTime
    updated_at: ProcessingTime
    error: str | None = None
    version: int | None = None
    backlog: Mapping[str, Backlog] = {}

    @property
    def is_active(self) -> bool:
        """Whether a process runs the job, as far as the job has said."""
        return self.state in (RUNNING, RESTARTING)


def write_status(fs: Filesystem, job: JobPaths, status: Status) -> None:
    write_sealed(fs, job.status, status.to_json())


def restarts(fs: Filesystem, job: JobPaths) -> None:
    """Say that a job starts again whose process has died while it ran it: whoever has the job's lock knows that.

    What the dead process said last would be taken for what this one says, until its first batch.
    """
    status = read_status(fs, job)
    if status is not None and status.is_active:
        said = replace(status, state=RESTARTING, pid=os.getpid(), host=socket.gethostname(), updated_at=now())
        write_status(fs, job, said)


def read_status(fs: Filesystem, job: JobPaths) -> Status | None:
    """Return what a job last said of itself; its process may be gone (`effective_status`).

    None before it started, and when what it said is damaged: nothing but messages depends on it.
    """
    try:
        return read_json(read_sealed(fs, job.status), Status)
    except (FileNotFoundError, DamageError, OtherFormat):
        return None


def effective_status(fs: Filesystem, job: JobPaths) -> Status | None:
    """Return the status of a job, which is LOST when it says that it is active and its process is gone."""
    status = read_status(fs, job)
    if status is None or not status.is_active:
        return status
    if is_being_run(fs, job):
        return status
    # It may have ended between the two looks.
    status = read_status(fs, job)
    return replace(status, state=LOST) if status is not None and status.is_active else status


def request_stop(fs: Filesystem, job: JobPaths, *, drain: bool = False) -> None:
    """Ask the process that runs a job to end it, with `drain` as at the end of its input."""
    fs.write_text_atomic(job.stop, _DRAIN if drain else "")


def requested_stop(fs: Filesystem, job: JobPaths) -> str | None:
    """Return as what a job is to end, STOPPED or DRAINED; None when nobody has asked."""
    try:
        return DRAINED if fs.read_text(job.stop) == _DRAIN else STOPPED
    except FileNotFoundError:
        return None
