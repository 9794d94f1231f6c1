"""Files are found, ordered, cut and remembered the same way, however often the job starts again."""

from __future__ import annotations

import itertools
import os
import random
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs as arrow_fs

from sqlstream.catalog import Table
from sqlstream.connectors.filesystem import listing
from sqlstream.connectors.filesystem import splits as files
from sqlstream.connectors.filesystem.listing import PathPattern
from sqlstream.connectors.filesystem.roots import Root
from sqlstream.connectors.filesystem.splits import FileDiscovery, FilePosition
from sqlstream.connectors.formats import copies
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.errors import DataError, UsageError
from tests.properties.examples import examples


def put(path: Path, size: int = 10, at: int = 1_000) -> str:
    """Write a file of so many bytes, last modified at a second."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (at, at))
    return str(path)


def discovery(path: Path | str, **settings: object) -> FileDiscovery:
    defaults = {"format": "json", "project": "/", "table": "t", "bounded": False}
    return FileDiscovery(str(path), **{**defaults, **settings})  # type: ignore[arg-type]


def batches(found: FileDiscovery) -> list[list[FileSplit]]:
    found.poll()
    return list(iter(found.next_batch, None))


def names(splits: list[FileSplit]) -> list[str]:
    return [os.path.basename(s.path) for s in splits]


def test_files_come_by_time_then_path(tmp_path: Path) -> None:
    for name, at in {"c": 1, "b/z": 2, "b/y": 2, "a": 3}.items():
        put(tmp_path / name, at=at)
    found = discovery(tmp_path)
    assert found.poll() == 4
    assert [names(b) for b in batches(found)] == [["c", "y", "z", "a"]]
    assert (found.poll(), found.waiting) == (0, 0)
    assert found.next_batch() is None


def test_a_late_file_with_an_older_time_is_read(tmp_path: Path) -> None:
    put(tmp_path / "a", at=5)
    found = discovery(tmp_path)
    assert [names(b) for b in batches(found)] == [["a"]]
    put(tmp_path / "later", at=2)
    put(tmp_path / "new", at=6)
    assert [names(b) for b in batches(found)] == [["later", "new"]]


def test_batches_keep_to_files_and_bytes(tmp_path: Path) -> None:
    for i, size in enumerate([40, 40, 40, 300, 10]):
        put(tmp_path / str(i), size, at=i)
    assert [names(b) for b in batches(discovery(tmp_path, max_bytes=100))] == [["0", "1"], ["2"], ["3"], ["4"]]
    assert [names(b) for b in batches(discovery(tmp_path, max_files=2))] == [["0", "1"], ["2", "3"], ["4"]]


def test_hidden_and_unfinished_files_are_left_out(tmp_path: Path) -> None:
    for name in (".a", "_SUCCESS", "a.tmp", "b._COPYING_", ".staging/a", "_log/a", "x.crc", "empty"):
        put(tmp_path / "in" / name, size=0 if name == "empty" else 5)
    os.symlink(tmp_path / "nowhere", tmp_path / "in" / "dangling")
    put(tmp_path / "elsewhere/linked")
    os.symlink(tmp_path / "elsewhere", tmp_path / "in" / "link")
    assert [names(b) for b in batches(discovery(tmp_path / "in"))] == [["linked"]]


def test_an_empty_file_is_read_once_it_has_rows(tmp_path: Path) -> None:
    put(tmp_path / "a.json", size=0)
    found = discovery(tmp_path)
    assert found.poll() == 0
    put(tmp_path / "a.json", size=5)
    assert [names(b) for b in batches(found)] == [["a.json"]]
    assert found.changed == []
    put(tmp_path / "p/a.parquet", size=0)
    assert discovery(tmp_path / "p", format="parquet", bounded=True).poll() == 1


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.json", {"a.json", "b.json"}),
        ("[!b].json", {"a.json"}),
        ("day=?", {"day=1/c.json", "day=1/deep/d.json", "day=2/c.json"}),
        ("day=*/c.json", {"day=1/c.json", "day=2/c.json"}),
        ("**/c.json", {"day=1/c.json", "day=2/c.json"}),
        ("**/[a-d].json", {"a.json", "b.json", "day=1/c.json", "day=1/deep/d.json", "day=2/c.json"}),
        ("day=1/**", {"day=1/c.json", "day=1/deep/d.json"}),
        ("**/deep", {"day=1/deep/d.json"}),
        ("a.json", {"a.json"}),
        ("day=1/", {"day=1/c.json", "day=1/deep/d.json"}),
        ("lit[x]", {"lit[x]/e.json"}),
        ("*.xml", set()),
    ],
)
@pytest.mark.parametrize("remote", [False, True])
def test_globs(tmp_path: Path, pattern: str, expected: set[str], remote: bool) -> None:
    for name in ("a.json", "b.json", "day=1/c.json", "day=1/deep/d.json", "day=2/c.json", "lit[x]/e.json"):
        put(tmp_path / name)
    place = PathPattern(pattern, str(tmp_path))
    if remote:
        # pyarrow's local file system stands in for one that only pyarrow knows.
        place._filesystem = arrow_fs.LocalFileSystem()
        place._list = place._list_remote
    assert {os.path.relpath(f.path, tmp_path) for f in place.files() or []} == expected


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The URIs that places open, each as an empty file system."""
    uris: list[str] = []

    def from_uri(uri: str) -> tuple[arrow_fs.FileSystem, str]:
        uris.append(uri)
        return arrow_fs._MockFileSystem(), uri.split("://")[1].split("?")[0]

    monkeypatch.setattr(listing, "open_uri", from_uri)
    return uris


