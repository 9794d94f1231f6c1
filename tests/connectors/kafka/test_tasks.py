"""Topics that tasks append to: which tables, what is sent again after a loss, and which clients a process keeps."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from sqlstream.catalog import Column, Table
from sqlstream.connectors.kafka import tasks
from sqlstream.connectors.kafka.connector import KafkaConnector
from sqlstream.connectors.kafka.messages import HEADERS, KEY, PARTITION, TIMESTAMP, VALUE, MessageLayout
from sqlstream.connectors.kafka.producing import Topic
from sqlstream.connectors.kafka.tasks import TopicTasks
from sqlstream.connectors.kafka.writing import TopicPlainWriter
from sqlstream.duck import databases
from tests.connectors.kafka.written import make_topic, messages

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def table(servers: str, topic: str, **more: str) -> Table:
    options = {"connector": "kafka", "topic": topic, "format": "json", "properties.bootstrap.servers": servers}
    return Table("t", (Column("k", "INTEGER"),), options=options | {k.replace("__", "."): v for k, v in more.items()})


def test_tasks_write_what_is_appended_without_transactions() -> None:
    def is_written_by_tasks(**more: str) -> bool:
        return isinstance(KafkaConnector().sink(table("s:1", "t", **more)), TopicTasks)

    assert is_written_by_tasks()
    assert is_written_by_tasks(**{"sink.delivery-guarantee": "none"})
    assert not is_written_by_tasks(**{"sink.delivery-guarantee": "exactly-once"})
    assert not is_written_by_tasks(**{"sink.parallelism": "1"})
    assert not is_written_by_tasks(format="debezium-json")


def part(first: int) -> pa.Table:
    values = [str(first + i) for i in range(100)]
    columns = {
        KEY: pa.nulls(100, pa.string()),
        VALUE: pa.array(values),
        PARTITION: pa.array([-1] * 100, pa.int32()),
        TIMESTAMP: pa.array([0] * 100),
        HEADERS: pa.nulls(100, pa.null()),
    }
    return pa.table(columns)


def test_a_client_that_has_lost_messages_sends_all_again(kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = make_topic(kafka, 1)
    # Messages wait for a flush, and can be lost until then. The client of confluent-kafka can purge what waits.
    written = table(kafka, topic, **{"properties.linger.ms": "60000"})
    monkeypatch.setattr("sqlstream.connectors.kafka.bulk.takes", lambda _: False)
    writer = TopicPlainWriter(MessageLayout(written, upserts=False), Topic(written), waits=True)
    first = writer._sender

    def parts() -> Iterator[pa.Table]:
        yield part(0)
        first.producer.purge(in_queue=True)
        yield part(100)

    assert writer.write_all(parts()) == 200
    assert writer._sender is not first
    writer.close()
    found = [int(m.value or "") for m in messages(kafka, topic)]
    assert set(found) == set(range(200))


def test_a_process_keeps_a_client_for_each_table_and_closes_the_oldest(
    kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "_KEPT", 2)
    monkeypatch.setattr(tasks, "_clients", type(tasks._clients)())
    topics = [make_topic(kafka, 1) for _ in range(3)]
    with databases.passing() as con:
        for topic in (*topics, topics[2]):
            writer = TopicTasks(table(kafka, topic)).writer(None)  # type: ignore[arg-type]
            assert writer.write(con, [Column("k", "INTEGER")], "SELECT 7 AS k", 0) == (1, [])
    assert [len(messages(kafka, topic)) for topic in topics] == [1, 1, 2]
    assert [dict(options)["topic"] for *_, options in tasks._clients] == topics[1:]
    tasks._close_oldest(0)
