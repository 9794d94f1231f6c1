"""Log files that processes append to, and that do not grow for ever: a large one is copied to `name.1`, and begins again.

Whoever writes does not notice, so that it can be any program: a JVM, too. It must have opened the file to append.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from typing import BinaryIO, Final

LARGEST: Final = 10 << 20
# Copies that stay, the newest being `name.1`.
KEPT: Final = 3


def rotate(path: str, largest: int = LARGEST, kept: int = KEPT) -> bool:
    """Copy a log file that has grown larger, and empty it; tell whether it was. One process at a time does it.

    A line that is written between the last look and the cut, some microseconds, is lost. A file that cannot be copied stays as it
    is.
    """
    try:
        if os.path.getsize(path) <= largest:
            return False
        with open(path, "r+b") as log:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another process may have done it just now.
            if os.fstat(log.fileno()).st_size <= largest:
                return False
            for number in range(kept - 1, 0, -1):
                with contextlib.suppress(FileNotFoundError):
                    os.replace(f"{path}.{number}", f"{path}.{number + 1}")
            _move(log, f"{path}.1")
    except OSError:
        return False
    return True


def _move(log: BinaryIO, copy: str) -> None:
    with open(copy, "wb") as file:
        while True:
            shutil.copyfileobj(log, file)
            # What was written while the rest was copied.
            if os.fstat(log.fileno()).st_size <= log.tell():
                break
        file.flush()
        log.truncate(0)


def delete_log(path: str, kept: int = KEPT) -> None:
    """Delete a log file and its copies."""
    for name in (path, *(f"{path}.{number}" for number in range(1, kept + 1))):
        with contextlib.suppress(OSError):
            os.unlink(name)
