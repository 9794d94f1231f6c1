"""Folders for temporary files of a process: files that DuckDB spills, and that Spark shuffles.

Their creators delete the files, but not when the process is killed. A job that dies of a full disk and starts again must not
fill the disk further, so the folders of dead processes are deleted.

A process keeps its folder locked (`flock`) while it lives. Its id would not suffice: containers that share a folder have process
ids of their own, and a container that is started again uses the same ids again.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
import threading
from functools import cache
from uuid import uuid4

from sqlstream.errors import UsageError
from sqlstream.storage_errors import make_folder, storage_errors
from sqlstream.warehouse.locks import process_is_alive

SPILL, SPARK, COPIES = "spill", "spark", "copies"
_looking = threading.Lock()
# The folder of each kind, with the process that created it: a forked process creates its own.
_owned: dict[str, tuple[int, str]] = {}


def process_folder(kind: str, *, shared: bool = False) -> str:
    """Return a path for temporary files of one use, or, if `shared`, of all uses of a kind in this process.

    The caller creates the path; its parent exists, and only the user can read it. The first call for a kind deletes the folders
    of dead processes.
    """
    with _looking:
        pid, own = _owned.get(kind, (0, ""))
        if pid != os.getpid() or not os.path.isdir(own):
            root = f"{user_folder()}/{kind}"
            with storage_errors(root, writes=True):
                make_folder(root)
                own = _begin(root)
                _delete_abandoned(root)
            _owned[kind] = os.getpid(), own
    return f"{own}/shared" if shared else f"{own}/{uuid4().hex}"


def user_folder() -> str:
    """Return the folder for temporary files of the user, into which no other user can write. Raises UsageError without one."""
    try:
        temporary = tempfile.gettempdir()
    except FileNotFoundError as error:
        # A container whose file system is read-only, say.
        hint = "Name one with the variable TMPDIR."
        raise UsageError("no folder for temporary files can be written", hint=hint) from error
    return _user_folder(temporary, os.getuid())


@cache
def _user_folder(temporary: str, user: int) -> str:
    folder = f"{temporary}/sqlstream-{user}"
    make_folder(folder)
    # Another user may have made it a link to any folder, in which this process would write and delete files.
    return folder if os.lstat(folder).st_uid == user else tempfile.mkdtemp(prefix="sqlstream-")


def _begin(root: str) -> str:
    name = f"{os.getpid()}-{uuid4().hex[:8]}"
    # It is locked before it gets its name, so that no process takes it for an abandoned one.
    os.mkdir(f"{root}/.{name}", 0o700)
    # The descriptor stays open until the process ends.
    descriptor = os.open(f"{root}/.{name}", os.O_RDONLY)
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.rename(f"{root}/.{name}", f"{root}/{name}")
    atexit.register(_end, os.getpid(), f"{root}/{name}")
    return f"{root}/{name}"


def _end(pid: int, own: str) -> None:
    if pid == os.getpid():
        # A JVM that is about to end may still have files there.
        with contextlib.suppress(OSError):
            os.rmdir(own)


def _delete_abandoned(root: str) -> None:
    for name in os.listdir(root):
        # Version 0.1.0 locked no folders, and named them by the ids of their processes.
        if name.startswith(".") or (name.isdigit() and process_is_alive(int(name))):
            continue
        # On a file system without such locks, nothing is deleted.
        with contextlib.suppress(OSError):
            descriptor = os.open(f"{root}/{name}", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(f"{root}/{name}", ignore_errors=True)
            finally:
                os.close(descriptor)
