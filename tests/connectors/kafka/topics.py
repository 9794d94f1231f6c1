"""Topics of a broker: makes them, fills them, and reads them as a script does."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from sqlstream.testing import Stream
from tests.processes import wait_until

Message = str | bytes | dict[str, Any] | None


class Topic:
    """A topic of its own for a test."""

    def __init__(self, servers: str, partitions: int = 1, name: str = ""):
        self.servers, self.name = servers, name or f"topic-{uuid.uuid4().hex[:10]}"
        self.admin = AdminClient({"bootstrap.servers": servers})
        self.admin.create_topics([NewTopic(self.name, partitions, 1)])[self.name].result(60)
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})

    def send(self, *messages: Message, partition: int = 0, **more: Any) -> None:
        """Add messages to a partition; a dict is one of JSON."""
        for message in messages:
            self.add(message, partition=partition, **more)
        assert self._producer.flush(60) == 0

    def add(self, message: Message, partition: int = 0, **more: Any) -> None:
        """Add a message, which may come when the next ones are sent."""
        text = json.dumps(message) if isinstance(message, dict) else message
        self._producer.produce(self.name, text, partition=partition, **more)

    def transact(self, *transactions: tuple[Sequence[Message], bool]) -> None:
        """Add messages to the first partition, in transactions that are committed, or not."""
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": self.name})
        producer.init_transactions(60)
        for messages, commits in transactions:
            producer.begin_transaction()
            for message in messages:
                producer.produce(self.name, json.dumps(message), partition=0)
            producer.flush(60)
            (producer.commit_transaction if commits else producer.abort_transaction)(60)
        # A broker says that a transaction is committed before readers of committed messages can see that.
        wait_until(lambda: self._end(IsolationLevel.READ_COMMITTED) == self._end(IsolationLevel.READ_UNCOMMITTED))

    def _end(self, level: IsolationLevel) -> int:
        place = TopicPartition(self.name, 0)
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        answers = self.admin.list_offsets({place: latest}, isolation_level=level)
        return int(answers[place].result(60).offset)

    def grow(self, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(self.name, partitions)])[self.name].result(60)
        # One that knows of the new ones.
        self._producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 0})

    def forget(self, before: int, partition: int = 0) -> None:
        """Delete messages, as retention does."""
        place = TopicPartition(self.name, partition, before)
        [done] = self.admin.delete_records([place]).values()
        done.result(60)

    def table(self, columns: str, more: str = "", *, name: str = "t", format: str | None = "json") -> str:
        """Return the declaration of the topic as a table that ends where it ends now."""
        given = "" if format is None else f", 'format' = '{format}'"
        bound = "" if "scan.bounded" in more else ", 'scan.bounded.mode' = 'latest-offset'"
        return (
            f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'kafka', 'topic' = '{self.name}', "
            f"'properties.bootstrap.servers' = '{self.servers}'{given}{bound}{more});\n"
        )


def rows_of(script: str, select: str = "SELECT * FROM t") -> list[tuple[Any, ...]]:
    """Return the rows of a query over bounded tables, in order."""
    with Stream(f"{script} {select};") as stream:
        stream.finish()
        return sorted(stream.rows(), key=repr)


def seconds(*values: int) -> Iterable[str]:
    return (f"2026-01-01 00:{value // 60:02}:{value % 60:02}" for value in values)
