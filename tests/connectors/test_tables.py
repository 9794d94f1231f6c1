"""Jobs that read what other jobs write: every batch once, also after restarts, merges, and new lives of the writer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from sqlstream.catalog import Column, Table
from sqlstream.connectors.discovery import DiscoveryContext, Offsets
from sqlstream.connectors.interface import ReadContext
from sqlstream.connectors.registry import source_of
from sqlstream.connectors.warehouse.source import BatchRange
from sqlstream.errors import DataError, UsageError
from sqlstream.physical.plan import ScanStage
from sqlstream.runtime.batch_descriptors import from_lines
from sqlstream.runtime.feed import Feed
from sqlstream.testing import Stream
from sqlstream.warehouse.jobs import read_record
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.records import opened, sealed

SCRIPT = """
CREATE TABLE given (k BIGINT);
CREATE TABLE mid (k BIGINT, double AS k * 2);
CREATE TABLE out (k BIGINT);
INSERT INTO mid SELECT k FROM given;
INSERT INTO out SELECT k FROM mid;
"""


@pytest.fixture
def stream() -> Iterator[Stream]:
    with Stream(SCRIPT) as opened:
        yield opened


def scan(stream: Stream, **options: str) -> ScanStage:
    """The scan of `mid`, bounded unless options say otherwise."""
    [found] = stream.runs["out"].job.plan.scans
    table = Table(found.table.name, found.table.columns, options=options)
    return ScanStage(found.name, table, found.columns, None, None, found.fragments)


def open_feed(
    stream: Stream, folder: Path, *, finish: bool = True, interval: str = "", bytes_per_batch: str = ""
) -> Feed:
    fs = Warehouse(stream.warehouse).fs
    options = {"source.monitor-interval": interval, "source.max-bytes-per-batch": bytes_per_batch}
    stages = [scan(stream, **{key: value for key, value in options.items() if value})]
    return Feed(fs, str(folder), stages, (0, 1), project="/", finish=finish, warehouse=stream.warehouse)


def rows(stream: Stream, splits: list[BatchRange]) -> list[int]:
    with duckdb.connect() as con:
        plan = source_of(scan(stream).table).read(con, splits, ReadContext("", stream.warehouse))
        return sorted(k for (k,) in con.execute(f"SELECT k FROM {plan.relation}").fetchall())


def taken(stream: Stream, feed: Feed) -> list[int] | None:
    """What the next batch reads; None when nothing waits."""
    descriptor = feed.compose()
    if descriptor is None:
        return None
    feed.write(descriptor)
    splits = [s for s in descriptor.splits.get(0, ()) if isinstance(s, BatchRange)]
    return rows(stream, splits) if splits else []


def write(stream: Stream, *keys: int) -> None:
    for key in keys:
        stream.batch("given", [(key,)])


def test_bounded_means_committed_when_the_job_first_started(stream: Stream, tmp_path: Path) -> None:
    write(stream, 1, 2)
    feed = open_feed(stream, tmp_path)
    assert feed.bounded
    feed.scans[0].waiting(0.0)
    write(stream, 3)
    again = open_feed(stream, tmp_path)
    assert taken(stream, again) == [1, 2]
    assert again.ended
    assert taken(stream, again) is None


def test_without_finish_every_start_reads_what_is_new(stream: Stream, tmp_path: Path) -> None:
    write(stream, 1)
    assert taken(stream, open_feed(stream, tmp_path, finish=False)) == [1]
    write(stream, 2, 3)
    feed = open_feed(stream, tmp_path, finish=False)
    assert taken(stream, feed) == [2, 3]
    assert taken(stream, feed) is None


@pytest.mark.slow
def test_every_batch_is_read_once_while_segments_are_merged(stream: Stream, tmp_path: Path) -> None:
    seen: list[int] = []
    for number in range(60):
        write(stream, number)
        if number % 7 == 3:
            # A new process each time.
            feed = open_feed(stream, tmp_path, interval="0 s")
            seen += taken(stream, feed) or []
            assert taken(stream, feed) is None
    assert sorted(seen) == list(range(60 - 60 % 7 + 4))
    assert len(stream.query("FROM mid")) == 60


@pytest.mark.slow
def test_a_repeated_batch_reads_the_same_rows_though_they_were_merged(stream: Stream, tmp_path: Path) -> None:
    write(stream, *range(5))
    feed = open_feed(stream, tmp_path, interval="0 s")
    assert taken(stream, feed) == list(range(5))
    write(stream, *range(5, 40))
    [path] = (tmp_path / "next").iterdir()
    splits = [BatchRange(*w.split) for w in from_lines(opened(str(path), path.read_text())) if w.split]
    assert rows(stream, splits) == list(range(5))


def test_a_batch_is_bounded_and_shared_out(stream: Stream, tmp_path: Path) -> None:
    write(stream, *range(12))
    feed = open_feed(stream, tmp_path, bytes_per_batch="2 kb")
    parts = []
    while (part := taken(stream, feed)) is not None:
        parts.append(part)
    assert sorted(key for part in parts for key in part) == list(range(12))
    assert 1 < len(parts) < 12
    whole = open_feed(stream, tmp_path / "whole")
    descriptor = whole.compose()
    assert descriptor is not None
    assert 4 <= len(descriptor.splits[0]) <= 6


def test_a_writer_that_is_started_anew_is_noticed(stream: Stream, tmp_path: Path) -> None:
    write(stream, 1)
    feed = open_feed(stream, tmp_path, interval="0 s")
    assert taken(stream, feed) == [1]
    [path] = (tmp_path / "next").iterdir()
    splits = [BatchRange(*w.split) for w in from_lines(opened(str(path), path.read_text())) if w.split]
    record = Warehouse(stream.warehouse).job("mid").record
    text = opened(record, Path(record).read_text())
    Path(record).write_text(sealed(text.replace('"created_at": ', '"created_at": 1')))
    with pytest.raises(UsageError, match='job "mid", which writes table "mid", was started anew'):
        feed.compose()
    with pytest.raises(DataError, match="was started anew while its rows"):
        rows(stream, splits)
    shutil.rmtree(Path(record).parent)
    with pytest.raises(DataError, match="was dropped while its rows"):
        rows(stream, splits)


def test_a_table_that_nobody_has_written(tmp_path: Path) -> None:
    context = DiscoveryContext(str(tmp_path), Warehouse(str(tmp_path)), "", 1, True, lambda name, value: value)
    table = Table("mid", (Column("k", "BIGINT"),))
    with pytest.raises(UsageError, match='table "mid" is empty: no job has written it yet'):
        source_of(table).discovery(Offsets(), context).poll()
    watched = Table("mid", table.columns, options={"source.monitor-interval": "1 s"})
    assert source_of(watched).discovery(Offsets(), context).poll() == 0


def test_columns_that_the_writer_does_not_write(stream: Stream) -> None:
    write(stream, 1)
    record = read_record(Warehouse(stream.warehouse).fs, Warehouse(stream.warehouse).job("mid"))
    assert record is not None
    splits = [BatchRange("mid", record.created_at, -1, 0, 1)]
    table = Table("mid", (Column("kk", "BIGINT"),))
    with duckdb.connect() as con, pytest.raises(DataError, match='as job "mid" writes it, has no column "kk"') as e:
        source_of(table).read(con, splits, ReadContext("", stream.warehouse))
    assert e.value.hint == 'did you mean "k"?'


def test_splits_come_back() -> None:
    split = BatchRange("mid", 5, -1, 7, 100)
    assert source_of(Table("mid", ())).split(json.loads(json.dumps(split.to_list()))) == split
    assert split.reached == ("mid@5", 7)
