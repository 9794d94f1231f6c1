"""Leases: the right to run a job of a warehouse in an object store. A lease ends when its holder does not renew it.

A lease is the file `lock` of the job. It is written on the condition that it is still what its writer has read, so one of two
competing processes gets it. To take a lease, a process never compares clocks of two hosts: if it meets the lease of another
host, it waits until the lease has been renewed, which means that the job is being run, or has not changed for as long as a lease
lasts; then the process takes it.

A holder that could not renew its lease in time commits nothing until it has renewed it, which succeeds if no other process has
taken the lease; otherwise its job fails. It may be suspended between this check and the commit; so a commit is only written if
there is none.

The lease of a deleted job is deleted, too. Stores cannot delete on a condition, so the holder first writes that the lease
`goes`, and other processes leave the lease alone for as long as a lease lasts.
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
    JobLock,
    LockHolder,
    SessionLock,
    host_id_of,
    read_holder,
    session_directory,
)
from sqlstream.warehouse.paths import JobPaths
from sqlstream.warehouse.records import opened, sealed
from sqlstream.warehouse.stores import PreconditionFailed, StoreFilesystem, Tag

# Seconds that a lease lasts without a renewal.
LEASE_SECONDS: Final = 15.0
# A holder gives up so many seconds before others may take the lease.
_MARGIN = 2.0
_RENEWALS = 4
_LOOKS_EVERY = 0.25


class LeaseRecord(msgspec.Struct, frozen=True):
    """The holder of a lease; none if `pid` is 0. It lasts `seconds`, until `until` by the clock of the holder.

    Other hosts use `until` to see whether the job runs, never to take the lease. `host_id` identifies a host or container, also
    among hosts of equal names: only in the same one can the holder's session file be checked. A lease that `goes` is being
    deleted by the process that held it.
    """

    pid: int
    host: str
    host_id: str = msgspec.field(name="place")
    session: str
    seconds: float
    until: ProcessingTime
    goes: bool = False

    @property
    def is_free(self) -> bool:
        return self.pid == 0


class Lease(JobLock):
    """A lease that this process holds until it is released or lost; a thread renews it."""

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
        """Take the lease of a job when its holder is gone. Raises UsageError when another process runs the job.

        With `in_turn`, wait up to `patience` seconds for a live holder. `seconds` is how long the lease lasts.
        """
        lease = cls(fs, job, session, LEASE_SECONDS if seconds is None else seconds)
        started = unchanged_since = time.monotonic()
        before: Tag | None = None
        while True:
            record, tag = read_lease(fs, job)
            moment = time.monotonic()
            is_renewed = before is not None and tag != before
            unchanged_since = moment if tag != before else unchanged_since
            before = tag
            lasts = record.seconds if record is not None else lease._seconds
            # A lease that has changed is another one.
            is_abandoned = tag is not None and tag == _abandoned.get(job.root)
            held = False if is_abandoned else _is_held(record, session)
            if tag is None or held is False or (held is None and moment - unchanged_since > lasts):
                # Another process has taken it in the meantime; it may even have ended, and deleted it.
                with contextlib.suppress(PreconditionFailed, FileNotFoundError):
                    lease._write(tag)
                    lease._begin()
                    return lease
                continue
            if moment - started > patience if in_turn else held or is_renewed:
                raise _refusal(job, record)
            time.sleep(_LOOKS_EVERY)

    def _record(self, *, free: bool = False, goes: bool = False) -> str:
        until = ProcessingTime(now() + int(self._seconds * SECOND))
        pid, name = 0 if free else os.getpid(), os.path.basename(self._session.path)
        host_id = host_id_of(self._session.directory)
        record = LeaseRecord(pid, socket.gethostname(), host_id, name, self._seconds, until, goes)
        return sealed(json.dumps({**msgspec.to_builtins(record), "put": uuid4().hex}))

    def _write(self, before: Tag | None, *, free: bool = False, goes: bool = False) -> None:
        began, text = _clock(), self._record(free=free, goes=goes)
        try:
            self._tag = self._store.put_if(self._job.lock, text, before)
        except PreconditionFailed:
            # The put was repeated because its answer was lost, if the file has this very text.
            written, tag = self._store.read_tagged(self._job.lock)
            if written != text.encode():
                raise
            self._tag = tag
        self._valid_until = began + self._seconds - min(_MARGIN, self._seconds / 4)

    def _begin(self) -> None:
        _abandoned.pop(self._job.root, None)
        _held[self._job.root] = self
        threading.Thread(target=self._renew, name=f"lease-{self._job.name}", daemon=True).start()

    def _renew(self) -> None:
        while not self._wake.wait(self._seconds / _RENEWALS):
            with self._changing:
                if self._ended:
                    return
                try:
                    self._write(self._tag)
                except (PreconditionFailed, FileNotFoundError):
                    self._lost = True
                    return
                except SqlStreamError:
                    # The store may answer again before the lease has ended.
                    continue

    @property
    def is_lost(self) -> bool:
        """Whether another process may have taken the lease."""
        return self._lost or _clock() > self._valid_until

    def renew(self) -> None:
        """Renew the lease if it may have ended. Raises JobError if another process has taken it."""
        if not self.is_lost:
            return
        with self._changing:
            if self._ended or not self.is_lost:
                return
            try:
                if not self._lost:
                    self._write(self._tag)
            except (PreconditionFailed, FileNotFoundError):
                self._lost = True
            if self._lost:
                raise taken_over(self._job)

    def release(self) -> None:
        """Release the lease, unless it is lost; delete it if the job was deleted."""
        self._wake.set()
        with self._changing:
            if self._ended:
                return
            self._ended = True
            if _held.get(self._job.root) is self:
                del _held[self._job.root]
            if self._lost:
                return
            with contextlib.suppress(PreconditionFailed, FileNotFoundError):
                self._give_back()

    def _give_back(self) -> None:
        """Free the lease, or delete it if nothing else of the job is left. Without an answer of the store it ends by itself."""
        try:
            if self._store.entries(self._job.root) != ["lock"]:
                self._write(self._tag, free=True)
                return
        except SqlStreamError:
            # This process need not wait for its end.
            if self._tag is not None:
                _abandoned[self._job.root] = self._tag
            return
        with contextlib.suppress(SqlStreamError):
            self._write(self._tag, goes=True)
            # If this process has been suspended since, it would delete the lease of another one.
            if _clock() < self._valid_until:
                self._store.delete(self._job.lock)


_held: dict[str, Lease] = {}
# The leases that this process could not release, by the folder of the job.
_abandoned: dict[str, Tag] = {}


def lock_job(
    fs: Filesystem, job: JobPaths, session: SessionLock, *, patience: float = ORPHAN_SECONDS, in_turn: bool = False
) -> JobLock:
    """Take the right to run a job: a lock on a local disk, a lease in a store. Raises UsageError when that is impossible."""
    if isinstance(fs, StoreFilesystem):
        return Lease.take(fs, job, session, patience=patience, in_turn=in_turn)
    if not fs.local:
        hint = "A warehouse is on a local disk or in an object store: s3://, gs:// or abfss://."
        raise UsageError(
            f'a job cannot run in "{job.warehouse}": nothing there says that only one process runs it', hint=hint
        )
    return JobLock.acquire(fs, job, session, patience=patience, in_turn=in_turn)


def check_held(job: JobPaths) -> None:
    """Raise JobError when this process runs a job, and another process has taken the job's lease.

    A lease that was not renewed in time, and that no other process has taken, is renewed. Raises OutageError if the store does
    not answer.
    """
    if (lease := _held.get(job.root)) is not None:
        lease.renew()


def taken_over(job: JobPaths) -> JobError:
    """Return the error for people about a job that another process may have taken over."""
    return JobError(
        f'job "{job.name}" was taken over, or might have been: its lease in the store was not renewed in time',
        detail="This process was suspended, or the store did not answer.",
        hint="Run it again, unless another process runs it by now; it continues after its last committed batch.",
    )


def read_lease(fs: StoreFilesystem, job: JobPaths) -> tuple[LeaseRecord | None, Tag | None]:
    """Return the lease of a job, None if it is missing or damaged, and the tag of its content, None if it is missing."""
    try:
        content, tag = fs.read_tagged(job.lock)
    except FileNotFoundError:
        return None, None
    try:
        return msgspec.json.decode(opened(job.lock, content.decode()), type=LeaseRecord), tag
    except (UnicodeDecodeError, DamageError, msgspec.DecodeError):
        return None, tag


def is_being_run(fs: Filesystem, job: JobPaths) -> bool:
    """Return whether a process runs a job, as far as one look can tell."""
    if not isinstance(fs, StoreFilesystem):
        holder = read_holder(fs, job)
        return holder is not None and (holder.is_alive or not (fs.local or holder.is_here))
    record, _ = read_lease(fs, job)
    if record is None or record.is_free or record.goes:
        return False
    directory = session_directory(fs, job.warehouse)
    if os.path.isdir(directory) and record.host_id == host_id_of(directory):
        return LockHolder(record.pid, record.host, f"{directory}/{record.session}").is_alive
    # Clocks differ, and a renewal may be under way.
    return now() < record.until + int(2 * record.seconds * SECOND)


def _is_held(record: LeaseRecord | None, session: SessionLock) -> bool | None:
    """Return whether the holder of a lease is alive; None if that cannot be seen from this host."""
    if record is None:
        return None
    if record.is_free:
        return False
    if record.host_id != host_id_of(session.directory):
        return None
    holder = LockHolder(record.pid, record.host, f"{session.directory}/{record.session}")
    # A JVM that outlives its process still holds its session, and renews no lease.
    return None if holder.holds and (record.goes or not holder.is_alive) else holder.holds


def _refusal(job: JobPaths, record: LeaseRecord | None) -> UsageError:
    if record is None:
        return UsageError(f'job "{job.name}" is being run by another process')
    where = "" if record.host == socket.gethostname() else f" on {record.host}"
    return UsageError(f'job "{job.name}" is being run by process {record.pid}{where}')


def _clock() -> float:
    # This clock runs on while the host is suspended, when no lease is renewed.
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
