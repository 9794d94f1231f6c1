"""Processes that are killed at each change of a file: while they take a savepoint, go back to one, fork, move or rescale.

The job is the old one or the new one afterwards, never something between.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from sqlstream.jobs.savepoints import savepoint_folders
from sqlstream.units import Duration
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.paths import Warehouse
from tests.properties.examples import SHARE
from tests.saved_streams import SavedStream

Answer = tuple[object, object]

JOB = "totals"
SCRIPT = """
CREATE TABLE t (k BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts);
CREATE TABLE totals (k BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED);
INSERT INTO totals WITH by_key AS (SELECT k, count(*) AS n FROM t GROUP BY k) SELECT * FROM by_key;
"""
FORK = """
CREATE TABLE totals_b (k BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED);
INSERT INTO totals_b WITH by_key AS (SELECT k, count(*) AS n FROM t GROUP BY k) SELECT * FROM by_key;
"""
FIRST, SECOND, THIRD = [1, 1, 2, 3], [1, 4], [2, 4, 5]
# `make test` kills at every third step, `make test-all` at each.
STRIDE = 1 if SHARE >= 1 else 3


class Killed(BaseException):
    """The process is dead: nothing after it changes a file."""


@contextmanager
def killed_before(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Let this process die before it changes files for the time numbered `step`; yield what it had done."""
    done: list[str] = []

    def mortal(name: str) -> Callable[..., object]:
        call = getattr(os, name)

        def changed(*arguments: object, **options: object) -> object:
            if len(done) >= step:
                raise Killed
            done.append(name)
            return call(*arguments, **options)

        return changed

    with monkeypatch.context() as patched:
        for name in ("replace", "rename", "link", "unlink", "mkdir", "rmdir"):
            patched.setattr(os, name, mortal(name))
        yield done


@pytest.fixture
def stream() -> Iterator[SavedStream]:
    """A job with the savepoint `first` after the first rows, which has gone on to the second ones."""
    with SavedStream(SCRIPT, options={"sqlstream.unbounded-state": "allow"}, parallelism=2) as stream:
        feed(stream, FIRST)
        stream.savepoint(JOB, "first")
        feed(stream, SECOND)
        yield stream


def feed(stream: SavedStream, keys: list[int]) -> None:
    stream.batch("t", [(k, "2026-01-01 10:00:00") for k in keys])


def totals(keys: list[int]) -> list[tuple[int, int]]:
    return sorted((k, keys.count(k)) for k in {*keys})


def shown(stream: SavedStream, job: str = JOB) -> Answer:
    """Return what the job has written, and what its state says."""
    state = f"SELECT k, n FROM state.{job}.by_key ORDER BY ALL"
    return stream.query(f"FROM {job} ORDER BY ALL"), stream.query(state)


def rows_there_are(stream: SavedStream) -> list[tuple[object, ...]]:
    """Return the rows of the table of a job that may have no version."""
    return stream.query("FROM totals") if "totals" in [row[0] for row in stream.query("SHOW ALL TABLES")] else []


def both(keys: list[int]) -> Answer:
    return totals(keys), totals(keys)


def deaths(
    stream: SavedStream, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], stride: int = 1
) -> Iterator[bool]:
    """Let a process that does something die at each step, in a copy of the warehouse; yield whether it was done.

    With a `stride` of 3 it dies at every third step.
    """
    kept = Path(f"{stream.warehouse}-kept")
    os.rename(stream.warehouse, kept)
    for step in count(0, stride):
        shutil.rmtree(stream.warehouse, ignore_errors=True)
        # Files never change in their place.
        shutil.copytree(kept, stream.warehouse, copy_function=os.link)
        with killed_before(step, monkeypatch) as done:
            try:
                act()
            except Killed:
                is_done = False
            else:
                is_done = True
        yield is_done
        if is_done:
            assert step > 10, done
            return


@pytest.mark.slow
def test_a_savepoint_is_whole_or_not_there(stream: SavedStream, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse = Warehouse(stream.warehouse)
    # What those have left that died goes at once.
    monkeypatch.setattr(savepoint_folders, "_LEFTOVER", Duration(-10_000_000))
    for is_done in deaths(stream, monkeypatch, lambda: stream.savepoint(JOB, "second"), STRIDE):
        there = "second" in warehouse.savepoints()
        assert there or not is_done
        if not there:
            stream.savepoint(JOB, "second")
        assert [*warehouse.fs.list(f"{warehouse.root}/savepoints")] == ["first", "second"]
        assert stream.query("SELECT k, n FROM savepoint.second.by_key ORDER BY ALL") == totals([*FIRST, *SECOND])


@pytest.mark.slow
def test_a_savepoint_is_dropped_or_whole(stream: SavedStream, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse = Warehouse(stream.warehouse)
    for is_done in deaths(stream, monkeypatch, lambda: savepoint_folders.drop(warehouse, "first"), STRIDE):
        if warehouse.savepoints():
            assert not is_done
            assert stream.query("SELECT k, n FROM savepoint.first.by_key ORDER BY ALL") == totals(FIRST)
        else:
            # Another one may have the name.
            stream.savepoint(JOB, "first")
            assert stream.query("SELECT k, n FROM savepoint.first.by_key ORDER BY ALL") == totals([*FIRST, *SECOND])


@pytest.mark.slow
def test_a_job_has_gone_back_or_not(stream: SavedStream, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = both([*FIRST, *SECOND]), both(FIRST)
    warehouse = Warehouse(stream.warehouse)
    seen = []
    for is_done in deaths(stream, monkeypatch, lambda: stream.go_back(JOB, "first"), STRIDE):
        if last_committed(warehouse.fs, warehouse.job(JOB)) is None:
            # Half of it cannot be queried.
            assert rows_there_are(stream) == []
            expected = new
        else:
            expected = shown(stream)
            assert expected in (old, new)
            has_begun = Path(warehouse.job(JOB).restoring).exists()
            expected = new if has_begun else expected
        seen.append(expected)
        assert expected == new or not is_done
        stream.start_again(JOB)
        assert shown(stream) == expected
    assert seen[0] == old
    # It is the new one for good once it is the new one.
    assert seen == sorted(seen, reverse=True)
    feed(stream, THIRD)
    assert shown(stream) == both([*FIRST, *THIRD])


@pytest.mark.slow
def test_a_fork_is_there_or_not(stream: SavedStream, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse = Warehouse(stream.warehouse)
    for is_done in deaths(stream, monkeypatch, lambda: stream.fork("totals_b", FORK, "first"), STRIDE):
        assert shown(stream) == both([*FIRST, *SECOND])
        paths = warehouse.job("totals_b")
        if last_committed(warehouse.fs, paths) is None:
            assert not is_done
            # Whoever asks for it again gets it, whatever there is of it.
            stream.fork("totals_b", FORK, "first")
        else:
            stream.start_again("totals_b")
        assert shown(stream, "totals_b") == both(FIRST)


@pytest.mark.slow
def test_state_is_spread_over_other_tasks_or_not(stream: SavedStream, monkeypatch: pytest.MonkeyPatch) -> None:
    def rescale() -> None:
        stream.restart(3)

    for _ in deaths(stream, monkeypatch, rescale, STRIDE):
        assert shown(stream) == both([*FIRST, *SECOND])
        stream.start_again(JOB)
        feed(stream, THIRD)
        assert shown(stream) == both([*FIRST, *SECOND, *THIRD])
