"""Locks: one process at a time runs a job. Its lock ends with the process and the JVM that it started.

A session (a process that runs jobs) holds an exclusive `flock` on a file of its own. A child that inherits the descriptor holds
the same lock, so a JVM that outlives its driver is noticed. The lock file of a job names the session.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from uuid import uuid4

from sqlstream.errors import DamageError, SqlStreamError, UsageError
from sqlstream.names import path_name
from sqlstream.storage_errors import make_folder, storage_errors
from sqlstream.warehouse.filesystem import SESSIONS, Filesystem
from sqlstream.warehouse.given_up import give_up, is_given_up, take_up
from sqlstream.warehouse.paths import JobPaths, Warehouse
from sqlstream.warehouse.records import CHANGED, damage, read_sealed, write_sealed

# Seconds that a JVM may need to notice that its driver is gone.
ORPHAN_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class LockHolder:
    """The process that a job's lock names, with the path of its session file."""

    pid: int
    host: str
    session: str

    @property
    def is_here(self) -> bool:
        """Whether the process ran on this host."""
        return self.host == socket.gethostname()

    @property
    def holds(self) -> bool:
        """Whether the process, or a child that outlives it, still holds its session."""
        return _is_locked(self.session)

    @property
    def is_alive(self) -> bool:
        """Whether the process itself still holds its session, as far as this host can see."""
        return self.holds and not (self.is_here and not process_is_alive(self.pid))


