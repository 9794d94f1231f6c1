"""Listing the files of a directory or glob, local or remote, fast enough to do it every second."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Callable, Iterator
from fnmatch import translate
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs as arrow_fs

from sqlstream.connectors.uris import is_remote, local_path, open_uri
from sqlstream.warehouse.filesystem import STORES, FileInfo
from sqlstream.warehouse.stores import StoreFilesystem, open_store
from sqlstream.warehouse.uris import split_options

# Endings of the temporary names under which files are written.
_TEMPORARY_NAMES = (".tmp", ".temp", ".inprogress", "._COPYING_", ".crc", "~")


class FoundFile(NamedTuple):
    """A file of a listing: its modification time in nanoseconds since 1970, its path or URI, and its size in bytes.

    Files are read in the order of these tuples.
    """

    mtime_ns: int
    path: str
    size: int


# Yields the name and path of each entry of a directory, and the file, or None for a directory.
Listing = Callable[[str], Iterator[tuple[str, str, FoundFile | None]]]


class PathPattern:
    """The path or glob of a table: local, relative to the project, or a URI. `text` is its absolute form.

    Directories are listed recursively. Hidden and temporary names are left out.
    """

    def __init__(self, path: str, project: str):
        self._filesystem: arrow_fs.FileSystem | None = None
        self._store: StoreFilesystem | None = None
        self._list: Listing = _list_local
        self._before = self._after = ""
        if is_remote(path) and not path.lower().startswith("file://"):
            path, self._after = split_options(path)
            if path.split("://")[0] in STORES:
                self._store, inner = open_store(without_glob(path) + self._after)
            else:
                self._filesystem, inner = open_uri(without_glob(path) + self._after)
            # The parts around the path, such as hdfs://host:port and ?options, belong to the URI of each file, too.
            self._before = path[: path.index(inner)] if inner in path else path.split("://")[0] + "://"
            self._list = self._list_store if self._store else self._list_remote
            self._path = path[len(self._before) :].rstrip("/")
        else:
            self._path = local_path(path, project)
        self.text = self._before + self._path + self._after

    def files(self) -> list[FoundFile] | None:
        """Return the files, in no order; None if nothing has this name or matches the glob. Raises OSError."""
        kind = self._kind(self._path)
        if isinstance(kind, FoundFile):
            return [kind]
        if kind:
            return list(_walk(self._list, self._path, ()))
        base = without_glob(self._path)
        if base == self._path or not self._kind(base):
            return None
        parts = tuple(self._path[len(base) :].strip("/").split("/"))
        matchers = tuple(None if part == "**" else re.compile(translate(part)) for part in parts)
        return list({f.path: f for f in _walk(self._list, base, matchers)}.values()) or None

    def open(self, path: str) -> Any:
        """Open a file of `files`, by its path, for random access; return a file for pyarrow."""
        if self._store is not None:
            return self._store.open_ranges(path.removesuffix(self._after))
        if self._filesystem is None:
            return pa.OSFile(path)
        return self._filesystem.open_input_file(path[len(self._before) : len(path) - len(self._after)])

    def _kind(self, path: str) -> FoundFile | bool:
        """Return the file at a path, True for a directory, False for nothing."""
        if self._store is not None:
            entry = self._store.info(path)
            return self._store_file(path, entry) if entry is not None else bool(self._store.entries(path))
        if self._filesystem is None:
            try:
                status = os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                return False
            return True if stat.S_ISDIR(status.st_mode) else FoundFile(status.st_mtime_ns, path, status.st_size)
        info = self._filesystem.get_file_info(path)
        if info.type == arrow_fs.FileType.File:
            return self._remote_file(info)
        return bool(info.type == arrow_fs.FileType.Directory)

    def _remote_file(self, info: arrow_fs.FileInfo) -> FoundFile:
        return FoundFile(info.mtime_ns or 0, self._before + info.path + self._after, info.size)

    def _store_file(self, path: str, info: FileInfo) -> FoundFile:
        return FoundFile(info.modified * 1000, path + self._after, info.bytes)

    def _list_store(self, directory: str) -> Iterator[tuple[str, str, FoundFile | None]]:
        assert self._store is not None
        names, files = self._store.children(directory)
        yield from ((name, f"{directory}/{name}", None) for name in names)
        for file in files:
            path = f"{directory}/{file.name}"
            yield file.name, path, self._store_file(path, file)

    def _list_remote(self, directory: str) -> Iterator[tuple[str, str, FoundFile | None]]:
        assert self._filesystem is not None
        for info in self._filesystem.get_file_info(arrow_fs.FileSelector(directory)):
            file = info.type == arrow_fs.FileType.File
            yield info.base_name, info.path, self._remote_file(info) if file else None


def _list_local(directory: str) -> Iterator[tuple[str, str, FoundFile | None]]:
    with os.scandir(directory) as entries:
        for entry in entries:
            try:
                if entry.is_dir():
                    yield entry.name, entry.path, None
                    continue
                status = entry.stat()
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode):
                yield entry.name, entry.path, FoundFile(status.st_mtime_ns, entry.path, status.st_size)


def _walk(listing: Listing, directory: str, pattern: tuple[re.Pattern[str] | None, ...]) -> Iterator[FoundFile]:
    """Yield the files below a directory that match a pattern per level; None (`**`) stands for any number of directories.

    All files below a matching directory match. With `**` a file may be yielded twice.
    """
    for name, path, file in listing(directory):
        if name.startswith((".", "_")) or (file and name.endswith(_TEMPORARY_NAMES)):
            continue
        rest = pattern
        if pattern and pattern[0] is None:
            if file is None:
                yield from _walk_if_there(listing, path, pattern)
            rest = pattern[1:]
            if not rest and file is None:
                continue
        if rest:
            if rest[0] is not None and not rest[0].match(name):
                continue
            rest = rest[1:]
        if file is None:
            yield from _walk_if_there(listing, path, rest)
        elif not rest:
            yield file


def _walk_if_there(
    listing: Listing, directory: str, pattern: tuple[re.Pattern[str] | None, ...]
) -> Iterator[FoundFile]:
    try:
        yield from _walk(listing, directory, pattern)
    except FileNotFoundError:
        return  # removed while the directory above was being listed


def without_glob(path: str) -> str:
    """Return the directory in front of the first wildcard of a glob; a path without wildcards is returned unchanged.

    >>> without_glob("/data/2024-*/x.json")
    '/data'
    """
    parts = path.split("/")
    plain = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return "/".join(parts[:plain]) or "/"
