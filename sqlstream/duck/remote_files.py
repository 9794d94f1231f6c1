"""Lets DuckDB read files of object stores through fsspec: DuckDB's own way is an extension that must be downloaded.

Each store that this process has opened has its own scheme, `sqlstream-..://`, so that two stores with buckets of the same name
differ. Paths are literal: nothing in them is a pattern.
"""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime
from functools import cache
from typing import IO, TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import duckdb


class Opener(Protocol):
    """Opens the files of a store, which never change."""

    def open_bytes(self, path: str) -> IO[bytes]:
        """Open a file to read its bytes; it must be seekable. Raises FileNotFoundError."""

    def size(self, path: str) -> int:
        """Return the size of a file in bytes. Raises FileNotFoundError."""


_openers: dict[str, tuple[str, Opener]] = {}


def serve(scheme: str, prefix: str, opener: Opener) -> None:
    """Make `scheme://path` readable for databases of this process, as the opener's file `prefix` + path.

    A database reads it after its next `register`.
    """
    _openers[scheme] = prefix, opener


def register(con: duckdb.DuckDBPyConnection, schemes: set[str]) -> None:
    """Register all stores of this process with a database. `schemes` are the registered ones; new ones are added to the set."""
    for scheme in _openers.keys() - schemes:
        con.register_filesystem(_reader(scheme))
        schemes.add(scheme)


class SharedFile:
    """A file for several threads, each with its own position: DuckDB seeks and reads in any of its threads."""

    def __init__(self, file: IO[bytes]):
        self._file = file
        self._offsets: dict[int, int] = {}
        self._lock = threading.Lock()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position of the calling thread, in bytes, and return it."""
        with self._lock:
            if whence == os.SEEK_CUR:
                offset += self._offsets.get(threading.get_ident(), 0)
            reached = self._file.seek(offset, os.SEEK_END if whence == os.SEEK_END else os.SEEK_SET)
            self._offsets[threading.get_ident()] = reached
            return reached

    def tell(self) -> int:
        """Return the position of the calling thread, in bytes."""
        return self._offsets.get(threading.get_ident(), 0)

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes (-1: all) from the position of the calling thread, and advance it."""
        with self._lock:
            self._file.seek(self._offsets.get(threading.get_ident(), 0))
            data = self._file.read(size)
            self._offsets[threading.get_ident()] = self._file.tell()
            return data

    def close(self) -> None:
        """Close the file for all threads."""
        self._file.close()


@cache
def _reader(scheme: str) -> Any:
    # fsspec is installed only with an object store.
    from fsspec import AbstractFileSystem

    prefix, opener = _openers[scheme]
    start = len(scheme) + len("://")

    class Reader(AbstractFileSystem):  # type: ignore[misc]
        """The methods of a file system that DuckDB calls."""

        cachable = False
        protocol = scheme

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return path

        def glob(self, path: str, **options: object) -> list[str]:
            return [path]

        def open(self, path: str, mode: str = "rb", **options: object) -> SharedFile:
            if mode != "rb":
                raise PermissionError(f'"{path}" can only be read')
            return SharedFile(opener.open_bytes(prefix + path[start:]))

        def info(self, path: str, **options: object) -> dict[str, object]:
            return {"name": path, "type": "file", "size": opener.size(prefix + path[start:])}

        def exists(self, path: str, **options: object) -> bool:
            try:
                opener.size(prefix + path[start:])
            except FileNotFoundError:
                return False
            return True

        def modified(self, path: str) -> datetime:
            return datetime.fromtimestamp(0, UTC)

    return Reader()
