"""Object stores as file systems: S3 and compatible stores, Google Cloud Storage and Azure.

A store has no folders and no rename. A put is atomic, so a file is collected locally and put when it is complete. A file that
only one process may write is put on the condition that it has not changed. A path keeps its scheme: `s3://bucket/folder/file`.

Data files and manifests never change, so the local disk keeps copies of them (`file_cache`).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from hashlib import blake2b
from io import BufferedReader, RawIOBase
from typing import IO, Any, TypeVar
from urllib.parse import parse_qsl
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from sqlstream.distribution import install_command
from sqlstream.duck import remote_files
from sqlstream.errors import OutageError, SqlStreamError, UsageError
from sqlstream.storage_errors import storage_errors
from sqlstream.units import ProcessingTime
from sqlstream.warehouse.file_cache import user_cache
from sqlstream.warehouse.filesystem import FileInfo, Filesystem
from sqlstream.warehouse.process_folders import COPIES, process_folder
from sqlstream.warehouse.uris import split_options

# Bytes of a file that is collected in memory before its put; a larger one is collected on disk.
_IN_MEMORY = 16 << 20
# The most requests at the same time, when many files are read.
_AT_A_TIME = 16
# Files that one request deletes.
_AT_ONCE = 1000
_PIECE = 1 << 20
# Retries of a request, with growing pauses of ten seconds in all.
_RETRIES = 10
# Paths of files whose content never changes.
_IMMUTABLE = re.compile(r"/(data|manifests)/\d+/[^/]+$")
# Options in a URI, with obstore's names for them; and the options that stores do not have, by the first letters of the scheme.
_OPTIONS = {"endpoint_override": "endpoint", "endpoint": "endpoint", "region": "region", "scheme": "scheme"}
_UNKNOWN: dict[str, tuple[str, ...]] = {"s3": (), "ab": ("region",), "gs": tuple(_OPTIONS)}
# The environment variables with a store's credentials, by the first letters of its scheme.
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "ab": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}

T = TypeVar("T")


class PreconditionFailed(Exception):
    """A conditional put failed: the file has changed, or exists although it must not."""


# Identifies the content of a file.
Tag = dict[str, str]


def store_options(uri: str) -> tuple[str, dict[str, str]]:
    """Return a URI without its `?options`, and the options `endpoint` (with its scheme) and `region`.

    For S3, environment variables complete the options. Raises UsageError for credentials in a URI, which everybody can see who
    sees the URI, and for an option or a path that a store does not have.
    """
    path, query = split_options(uri)
    path, wildcard, other = path.partition("?")
    if not {"", ".", ".."}.isdisjoint(path.rstrip("/").split("/")[3:]):
        hint = "Leave them out: a store has no folders that one could go up from."
        raise UsageError(f'"{path}" has a part that is empty, "." or ".."', hint=hint)
    options: dict[str, str] = {}
    if wildcard:
        raise _no_option(path, other.partition("=")[0])
    for name, value in parse_qsl(query[1:]):
        if name not in _OPTIONS or name in _UNKNOWN[path[:2]]:
            raise _no_option(path, name)
        options[_OPTIONS[name]] = value
    if "@" in path.split("://", 1)[1].split("/", 1)[0] and path.startswith(("s3:", "gs:")):
        hint = f"Set {_credentials(path)} in the environment instead."
        raise UsageError("credentials cannot be in the URI of a store", hint=hint)
    scheme = options.pop("scheme", "https")
    if path.startswith("s3://"):
        environment = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        if environment:
            options.setdefault("endpoint", environment)
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        options.setdefault("region", region or "us-east-1")
    if "://" not in (endpoint := options.get("endpoint", "://")):
        options["endpoint"] = f"{scheme}://{endpoint}"
    return path.rstrip("/"), options


def _no_option(path: str, name: str) -> UsageError:
    hint = "Options of a URI are endpoint_override, scheme and region. Credentials are in the environment."
    if path[:2] != "s3":
        hint = "An abfss:// URI has endpoint_override and scheme only, a gs:// URI has no options."
    return UsageError(f'"{path}" has an option that a store does not have: {name}', hint=hint)


class StoreFilesystem(Filesystem):
    """A bucket. With `cached`, files that never change are read from copies on the local disk."""

    local = False

    def __init__(self, bucket: str, options: Mapping[str, str], *, cached: bool = True):
        self.bucket, self._options = bucket, dict(options)
        self._cached = cached
        self._stores: dict[int, Any] = {}
        store_id = f"{bucket} {sorted(self._options.items())}"
        self._scheme = f"sqlstream-{blake2b(store_id.encode(), digest_size=6).hexdigest()}"
        self._store_id = store_id
        remote_files.serve(self._scheme, f"{bucket}/", self)
        if cached:
            # A wrong SQLSTREAM_CACHE_SIZE is an error now, and not after a file was put.
            user_cache()

    @property
    def options(self) -> Mapping[str, str]:
        """The `endpoint` and the `region` of the store, if they are set."""
        return self._options

    def uncached(self) -> StoreFilesystem:
        """Return the bucket without copies: every read goes to the store."""
        return StoreFilesystem(self.bucket, self._options, cached=False)

    @property
    def _store(self) -> Any:
        process = os.getpid()
        if process not in self._stores:
            client = {"allow_http": True, "connect_timeout": "10s", "timeout": "60s"}
            retry = {"max_retries": _RETRIES}
            try:
                opened = _obstore().store.from_url(
                    self.bucket, config=self._options, client_options=client, retry_config=retry
                )
            except _obstore().exceptions.BaseError as error:
                # No request was made yet: the environment or the URI is wrong.
                raise UsageError(f'"{self.bucket}" cannot be opened', detail=_message(error)) from error
            self._stores[process] = opened
        return self._stores[process]

    def _key(self, path: str) -> str:
        assert path.startswith(self.bucket), path
        return path[len(self.bucket) + 1 :]

    def _name(self, path: str) -> str:
        """Return the name of a file in the cache, which tells it from files of other stores."""
        return f"{self._store_id} {path}"

    def _is_kept(self, path: str) -> bool:
        return self._cached and _IMMUTABLE.search(path) is not None

    # -- writing

    @contextlib.contextmanager
    def create(self, path: str, *, durable: bool = False) -> Iterator[Any]:
        # A put that was acknowledged is durable.
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as file:
            yield file
            file.seek(0)
            self._put(path, file)
            if self._is_kept(path):
                # Its job reads it soon.
                with contextlib.suppress(OSError):
                    file.seek(0)
                    self._keep(path, iter(lambda: file.read(_PIECE), b""))

    def _put(self, path: str, content: Any, **options: Any) -> Tag:
        with store_errors(path):
            try:
                return _tag(_obstore().put(self._store, self._key(path), content, **options))
            except FileNotFoundError as error:
                raise UsageError(f'"{self.bucket}" does not exist', hint="Make the bucket first.") from error

    def put_if(self, path: str, text: str, before: Tag | None) -> Tag:
        """Write a small file if its content still has the tag `before`, or, for None, if there is none; return the new tag.

        Raises PreconditionFailed if that is not so.
        """
        errors = _obstore().exceptions
        try:
            return self._put(path, text.encode(), mode="create" if before is None else before, use_multipart=False)
        except (errors.AlreadyExistsError, errors.PreconditionError) as error:
            raise PreconditionFailed from error

    def claim(self, path: str) -> bool:
        text = uuid4().hex
        try:
            self.put_if(path, text, None)
        except PreconditionFailed:
            # The put was repeated because its answer was lost, if the file has this very text.
            with contextlib.suppress(FileNotFoundError):
                return self.read_tagged(path)[0] == text.encode()
            return False
        return True

    def put_file(self, local: str, path: str) -> None:
        with open(local, "rb") as file:
            self._put(path, file)

    def move(self, source: str, target: str) -> None:
        with store_errors(source):
            _obstore().copy(self._store, self._key(source), self._key(target))
        self.delete(source)

    def link(self, source: str, target: str) -> None:
        with store_errors(source):
            _obstore().copy(self._store, self._key(source), self._key(target))

    # -- reading

    def read_text(self, path: str) -> str:
        if self._is_kept(path):
            with self.open_bytes(path) as file:
                return file.read().decode()
        return self.read_tagged(path)[0].decode()

    def read_tagged(self, path: str) -> tuple[bytes, Tag]:
        """Return the bytes of a small file, and the tag of its content."""
        with store_errors(path):
            response = _obstore().get(self._store, self._key(path))
            return bytes(response.bytes()), _tag(response.meta)

    def together(self, read: Callable[[str], T], paths: Sequence[str]) -> list[T]:
        if len(paths) < 2:
            return list(map(read, paths))
        with _threads(len(paths)) as pool:
            return list(pool.map(read, paths))

    def open_bytes(self, path: str) -> IO[bytes]:
        if self._is_kept(path):
            name = self._name(path)
            copy = user_cache().open_copy(name) or user_cache().add(name, self.pieces(path))
            if copy is not None:
                return copy
        with storage_errors(tempfile.gettempdir()):
            file = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115
            file.writelines(self.pieces(path))
            file.seek(0)
            return file

    @contextlib.contextmanager
    def local_copies(self, paths: Sequence[str]) -> Iterator[list[str]]:
        folder = process_folder(COPIES)
        with storage_errors(folder):
            os.mkdir(folder)
        try:
            yield [self._local_copy(path, f"{folder}/{path.rpartition('/')[2]}") for path in paths]
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _local_copy(self, path: str, local: str) -> str:
        """Make a local copy of a file, or a link to the one in the cache, which another process may delete; return its path."""
        with contextlib.suppress(OSError):
            if self._is_kept(path) and (copy := user_cache().find(self._name(path))) is not None:
                os.link(copy, local)
                return local
        with self.open_bytes(path) as source, storage_errors(local), open(local, "wb") as target:
            shutil.copyfileobj(source, target)
        return local

    def fetch(self, paths: Iterable[str]) -> None:
        if not self._cached:
            return

        def copy(path: str) -> None:
            # The caller that reads the missing file gets the error.
            with contextlib.suppress(FileNotFoundError):
                self._keep(path, self.pieces(path))

        self.together(copy, [path for path in paths if user_cache().find(self._name(path)) is None])

    def _keep(self, path: str, content: Iterable[bytes]) -> None:
        """Add a copy of a file to the cache; do nothing if the cache's disk refuses it."""
        copy = user_cache().add(self._name(path), content)
        if copy is not None:
            copy.close()

    def pieces(self, path: str) -> Iterator[bytes]:
        """Yield the bytes of a file from the store, in pieces."""
        with store_errors(path):
            yield from map(bytes, _obstore().get(self._store, self._key(path)).stream(min_chunk_size=_PIECE))

    def size(self, path: str) -> int:
        if self._is_kept(path) and (local_path := user_cache().find(self._name(path))) is not None:
            with contextlib.suppress(OSError):
                return os.stat(local_path).st_size
        with store_errors(path):
            return int(_obstore().head(self._store, self._key(path))["size"])

    def read_parquet(self, path: str, columns: list[str] | None = None, repeated: Sequence[str] = ()) -> pa.Table:
        with self.open_bytes(path) as file:
            return pq.read_table(file, columns=columns, read_dictionary=[*repeated], use_threads=False)

    # -- what there is

    def children(self, directory: str) -> tuple[list[str], list[FileInfo]]:
        """Return the names of the directories in a directory, and its files."""
        with store_errors(directory):
            listing = _obstore().list_with_delimiter(self._store, self._key(directory))
        return [p.rpartition("/")[2] for p in listing["common_prefixes"]], list(map(_info, listing["objects"]))

    def entries(self, directory: str) -> list[str]:
        names, files = self.children(directory)
        return [*names, *(f.name for f in files)]

    def infos(self, directory: str) -> list[FileInfo]:
        return self.children(directory)[1]

    def info(self, path: str) -> FileInfo | None:
        """Return name, size and time of a file, None if there is none."""
        try:
            with store_errors(path):
                return _info(_obstore().head(self._store, self._key(path)))
        except FileNotFoundError:
            return None

    def open_ranges(self, path: str) -> IO[bytes]:
        """Open a file to read small parts of it."""
        with store_errors(path):
            return BufferedReader(_Ranges(path, _obstore().open_reader(self._store, self._key(path))), _PIECE)

    def leftovers(self, directory: str) -> list[FileInfo]:
        # A file exists only when its put is complete.
        return []

    def walk(self, directory: str) -> Iterator[str]:
        with store_errors(directory):
            for chunk in _obstore().list(self._store, self._key(directory)):
                yield from (f"{self.bucket}/{entry['path']}" for entry in chunk)

    def exists(self, path: str) -> bool:
        try:
            self.size(path)
        except FileNotFoundError:
            return bool(self.entries(path))
        return True

    # -- the end of files

    def delete(self, path: str) -> None:
        with store_errors(path), contextlib.suppress(FileNotFoundError):
            _obstore().delete(self._store, self._key(path))
        if self._is_kept(path):
            user_cache().remove(self._name(path))

    def delete_all(self, paths: Iterable[str]) -> None:
        all_paths = list(paths)
        for start in range(0, len(all_paths), _AT_ONCE):
            some = all_paths[start : start + _AT_ONCE]
            try:
                with store_errors(some[0]):
                    _obstore().delete(self._store, [self._key(path) for path in some])
            except FileNotFoundError:
                # For Azure and Google a missing file is an error, and files after it may not have been deleted.
                self.together(self.delete, some)
            for path in filter(self._is_kept, some):
                user_cache().remove(self._name(path))

    def delete_tree(self, directory: str) -> None:
        self.delete_all(self.walk(directory))

    def path_for_duckdb(self, path: str) -> str:
        return f"{self._scheme}://{self._key(path)}"


