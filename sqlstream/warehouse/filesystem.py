"""File systems of warehouses: the few file operations that storage needs, on local disks and elsewhere."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any, TypeVar
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs as arrow_fs

from sqlstream.errors import UsageError
from sqlstream.storage_errors import make_folder, storage_errors
from sqlstream.units import ProcessingTime

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file: its name within its directory, its size in bytes, and when it was last modified."""

    name: str
    bytes: int
    modified: ProcessingTime


class Filesystem(ABC):
    """The file operations that storage needs. Readers see no half-written file; missing files raise FileNotFoundError.

    Other failures of the storage are errors for people, as in `storage_error`. A file whose name starts with a dot is being
    written: `list` and `files` leave it out, `leftovers` returns it.
    """

    local: bool

    @abstractmethod
    @contextlib.contextmanager
    def create(self, path: str, *, durable: bool = False) -> Iterator[Any]:
        """Open a binary file to write; it gets its name, in place of an older file, when the block ends without an error.

        The file survives the crash of any process. A `durable` one also survives a power failure, which takes milliseconds.
        """

    @abstractmethod
    def read_text(self, path: str) -> str:
        """Return the text of a UTF-8 file. Raises UnicodeDecodeError for other bytes."""

    @abstractmethod
    def open_bytes(self, path: str) -> IO[bytes]:
        """Open a file to read its bytes; the caller closes it."""

    @abstractmethod
    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""

    def version_tag(self, path: str) -> object | None:
        """Return a value that distinguishes a file from earlier files of its name; None if it is missing or has no such value."""
        return None

    @abstractmethod
    def read_parquet(self, path: str, columns: list[str] | None = None, repeated: Sequence[str] = ()) -> pa.Table:
        """Return the rows of a Parquet file, or some of its columns; text columns in `repeated` are dictionaries.

        Reading takes one thread, because there is a worker for each core.
        """

    @abstractmethod
    def entries(self, directory: str) -> list[str]:
        """Return the names of all files and directories in a directory, in any order; none when it is missing."""

    @abstractmethod
    def infos(self, directory: str) -> list[FileInfo]:
        """Return the files in a directory, in any order, without subdirectories; none when it is missing."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Return whether there is a file or a directory at a path."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete a file; a missing one is fine."""

    @abstractmethod
    def delete_tree(self, directory: str) -> None:
        """Delete a directory and what is in it; a missing one is fine."""

    @abstractmethod
    def path_for_duckdb(self, path: str) -> str:
        """Return the path as DuckDB's file functions take it, to be quoted as a string literal."""

    def together(self, read: Callable[[str], T], paths: Sequence[str]) -> list[T]:
        """Return the results of `read` for some paths, in their order; several calls may run at the same time."""
        return list(map(read, paths))

    @contextlib.contextmanager
    def local_copies(self, paths: Sequence[str]) -> Iterator[list[str]]:
        """Yield local paths of files that do not change: their own, or those of copies, which are there inside of the block."""
        yield list(paths)

    def fetch(self, paths: Iterable[str]) -> None:  # noqa: B027
        """Copy files that do not change to the local disk, several at a time, before they are read one by one."""

    def uncached(self) -> Filesystem:
        """Return this file system without copies: it reads every file from the storage itself."""
        return self

    def make_durable(self, paths: Iterable[str]) -> None:  # noqa: B027
        """Make files survive a power failure that were not created `durable`; it takes milliseconds for each."""

    def put_file(self, local: str, path: str) -> None:
        """Write the content of a local file to a path, in place of an older file."""
        with open(local, "rb") as file, self.create(path) as target:
            shutil.copyfileobj(file, target)

    def claim(self, path: str) -> bool:
        """Create a small file unless there is one; return whether it was created. Of concurrent callers, one gets True."""
        raise NotImplementedError

    def move(self, source: str, target: str) -> None:
        """Rename a file, in place of an older file. Raises FileNotFoundError."""
        raise NotImplementedError

    def link(self, source: str, target: str) -> None:
        """Give a file that does not change a second name that outlives the first; make a copy if files have one name only.

        Raises FileNotFoundError.
        """
        raise NotImplementedError

    def move_tree(self, source: str, target: str) -> bool:
        """Rename a directory atomically; return False if the new name is taken, or the file system cannot do that."""
        return False

    def delete_all(self, paths: Iterable[str]) -> None:
        """Delete files; missing ones are fine."""
        for path in paths:
            self.delete(path)

    def walk(self, directory: str) -> Iterator[str]:
        """Yield the paths of all files in a directory and below it."""
        names = {info.name for info in self.infos(directory)}
        for name in sorted(self.entries(directory)):
            if name in names:
                yield f"{directory}/{name}"
            else:
                yield from self.walk(f"{directory}/{name}")

    def files(self, directory: str) -> list[FileInfo]:
        """Return the files of a directory, sorted by name, without those that are being written."""
        return sorted((f for f in self.infos(directory) if not f.name.startswith(".")), key=lambda f: f.name)

    def leftovers(self, directory: str) -> list[FileInfo]:
        """Return the files that are being written, or were when their writer died."""
        return [f for f in self.infos(directory) if f.name.startswith(_TEMPORARY)]

    def write_text_atomic(self, path: str, text: str, *, durable: bool = False) -> None:
        """Write a small UTF-8 file; readers see it whole or not at all."""
        with self.create(path, durable=durable) as file:
            file.write(text.encode())

    def list(self, directory: str) -> list[str]:
        """Return the sorted names in a directory, without those that begin with a dot; none when it is missing."""
        return sorted(name for name in self.entries(directory) if not name.startswith("."))


