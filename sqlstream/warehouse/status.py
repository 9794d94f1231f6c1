"""The status of a job, for other processes, and their requests to stop it."""

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
from sqlstream.warehouse.records import Record, UnreadableFormat, Upgrade, read_json, read_sealed, write_sealed

RUNNING: Final = "RUNNING"
FINISHED: Final = "FINISHED"
STOPPED: Final = "STOPPED"
# It waits after an outage, and starts again in the same process.
RESTARTING: Final = "RESTARTING"
# A user has ended its input: its windows are closed, so it cannot continue.
DRAINED: Final = "DRAINED"
FAILED: Final = "FAILED"
# Never written: the status of a job with RUNNING or RESTARTING whose process is gone.
LOST: Final = "LOST"
_DRAIN = "drain"


class Backlog(msgspec.Struct, frozen=True):
    """The input of a source that no batch has read yet: how much, and in which unit, such as offsets or files."""

    count: int
    unit: str


class Status(Record, frozen=True, omit_defaults=True, tag_field="format", tag=2):
    """The status of a job: RUNNING, RESTARTING, FINISHED, DRAINED, STOPPED or FAILED, with the error.

    When the job has ended, `version` is its newest version. `backlog` is by source, at `updated_at`; a running job updates it
    about every ten seconds. `engine` is "spark" or "local", empty where no engine has run the job yet, and in statuses of earlier
    versions.
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
    engine: str = ""

    @property
    def is_active(self) -> bool:
        """Whether a process runs the job, according to the status; the process may have died."""
        return self.state in (RUNNING, RESTARTING)


def write_status(fs: Filesystem, job: JobPaths, status: Status) -> None:
    """Write the status of a job, in place of the last one."""
    write_sealed(fs, job.status, status.to_json())


def restarts(fs: Filesystem, job: JobPaths) -> None:
    """Record that this process restarts a job: an active status, which a dead process has left, becomes RESTARTING.

    The caller holds the job's lock. Without this call, readers would see the dead process's status until the first batch.
    """
    status = read_status(fs, job)
    if status is not None and status.is_active:
        new_status = replace(status, state=RESTARTING, pid=os.getpid(), host=socket.gethostname(), updated_at=now())
        write_status(fs, job, new_status)


def read_status(fs: Filesystem, job: JobPaths) -> Status | None:
    """Return the last status that a job has written; its process may be gone (see `effective_status`).

    None before the first start, and if the file is damaged: only messages depend on it.
    """
    try:
        return read_json(read_sealed(fs, job.status), Status)
    except (FileNotFoundError, DamageError, UnreadableFormat):
        return None


def effective_status(fs: Filesystem, job: JobPaths) -> Status | None:
    """Return the status of a job, with LOST in place of an active state whose process is gone."""
    status = read_status(fs, job)
    if status is None or not status.is_active:
        return status
    if is_being_run(fs, job):
        return status
    # The job may have ended between the two calls.
    status = read_status(fs, job)
    return replace(status, state=LOST) if status is not None and status.is_active else status


def request_stop(fs: Filesystem, job: JobPaths, *, drain: bool = False) -> None:
    """Request that the process of a job stops it, or, with `drain`, ends its input."""
    fs.write_text_atomic(job.stop, _DRAIN if drain else "")


def requested_stop(fs: Filesystem, job: JobPaths) -> str | None:
    """Return the state in which a job is requested to end, STOPPED or DRAINED; None if there is no request."""
    try:
        return DRAINED if fs.read_text(job.stop) == _DRAIN else STOPPED
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        # There is a request, but nobody knows which one.
        return STOPPED
