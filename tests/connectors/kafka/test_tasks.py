"""Topics that tasks append to: which tables, what is sent again after a loss, and which clients a process keeps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from sqlstream.catalog import Column, Table
from sqlstream.connectors.kafka import tasks
from sqlstream.connectors.kafka.connector import KafkaConnector
from sqlstream.connectors.kafka.messages import HEADERS, KEY, PARTITION, TIMESTAMP, VALUE, MessageLayout
from sqlstream.connectors.kafka.producing import Topic
from sqlstream.connectors.kafka.source import WRITABLE
from sqlstream.connectors.kafka.tasks import TopicTasks
from sqlstream.connectors.kafka.writing import TopicPlainWriter
from sqlstream.duck import databases
from sqlstream.testing import Stream
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


def write(written: Table, rows: str = "SELECT 7 AS k") -> tuple[int, list[object]]:
    """Write rows as a task does, on a connection of a job."""
    columns = [Column(c.name, c.type) for c in written.writable]
    with databases.passing() as con:
        return TopicTasks(written).writer(None).write(con, columns, rows, 0)  # type: ignore[arg-type]


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> Iterator[tasks._Clients]:
    """The clients of a process that has none yet, and keeps two."""
    monkeypatch.setattr(tasks, "_MAX_IDLE", 2)
    monkeypatch.setattr(tasks, "_by_process", {})
    yield tasks._clients()
    tasks._clients().close()


def test_a_process_keeps_a_client_for_each_table_and_closes_the_oldest(kafka: str, idle: tasks._Clients) -> None:
    topics = [make_topic(kafka, 1) for _ in range(3)]
    for topic in (*topics, topics[2]):
        assert write(table(kafka, topic)) == (1, [])
    assert [len(messages(kafka, topic)) for topic in topics] == [1, 1, 2]
    assert [dict(definition[-1])["topic"] for (_, definition), _ in idle._idle] == topics[1:]  # type: ignore[call-overload]


def test_a_client_that_writes_is_closed_by_nobody_else(kafka: str, idle: tasks._Clients) -> None:
    first, *others = (make_topic(kafka, 1) for _ in range(4))

    def parts() -> Iterator[pa.Table]:
        yield part(0)
        # Other jobs of the process have their turn in threads, one of them at the same table.
        for topic in (first, *others):
            write(table(kafka, topic))

    # Messages wait for a flush: until then a client that is closed loses them.
    waiting = table(kafka, first, **{"properties.linger.ms": "60000"})
    with idle.one_for(waiting) as client:
        with idle.one_for(waiting) as second:
            assert second is not client
        assert client.write_all(parts()) == 100
    assert len(messages(kafka, first)) == 101
    assert len(idle._idle) == 2


def test_a_task_that_fails_leaves_no_message_to_the_next_one(kafka: str, idle: tasks._Clients) -> None:
    topic = make_topic(kafka, 1)
    written = table(kafka, topic, **{"properties.linger.ms": "60000"})

    def parts() -> Iterator[pa.Table]:
        yield part(0)
        raise ValueError("too late")

    with pytest.raises(ValueError, match="too late"), idle.one_for(written) as client:
        client.write_all(parts())
    assert not idle._idle
    assert write(written) == (1, [])
    assert [m.value for m in messages(kafka, topic)] == ['{"k":7}']


def test_a_column_that_becomes_metadata_is_written_so(kafka: str, idle: tasks._Clients) -> None:
    topic = make_topic(kafka, 1)
    for metadata in (None, "timestamp"):
        at = Column("at", "TIMESTAMP", metadata=metadata)
        both = replace(table(kafka, topic), columns=(Column("k", "INTEGER"), at), writes_metadata=WRITABLE)
        write(both, "SELECT 7 AS k, TIMESTAMP '2026-01-01' AS at")
    assert [m.value for m in messages(kafka, topic)] == ['{"k":7,"at":"2026-01-01 00:00:00"}', '{"k":7}']


def test_instants_are_text_in_utc_whatever_the_zone_of_the_job(kafka: str) -> None:
    columns = "at TIMESTAMP_LTZ(3), several TIMESTAMP_LTZ(3)[], day STRING"
    for guarantee in ("at-least-once", "exactly-once"):
        topic = make_topic(kafka, 1)
        script = f"""
            SET 'table.local-time-zone' = 'Europe/Berlin';
            CREATE TABLE given (ts TIMESTAMP(3));
            CREATE TABLE topic ({columns}) WITH ('connector' = 'kafka', 'topic' = '{topic}', 'format' = 'json',
                'properties.bootstrap.servers' = '{kafka}', 'sink.delivery-guarantee' = '{guarantee}');
            INSERT INTO topic SELECT CAST(ts AS TIMESTAMP_LTZ(3)), ARRAY[CAST(ts AS TIMESTAMP_LTZ(3))],
                CAST(CAST(ts AS TIMESTAMP_LTZ(3)) AS STRING) FROM given
        """
        with Stream(script) as opened:
            opened.batch("given", [("2026-07-01 12:00:00",)])
        [found] = [json.loads(m.value or "") for m in messages(kafka, topic)]
        assert (found["at"], found["several"]) == ("2026-07-01 10:00:00+00", ["2026-07-01 10:00:00+00"])
        assert str(found["day"]).startswith("2026-07-01 12:00:00"), "it is computed in the zone of the job"
