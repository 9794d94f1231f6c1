"""Tables of malformed rows: of several jobs, of savepoints and of forks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sqlstream.testing import Stream
from tests.connectors.test_malformed import feed, put
from tests.saved_streams import SavedStream

SOURCE = """
CREATE TABLE t (id BIGINT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'json.errors-to' = 'bad');
"""
COPIED = "CREATE TABLE {0} (id BIGINT); INSERT INTO {0} SELECT id FROM t;"
KEPT = "SELECT job, text FROM bad ORDER BY ALL"


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[SavedStream]:
    with SavedStream(SOURCE + COPIED.format("out")) as opened:
        feed(opened, put(tmp_path / "a.json", '{"id": 1}\nfirst\n'))
        opened.savepoint("out", "before")
        yield opened


def test_each_job_keeps_what_it_finds_and_says_so(tmp_path: Path) -> None:
    with Stream(SOURCE + COPIED.format("one") + COPIED.format("other")) as stream:
        feed(stream, put(tmp_path / "a.json", '{"id": 1}\nx\n'))
        assert stream.query(KEPT) == [("one", "x"), ("other", "x")]
        assert stream.query("SELECT text, list(job ORDER BY job) FROM bad GROUP BY text, file, row_number") == [
            ("x", ["one", "other"])
        ]


def test_a_fork_keeps_malformed_rows_of_its_own(stream: SavedStream, tmp_path: Path) -> None:
    stream.fork("forked", COPIED.format("beside"), "before")
    feed(stream, put(tmp_path / "b.json", 'second\n{"id": 2}\n'))
    assert sorted(stream.query("SELECT id FROM beside")) == sorted(stream.query("SELECT id FROM out")) == [(1,), (2,)]
    assert stream.query(KEPT) == [("forked", "second"), ("out", "first"), ("out", "second")]
    stream.restart()
    feed(stream, put(tmp_path / "c.json", "third\n"))
    assert stream.query("SELECT job FROM bad WHERE text = 'third' ORDER BY ALL") == [("forked",), ("out",)]


def test_a_job_that_goes_back_has_the_malformed_rows_of_then(stream: SavedStream, tmp_path: Path) -> None:
    feed(stream, put(tmp_path / "b.json", "second\n"))
    stream.go_back("out", "before")
    assert stream.query(KEPT) == [("out", "first")]
    feed(stream, put(tmp_path / "c.json", "third\n"))
    assert stream.query(KEPT) == [("out", "first"), ("out", "third")]


def test_a_savepoint_from_before_the_option_is_restored(tmp_path: Path) -> None:
    """Whether malformed rows are kept may change between two runs, and so between a savepoint and the run from it."""
    plain = SOURCE.replace(", 'json.errors-to' = 'bad'", "")
    with SavedStream(plain + COPIED.format("out")) as stream:
        feed(stream, put(tmp_path / "a.json", '{"id": 1}\n'))
        stream.savepoint("out", "before")
        stream.fork("forked", "DROP TABLE t;" + SOURCE + COPIED.format("beside"), "before")
        [run] = [run for name, run in stream.runs.items() if name == "forked"]
        stream.runs = {"forked": run}
        feed(stream, put(tmp_path / "b.json", 'second\n{"id": 2}\n'))
        assert sorted(stream.query("SELECT id FROM beside")) == [(1,), (2,)]
        assert stream.query(KEPT) == [("forked", "second")]


def test_each_place_that_a_table_is_read_from_keeps_its_malformed_rows() -> None:
    both = "INSERT INTO out SELECT id FROM t UNION ALL SELECT id FROM t /*+ OPTIONS('path' = 'old') */"
    # The same table twice, with the same options, is read once.
    with Stream(f"{SOURCE} CREATE TABLE out (id BIGINT); {both} UNION ALL SELECT id FROM t") as stream:
        for folder, text in (("in", "first"), ("old", "second")):
            place = Path(str(stream.compiler.project)) / folder
            place.mkdir()
            put(place / "a.json", f'{{"id": 1}}\n{text}\n')
        stream.finish()
        assert sorted(stream.query("SELECT id FROM out")) == [(1,), (1,), (1,)]
        assert stream.query(KEPT) == [("out", "first"), ("out", "second")]
