"""Topics full of messages, and what systems have written into others."""

from __future__ import annotations

import json
from collections.abc import Sequence

import duckdb
import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.bench.kafka.work import TOPICS, KafkaWork, closed_until

_CHUNK = 500_000
_QUIET = {"log_level": 0}


def make_topics(server: str, names: Sequence[str], partitions: int) -> None:
    """Make topics, or raise what is wrong."""
    admin = AdminClient({"bootstrap.servers": server, **_QUIET})
    for made in admin.create_topics([NewTopic(name, partitions, 1) for name in names]).values():
        made.result(60)


def fill(server: str, topic: str, kind: str, rows: int, partitions: int) -> None:
    """Write messages into a topic, dealt out to its partitions: all of them go through event time together."""
    settings = {"linger.ms": 50, "compression.type": "lz4", "queue.buffering.max.messages": 1_000_000, **_QUIET}
    producer = Producer({"bootstrap.servers": server, **settings})
    with duckdb.connect() as con:
        for first in range(0, rows, _CHUNK):
            made = f"SELECT {TOPICS[kind].row} FROM range({first}, {min(rows, first + _CHUNK)}) r(i)"
            time = "strftime(ts, '%Y-%m-%d %H:%M:%S.%g') AS ts"
            texts = con.sql(f"SELECT CAST(to_json(m) AS VARCHAR) FROM (SELECT * REPLACE ({time}) FROM ({made})) AS m")
            for number, text in enumerate(texts.to_arrow_table().column(0).to_pylist(), first):
                while True:
                    try:
                        producer.produce(topic, text.encode(), partition=number % partitions)
                        break
                    except BufferError:
                        producer.poll(0.1)
                producer.poll(0)
    if producer.flush(120):
        raise RuntimeError(f"the broker did not take all messages of {topic}")


def summary(server: str, topic: str, work: KafkaWork, rows: int) -> list[int]:
    """Return the number of messages of a result, and their checksum."""
    consumer = Consumer(
        {"bootstrap.servers": server, "group.id": "summary", "isolation.level": "read_committed", **_QUIET}
    )
    values: list[bytes] = []
    for partition in sorted(consumer.list_topics(topic, 30).topics[topic].partitions):
        at = TopicPartition(topic, partition, 0)
        _, end = consumer.get_watermark_offsets(at, 30)
        consumer.assign([at])
        while consumer.position([at])[0].offset < end:
            values += [m.value() or b"" for m in consumer.consume(10_000, 1.0) if m.error() is None]
            if end == 0:
                break
    consumer.close()
    types = json.dumps({name: type.replace("STRING", "VARCHAR") for name, type in work.columns.items()})
    with duckdb.connect() as con:
        con.register("messages", pa.table({"value": pa.array([v.decode() for v in values], pa.string())}))
        parsed = f"(SELECT unnest(from_json(value, '{types}')) FROM messages)"
        [found] = con.execute(work.summary(parsed, closed_until(rows))).fetchall()
    return list(found)
