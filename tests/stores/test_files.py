"""Files in a store are there whole or not at all, one of many who want to write first does, and copies stay within a bound."""

from __future__ import annotations

import io
import os
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from sqlstream.connectors.filesystem.listing import PathPattern
from sqlstream.connectors.formats import copies
from sqlstream.connectors.formats.copies import near
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.duck.remote_files import SharedFile
from sqlstream.errors import SqlStreamError, UsageError
from sqlstream.warehouse import file_cache, stores
from sqlstream.warehouse.file_cache import FileCache, user_cache
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.stores import PreconditionFailed, StoreFilesystem, Tag, open_store
from tests.stores.server import S3Server


@pytest.mark.slow
def test_files_by_names_of_all_kinds(bucket: str) -> None:
    warehouse = Warehouse(f"{bucket}/a folder/w%41")
    for name in ("Counts", "hot items/2", "..", ".hidden", "a=b%", "[x]*?", "größe"):
        warehouse.fs.write_text_atomic(warehouse.job(name).record, "old")
        warehouse.fs.write_text_atomic(warehouse.job(name).record, name)
        warehouse.fs.write_text_atomic(f"{warehouse.table(name).job(name).data(0)}/x", name)
        assert warehouse.fs.read_text(warehouse.job(name).record) == name
    assert sorted(warehouse.jobs()) == sorted(["counts", "hot items/2", "..", ".hidden", "a=b%", "[x]*?", "größe"])
    assert warehouse.jobs() == warehouse.tables()
    assert len(list(warehouse.fs.walk(warehouse.root))) == 14
    [info] = warehouse.fs.files(warehouse.table("a=b%").job("a=b%").data(0))
    assert (info.name, info.bytes) == ("x", 4)
    warehouse.fs.delete_tree(f"{warehouse.root}/jobs")
    assert warehouse.jobs() == []
    assert len(warehouse.tables()) == 7


def test_what_fails_publishes_nothing(bucket: str) -> None:
    fs, root = open_store(bucket)

    def write_half() -> None:
        with fs.create(f"{root}/data/0/x.parquet") as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert list(fs.walk(root)) == []
    with pytest.raises(FileNotFoundError):
        fs.read_text(f"{root}/data/0/x.parquet")


def test_of_many_who_put_a_file_first_one_does(bucket: str) -> None:
    fs, root = open_store(bucket)

    def first(number: int) -> bool:
        try:
            fs.put_if(f"{root}/x", str(number), None)
        except PreconditionFailed:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(first, range(8))) == 1
    content, tag = fs.read_tagged(f"{root}/x")
    changed = fs.put_if(f"{root}/x", f"{content.decode()} again", tag)
    with pytest.raises(PreconditionFailed):
        fs.put_if(f"{root}/x", "too late", tag)
    fs.put_if(f"{root}/x", "in time", changed)


def test_what_never_changes_is_fetched_once(bucket: str, s3: S3Server) -> None:
    fs, root = open_store(bucket)
    path, other = f"{root}/data/0/x.parquet", f"{root}/log/x.json"
    for one in (path, other):
        fs.write_text_atomic(one, "rows")
    os.unlink(user_cache().path(fs._name(path)))
    s3.requests.clear()
    for _ in range(3):
        assert (fs.read_text(path), fs.size(path), fs.read_text(other)) == ("rows", 4, "rows")
    assert sorted(s3.requests.values()) == [1, 3], s3.requests
    # Who checks a warehouse believes no copies.
    StoreFilesystem(fs.bucket, fs._options, cached=False).write_text_atomic(path, "damaged")
    assert (fs.read_text(path), fs.uncached().read_text(path)) == ("rows", "damaged")
    fs.delete(path)
    with pytest.raises(FileNotFoundError):
        fs.read_text(path)


def test_threads_that_share_a_file_have_a_place_each() -> None:
    """DuckDB seeks and reads in several threads at once."""
    file = SharedFile(io.BytesIO(bytes(range(256)) * 64))

    def read(number: int) -> bool:
        place = number * 37 % 16_000
        file.seek(place)
        time.sleep(0)
        found = file.read(5)
        return found == bytes((place + i) % 256 for i in range(5)) and file.tell() == place + 5

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(2000)))
    assert file.seek(-3, os.SEEK_END) == 256 * 64 - 3
    assert file.read() == b"\xfd\xfe\xff"