def test_uris_keep_what_is_around_the_path(asked: list[str]) -> None:
    place = PathPattern("hdfs://bucket/in/*.parquet?user=eu", "/")
    assert asked == ["hdfs://bucket/in?user=eu"]
    filesystem = place._filesystem
    assert filesystem is not None
    filesystem.create_dir("bucket/in")
    with filesystem.open_output_stream("bucket/in/a.parquet") as stream:
        stream.write(b"12345")
    (found,) = place.files() or []
    assert found.path == "hdfs://bucket/in/a.parquet?user=eu"
    assert place.open(found.path).read() == b"12345"


def test_a_wildcard_in_a_uri_is_no_option(asked: list[str]) -> None:
    for options in ("", "?user=eu", "?dfs.replication=3&user=eu", "?user=eu&replication=3"):
        path = f"hdfs://bucket/day=1/part-?.json{options}"
        place, root = PathPattern(path, "/"), Root.of(path, "/")
        assert asked.pop() == f"hdfs://bucket/day=1{options}"
        assert place.text == path
        filesystem = place._filesystem
        assert filesystem is not None
        filesystem.create_dir("bucket/day=1")
        for name in ("part-1.json", "part-22.json", "part-3.csv"):
            with filesystem.open_output_stream(f"bucket/day=1/{name}") as stream:
                stream.write(b"12345")
        (found,) = place.files() or []
        assert found.path == f"hdfs://bucket/day=1/part-1.json{options}"
        assert (root.path, root.name(found.path)) == ("hdfs://bucket/day=1", "part-1.json")
        assert root.file("part-1.json") == found.path


def test_a_file_with_a_question_mark_in_its_name_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = put(tmp_path / "a?b.json", 7)
    monkeypatch.setattr(copies, "open_uri", lambda uri: (arrow_fs.LocalFileSystem(), source))
    for options in ("", "?user=eu"):
        split = copies.near(FileSplit(f"xx://{tmp_path.name}/day=1/a?b.json{options}", 7, 1, 7))
        assert split.path.endswith("/day=1/a?b.json")


def test_a_remote_file_is_copied_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = put(tmp_path / "a.json", 7)
    local = FileSplit(source, 7, 1, 7)
    assert copies.near(local) is local
    monkeypatch.setattr(copies, "open_uri", lambda uri: (arrow_fs.LocalFileSystem(), source))
    uri = f"xx://{tmp_path.name}/day=1/a.json.gz"
    split = copies.near(FileSplit(uri, 7, 1, 7))
    assert Path(split.path).read_bytes() == b"x" * 7
    assert split.path.endswith("/day=1/a.json.gz")
    assert copies.shown(split.path) == uri
    Path(source).unlink()
    assert copies.near(FileSplit(uri, 7, 1, 7)) == split
    with pytest.raises(FileNotFoundError):
        copies.near(FileSplit(uri, 7, 2, 7))


