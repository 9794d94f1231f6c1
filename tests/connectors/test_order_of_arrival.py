"""Ties that the order of arrival decides, over every kind of source, in this process: what comes out is what is right.

`tests/spark/test_order_of_arrival.py` has the same over processes that are killed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sqlstream.testing import Stream
from tests.arrival.cases import CASES, FEW, ROWS, in_order, right, script
from tests.arrival.sources import SOME, SOURCES, Constants, Feed, Messages, feed_of

# What is right over the rows of FEW, in plain sight.
PROMISED: dict[str, list[tuple[Any, ...]]] = {
    "last_by_p": [("a", 2), ("b", 4)],
    "first_by_p": [("a", 0), ("b", 3)],
    "last_by_ts": [("a", 2), ("b", 4)],
    "first_by_v": [("a", 1), ("b", 4)],
    "last_in_window": [("a", 2), ("b", 4)],
    "lag_by_p": [(0, None), (1, 0), (2, 1), (3, None), (4, 3)],
    "over_by_ts": [
        (0, None, 9, 1, 9, 19),
        (1, 0, 12, 2, 3, 19),
        (2, 1, 10, 3, 7, 19),
        (3, None, 5, 1, 5, 6),
        (4, 3, 6, 2, 1, 6),
    ],
    "ends": [("a", 9, 7, 9, 7, "9-3-7", [9, 3, 7]), ("b", 5, 1, 5, 1, "5-1", [5, 1])],
    "ends_in_windows": [("a", 9, 7, 9, 7, "9-3-7", [9, 3, 7]), ("b", 5, 1, 5, 1, "5-1", [5, 1])],
    "versions_valid": [("a", 0, 7), ("a", 1, 7), ("a", 2, 7), ("b", 3, 1), ("b", 4, 1)],
    "keyed": [("a", 2), ("a!", 2), ("b", 4), ("b!", 4)],
}


def test_what_is_right_over_few_rows_is_what_is_promised() -> None:
    assert {case.name: right(case, FEW) for case in CASES} == {k: in_order(v) for k, v in PROMISED.items()}


@pytest.fixture
def feed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Feed]:
    yield from feed_of(request, tmp_path)


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize("feed", SOURCES, indirect=True)
def test_the_first_row_is_the_one_that_came_first(feed: Feed) -> None:
    half = len(ROWS) // 2
    feed.put(ROWS[:half])
    with Stream(feed.tables(live=True) + script(feed.cases()), parallelism=3) as stream:
        stream.restart()
        feed.put(ROWS[half:])
        [(job, run)] = stream.runs.items()
        for _ in range(len(ROWS) // SOME):
            run.pull()
        stream.finish()
        for case in feed.cases():
            assert in_order(stream.query(f"FROM {case.name}")) == right(case), case.name
        assert stream.verify(job)


def test_values_are_in_the_order_in_which_they_are_written() -> None:
    feed = Constants()
    feed.put(ROWS)
    with Stream(feed.tables(live=False) + script(feed.cases()), parallelism=3) as stream:
        stream.finish()
        for case in feed.cases():
            assert in_order(stream.query(f"FROM {case.name}")) == right(case), case.name


@pytest.mark.kafka
@pytest.mark.slow
def test_of_two_partitions_the_batch_decides_and_then_the_number(kafka: str) -> None:
    feed = Messages(kafka, 3)
    cases = [case for case in feed.cases() if case.name in ("last_by_p", "ends")]

    def send(partition: int, v: int, n: int) -> None:
        feed.topic.send({"k": "a", "v": v, "n": n, "ts": FEW[0][3]}, partition=partition)

    # The one that was sent first is in the later partition.
    send(2, 9, 0)
    send(0, 3, 1)
    with Stream(feed.tables(live=True) + script(cases)) as stream:
        [(job, run)] = stream.runs.items()
        run.pull()
        assert stream.query("SELECT n FROM last_by_p") == [(0,)]
        assert stream.query("SELECT joined FROM ends") == [("3-9",)]
        send(0, 7, 2)
        run.pull()
        assert stream.query("SELECT n FROM last_by_p") == [(2,)]
        assert stream.query("SELECT joined FROM ends") == [("3-9-7",)]
        assert stream.verify(job)