def test_files_that_others_write_are_read_as_they_are_now(bucket: str) -> None:
    fs, root = open_store(bucket)
    # As files of rows of a warehouse are called, whose content never changes.
    path = f"{root}/data/2026/x.csv"
    tag: Tag | None = None
    for number, text in enumerate(("old", "new")):
        tag = fs.put_if(path, text, tag)
        assert Path(near(FileSplit(path, len(text), number, len(text))).path).read_text() == text


def test_local_copies_of_files_of_others_stay_below_a_limit(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fs, root = open_store(bucket)
    monkeypatch.setattr(copies, "_copies", copies._Copies())
    monkeypatch.setattr(copies, "LARGEST", 10)
    monkeypatch.setattr(copies, "IN_USE", 0.0)

    def near_path(name: str) -> Path:
        fs.write_text_atomic(f"{root}/{name}.csv", name * 4)
        return Path(near(FileSplit(f"{root}/{name}.csv", 4, 1, 4)).path)

    first, second = near_path("a"), near_path("b")
    # The one that is used again is not the oldest any more.
    assert near_path("a") == first
    third = near_path("c")
    assert [path.exists() for path in (first, second, third)] == [True, False, True]
    assert near_path("b").read_text() == "bbbb"
    monkeypatch.setattr(copies, "IN_USE", 60.0)
    # What is in use stays.
    assert [near_path(name).exists() for name in "abcd"] == [True] * 4
    assert first.exists()


def test_the_cache_forgets_what_was_used_least_lately(tmp_path: Path) -> None:
    cache = FileCache(str(tmp_path), 100)
    for number in range(5):
        cache.add(str(number), [b"x" * 20])
        os.utime(cache.path(str(number)), (number, number))
    assert cache.find("0"), "the first one is used again"
    cache.add("large", [b"x" * 60])
    assert [n for n in ("0", "1", "2", "3", "4", "large") if cache.find(n)] == ["0", "4", "large"]
    cache.add("larger than all", [b"x" * 1000])
    assert cache.find("larger than all")


def test_the_cache_leaves_to_others_what_they_are_writing(tmp_path: Path) -> None:
    cache = FileCache(str(tmp_path), 100)
    cache.add("small", [b"x" * 20])
    folder = Path(cache.path("small")).parent
    (folder / "notes.txt").write_text("x" * 200)
    written, abandoned = (folder / f"{folder.name}{number * 30}.{number * 8}.tmp" for number in "12")
    for path in (written, abandoned):
        path.write_bytes(b"x" * 200)
    os.utime(abandoned, (0, 0))
    os.utime(folder / "notes.txt", (0, 0))
    cache.add("large", [b"x" * 101])
    assert sorted(path.name for path in folder.iterdir()) == sorted([written.name, "notes.txt"])
    assert cache.find("large")


def test_a_copy_that_vanishes_while_it_is_written_is_there_for_its_writer(tmp_path: Path) -> None:
    cache = FileCache(str(tmp_path), 100)

    def content() -> Iterator[bytes]:
        yield b"one, "
        # As another process does that takes it for an old one.
        for path in tmp_path.rglob("*.tmp"):
            path.unlink()
        yield b"two"

    copy = cache.add("x", content())
    assert copy is not None
    with copy:
        assert copy.read() == b"one, two"
    assert cache.find("x") is None


def test_errors_of_the_content_leave_nothing_in_the_cache(tmp_path: Path) -> None:
    def content() -> Iterator[bytes]:
        yield b"half"
        raise FileNotFoundError("it is gone")

    with pytest.raises(FileNotFoundError, match="it is gone"):
        FileCache(str(tmp_path), 100).add("x", content())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


class Hasty(FileCache):
    """Another process deletes each copy just when it was looked up."""

    def find(self, name: str) -> str | None:
        path = super().find(name)
        self.remove(name)
        return path


@contextmanager
def small_files_only() -> Iterator[None]:
    """No file of this process can have more than some bytes: writing fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def _vanishing(folder: Path) -> FileCache:
    return Hasty(f"{folder}/vanishing", 1000)


def _below_a_file(folder: Path) -> FileCache:
    (folder / "file").write_text("")
    return FileCache(f"{folder}/file", 1000)


def _where_nobody_can_write(folder: Path) -> FileCache:
    return FileCache("/proc/sqlstream", 1000)


@pytest.mark.parametrize("made", [_vanishing, _below_a_file, _where_nobody_can_write])
def test_nothing_fails_without_a_cache(
    made: Callable[[Path], FileCache], bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = made(tmp_path)
    monkeypatch.setattr(stores, "user_cache", lambda: cache)
    fs, root = open_store(bucket)
    path = f"{root}/data/0/x.parquet"
    for _ in range(2):
        fs.write_text_atomic(path, "rows")
        fs.fetch([path])
        assert (fs.read_text(path), fs.size(path), fs.exists(path)) == ("rows", 4, True)
        with fs.local_copies([path]) as [copy]:
            assert Path(copy).read_text() == "rows"
    fs.delete(path)
    fs.fetch([path])
    with pytest.raises(FileNotFoundError):
        fs.read_text(path)


def test_nothing_fails_because_the_disk_of_the_cache_is_full(bucket: str) -> None:
    fs, root = open_store(bucket)
    path, rows = f"{root}/data/0/x.parquet", "rows" * 1000
    with small_files_only():
        fs.write_text_atomic(path, rows)
        fs.fetch([path])
        assert (fs.read_text(path), fs.size(path)) == (rows, 4000)
    assert [path for path in Path(user_cache().directory).rglob("*") if path.is_file()] == []


def test_local_copies_are_there_as_long_as_they_are_used(bucket: str) -> None:
    fs, root = open_store(bucket)
    paths = [f"{root}/data/0/{name}.parquet" for name in "xy"]
    for path in paths:
        fs.write_text_atomic(path, path)
    user_cache().remove(fs._name(paths[1]))
    with fs.local_copies(paths) as local_paths:
        for path in paths:
            user_cache().remove(fs._name(path))
        assert [Path(path).read_text() for path in local_paths] == paths
    assert not any(map(os.path.exists, local_paths))


def test_a_wrong_size_of_the_cache_is_an_error_before_anything_is_put(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SQLSTREAM_CACHE_SIZE", "much")
    file_cache.user_cache.cache_clear()
    with pytest.raises(UsageError, match='SQLSTREAM_CACHE_SIZE "much" is no number of bytes'):
        open_store(bucket)
    monkeypatch.undo()
    file_cache.user_cache.cache_clear()


@pytest.mark.parametrize("options", ["", "?region=us-east-1"])
def test_a_wildcard_in_a_uri_is_no_option(bucket: str, options: str) -> None:
    fs, root = open_store(f"{bucket}{options}")
    for name in ("part-1.json", "part-22.json", "part-?2.json"):
        with fs.create(f"{root}/day=1/{name}") as file:
            file.write(name.encode())
    found = PathPattern(f"{bucket}/day=1/part-??.json{options}", "/").files() or []
    assert {file.path for file in found} == {f"{bucket}/day=1/part-{n}2.json{options}" for n in "2?"}
    copies = [near(FileSplit(file.path, file.size, file.mtime_ns, file.size)).path for file in found]
    assert {Path(copy).read_text() for copy in copies} == {"part-22.json", "part-?2.json"}


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("s3://key:secret@bucket/w", "credentials cannot be in the URI of a store"),
        ("s3://bucket/w?access_key=k", "has an option that a store does not have: access_key"),
        ("gs://bucket/w?region=r", "has an option that a store does not have: region"),
        ("s3://bucket/w?unheard=1&region=r", "has an option that a store does not have: unheard"),
        ("s3://bucket/w?unheard=1", "has an option that a store does not have: unheard"),
        ("s3://bucket/w?1", "has an option that a store does not have: 1"),
        ("s3://bucket/w?region", "has an option that a store does not have: region"),
        ("s3://bucket//w", 'has a part that is empty, "." or ".."'),
        ("s3://bucket/v/../w", 'has a part that is empty, "." or ".."'),
        ("s3://no-such-bucket-of-ours/w", '"s3://no-such-bucket-of-ours" does not exist'),
    ],
)
def test_what_is_wrong_with_a_place(bucket: str, uri: str, message: str) -> None:

    def write() -> None:
        warehouse = Warehouse(uri)
        warehouse.fs.write_text_atomic(f"{warehouse.root}/x", "")

    with pytest.raises(SqlStreamError) as raised:
        write()
    assert message in raised.value.message
    assert "secret" not in str(raised.value)


def test_a_store_that_does_not_answer_is_named(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_RETRIES", 2)
    fs, root = open_store(f"{bucket}?endpoint_override=127.0.0.1:9&scheme=http")
    with pytest.raises(SqlStreamError, match=f'"{bucket}/x" cannot be read or written'):
        fs.read_text(f"{root}/x")
