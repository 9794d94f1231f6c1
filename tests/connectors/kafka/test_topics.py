"""Tables of several topics: those of a list, and those that match a pattern, also when they come while a job runs."""

from __future__ import annotations

import uuid

import pytest

from sqlstream.errors import UsageError
from sqlstream.testing import Stream
from tests.connectors.kafka.topics import Topic, rows_of
from tests.processes import wait_until

pytestmark = pytest.mark.kafka

COLUMNS = "n INT, topic STRING METADATA, p INT METADATA FROM 'partition'"
FOLLOWED = ", 'scan.bounded.mode' = 'unbounded', 'scan.topic-partition-discovery.interval' = '1 ms'"
KEPT = "CREATE TABLE kept (n INT, topic STRING); INSERT INTO kept SELECT n, topic FROM t;"


def test_a_list_of_topics(kafka: str) -> None:
    first, second = Topic(kafka), Topic(kafka, 2)
    first.send({"n": 1}, {"n": 2})
    second.send({"n": 3}, partition=1)
    script = first.table(COLUMNS).replace(f"'{first.name}'", f"'{first.name}; {second.name}'")
    assert rows_of(script) == [(1, first.name, 0), (2, first.name, 0), (3, second.name, 1)]


def test_a_topic_that_matches_a_pattern_is_found_while_the_job_runs(kafka: str) -> None:
    prefix = f"shop-{uuid.uuid4().hex[:8]}"
    [first, other] = (Topic(kafka, name=f"{prefix}{name}") for name in ("-a", "2-a"))
    first.send({"n": 1})
    other.send({"n": 0})
    script = first.table(COLUMNS, FOLLOWED).replace(f"'topic' = '{first.name}'", f"'topic-pattern' = '{prefix}-[a-z]+'")
    with Stream(script + KEPT) as stream:

        def kept(*rows: tuple[int, str]) -> bool:
            for run in stream.runs.values():
                run.pull()
            return stream.query("SELECT n, topic FROM kept ORDER BY ALL") == [
                (n, f"{prefix}-{name}") for n, name in rows
            ]

        wait_until(lambda: kept((1, "a")))
        second = Topic(kafka, 2, name=f"{prefix}-b")
        second.send({"n": 2}, partition=1)
        wait_until(lambda: kept((1, "a"), (2, "b")))
        stream.restart()
        third = Topic(kafka, name=f"{prefix}-c")
        for n, topic in enumerate((first, second, third, other), 3):
            topic.send({"n": n})
        wait_until(lambda: kept((1, "a"), (2, "b"), (3, "a"), (4, "b"), (5, "c")))


def test_a_pattern_that_no_topic_matches(kafka: str) -> None:
    topic = Topic(kafka)
    script = topic.table("n INT").replace(f"'topic' = '{topic.name}'", "'topic-pattern' = 'nothing-.*'")
    with pytest.raises(UsageError, match=r'table "t": no topic matches "nothing-\.\*"'):
        rows_of(script)
