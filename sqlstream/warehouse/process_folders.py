"""Folders for temporary files of a process: what DuckDB has no memory for, what Spark shuffles.

Whoever makes files there deletes them, but not when its process is killed. A job that dies of a full disk and starts again must
not fill it further.

A process keeps its folder locked (`flock`) as long as it lives. Its id would not tell: containers that share a folder have ids of
their own each, and one that starts anew gives the same ids again.
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

from sqlstream.warehouse.filesystem import make_folder, storage_errors
from sqlstream.warehouse.locks import process_is_alive

SPILL, SPARK, COPIES = "spill", "spark", "copies"
_looking = threading.Lock()
# The folder of each kind, and the process that made it: one that is forked makes its own.
_owned: dict[str, tuple[int, str]] = {}


def process_folder(kind: str, *, shared: bool = False) -> str:
    """Return a folder of this process for one use, or for all uses of a kind. It is not there yet, the one around it is.

    The first call of a kind deletes the folders of processes that are gone. Nobody but the user can look into them.
    """
    with _looking:
        pid, own = _owned.get(kind, (0, ""))
        if pid != os.getpid() or not os.path.isdir(own):
            root = f"{user_folder()}/{kind}"
            with storage_errors(root):
                make_folder(root)
                own = _begin(root)
                _delete_left(root)
            _owned[kind] = os.getpid(), own
    return f"{own}/shared" if shared else f"{own}/{uuid4().hex}"


def user_folder() -> str:
    """Return the folder for temporary files of the user, in which nobody else can put anything."""
    return _user_folder(tempfile.gettempdir(), os.getuid())


@cache
def _user_folder(temporary: str, user: int) -> str:
    place = f"{temporary}/sqlstream-{user}"
    make_folder(place)
    # Somebody else may have it lead anywhere, where files would be written, and others deleted.
    return place if os.lstat(place).st_uid == user else tempfile.mkdtemp(prefix="sqlstream-")


def _begin(root: str) -> str:
    name = f"{os.getpid()}-{uuid4().hex[:8]}"
    # Locked before it has its name, so that nobody takes it for one that was left.
    os.mkdir(f"{root}/.{name}", 0o700)
    # It stays open until the process ends.
    descriptor = os.open(f"{root}/.{name}", os.O_RDONLY)
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.rename(f"{root}/.{name}", f"{root}/{name}")
    atexit.register(_end, os.getpid(), f"{root}/{name}")
    return f"{root}/{name}"


def _end(pid: int, own: str) -> None:
    if pid == os.getpid():
        # A JVM may still be about to end that has files there.
        with contextlib.suppress(OSError):
            os.rmdir(own)


def _delete_left(root: str) -> None:
    for name in os.listdir(root):
        # Version 0.1.0 locked no folders, which were called as its processes were.
        if name.startswith(".") or (name.isdigit() and process_is_alive(int(name))):
            continue
        # Where there are no such locks, nothing is deleted.
        with contextlib.suppress(OSError):
            descriptor = os.open(f"{root}/{name}", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(f"{root}/{name}", ignore_errors=True)
            finally:
                os.close(descriptor)
