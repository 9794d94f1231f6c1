"""The right to run a job of a warehouse in an object store: a lease, which its holder renews, and which ends without it.

A lease is the file `lock` of the job. It is written only under the condition that it is still what its writer has read, so of
two who want it one gets it. No clocks of two hosts are compared: who finds the lease of another host waits until that has either
been renewed, and then the job is being run, or has been the same for as long as a lease lasts, and then takes it.

A holder that could not renew its lease in time commits nothing more: its job fails. It may have been suspended between this look
and the commit; so a commit is only written where there is none.

The lease of a job that was deleted is deleted, too. Stores delete without a condition, so the holder says beforehand that the
lease goes, and others leave it alone for as long as a lease lasts.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from typing import Final
from uuid import uuid4

import msgspec

from sqlstream.errors import DamageError, JobError, SqlStreamError, UsageError
from sqlstream.units import SECOND, ProcessingTime, now
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.locks import (
    ORPHAN_SECONDS,
    Holder,
    JobLock,
    SessionLock,
    place_of,
    read_holder,
    session_directory,
)
from sqlstream.warehouse.paths import JobPaths
from sqlstream.warehouse.records import opened, sealed
from sqlstream.warehouse.stores import Changed, StoreFilesystem, Tag

# How long a lease lasts that is not renewed.
LEASE_SECONDS: Final = 15.0
# A holder gives up so long before others take the lease.
_MARGIN = 2.0
_RENEWALS = 4
_LOOKS_EVERY = 0.25


class LeaseRecord(msgspec.Struct, frozen=True):
    """Who holds a lease, nobody with `pid` 0; `until` is for people, by the clock of the holder.

    `place` tells hosts apart, and containers with a name in common: only there the session's file says something. A lease that
    `goes` is being deleted by the process that held it.
    """

    pid: int
    host: str
    place: str
    session: str
    seconds: float
    until: ProcessingTime
    goes: bool = False

    @property
    def is_free(self) -> bool:
        return self.pid == 0


class Lease(JobLock):
    """A lease that this process holds until it is lost, or released; a thread renews it."""

    def __init__(self, fs: StoreFilesystem, job: JobPaths, session: SessionLock, seconds: float):
        super().__init__(fs, job, session)
        self._store, self._seconds = fs, seconds
        self._tag: Tag | None = None
        self._valid_until = 0.0
        self._lost = self._ended = False
        self._changing = threading.Lock()
        self._wake = threading.Event()

    @classmethod
    def take(
        cls,
        fs: StoreFilesystem,
        job: JobPaths,
        session: SessionLock,
        *,
        patience: float = ORPHAN_SECONDS,
        in_turn: bool = False,
        seconds: float | None = None,
    ) -> Lease:
        """Return the lease of a job, when its holder is gone. Raises UsageError when another process runs the job.

        `in_turn` waits for up to `patience` seconds for a holder that lives.
        """
        lease = cls(fs, job, session, LEASE_SECONDS if seconds is None else seconds)
        started = unchanged_since = time.monotonic()
        before: Tag | None = None
        while True:
            found, tag = read_lease(fs, job)
            moment = time.monotonic()
            is_renewed = before is not None and tag != before
            unchanged_since = moment if tag != before else unchanged_since
            before = tag
            lasts = found.seconds if found is not None else lease._seconds
            held = _is_held(found, session)
            if tag is None or held is False or (held is None and moment - unchanged_since > lasts):
                with contextlib.suppress(Changed):
                    lease._write(tag)
                    lease._begin()
                    return lease
                continue
            if moment - started > patience if in_turn else held or is_renewed:
                raise _refusal(job, found)
            time.sleep(_LOOKS_EVERY)

    def _record(self, *, free: bool = False, goes: bool = False) -> str:
        until = ProcessingTime(now() + int(self._seconds * SECOND))
        pid, name = 0 if free else os.getpid(), os.path.basename(self._session.path)
        place = place_of(self._session.directory)
        record = LeaseRecord(pid, socket.gethostname(), place, name, self._seconds, until, goes)
        return sealed(json.dumps({**msgspec.structs.asdict(record), "put": uuid4().hex}))

    def _write(self, before: Tag | None, *, free: bool = False, goes: bool = False) -> None:
        began, text = _clock(), self._record(free=free, goes=goes)
        try:
            self._tag = self._store.put_if(self._job.lock, text, before)
        except Changed:
            # A put that was repeated, because its answer was lost, finds itself.
            written, tag = self._store.read_tagged(self._job.lock)
            if written != text:
                raise
            self._tag = tag
        self._valid_until = began + self._seconds - min(_MARGIN, self._seconds / 4)

    def _begin(self) -> None:
        _held[self._job.root] = self
        threading.Thread(target=self._renew, name=f"lease-{self._job.name}", daemon=True).start()

    def _renew(self) -> None:
        while not self._wake.wait(self._seconds / _RENEWALS):
            with self._changing:
                if self._ended:
                    return
                try:
                    self._write(self._tag)
                except (Changed, FileNotFoundError):
                    self._lost = True
                    return
                except SqlStreamError:
                    # The store may answer again before the lease has ended.
                    continue

    @property
    def is_lost(self) -> bool:
        """Whether another process may have the job by now."""
        return self._lost or _clock() > self._valid_until

    def release(self) -> None:
        """Give the lease back, unless it is lost. Of a job that was deleted the rest goes, too."""
        self._wake.set()
        with self._changing:
            if self._ended:
                return
            self._ended = True
            if _held.get(self._job.root) is self:
                del _held[self._job.root]
            if self._lost:
                return
            with contextlib.suppress(Changed, FileNotFoundError):
                if self._store.entries(self._job.root) != ["lock"]:
                    self._write(self._tag, free=True)
                    return
                self._write(self._tag, goes=True)
                # Suspended since, this process would delete the lease of another one.
                if _clock() < self._valid_until:
                    self._store.delete(self._job.lock)


_held: dict[str, Lease] = {}


def lock_job(
    fs: Filesystem, job: JobPaths, session: SessionLock, *, patience: float = ORPHAN_SECONDS, in_turn: bool = False
) -> JobLock:
    """Take the right to run a job: a lock on a local disk, a lease in a store. Raises UsageError when somebody else has it."""
    if isinstance(fs, StoreFilesystem):
        return Lease.take(fs, job, session, patience=patience, in_turn=in_turn)
    if not fs.local:
        hint = "A warehouse is on a local disk or in an object store: s3://, gs:// or abfss://."
        raise UsageError(
            f'a job cannot run in "{job.warehouse}": nothing there says that only one process runs it', hint=hint
        )
    return JobLock.acquire(fs, job, session, patience=patience, in_turn=in_turn)


def check_held(job: JobPaths) -> None:
    """Raise JobError when this process runs a job and another one may have it by now."""
    lease = _held.get(job.root)
    if lease is not None and lease.is_lost:
        raise taken_over(job)


def taken_over(job: JobPaths) -> JobError:
    """Return the error for people of a job that another process may run by now."""
    return JobError(
        f'job "{job.name}" was taken over, or might have been: its lease in the store was not renewed in time',
        detail="This process was suspended, or the store did not answer.",
        hint="Run it again, unless another process runs it by now; it continues after its last committed batch.",
    )


def read_lease(fs: StoreFilesystem, job: JobPaths) -> tuple[LeaseRecord | None, Tag | None]:
    """Return who holds the lease of a job, nobody when it is damaged, and what tells it from others, None where it is missing."""
    try:
        text, tag = fs.read_tagged(job.lock)
    except FileNotFoundError:
        return None, None
    except UnicodeDecodeError:
        return None, None
    try:
        return msgspec.json.decode(opened(job.lock, text), type=LeaseRecord), tag
    except (DamageError, msgspec.DecodeError):
        return None, tag


def is_being_run(fs: Filesystem, job: JobPaths) -> bool:
    """Tell, as far as one look can, whether some process runs a job."""
    if not isinstance(fs, StoreFilesystem):
        holder = read_holder(fs, job)
        return holder is not None and (holder.is_alive or not (fs.local or holder.is_here))
    found, _ = read_lease(fs, job)
    if found is None or found.is_free or found.goes:
        return False
    directory = session_directory(fs, job.warehouse)
    if os.path.isdir(directory) and found.place == place_of(directory):
        return Holder(found.pid, found.host, f"{directory}/{found.session}").is_alive
    # Clocks differ, and a renewal may be on its way.
    return now() < found.until + int(2 * found.seconds * SECOND)


def _is_held(found: LeaseRecord | None, session: SessionLock) -> bool | None:
    """Tell whether a lease has a holder that lives, None when that cannot be seen from here."""
    if found is None:
        return None
    if found.is_free:
        return False
    if found.place != place_of(session.directory):
        return None
    holder = Holder(found.pid, found.host, f"{session.directory}/{found.session}")
    # A JVM that outlives its process still holds its session, and renews no lease.
    return None if holder.holds and (found.goes or not holder.is_alive) else holder.holds


def _refusal(job: JobPaths, found: LeaseRecord | None) -> UsageError:
    if found is None:
        return UsageError(f'job "{job.name}" is being run by another process')
    where = "" if found.host == socket.gethostname() else f" on {found.host}"
    return UsageError(f'job "{job.name}" is being run by process {found.pid}{where}')


def _clock() -> float:
    # A host that sleeps renews nothing.
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
