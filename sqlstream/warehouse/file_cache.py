"""A cache on the local disk, for files of object stores that never change.

All processes of a user share it. When it has more than `SQLSTREAM_CACHE_SIZE` (1 GB) of files, those that were not used for
longest are deleted. It is in the folder `SQLSTREAM_CACHE`, or in the user's folder for caches.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from uuid import uuid4

from sqlstream.errors import UsageError
from sqlstream.units import parse_bytes
from sqlstream.warehouse.filesystem import make_folder, storage_errors

DEFAULT_SIZE = "1 GB"
# Bytes that are added between two evictions. An eviction looks at all files: one for each added file would take too long.
_ADDED_BETWEEN = 16 << 20


class FileCache:
    """Files in a folder, with a limit of bytes for all of them; the file that was added last stays in any case."""

    def __init__(self, directory: str, limit: int):
        self.directory, self.limit = directory, limit
        # The first added file causes an eviction, because a short process may add few files.
        self._added = min(limit, _ADDED_BETWEEN)

    def path(self, name: str) -> str:
        """Return the path that the copy of a file has, or would have."""
        digest = blake2b(name.encode(), digest_size=16).hexdigest()
        return f"{self.directory}/{digest[:2]}/{digest}"

    def find(self, name: str) -> str | None:
        """Return the path of the copy of a file, which counts as used now; None if there is no copy."""
        path = self.path(name)
        try:
            os.utime(path)
        except FileNotFoundError:
            return None
        return path

    def add(self, name: str, content: Iterable[bytes | memoryview]) -> str:
        """Store a copy of a file, and return its path; delete other copies if the limit is exceeded."""
        path = self.path(name)
        temporary = f"{path}.{uuid4().hex[:8]}.tmp"
        with storage_errors(path):
            make_folder(os.path.dirname(path))
            try:
                with open(temporary, "wb") as file:
                    for piece in content:
                        self._added += file.write(piece)
                os.replace(temporary, path)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        if self._added > min(self.limit, _ADDED_BETWEEN):
            self._added = 0
            self._evict(path)
        return path

    def remove(self, name: str) -> None:
        """Delete the copy of a file, if there is one."""
        with contextlib.suppress(OSError):
            os.unlink(self.path(name))

    def _evict(self, newest: str) -> None:
        copies = []
        for folder in os.scandir(self.directory):
            for entry in os.scandir(folder.path) if folder.is_dir() else ():
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat()
                    copies.append((status.st_mtime_ns, status.st_size, entry.path))
        total = sum(size for _, size, _ in copies)
        for _, size, path in sorted(copies):
            if total <= self.limit:
                return
            if path != newest:
                # A process that has the file open can still read it.
                with contextlib.suppress(OSError):
                    os.unlink(path)
                total -= size


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
