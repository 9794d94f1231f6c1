"""Local copies of remote files while a process reads them, as the readers (DuckDB and others) take local paths.

A copy keeps the name of its file and of the folders above it: they have partition values and the compression. Errors and metadata
columns show the URI (see `shown`).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import threading
import time
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import fs as arrow_fs

from sqlstream.connectors.uris import is_remote, open_uri
from sqlstream.errors import UsageError
from sqlstream.storage_errors import make_folder, storage_errors
from sqlstream.warehouse.filesystem import STORES
from sqlstream.warehouse.process_folders import COPIES, process_folder
from sqlstream.warehouse.stores import open_store
from sqlstream.warehouse.uris import split_options

if TYPE_CHECKING:
    from sqlstream.connectors.formats.file_split import FileSplit

# The most bytes of all copies, beyond which the oldest are deleted, and the seconds after its last use in which a copy stays.
LARGEST, IN_USE = 1 << 30, 60.0


class _Copies:
    """The local copies of this process, least recently used first. `use` takes constant time."""

    def __init__(self) -> None:
        # By path: when the copy was last used, in seconds on the monotonic clock, and its bytes; the oldest comes first.
        self._uses: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._bytes = 0
        self._changing = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._uses)

    def use(self, path: str, size: int) -> None:
        """Keep the copy at a path from now on, also before it is made; delete the oldest others if there are too many bytes."""
        with self._changing:
            _, before = self._uses.pop(path, (0.0, 0))
            self._uses[path] = time.monotonic(), size
            self._bytes += size - before
            while self._bytes > LARGEST:
                oldest, (used_at, freed) = next(iter(self._uses.items()))
                if oldest == path or used_at > time.monotonic() - IN_USE:
                    return
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(oldest)
                del self._uses[oldest]
                self._bytes -= freed


_copies = _Copies()


def _own() -> str:
    return process_folder(COPIES, shared=True)


def near(split: FileSplit) -> FileSplit:
    """Return the split with the path of a local copy, which is downloaded if needed; return a split of a local file unchanged.

    Raises FileNotFoundError if the remote file is gone, and UsageError if it cannot be read.
    """
    if not is_remote(split.path):
        return split
    scheme, _, rest = split_options(split.path)[0].partition("://")
    path = f"{_own()}/{split.mtime_ns}/{scheme}/{rest}"
    if not _copies:
        _begin()
    _copies.use(path, split.size)
    if not os.path.exists(path):
        temporary = f"{path}.{threading.get_ident()}.tmp"
        with storage_errors(path):
            make_folder(os.path.dirname(path))
            _fetch(split.path, scheme, temporary)
            os.replace(temporary, path)
    return replace(split, path=path)


def shown(path: str) -> str:
    """Return the name of a file for messages: the URI if the path is a local copy, otherwise the path."""
    # If there are no copies, there is no folder for them either.
    if not _copies or not path.startswith(f"{_own()}/"):
        return path
    _, scheme, rest = path[len(_own()) + 1 :].split("/", 2)
    return f"{scheme}://{rest}"


def _fetch(uri: str, scheme: str, path: str) -> None:
    if scheme in STORES:
        # Not through the cache: a file of somebody else may get another content, whatever it is called.
        inner, options = split_options(uri)
        # The bucket is opened: a file may have any name.
        store, _ = open_store("/".join(inner.split("/")[:3]) + options)
        with open(path, "wb") as target:
            target.writelines(store.pieces(inner))
        return
    try:
        filesystem, inner = open_uri(uri)
        arrow_fs.copy_files(inner, path, filesystem, arrow_fs.LocalFileSystem())
    except pa.ArrowException as error:
        raise UsageError(f'"{uri}" cannot be read', detail=str(error)) from error


def _begin() -> None:
    """Register the deletion of all copies at the end of the process; a killed process leaves its copies."""
    atexit.register(shutil.rmtree, _own(), ignore_errors=True)
