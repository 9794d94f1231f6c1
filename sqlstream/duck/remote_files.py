"""Files of object stores, as DuckDB reads them: its own way to read them is an extension that has to be downloaded.

Each store that this process has opened gets a scheme of its own, `sqlstream-..://`, so that two stores with buckets of the
same name stay apart. A path is read as it is written: nothing in it is a pattern.
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
    """What opens the files of a store, which never change."""

    def open_bytes(self, path: str) -> IO[bytes]:
        """Open a file to read its bytes."""

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""


_openers: dict[str, tuple[str, Opener]] = {}


def serve(scheme: str, prefix: str, opener: Opener) -> None:
    """Let DuckDB read `scheme://path` in this process as what the opener calls `prefix` + path."""
    _openers[scheme] = prefix, opener


def register(con: duckdb.DuckDBPyConnection, known: set[str]) -> None:
    """Let a database read from all stores that this process has opened; `known` are the schemes that it has already."""
    for scheme in _openers.keys() - known:
        con.register_filesystem(_reader(scheme))
        known.add(scheme)


class SharedFile:
    """A file that several threads read: DuckDB seeks and then reads in any of its threads, each of which has its own place."""

    def __init__(self, file: IO[bytes]):
        self._file = file
        self._places: dict[int, int] = {}
        self._lock = threading.Lock()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        with self._lock:
            if whence == os.SEEK_CUR:
                offset += self._places.get(threading.get_ident(), 0)
            place = self._file.seek(offset, os.SEEK_END if whence == os.SEEK_END else os.SEEK_SET)
            self._places[threading.get_ident()] = place
            return place

    def tell(self) -> int:
        return self._places.get(threading.get_ident(), 0)

    def read(self, size: int = -1) -> bytes:
        with self._lock:
            self._file.seek(self._places.get(threading.get_ident(), 0))
            data = self._file.read(size)
            self._places[threading.get_ident()] = self._file.tell()
            return data

    def close(self) -> None:
        self._file.close()


@cache
def _reader(scheme: str) -> Any:
    # Who has no store has no fsspec, either.
    from fsspec import AbstractFileSystem

    prefix, opener = _openers[scheme]
    start = len(scheme) + len("://")

    class Reader(AbstractFileSystem):  # type: ignore[misc]
        """What DuckDB asks of a file system."""

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
