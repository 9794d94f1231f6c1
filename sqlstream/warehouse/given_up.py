"""Says which jobs a session has given up although their locks still name it, where nothing can be written.

A session that could not release the lock of a job locks one byte of its session file, whose number is a hash of the job's name.
Other processes ask the kernel for that lock, so nothing has to be written, and it ends with the session. Elsewhere than on Linux
they wait for the end of the session.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import struct
import sys
from typing import Final

# Locks of an open file, as that of `flock` is: they do not end when the process closes another descriptor of the file.
_SET, _GET = (getattr(fcntl, name, None) for name in ("F_OFD_SETLK", "F_OFD_GETLK"))
_IS_KNOWN: Final = sys.platform == "linux" and _SET is not None and _GET is not None
# The fields of `struct flock` on Linux: type, whence, start, length, process.
_FLOCK: Final = struct.Struct("@hhqqi0q")


def give_up(descriptor: int, job: str) -> None:
    """Say that the session with a file that is open for writing does not run a job any more."""
    _lock(descriptor, fcntl.F_WRLCK, job)


def take_up(descriptor: int, job: str) -> None:
    """Say that a session runs a job, if it has given it up."""
    _lock(descriptor, fcntl.F_UNLCK, job)


def is_given_up(session: str, job: str) -> bool:
    """Return whether the session of a file has given up a job; False where that cannot be known."""
    if not _IS_KNOWN or _GET is None:
        return False
    try:
        descriptor = os.open(session, os.O_RDONLY)
    except OSError:
        return False
    try:
        request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _byte(job), 1, 0)
        kind, _, start, length, _ = _FLOCK.unpack(fcntl.fcntl(descriptor, _GET, request))
    except OSError:
        return False
    finally:
        os.close(descriptor)
    # A network file system may show the lock of a whole file, which says that the session lives.
    return bool(kind != fcntl.F_UNLCK and (start, length) == (_byte(job), 1))


def _lock(descriptor: int, kind: int, job: str) -> None:
    if _IS_KNOWN and _SET is not None:
        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, _SET, _FLOCK.pack(kind, os.SEEK_SET, _byte(job), 1, 0))


def _byte(job: str) -> int:
    return int.from_bytes(hashlib.sha256(job.encode()).digest()[:7])
