"""Input that is in another place than before: a copied project, another `path`. No file is read twice, none is left out."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from sqlstream.catalog import Table
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.connectors.interface import ReadContext
from sqlstream.connectors.registry import source_of
from sqlstream.errors import DamageError
from sqlstream.runtime import feed as feeds
from sqlstream.runtime.batch_descriptors import Descriptor, from_lines
from sqlstream.runtime.feed import Feed
from sqlstream.units import EPOCH, EventTime
from sqlstream.warehouse.filesystem import LocalFilesystem
from tests.kinds import last_job

FILES = ("a/1", "a/2", "a/deep/3", "b/1", "b/2", "b/new")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in (*(f"project/{f}" for f in FILES), "elsewhere/a/1", "elsewhere/a/2", "elsewhere/a/new"):
        put(tmp_path / name)
    return tmp_path / "project"


def put(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}\n")
    os.utime(path, (1_700_000_000, 1_700_000_000))


def open_feed(project: Path, path: str) -> Feed:
    options = f"'connector' = 'filesystem', 'format' = 'json', 'path' = '{path}', 'source.monitor-interval' = '0 s'"
    script = f"CREATE TABLE t (k INT) WITH ({options}, 'source.max-files-per-batch' = '2'); SELECT k FROM t"
    scans = last_job(script).physical.scans
    return Feed(LocalFilesystem(), str(project / ".state"), scans, (0, 1), project=str(project), finish=False)


def files(feed: Feed, project: Path, splits: list[FileSplit]) -> list[str]:
    """The paths that a worker finds for splits, relative to the folder of all projects."""
    table: Table = feed._stages[0].table
    located = [source_of(table).located(split, ReadContext(str(project), "")) for split in splits]
    return sorted(os.path.relpath(s.path, project.parent) for s in located if isinstance(s, FileSplit))


def read(feed: Feed, project: Path) -> list[str]:
    """Read all that waits; return its files."""
    splits: list[FileSplit] = []
    while (descriptor := feed.compose()) is not None:
        feed.write(descriptor)
        splits += [s for s in descriptor.splits[0] if isinstance(s, FileSplit)]
    return files(feed, project, splits)


def fold(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "KEPT", 1)
    feed.fold(feed.sequence)
    assert len(feed._descriptors.numbers()) == 1


@pytest.mark.parametrize("folded", [False, True])
def test_a_project_that_was_copied_or_moved_reads_no_file_twice(
    project: Path, monkeypatch: pytest.MonkeyPatch, folded: bool
) -> None:
    feed = open_feed(project, "a")
    assert read(feed, project) == ["project/a/1", "project/a/2", "project/a/deep/3"]
    if folded:
        fold(feed, monkeypatch)
    copied = Path(shutil.copytree(project, project.parent / "copy"))
    for place in (copied, project.rename(project.parent / "moved")):
        put(place / "a/4")
        again = open_feed(place, "a")
        assert read(again, place) == [f"{place.name}/a/4"]
        assert again.notices() == []
        assert not [f for f in (place / ".state").rglob("*.json") if str(project) in f.read_text()]


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ("a", "PROJECT/a", []),
        ("a", "file://PROJECT/a", []),
        ("a", "b/../a/", []),
        ("a", "a/*", []),
        ("a", "a/deep", []),
        ("a/1", "a", ["project/a/2", "project/a/deep/3"]),
        ("a/deep", "a", ["project/a/1", "project/a/2"]),
        ("a", ".", ["project/b/1", "project/b/2", "project/b/new"]),
        (".", "b", []),
        ("PROJECT/../elsewhere/a", "a", ["project/a/deep/3"]),
    ],
)
def test_a_table_whose_path_changed_reads_no_file_twice(
    project: Path, monkeypatch: pytest.MonkeyPatch, before: str, now: str, expected: list[str], folded: bool
) -> None:
    feed = open_feed(project, before.replace("PROJECT", str(project)))
    first = read(feed, project)
    if folded:
        fold(feed, monkeypatch)
    again = open_feed(project, now.replace("PROJECT", str(project)))
    assert read(again, project) == expected
    # A batch that is repeated finds its files where they are.
    last = [
        line.split for text in feed.stored_descriptors(feed.sequence - 1, feed.sequence)[0] for line in from_lines(text)
    ]
    found = files(again, project, [FileSplit.from_list(values) for values in last if values is not None])
    assert found
    assert "elsewhere" in before or set(found) <= set(first)


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize(("now", "expected"), [("b", "project/b/new"), ("PROJECT/../elsewhere/a", "elsewhere/a/new")])
def test_files_that_moved_along_with_their_folder_are_not_read_again(
    project: Path, monkeypatch: pytest.MonkeyPatch, now: str, expected: str, folded: bool
) -> None:
    feed = open_feed(project, "a")
    read(feed, project)
    if folded:
        fold(feed, monkeypatch)
    again = open_feed(project, now.replace("PROJECT", str(project)))
    [notice] = again.notices()
    assert notice.startswith('the files of table "t" were in "a" and are in "/')
    assert read(again, project) == [expected]
    # From now on that is where they are.
    if not folded:
        fold(again, monkeypatch)
        assert open_feed(project, now.replace("PROJECT", str(project))).notices() == []


def test_what_is_written_down_is_given_to_spark_again(project: Path) -> None:
    feed = open_feed(project, "a")
    given = []
    while (descriptor := feed.compose()) is not None:
        given.append(feed.write(descriptor))
    assert len(given) == 2
    again = open_feed(project, "a")
    assert again.stored_descriptors(-1, -1) == given
    assert again.stored_descriptors(0, 1) == given[1:]
    assert again.stored_descriptors(1, 1) == []
    with pytest.raises(DamageError, match=r"0000000002\.json"):
        again.stored_descriptors(1, 2)
    again.write(Descriptor(2, EPOCH, {}, {0: EventTime(5)}))
    [[first, second]] = again.stored_descriptors(1, 2)
    assert [work.tick for work in from_lines(first)] == [5]
    assert second == ""
