"""Topics that jobs write, as other clients find them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from sqlstream.errors import BindError, JobError, SqlStreamError, UsageError
from sqlstream.testing import Stream
from tests.connectors.kafka.written import make_topic, messages

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
SCRIPT = """
CREATE TABLE given ({columns});
CREATE TABLE topic ({target}) WITH ({options});
INSERT INTO topic {query}
"""
ROWS = [(1, "a", 1.5), (2, None, None), (3, 'ä, "b"\n', float("inf")), (4, "", -0.5)]


def options(servers: str, topic: str, connector: str = "kafka", **more: str) -> dict[str, str]:
    given = {"connector": connector, "topic": topic, "properties.bootstrap.servers": servers}
    return given | {name.replace("__", "-").replace("_", "."): value for name, value in more.items()}


@contextmanager
def stream(
    given: Mapping[str, str],
    columns: str = "k INT, v STRING, d DOUBLE",
    *,
    target: str = "",
    query: str = "SELECT * FROM given",
) -> Iterator[Stream]:
    shown = ", ".join(f"'{name}' = '{value}'" for name, value in given.items())
    script = SCRIPT.format(columns=columns, target=target or columns, options=shown, query=query)
    with Stream(script) as opened:
        yield opened


def values(servers: str, topic: str) -> list[str | None]:
    return sorted((m.value for m in messages(servers, topic)), key=str)


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once", "none"])
def test_rows_are_objects_and_their_keys_too(kafka: str, guarantee: str) -> None:
    topic = make_topic(kafka)
    given = options(kafka, topic, format="json", key_format="json", key_fields="k")
    with stream({**given, "sink.delivery-guarantee": guarantee}) as opened:
        opened.batch("given", ROWS[:2])
        opened.restart()
        opened.batch("given", ROWS[2:])
    found = sorted(messages(kafka, topic))
    assert [m.key for m in found] == [f'{{"k":{k}}}' for k in range(1, 5)]
    expected = [(k, v, "inf" if d == float("inf") else d) for k, v, d in ROWS]
    assert [tuple(json.loads(m.value or "").values()) for m in found] == expected


def test_nested_values_and_a_key_that_is_not_in_the_value(kafka: str) -> None:
    topic = make_topic(kafka)
    columns = "key_id BIGINT, tags STRING[], place STRUCT(x INT, y DECIMAL(9, 2)), ts TIMESTAMP(3), f BYTES"
    given = options(kafka, topic, format="json", key_format="json", key_fields="key_id")
    more = {"key.fields-prefix": "key_", "value.fields-include": "EXCEPT_KEY"}
    with stream({**given, **more}, columns) as opened:
        opened.batch("given", [(7, ["a", None], {"x": None, "y": "1.25"}, "2026-01-01 10:00:00.5", b"\x00a")])
        opened.batch("given", [(8, [], None, None, None)])
    assert [(m.key, json.loads(m.value or "")) for m in messages(kafka, topic)] == [
        (
            '{"id":7}',
            {
                "tags": ["a", None],
                "place": {"x": None, "y": 1.25},
                "ts": "2026-01-01 10:00:00.5",
                "f": "\\x00a",
            },
        ),
        ('{"id":8}', {"tags": [], "place": None, "ts": None, "f": None}),
    ]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_more_rows_than_the_client_holds_come_in_their_order(kafka: str, guarantee: str) -> None:
    topic = make_topic(kafka, 2)
    given = options(kafka, topic, format="raw", key_format="raw", key_fields="k", value_fields__include="EXCEPT_KEY")
    given |= {"sink.delivery-guarantee": guarantee, "properties.queue.buffering.max.messages": "10"}
    rows = [("k", "") if n % 100 == 0 else (None, f"ä {n}") if n % 100 == 1 else ("k", str(n)) for n in range(1000)]
    with stream(given, "k STRING, v STRING") as opened:
        opened.batch("given", rows)
    found = messages(kafka, topic)
    assert sorted(found_rows := [(m.key, m.value) for m in found], key=str) == sorted(rows, key=str)
    # Those of a key are in one partition, one after the other.
    assert [row for row in found_rows if row[0]] == [row for row in rows if row[0]]


def test_csv_is_quoted_where_it_must_be(kafka: str) -> None:
    topic = make_topic(kafka)
    with stream(options(kafka, topic, format="csv")) as opened:
        opened.batch("given", ROWS)
    assert values(kafka, topic) == ["1,a,1.5", "2,,", '3,"ä, ""b""\n",inf', '4,"",-0.5']


def test_changes_in_an_envelope_amount_to_the_answer(kafka: str) -> None:
    topic = make_topic(kafka)
    query = "SELECT v, count(*) FROM given GROUP BY v"
    given = options(kafka, topic, format="debezium-json")
    with stream(given, "v STRING", target="v STRING, n BIGINT", query=query) as opened:
        opened.batch("given", [("a",), ("b",)])
        opened.batch("given", [("a",), ("a",), (None,)])
    weights: dict[tuple[Any, ...], int] = {}
    for message in messages(kafka, topic):
        change = json.loads(message.value or "")
        row = change["after"] if change["op"] == "c" else change["before"]
        weights[*row.values(),] = weights.get((*row.values(),), 0) + (1 if change["op"] == "c" else -1)
        assert set(weights.values()) <= {0, 1}, "a row goes before another one of its key comes"
    assert {row for row, weight in weights.items() if weight} == {("a", 3), ("b", 1), (None, 1)}


def test_the_last_message_of_a_key_is_its_row_and_a_tombstone_deletes_it(kafka: str) -> None:
    topic = make_topic(kafka, 3, **{"cleanup.policy": "compact"})
    given = options(kafka, topic, "upsert-kafka", key_format="json", value_format="json")
    query = "SELECT v, count(*) FROM given GROUP BY v HAVING count(*) < 3"
    target = "v STRING, n BIGINT, PRIMARY KEY (v) NOT ENFORCED"
    with stream({**given, "sink.delivery-guarantee": "exactly-once"}, "v STRING", target=target, query=query) as opened:
        opened.batch("given", [("a",), ("b",), ("c",)])
        opened.batch("given", [("a",), ("a",), ("b",), (None,)])
        opened.batch("given", [("a",), ("c",)])
    found = messages(kafka, topic)
    keys = {m.key for m in found}
    assert {len({m.partition for m in found if m.key == key}) for key in keys} == {1}
    last = {str(m.key): m.value for m in found}
    rows = {tuple(json.loads(value).values()) for value in last.values() if value is not None}
    assert rows == {("b", 2), ("c", 2), (None, 1)}
    assert last['{"v":"a"}'] is None


def test_partitions(kafka: str) -> None:
    spread: dict[str, list[int]] = {}
    for partitioner in ("fixed", "round-robin", "default"):
        topic = make_topic(kafka, 3)
        given = options(kafka, topic, format="csv", key_format="raw", key_fields="v")
        with stream({**given, "sink.partitioner": partitioner}) as opened:
            opened.batch("given", [(k, f"key{k % 2}", None) for k in range(9)])
        found = messages(kafka, topic)
        spread[partitioner] = [sum(m.partition == p for m in found) for p in range(3)]
    assert spread["fixed"] == [9, 0, 0]
    assert spread["round-robin"] == [3, 3, 3]
    # The places of Java's clients: murmur2("key0") % 3 = 1, murmur2("key1") % 3 = 2.
    assert spread["default"] == [0, 5, 4]


def test_what_is_wrong_with_a_topic_is_said_before_a_row_is_read(kafka: str) -> None:
    topic = make_topic(kafka)
    missing = options(kafka, f"{topic}-not", format="json") | {"properties.allow.auto.create.topics": "false"}
    with pytest.raises(UsageError, match="does not exist, and the brokers do not make it"), stream(missing):
        pass
    several = options(kafka, f"{topic};other", format="json")
    with pytest.raises(BindError, match='table "topic" has several topics'), stream(several):
        pass
    nobody = options("127.0.0.1:9", topic, format="json") | {"sink.retry-timeout": "200 ms"}
    with pytest.raises(JobError, match='table "topic": the brokers did not take the rows') as told, stream(nobody):
        pass
    assert "127.0.0.1:9" in str(told.value.detail)


def test_a_row_that_is_too_large_is_an_error_at_once(kafka: str) -> None:
    topic = make_topic(kafka, 1, **{"max.message.bytes": "1000"})
    for guarantee in ("at-least-once", "exactly-once"):
        given = options(kafka, topic, format="csv") | {"sink.delivery-guarantee": guarantee}
        with stream(given) as opened, pytest.raises(SqlStreamError, match="a row is too large for topic"):
            opened.batch("given", [(1, "x" * 5000, None)])
    assert messages(kafka, topic) == []


def test_headers_and_the_time_of_a_message_are_written(kafka: str) -> None:
    topic = make_topic(kafka)
    target = (
        "k INT, h MAP<STRING, BYTES> METADATA FROM 'headers', sent TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', "
        "place BIGINT METADATA FROM 'offset', n INT METADATA FROM 'partition' VIRTUAL"
    )
    query = "SELECT k, IF(k = 1, MAP['a', CAST('x' AS BYTES)], NULL), sent FROM given"
    with stream(
        options(kafka, topic, format="csv"), "k INT, sent TIMESTAMP_LTZ(3)", target=target, query=query
    ) as opened:
        opened.batch("given", [(1, "2026-01-01 10:00:00+00"), (2, "2026-01-01 10:00:01.5+00")])
    expected = [("1", 1_767_261_600_000, [("a", b"x")]), ("2", 1_767_261_601_500, None)]
    assert sorted((m.value, m.timestamp, m.headers or None) for m in messages(kafka, topic)) == expected
