"""Copies of files of object stores on the local disk: of those that never change once they are there.

All processes of a user share them. What was used least lately goes when they take more than `SQLSTREAM_CACHE_SIZE` (1 GB).
They are in `SQLSTREAM_CACHE`, or in the user's own folder for such things.
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
# Looking at all files for each that is added would cost more than reading it again.
_ADDED_BETWEEN = 16 << 20


class FileCache:
    """Files in a folder, of so many bytes together; the last one that was added is there in any case."""

    def __init__(self, directory: str, limit: int):
        self.directory, self.limit = directory, limit
        # The first file that is added has others looked at: processes may be short.
        self._added = min(limit, _ADDED_BETWEEN)

    def path(self, name: str) -> str:
        """Return where the copy of a file is, or would be."""
        digest = blake2b(name.encode(), digest_size=16).hexdigest()
        return f"{self.directory}/{digest[:2]}/{digest}"

    def find(self, name: str) -> str | None:
        """Return the path of the copy of a file, None where there is none."""
        path = self.path(name)
        try:
            os.utime(path)
        except FileNotFoundError:
            return None
        return path

    def add(self, name: str, content: Iterable[bytes | memoryview]) -> str:
        """Keep a copy of a file, and return its path."""
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
        """Forget a file that is gone."""
        with contextlib.suppress(OSError):
            os.unlink(self.path(name))

    def _evict(self, kept: str) -> None:
        found = []
        for folder in os.scandir(self.directory):
            for entry in os.scandir(folder.path) if folder.is_dir() else ():
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat()
                    found.append((status.st_mtime_ns, status.st_size, entry.path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self.limit:
                return
            if path != kept:
                # Whoever has it open reads on.
                with contextlib.suppress(OSError):
                    os.unlink(path)
                total -= size


@cache
def user_cache() -> FileCache:
    """Return the cache of the user who runs this process."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    directory = os.environ.get("SQLSTREAM_CACHE") or os.path.join(home, "sqlstream", "files")
    size = os.environ.get("SQLSTREAM_CACHE_SIZE", DEFAULT_SIZE)
    try:
        return FileCache(directory, parse_bytes(size, unit=None))
    except ValueError as error:
        raise UsageError(f'SQLSTREAM_CACHE_SIZE "{size}" is no number of bytes', hint="Such as '1 GB'.") from error