def _credentials(path: str) -> str:
    return _CREDENTIALS[path[:2]]


def _tag(meta: Mapping[str, Any]) -> Tag:
    return {name: meta[name] for name in ("e_tag", "version") if meta[name] is not None}


def _info(meta: Mapping[str, Any]) -> FileInfo:
    modified = ProcessingTime(int(meta["last_modified"].timestamp() * 1e6))
    return FileInfo(meta["path"].rpartition("/")[2], meta["size"], modified)


class _Ranges(RawIOBase):
    """A reader of obstore, as a raw stream of Python."""

    def __init__(self, path: str, reader: Any):
        self._path, self._reader = path, reader

    def readinto(self, buffer: Any) -> int:
        with store_errors(self._path):
            data = bytes(self._reader.read(len(buffer)))
        buffer[: len(data)] = data
        return len(data)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._reader.seek(offset, whence))

    def tell(self) -> int:
        return int(self._reader.tell())


@contextlib.contextmanager
def store_errors(path: str) -> Iterator[None]:
    """Turn errors of a store into errors for people that name the path; missing files and failed conditions pass through."""
    errors = _obstore().exceptions
    try:
        yield
    except (FileNotFoundError, errors.AlreadyExistsError, errors.PreconditionError):
        raise
    except (errors.BaseError, OSError) as error:
        # An answer that breaks off is an OSError.
        raise _explained(path, error) from error