def test_paths_are_relative_to_the_project(tmp_path: Path) -> None:
    put(tmp_path / "in/a")
    assert names(batches(discovery("in", project=str(tmp_path)))[0]) == ["a"]
    assert names(batches(discovery(f"file://{tmp_path}/in"))[0]) == ["a"]


def test_a_missing_path(tmp_path: Path) -> None:
    assert discovery(tmp_path / "no").poll() == 0
    for path in (tmp_path / "no", tmp_path / "*.json", tmp_path / "no" / "*.json"):
        with pytest.raises(UsageError) as raised:
            discovery(path, bounded=True).poll()
        assert raised.value.message == f'table "t": no file or directory matches "{path}"'
    (tmp_path / "empty").mkdir()
    assert discovery(tmp_path / "empty", bounded=True).poll() == 0
    with pytest.raises(UsageError, match='table "t": "nosuch://x" cannot be opened'):
        discovery("nosuch://x")


def test_a_file_rewritten_in_place_is_reported_once(tmp_path: Path) -> None:
    path = put(tmp_path / "a", at=1)
    put(tmp_path / "b", at=1)
    found = discovery(tmp_path)
    batches(found)
    put(tmp_path / "a", at=2)
    assert (found.poll(), found.poll(), found.changed) == (0, 0, [path])


# Big Parquet files


def parquet(path: Path, rows: int, group: int, at: int = 1_000) -> int:
    values = random.Random(rows).choices(range(2**60), k=rows)
    pq.write_table(pa.table({"a": values}), path, row_group_size=group, use_dictionary=False)
    os.utime(path, (at, at))
    return path.stat().st_size


def test_a_big_parquet_file_is_cut_for_its_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MIN_CUT_BYTES", 1_000)
    size = parquet(tmp_path / "a.parquet", 100_000, 1_000)
    (splits,) = batches(discovery(tmp_path, format="parquet", parallelism=2))
    assert [s.rows for s in splits] == [(0, 25_000), (25_000, 50_000), (50_000, 75_000), (75_000, 100_000)]
    assert [s.last for s in splits] == [False, False, False, True]
    assert sum(s.bytes for s in splits) == pytest.approx(size, rel=0.01)
    assert all(s.size == size for s in splits)


def test_a_file_above_the_bytes_of_a_batch_is_spread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MIN_CUT_BYTES", 1_000)
    size = parquet(tmp_path / "a.parquet", 100_000, 1_000, at=1)
    parquet(tmp_path / "b.parquet", 1_000, 1_000, at=2)
    limit = size // 3
    whole = batches(discovery(tmp_path, format="parquet", parallelism=2, max_bytes=limit))
    assert len(whole) == 4
    assert all(sum(s.bytes for s in b) <= limit for b in whole)
    ranges = [s.rows for b in whole for s in b if s.rows]
    assert ranges[0][0] == 0
    assert all(before[1] == after[0] for before, after in itertools.pairwise(ranges))
    assert ranges[-1][1] == 100_000
    # The rest of the big file leaves room for the next one.
    assert names(whole[-1])[-1] == "b.parquet"
    tiny = batches(discovery(tmp_path, format="parquet", max_bytes=1))
    assert len(tiny) == 101