_TEMPORARY = ".tmp-"
# Errors of hard links: another disk, a file system that has none, or a file that already has as many as it can have.
_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)
# Schemes of object stores (see `stores`).
STORES = ("s3", "gs", "abfs", "abfss")
# The folder of a local warehouse with the lock files of the processes that use it.
SESSIONS = "sessions"


def _temporary(path: str) -> str:
    directory, _, name = path.rpartition("/")
    return f"{directory}/{_TEMPORARY}{uuid4().hex[:12]}-{name}"


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class LocalFilesystem(Filesystem):
    """Plain files. Paths are absolute."""

    local = True

    @contextlib.contextmanager
    def create(self, path: str, *, durable: bool = False) -> Iterator[Any]:
        temporary = _temporary(path)
        with storage_errors(path, writes=True):
            try:
                file = open(temporary, "wb")  # noqa: SIM115
            except FileNotFoundError:
                make_folder(os.path.dirname(path))
                file = open(temporary, "wb")  # noqa: SIM115
            try:
                with file:
                    yield file
                    if durable:
                        file.flush()
                        os.fsync(file.fileno())
                os.replace(temporary, path)
                if durable:
                    _sync(os.path.dirname(path))
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise

    def read_text(self, path: str) -> str:
        with storage_errors(path), open(path, "rb") as file:
            return file.read().decode()

    def open_bytes(self, path: str) -> IO[bytes]:
        with storage_errors(path):
            return open(path, "rb")

    def size(self, path: str) -> int:
        with storage_errors(path):
            return os.stat(path).st_size

    def version_tag(self, path: str) -> object | None:
        with storage_errors(path):
            try:
                status = os.stat(path)
            except FileNotFoundError:
                return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    def read_parquet(self, path: str, columns: list[str] | None = None, repeated: Sequence[str] = ()) -> pa.Table:
        with storage_errors(path):
            return pq.read_table(path, columns=columns, read_dictionary=[*repeated], use_threads=False)

    def entries(self, directory: str) -> list[str]:
        with storage_errors(directory):
            try:
                return os.listdir(directory)
            except FileNotFoundError:
                return []

    def infos(self, directory: str) -> list[FileInfo]:
        files = []
        with storage_errors(directory):
            try:
                for entry in os.scandir(directory):
                    # A file may vanish between the listing and the look at it.
                    with contextlib.suppress(FileNotFoundError):
                        if entry.is_file():
                            stat = entry.stat()
                            files.append(FileInfo(entry.name, stat.st_size, ProcessingTime(stat.st_mtime_ns // 1000)))
            except FileNotFoundError:
                return []
        return files

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def delete(self, path: str) -> None:
        with storage_errors(path, writes=True), contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def delete_tree(self, directory: str) -> None:
        with storage_errors(directory, writes=True), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(directory)

    def make_durable(self, paths: Iterable[str]) -> None:
        paths = list(paths)
        for path in (*paths, *{os.path.dirname(p) for p in paths}):
            with storage_errors(path):
                _sync(path)

    def claim(self, path: str) -> bool:
        with storage_errors(path, writes=True):
            make_folder(os.path.dirname(path))
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            except FileExistsError:
                return False
        return True

    def move(self, source: str, target: str) -> None:
        with storage_errors(target, writes=True):
            try:
                os.replace(source, target)
            except FileNotFoundError:
                make_folder(os.path.dirname(target))
                os.replace(source, target)

    def link(self, source: str, target: str) -> None:
        with storage_errors(target, writes=True):
            make_folder(os.path.dirname(target))
            try:
                os.link(source, target)
            except FileExistsError:
                # An earlier attempt made the link, and was interrupted.
                return
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                self.put_file(source, target)

    def move_tree(self, source: str, target: str) -> bool:
        with storage_errors(target, writes=True):
            try:
                os.rename(source, target)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                return False
        return True

    def path_for_duckdb(self, path: str) -> str:
        # read_parquet globs; a class of one character stands for itself.
        return re.sub(r"[*?\[]", r"[\g<0>]", path)


class ArrowFilesystem(Filesystem):
    """Any other file system that pyarrow knows and that can rename files, such as HDFS, addressed by URI."""

    local = False

    def __init__(self, filesystem: arrow_fs.FileSystem, prefix: str):
        self._filesystem = filesystem
        self._prefix = prefix

    @contextlib.contextmanager
    def create(self, path: str, *, durable: bool = False) -> Iterator[Any]:
        temporary = _temporary(path)
        with storage_errors(path):
            self._filesystem.create_dir(path.rpartition("/")[0], recursive=True)
            try:
                with self._filesystem.open_output_stream(temporary) as stream:
                    yield stream
                self._filesystem.move(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    self._filesystem.delete_file(temporary)
                raise

    def claim(self, path: str) -> bool:
        # Of concurrent callers, several may get True: these file systems have no atomic operation for this.
        if self.exists(path):
            return False
        self.write_text_atomic(path, "")
        return True

    def move(self, source: str, target: str) -> None:
        with storage_errors(target):
            self._filesystem.create_dir(target.rpartition("/")[0], recursive=True)
            self._filesystem.move(source, target)

    def link(self, source: str, target: str) -> None:
        with storage_errors(target):
            self._filesystem.create_dir(target.rpartition("/")[0], recursive=True)
            self._filesystem.copy_file(source, target)

    def read_text(self, path: str) -> str:
        with storage_errors(path), self._filesystem.open_input_stream(path) as stream:
            return bytes(stream.read()).decode()

    def open_bytes(self, path: str) -> IO[bytes]:
        with storage_errors(path):
            stream: IO[bytes] = self._filesystem.open_input_stream(path)
            return stream

    def size(self, path: str) -> int:
        with storage_errors(path):
            info = self._filesystem.get_file_info(path)
        if info.type == arrow_fs.FileType.NotFound:
            raise FileNotFoundError(path)
        return int(info.size)

    def read_parquet(self, path: str, columns: list[str] | None = None, repeated: Sequence[str] = ()) -> pa.Table:
        with storage_errors(path):
            filesystem = self._filesystem
            return pq.read_table(
                path, columns=columns, read_dictionary=[*repeated], use_threads=False, filesystem=filesystem
            )

    def _select(self, directory: str) -> list[arrow_fs.FileInfo]:
        with storage_errors(directory):
            selector = arrow_fs.FileSelector(directory, allow_not_found=True)
            return list(self._filesystem.get_file_info(selector))

    def entries(self, directory: str) -> list[str]:
        return [info.base_name for info in self._select(directory)]

    def infos(self, directory: str) -> list[FileInfo]:
        return [
            FileInfo(info.base_name, info.size, ProcessingTime((info.mtime_ns or 0) // 1000))
            for info in self._select(directory)
            if info.type == arrow_fs.FileType.File
        ]

    def exists(self, path: str) -> bool:
        with storage_errors(path):
            return bool(self._filesystem.get_file_info(path).type != arrow_fs.FileType.NotFound)

    def delete(self, path: str) -> None:
        with storage_errors(path), contextlib.suppress(FileNotFoundError):
            self._filesystem.delete_file(path)

    def delete_tree(self, directory: str) -> None:
        with storage_errors(directory), contextlib.suppress(FileNotFoundError):
            self._filesystem.delete_dir(directory)

    def path_for_duckdb(self, path: str) -> str:
        return self._prefix + path


def open_filesystem(uri: str) -> tuple[Filesystem, str]:
    """Return the file system of a path or URI, and the path within it. Raises UsageError when it cannot be opened."""
    if "://" not in uri:
        return LocalFilesystem(), os.path.abspath(uri)
    scheme = uri.split("://")[0]
    if scheme in STORES:
        # Imported here, because local warehouses do not need its packages.
        from sqlstream.warehouse.stores import open_store

        return open_store(uri)
    try:
        filesystem, path = arrow_fs.FileSystem.from_uri(uri)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise UsageError(f'"{uri}" cannot be opened', detail=str(error)) from error
    if scheme == "file":
        return LocalFilesystem(), path.rstrip("/")
    # hdfs://host:port/path has its host before the path; s3://bucket/path has the bucket in it.
    prefix = uri[: uri.index(path)] if path and path in uri else f"{scheme}://"
    return ArrowFilesystem(filesystem, prefix), path.rstrip("/")
