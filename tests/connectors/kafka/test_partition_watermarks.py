"""A watermark for each partition: none closes windows for another one, and one that is idle holds nobody back."""

from __future__ import annotations

from collections import Counter

import pytest

from sqlstream.testing import Stream
from tests.connectors.kafka.topics import Topic, seconds

pytestmark = pytest.mark.kafka

COUNTS = """
CREATE TABLE counts (window_start TIMESTAMP(3), n BIGINT);
INSERT INTO counts SELECT window_start, COUNT(*) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end;
"""
LIVE = ", 'scan.bounded.mode' = 'unbounded', 'scan.max-rows-per-batch' = '6', 'scan.watermark.idle-timeout' = '10 s'"


def pull(stream: Stream) -> None:
    for run in stream.runs.values():
        run.pull()


def counts(stream: Stream) -> list[int]:
    return [int(n) for (n,) in stream.query("SELECT n FROM counts ORDER BY window_start")]


def test_no_row_is_late_because_another_partition_is_ahead(kafka: str) -> None:
    topic = Topic(kafka, 3)
    # In each batch two rows of each: one partition runs away from the others.
    times = [range(0, 600, 20), range(30), range(0, 90, 3)]
    for partition, values in enumerate(times):
        topic.send(*({"ts": ts} for ts in seconds(*values)), partition=partition)
    script = topic.table("ts TIMESTAMP(3), WATERMARK FOR ts AS ts", LIVE) + COUNTS
    with Stream(script) as stream:
        for _ in range(10):
            pull(stream)
        marks = 'SELECT holds_minimum FROM sqlstream.watermarks WHERE "partition" IS NOT NULL ORDER BY "partition"'
        assert stream.query(marks) == [(False,), (True,), (False,)]
        # The slowest has come to second 19.
        assert counts(stream) == [1 + 10 + 4]
        stream.restart()
        for _ in range(5):
            pull(stream)
        stream.finish()
        expected = Counter(value // 10 for values in times for value in values)
        assert counts(stream) == [expected[window] for window in sorted(expected)]
        assert stream.query("SELECT late_rows, missed_windows FROM sqlstream.operators") == [(0, 0)]
        report = stream.verify()
        assert report
        assert [table.differences for table in report.tables] == [()]


def test_an_empty_partition_holds_the_watermark_until_it_is_idle(kafka: str) -> None:
    topic = Topic(kafka, 2)
    topic.send(*({"ts": ts} for ts in seconds(1, 25)))
    with Stream(topic.table("ts TIMESTAMP(3), WATERMARK FOR ts AS ts", LIVE) + COUNTS) as stream:
        pull(stream)
        assert counts(stream) == []
        stream.advance(9_000)
        topic.send({"ts": next(iter(seconds(26)))})
        while stream.query("SELECT rows_in FROM sqlstream.jobs") != [(3,)]:
            pull(stream)
        assert counts(stream) == []
        stream.advance(2_000)
        assert counts(stream) == [1]
        idle = (
            'SELECT idle_since IS NOT NULL FROM sqlstream.watermarks WHERE "partition" IS NOT NULL ORDER BY "partition"'
        )
        assert stream.query(idle) == [(False,), (True,)]
        # Back again, it holds nobody: what it brings behind the watermark is late.
        topic.send(*({"ts": ts} for ts in seconds(2, 27)), partition=1)
        while stream.query("SELECT rows_in FROM sqlstream.jobs") != [(5,)]:
            pull(stream)
        stream.finish()
        assert counts(stream) == [1, 3]
        assert stream.query("SELECT late_rows FROM sqlstream.operators") == [(1,)]
        report = stream.verify()
        assert report
        assert [d.cause for table in report.tables for d in table.differences] == ["late"]
