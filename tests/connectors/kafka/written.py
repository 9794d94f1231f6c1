"""What tests say to a broker without sqlstream: topics of their own, and what stands in them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]


class Message(NamedTuple):
    key: str | None
    value: str | None
    partition: int
    timestamp: int
    headers: list[tuple[str, bytes]] | None


def make_topic(servers: str, partitions: int = 1, **config: str) -> str:
    """Make a topic that no other test has; return its name."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": servers})
    made = admin.create_topics([NewTopic(name, partitions, 1, config=config)])
    made[name].result(60)
    return name


def messages(servers: str, topic: str, *, committed: bool = True) -> list[Message]:
    """Return all messages of a topic: those that a reader of committed ones sees now, or all that were ever sent."""
    return [_shown(message) for message in _consumed(servers, topic, committed=committed)]


def raw_messages(servers: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Return the keys and values of all messages that are committed, as bytes."""
    return [(message.key(), message.value()) for message in _consumed(servers, topic, committed=True)]


def _consumed(servers: str, topic: str, *, committed: bool) -> list[Any]:
    level = "read_committed" if committed else "read_uncommitted"
    with_end = {
        "enable.partition.eof": True,
        "isolation.level": level,
        "fetch.wait.max.ms": 20,
        "group.id": f"r-{uuid.uuid4().hex}",
    }
    consumer = Consumer({"bootstrap.servers": servers, **with_end})
    try:
        places = [TopicPartition(topic, p, 0) for p in consumer.list_topics(topic, 60).topics[topic].partitions]
        consumer.assign(places)
        found, ended = [], set[int | None]()
        while len(ended) < len(places):
            message = consumer.poll(5)
            if message is not None:
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
                else:
                    assert error is None, error
                    found.append(message)
        return found
    finally:
        consumer.close()


def markers(servers: str, topic: str, groups: Sequence[str]) -> list[int]:
    """Return the batches that groups have as the progress of a job."""
    found = []
    for group in groups:
        consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
        [place] = consumer.committed([TopicPartition(topic, 0)], timeout=60)
        consumer.close()
        found.append(place.offset)
    return found


def _shown(message: Any) -> Message:
    key, value = _text(message.key()), _text(message.value())
    return Message(key, value, message.partition(), message.timestamp()[1], message.headers())


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()
