"""Log files that processes append to, with rotation: a large one is copied to `name.1`, and emptied.

Writers do not notice this, so they can be any programs, such as a JVM; they must have opened the file to append.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from typing import BinaryIO, Final

LARGEST: Final = 10 << 20
# How many copies are kept; the newest is `name.1`.
KEPT: Final = 3


def rotate(path: str, largest: int = LARGEST, copies: int = KEPT) -> bool:
    """Copy a log file of more than `largest` bytes, and empty it; return whether this call did. One process at a time does it.

    At most `copies` copies stay. A line that is written in the microseconds between the last copy and the truncation is lost. A
    file that cannot be copied stays as it is.
    """
    try:
        if os.path.getsize(path) <= largest:
            return False
        with open(path, "r+b") as log:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another process may just have rotated it.
            if os.fstat(log.fileno()).st_size <= largest:
                return False
            _cut(log, path, copies)
    except OSError:
        return False
    return True


def _cut(log: BinaryIO, path: str, copies: int) -> None:
    new = f"{path}.0"
    try:
        with open(new, "wb") as copy:
            # The older copies stay as they are if there is no room for this one.
            _copy(log, copy)
            for number in range(copies - 1, 0, -1):
                with contextlib.suppress(FileNotFoundError):
                    os.replace(f"{path}.{number}", f"{path}.{number + 1}")
            os.replace(new, f"{path}.1")
            _copy(log, copy)
            log.truncate(0)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)


def _copy(log: BinaryIO, copy: BinaryIO) -> None:
    while True:
        shutil.copyfileobj(log, copy)
        copy.flush()
        # Lines may have been written during the copy.
        if os.fstat(log.fileno()).st_size <= log.tell():
            return


def delete_log(path: str, copies: int = KEPT) -> None:
    """Delete a log file and its copies."""
    for name in (path, *(f"{path}.{number}" for number in range(copies + 1))):
        with contextlib.suppress(OSError):
            os.unlink(name)