def test_a_part_read_file_that_changes_is_an_error(tmp_path: Path) -> None:
    size = parquet(tmp_path / "a.parquet", 10_000, 1_000)
    found = discovery(tmp_path, format="parquet", max_bytes=size // 3)
    found.poll()
    found.next_batch()
    assert found.waiting == 1
    os.utime(tmp_path / "a.parquet", (5, 5))
    with pytest.raises(DataError, match="was rewritten while it was being read"):
        found.poll()
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(DataError, match="disappeared after it was listed"):
        found.poll()


def test_what_cannot_be_cut_is_left_whole(tmp_path: Path) -> None:
    put(tmp_path / "broken.parquet", 3 << 20, at=1)
    pq.write_table(pa.table({"FILE_row_number": range(500_000)}), tmp_path / "b.parquet", row_group_size=100_000)
    found = discovery(tmp_path, format="parquet", parallelism=8, max_bytes=1 << 20)
    assert [(names(b), b[0].rows) for b in batches(found)] == [(["broken.parquet"], None), (["b.parquet"], None)]


# Restarts


@examples(30)
@given(data=st.data())
@pytest.mark.slow
def test_a_restart_anywhere_changes_nothing(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    root = tmp_path_factory.mktemp("in")
    for i in range(data.draw(st.integers(1, 12))):
        groups = data.draw(st.integers(1, 6))
        parquet(root / f"{i}.parquet", groups * 100, 100, at=data.draw(st.integers(1, 3)))
    settings = {
        "format": "parquet",
        "parallelism": data.draw(st.integers(1, 3)),
        "max_bytes": data.draw(st.integers(500, 9_000)),
        "max_files": data.draw(st.none() | st.integers(1, 5)),
    }
    unbroken = batches(discovery(root, **settings))
    for stop in range(len(unbroken) + 1):
        seen = FilePosition.from_batches(unbroken[:stop])
        assert FilePosition.from_bytes(seen.to_bytes()) == seen
        assert FilePosition.from_bytes(seen.to_bytes()).partial == seen.partial
        again = discovery(root, **settings, seen=FilePosition.from_bytes(seen.to_bytes()))
        assert batches(again) == unbroken[stop:]
    assert not FilePosition.from_batches(unbroken).partial


def test_adding_a_batch_twice_changes_nothing() -> None:
    first = [FileSplit("/a", 9, 1, 3, (0, 10), last=False), FileSplit("/a", 9, 1, 3, (10, 20), last=False)]
    rest = [FileSplit("/a", 9, 1, 3, (20, 30), last=True)]
    assert FilePosition.from_batches([first, first]) == FilePosition.from_batches([reversed(first)])
    assert FilePosition.from_batches([first, rest, first]) == FilePosition.from_batches([first, rest])
    assert FilePosition.from_batches([first]).partial == {"/a"}


def test_splits_as_json() -> None:
    for split in (FileSplit("/a", 9, 1, 9), FileSplit("/a", 9, 1, 3, (10, 20), last=False)):
        assert FileSplit.from_list(split.to_list()) == split


def test_a_long_job_remembers_its_files_in_little_room() -> None:
    splits = [
        FileSplit(f"/data/in/day={i // 100:05}/part-{i:07}.parquet", i * 7, 10**18 + i * 10**9, i)
        for i in range(50_000)
    ]
    data = FilePosition.from_batches([splits]).to_bytes()
    assert len(data) < 50_000 * 16
    assert len(FilePosition.from_bytes(data)) == 50_000


def test_listing_is_fast(tmp_path: Path) -> None:
    for i in range(1_000):
        (tmp_path / f"{i}.json").write_bytes(b"1")
    found = discovery(tmp_path)
    found.poll()
    best = min(_timed(found) for _ in range(5))
    assert best < 0.2  # about 3 ms on an idle machine


def _timed(found: FileDiscovery) -> float:
    start = time.perf_counter()
    assert found.poll() == 1_000
    return time.perf_counter() - start


def test_options_of_a_table(tmp_path: Path) -> None:
    for i in range(5):
        put(tmp_path / "in" / str(i), 600, at=i)
    options = {"path": "in", "format": "CSV", "source.max-bytes-per-batch": "1 kb"}
    bounded = FileDiscovery.of(Table("t", (), options=options), project=str(tmp_path), parallelism=2)
    assert [len(b) for b in batches(bounded)] == [1] * 5
    options = {"path": "no", "format": "csv", "source.monitor-interval": "1 s", "source.max-files-per-batch": "3"}
    waiting = FileDiscovery.of(Table("t", (), options=options), project=str(tmp_path), parallelism=2)
    assert waiting.poll() == 0
    (tmp_path / "in").rename(tmp_path / "no")
    assert [len(b) for b in batches(waiting)] == [3, 2]