def _message(error: Exception) -> str:
    return re.sub(r"\s*Debug source:.*", "", str(error), flags=re.DOTALL).strip()


def _explained(path: str, error: Exception) -> SqlStreamError:
    errors, detail = _obstore().exceptions, _message(error)
    if isinstance(error, errors.PermissionDeniedError | errors.UnauthenticatedError):
        hint = f"Credentials are in the environment: {_credentials(path)}, or their kin."
        return UsageError(f'no permission to use "{path}"', detail=detail, hint=hint)
    hint = "Run the job again; it continues after its last committed batch."
    return OutageError(f'"{path}" cannot be read or written', detail=detail, hint=hint)


@contextlib.contextmanager
def _threads(files: int) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max(1, min(files, _AT_A_TIME))) as pool:
        yield pool


@cache
def _obstore() -> Any:
    try:
        import fsspec  # noqa: F401
        import obstore.exceptions
        import obstore.store
    except ImportError as error:
        raise UsageError(
            f"object stores need obstore and fsspec, which cannot be imported: {error}",
            hint=f"Install them: {install_command('s3')}.",
        ) from error
    return obstore


@cache
def _opened(bucket: str, options: tuple[tuple[str, str], ...]) -> StoreFilesystem:
    return StoreFilesystem(bucket, dict(options))


def open_store(uri: str) -> tuple[StoreFilesystem, str]:
    """Return the store of a URI, the same object each time in a process, and the path, which keeps its scheme."""
    path, options = store_options(uri)
    scheme, _, rest = path.partition("://")
    bucket = f"{scheme}://{rest.split('/', 1)[0]}"
    _obstore()
    return _opened(bucket, tuple(sorted(options.items()))), path
