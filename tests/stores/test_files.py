"""Files in a store are there whole or not at all, one of many who want to write first does, and copies stay within a bound."""

from __future__ import annotations

import io
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sqlstream.connectors.filesystem.listing import Place
from sqlstream.connectors.formats.copies import near
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.duck.remote_files import SharedFile
from sqlstream.errors import SqlStreamError
from sqlstream.warehouse import stores
from sqlstream.warehouse.file_cache import FileCache
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.stores import Changed, StoreFilesystem, Tag, open_store
from tests.stores.server import S3Server


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
        except Changed:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(first, range(8))) == 1
    content, tag = fs.read_tagged(f"{root}/x")
    changed = fs.put_if(f"{root}/x", f"{content.decode()} again", tag)
    with pytest.raises(Changed):
        fs.put_if(f"{root}/x", "too late", tag)
    fs.put_if(f"{root}/x", "in time", changed)


def test_what_never_changes_is_fetched_once(bucket: str, s3: S3Server) -> None:
    fs, root = open_store(bucket)
    path, other = f"{root}/data/0/x.parquet", f"{root}/log/x.json"
    for one in (path, other):
        fs.write_text_atomic(one, "rows")
    os.unlink(fs.local_copy(path))
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


def test_the_cache_forgets_what_was_used_least_lately(tmp_path: Path) -> None:
    cache = FileCache(str(tmp_path), 100)
    for number in range(5):
        cache.add(str(number), [b"x" * 20])
        os.utime(cache.path(str(number)), (number, number))
    assert cache.find("0"), "the first one is used again"
    cache.add("large", [b"x" * 60])
    assert [n for n in ("0", "1", "2", "3", "4", "large") if cache.find(n)] == ["0", "4", "large"]
    assert cache.find(cache.add("larger than all", [b"x" * 1000]) and "larger than all")


@pytest.mark.parametrize("options", ["", "?region=us-east-1"])
def test_a_wildcard_in_a_uri_is_no_option(bucket: str, options: str) -> None:
    fs, root = open_store(f"{bucket}{options}")
    for name in ("part-1.json", "part-22.json", "part-?2.json"):
        with fs.create(f"{root}/day=1/{name}") as file:
            file.write(name.encode())
    found = Place(f"{bucket}/day=1/part-??.json{options}", "/").files() or []
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