class SessionLock:
    """A file that this process keeps locked while it runs jobs; pass `descriptor` in `pass_fds` to start the JVM."""

    def __init__(self, directory: str, path: str, descriptor: int):
        self.directory = directory
        self.path = path
        self.descriptor = descriptor

    @classmethod
    def open(cls, warehouse: Warehouse) -> SessionLock:
        """Return a new session, and delete the files of sessions that are gone."""
        directory = session_directory(warehouse.fs, warehouse.root)
        with storage_errors(directory, writes=True):
            make_folder(directory)
            _delete_stale(directory)
            name = f"{uuid4().hex}.lock"
            # It is locked before it gets its name, so that no process takes it for a stale one.
            descriptor = os.open(f"{directory}/.{name}", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(f"{directory}/.{name}", f"{directory}/{name}")
        return cls(directory, f"{directory}/{name}", descriptor)

    def close(self) -> None:
        """End the session. A child that holds it, too, keeps the jobs locked until the child ends."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
            if not _is_locked(self.path):
                # A warehouse that cannot be written any more keeps the file, which says nothing without its lock.
                with contextlib.suppress(OSError):
                    os.unlink(self.path)

    def __enter__(self) -> SessionLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# The jobs, by their folders, whose locks a session of this process could not release, by the path of its file.
_abandoned: set[tuple[str, str]] = set()


class JobLock:
    """The right to run a job, held by a session of this process."""

    def __init__(self, fs: Filesystem, job: JobPaths, session: SessionLock):
        self._fs = fs
        self._job = job
        self._session = session

    @classmethod
    def acquire(
        cls,
        fs: Filesystem,
        job: JobPaths,
        session: SessionLock,
        *,
        patience: float = ORPHAN_SECONDS,
        in_turn: bool = False,
    ) -> JobLock:
        """Take the lock of a job, also from a session that is gone.

        Wait up to `patience` seconds if only the JVM of a dead process has it; with `in_turn`, also for a live session. Raises
        UsageError when another process keeps it, and DamageError when it is damaged while other processes use the warehouse.
        """
        deadline = time.monotonic() + patience
        while True:
            with _guard(job, session):
                holder = read_holder(fs, job)
                if holder is None and fs.exists(job.lock) and _others(session):
                    hint = "End the other processes that use the warehouse, then try again."
                    raise damage(job.lock, CHANGED, hint=hint)
                is_abandoned = holder is not None and (
                    (job.root, holder.session) in _abandoned or is_given_up(holder.session, job.name)
                )
                if holder is None or is_abandoned or not (holder.holds or _is_elsewhere(fs, holder)):
                    # Only the name of the file: the lock in a copy of the warehouse must not name the original's session.
                    own = LockHolder(os.getpid(), socket.gethostname(), os.path.basename(session.path))
                    write_sealed(fs, job.lock, json.dumps(asdict(own)))
                    _abandoned.discard((job.root, session.path))
                    take_up(session.descriptor, job.name)
                    return cls(fs, job, session)
            if (holder.is_alive and not in_turn) or _is_elsewhere(fs, holder) or time.monotonic() > deadline:
                raise _refusal(fs, job, holder)
            time.sleep(0.05)

    def release(self) -> None:
        """Release the lock, unless another process has taken it; delete the folder of a deleted job.

        Where the warehouse cannot be written any more, the lock names the session until it ends. Any process can take it before,
        as soon as it can write there.
        """
        try:
            self._release()
        except SqlStreamError:
            _abandoned.add((self._job.root, self._session.path))
            give_up(self._session.descriptor, self._job.name)

    def _release(self) -> None:
        with _guard(self._job, self._session):
            holder = read_holder(self._fs, self._job)
            if holder is not None and holder.session == self._session.path:
                self._fs.delete(self._job.lock)
                if not self._fs.entries(self._job.root):
                    self._fs.delete_tree(self._job.root)


def read_holder(fs: Filesystem, job: JobPaths) -> LockHolder | None:
    """Return the process that a job's lock names, which may be gone; None if there is no lock, or it is damaged."""
    try:
        holder = LockHolder(**json.loads(read_sealed(fs, job.lock)))
    except (FileNotFoundError, DamageError):
        return None
    return replace(holder, session=f"{session_directory(fs, job.warehouse)}/{os.path.basename(holder.session)}")


def process_is_alive(pid: int) -> bool:
    """Return whether a process of this host runs; a zombie does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _status_fields(pid)[:1] != [b"Z"]


def birth_of_process(pid: int) -> str:
    """Return the start time of a process, which distinguishes it from later ones with its id; "" if it is not known."""
    fields = _status_fields(pid)
    return fields[19].decode() if len(fields) > 19 else ""


def _status_fields(pid: int) -> list[bytes]:
    """Return the fields of /proc/<pid>/stat from the process state on; none if there is no such file."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return []
    # The name of the command comes before, in parentheses, and may have any bytes.
    return status.rpartition(b")")[2].split()


def _others(session: SessionLock) -> bool:
    """Return whether another process has an open session in the warehouse."""
    paths = [f"{session.directory}/{name}" for name in os.listdir(session.directory) if name.endswith(".lock")]
    return any(path != session.path and _is_locked(path) for path in paths)


def _refusal(fs: Filesystem, job: JobPaths, holder: LockHolder) -> UsageError:
    where = "" if holder.is_here else f" on {holder.host}"
    if _is_elsewhere(fs, holder):
        hint = f'When that process is gone, delete "{job.lock}".'
        return UsageError(f'job "{job.name}" is locked by process {holder.pid}{where}', hint=hint)
    if holder.is_alive:
        return UsageError(f'job "{job.name}" is being run by process {holder.pid}{where}')
    return UsageError(
        f'job "{job.name}" is still being run by the Spark process that process {holder.pid} left behind',
        hint="End that Java process, then run the job again.",
    )


def _is_elsewhere(fs: Filesystem, holder: LockHolder) -> bool:
    # A local warehouse contains the session files; for an object store they are on the host that runs the session.
    return not fs.local and not holder.is_here


def session_directory(fs: Filesystem, warehouse: str) -> str:
    """Return the folder of session files: in a local warehouse, or, for another one, on this host."""
    if fs.local:
        return f"{warehouse}/{SESSIONS}"
    digest = hashlib.sha256(warehouse.encode()).hexdigest()[:16]
    return f"{tempfile.gettempdir()}/sqlstream-{os.getuid()}/{digest}"


def host_id_of(directory: str) -> str:
    """Return a random text that identifies a folder of sessions, also among hosts and containers of equal names."""
    path = f"{directory}/place"
    with storage_errors(path, writes=True):
        if not os.path.exists(path):
            own = f"{path}.{uuid4().hex}"
            Path(own).write_text(uuid4().hex)
            # The first process to link its text wins.
            with contextlib.suppress(FileExistsError):
                os.link(own, path)
            os.unlink(own)
        return Path(path).read_text()


@contextlib.contextmanager
def _guard(job: JobPaths, session: SessionLock) -> Iterator[None]:
    """Let one process at a time read and change the lock of a job.

    The guard file is deleted at the end. A process that has waited for it then has a file without a name, and starts over.
    """
    path = f"{session.directory}/{path_name(job.name)}.guard"
    with storage_errors(path, writes=True):
        while True:
            with open(path, "a") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if not _is_named(file.fileno(), path):
                    continue
                try:
                    yield
                finally:
                    Path(path).unlink(missing_ok=True)
                return


def _is_named(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _is_locked(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            # A shared lock, so that two processes that look at the same time do not see each other.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except (BlockingIOError, PermissionError):
        # A file that only another user can read may be locked.
        return True
    return False


def _delete_stale(directory: str) -> None:
    for name in os.listdir(directory):
        if name.endswith(".lock") and not name.startswith(".") and not _is_locked(f"{directory}/{name}"):
            Path(f"{directory}/{name}").unlink(missing_ok=True)
        elif name.endswith(".guard"):
            # It was left by a killed process, or a process holds it now.
            with contextlib.suppress(FileNotFoundError, BlockingIOError), open(f"{directory}/{name}", "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_named(file.fileno(), f"{directory}/{name}"):
                    Path(f"{directory}/{name}").unlink(missing_ok=True)
