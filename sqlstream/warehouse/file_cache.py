"""A cache on the local disk, for files of object stores that never change.

All processes of a user share it. When it has more than `SQLSTREAM_CACHE_SIZE` (1 GB) of files, those that were not used for
longest are deleted. It is in the folder `SQLSTREAM_CACHE`, or in the user's folder for caches.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import IO
from uuid import uuid4

from sqlstream.errors import UsageError
from sqlstream.units import parse_bytes

DEFAULT_SIZE = "1 GB"
# Bytes that are added between two evictions. An eviction looks at all files: one for each added file would take too long.
_ADDED_BETWEEN = 16 << 20
# After so many seconds without a write, the process that was writing a copy is dead, or its copy is not worth the wait.
_ABANDONED = 3600.0
_COPY, _TEMPORARY = re.compile("[0-9a-f]{32}"), re.compile(r"[0-9a-f]{32}\.[0-9a-f]{8}\.tmp")


class FileCache:
    """Files in a folder, with a limit of bytes for all of them; the file that was added last stays in any case.

    The cache only saves requests. What its disk refuses, such as a full one, is no error: there is no copy then. Other processes
    may delete copies at any time.
    """

    def __init__(self, directory: str, limit: int):
        self.directory, self.limit = directory, limit
        # The first added file causes an eviction, because a short process may add few files.
        self._added = min(limit, _ADDED_BETWEEN)

    def path(self, name: str) -> str:
        """Return the path that the copy of a file has, or would have."""
        digest = blake2b(name.encode(), digest_size=16).hexdigest()
        return f"{self.directory}/{digest[:2]}/{digest}"

    def find(self, name: str) -> str | None:
        """Return the path of the copy of a file, which counts as used now; None if there is no copy that can be read."""
        path = self.path(name)
        try:
            os.utime(path)
        except FileNotFoundError:
            return None
        except OSError:
            # The copy of another user, or a disk that cannot be written.
            return path if os.access(path, os.R_OK) else None
        return path

    def open_copy(self, name: str) -> IO[bytes] | None:
        """Open the copy of a file, which counts as used now; None if there is no copy that can be read."""
        path = self.find(name)
        if path is not None:
            with contextlib.suppress(OSError):
                return open(path, "rb")
        return None

    def add(self, name: str, content: Iterable[bytes | memoryview]) -> IO[bytes] | None:
        """Store a copy of a file, and return it, open at its beginning; delete other copies if the limit is exceeded.

        None: the disk has not taken the copy, and `content` may not be at its end. Errors of `content` pass through.
        """
        path = self.path(name)
        temporary = f"{path}.{uuid4().hex[:8]}.tmp"
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            file = open(temporary, "w+b")  # noqa: SIM115, the caller closes it
        except OSError:
            return None
        try:
            if not all(_is_written(file, piece) for piece in content):
                _discard(file, temporary)
                return None
        except BaseException:
            _discard(file, temporary)
            raise
        self._added += file.tell()
        file.seek(0)
        try:
            os.replace(temporary, path)
        except OSError:
            # The file is whole: the caller can read it, and nobody else.
            _unlink(temporary)
        if self._added > min(self.limit, _ADDED_BETWEEN):
            self._added = 0
            self._evict(os.path.basename(path))
        return file

    def remove(self, name: str) -> None:
        """Delete the copy of a file, if there is one."""
        _unlink(self.path(name))

    def _evict(self, newest: str) -> None:
        """Delete what dead processes were writing, and, beyond the limit, copies other than `newest`.

        Files of other names are not the cache's: the folder may have been somebody's before.
        """
        copies = []
        for entry in self._entries():
            with contextlib.suppress(OSError):
                status = entry.stat()
                if _COPY.fullmatch(entry.name):
                    copies.append((status.st_mtime_ns, status.st_size, entry))
                elif _TEMPORARY.fullmatch(entry.name) and status.st_mtime < time.time() - _ABANDONED:
                    os.unlink(entry.path)
        total = sum(size for _, size, _ in copies)
        for _, size, entry in sorted(copies, key=lambda copy: copy[:2]):
            if total <= self.limit:
                return
            # A process that has the file open can still read it.
            if entry.name != newest and _unlink(entry.path):
                total -= size

    def _entries(self) -> Iterator[os.DirEntry[str]]:
        for folder in _listing(self.directory):
            yield from _listing(folder.path)


def _is_written(file: IO[bytes], piece: bytes | memoryview) -> bool:
    """Write a piece into a file; return whether the disk has taken it."""
    try:
        file.write(piece)
        file.flush()
    except OSError:
        return False
    return True


def _discard(file: IO[bytes], path: str) -> None:
    # Closing it writes again what a full disk has not taken.
    with contextlib.suppress(OSError):
        file.close()
    _unlink(path)


def _unlink(path: str) -> bool:
    """Delete a file; return whether it is gone."""
    try:
        Path(path).unlink(missing_ok=True)
    except OSError:
        return False
    return True


def _listing(folder: str) -> list[os.DirEntry[str]]:
    """Return the entries of a folder, none if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


@cache
def user_cache() -> FileCache:
    """Return the cache of the user of this process. Raises UsageError when SQLSTREAM_CACHE_SIZE is no number of bytes."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    directory = os.environ.get("SQLSTREAM_CACHE") or os.path.join(home, "sqlstream", "files")
    size = os.environ.get("SQLSTREAM_CACHE_SIZE", DEFAULT_SIZE)
    try:
        return FileCache(directory, parse_bytes(size, unit=None))
    except ValueError as error:
        raise UsageError(f'SQLSTREAM_CACHE_SIZE "{size}" is no number of bytes', hint="Such as '1 GB'.") from error
