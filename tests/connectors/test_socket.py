"""Lines from a real socket: what arrives is read once, what was received outlives a crash, and the end is the other side's."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from sqlstream.compiler.compiler import Compiler
from sqlstream.connectors.interface import ReadContext
from sqlstream.connectors.registry import source_of
from sqlstream.connectors.socket.source import LinesFile
from sqlstream.errors import SourceText, SqlStreamError, UsageError
from sqlstream.runtime.feed import Feed
from sqlstream.units import NO_TIME
from sqlstream.warehouse.filesystem import LocalFilesystem
from tests.kinds import last_job


class Sender:
    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]

    def accept(self) -> None:
        self._peer, _ = self._server.accept()

    def send(self, text: str) -> None:
        self._peer.sendall(text.encode())

    def hang_up(self) -> None:
        self._peer.close()

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def sender() -> Iterator[Sender]:
    opened = Sender()
    yield opened
    opened.close()


def open_feed(folder: Path, sender: Sender, columns: str = "line STRING", more: str = "") -> Feed:
    options = f"'connector' = 'socket', 'hostname' = '127.0.0.1', 'port' = '{sender.port}'{more}"
    script = f"CREATE TABLE s ({columns}) WITH ({options}); SELECT * FROM s"
    scans = last_job(script).physical.scans
    feed = Feed(LocalFilesystem(), str(folder / "feed"), scans, (0,), project=str(folder), finish=True)
    sender.accept()
    # What a poll sees is up to the network: look until there is something.
    feed.scans[0].interval = NO_TIME
    return feed


def lines(feed: Feed, folder: Path) -> list[tuple[object, ...]]:
    """The rows of the next batch that has some."""
    while (descriptor := feed.compose()) is None or not descriptor.splits:
        assert not feed.ended
    feed.write(descriptor)
    return rows(feed, [s for s in descriptor.splits[0] if isinstance(s, LinesFile)], folder)


def rows(feed: Feed, splits: list[LinesFile], folder: Path) -> list[tuple[object, ...]]:
    source, context = source_of(feed._stages[0].table), ReadContext("", str(folder))
    located = [source.located(split, context) for split in splits]
    with duckdb.connect() as con:
        return con.execute(f"FROM {source.read(con, located, context).relation}").fetchall()


def test_lines_are_rows_and_the_other_side_ends_the_job(tmp_path: Path, sender: Sender) -> None:
    feed = open_feed(tmp_path, sender)
    assert not feed.bounded
    sender.send("one\ntwo\r\nthr")
    found = lines(feed, tmp_path)
    sender.send("ee\n\nlast")
    sender.hang_up()
    while len(found) < 5:
        found += lines(feed, tmp_path)
    assert [line for (line,) in found] == ["one", "two", "three", "", "last"]
    while not feed.ended:
        if (descriptor := feed.compose()) is not None:
            feed.write(descriptor)
    assert feed.bounded
    feed.close()


def test_what_was_received_is_there_after_a_crash(tmp_path: Path, sender: Sender) -> None:
    feed = open_feed(tmp_path, sender)
    sender.send("one\n")
    assert lines(feed, tmp_path) == [("one",)]
    sender.send("two\n")
    while not feed.scans[0].waiting(0.0):
        feed.scans[0].discovery.poll()
    feed.close()
    again = open_feed(tmp_path, sender)
    sender.send("three\n")
    found = lines(again, tmp_path)
    while len(found) < 2:
        found += lines(again, tmp_path)
    assert found == [("two",), ("three",)]
    # The first batch, once more.
    assert rows(again, [LinesFile(0, "feed/received/s/0000000000.txt", 4)], tmp_path) == [("one",)]
    again.close()


@pytest.mark.parametrize(("format", "text"), [("json", '{"k": 1, "v": "x"}\n{"k": 2}\n'), ("csv", "1,x\n2,\n")])
def test_formats(tmp_path: Path, sender: Sender, format: str, text: str) -> None:
    feed = open_feed(tmp_path, sender, "k INT, v STRING", f", 'format' = '{format}'")
    sender.send(text)
    assert lines(feed, tmp_path) == [(1, "x"), (2, None)]
    feed.close()


def test_the_job_says_that_lines_may_be_lost(tmp_path: Path, sender: Sender) -> None:
    feed = open_feed(tmp_path, sender)
    [notice] = feed.notices()
    assert notice.startswith('table "s" is read at most once: ')
    feed.close()


def test_nobody_listens(tmp_path: Path, sender: Sender) -> None:
    sender.close()
    with pytest.raises(UsageError, match=f"nobody listens at 127.0.0.1:{sender.port}"):
        open_feed(tmp_path, sender)


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("a STRING, b STRING", "'hostname' = 'x', 'port' = '1'", 'table "s" has 2 columns, a line is one'),
        ("a STRING", "'hostname' = 'x'", 'needs the option "port"'),
        ("a STRING", "'hostname' = 'x', 'port' = 'y'", 'option "port": "y" is not a whole number'),
        (
            "a STRING",
            "'hostname' = 'x', 'port' = '1', 'format' = 'parquet'",
            "Formats that it has: json, csv, or none.",
        ),
        ("a STRING", "'hostname' = 'x', 'port' = '1', 'path' = 'x'", 'option "path" does not exist'),
    ],
)
def test_what_cannot_be_declared(columns: str, options: str, message: str) -> None:
    compiler = Compiler()
    try:
        with pytest.raises(SqlStreamError) as e:
            compiler.scripts(
                [SourceText("test", f"CREATE TABLE s ({columns}) WITH ('connector' = 'socket', {options})")]
            )
    finally:
        compiler.close()
    assert message in str(e.value)


def test_malformed_lines_are_kept(tmp_path: Path, sender: Sender) -> None:
    feed = open_feed(tmp_path, sender, "k INT", ", 'format' = 'json', 'json.errors-to' = 'bad'")
    sender.send('{"k": 1}\n{"k": 1.5}\nx\n')
    while (descriptor := feed.compose()) is None or not descriptor.splits:
        assert not feed.ended
    splits = [s for s in descriptor.splits[0] if isinstance(s, LinesFile)]
    source, context = source_of(feed._stages[0].table), ReadContext(str(tmp_path), str(tmp_path))
    found = list(source.malformed_rows([source.located(split, context) for split in splits]))
    assert [(row.number, row.text, row.reason) for row in found] == [
        (2, '{"k": 1.5}', 'Column "k" does not hold a INTEGER'),
        (3, "x", "The line is not a JSON object"),
    ]
    feed.close()
