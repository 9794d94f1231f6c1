"""Offsets that retention removes while they are read: what belongs to a range, what is lost, and what is neither."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from threading import Timer
from typing import Any, cast

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, Message, Producer

from sqlstream.connectors.kafka.ranges import OffsetRange
from sqlstream.connectors.kafka.reader import MessageReader
from sqlstream.errors import DataError, JobError
from tests.connectors.kafka.topics import Topic
from tests.processes import SECONDS

pytestmark = pytest.mark.kafka

# A poll of a reader whose process was away: all that has come in the meantime, in its order.
Events = list[Message]


class Away:
    """The consumer of a reader whose process was away: `meanwhile` returns what its first poll gets at once."""

    def __init__(self, opened: MessageReader, meanwhile: Callable[[Away], Events]):
        self._consumer, self._meanwhile = opened._consumer, meanwhile
        self._events: Events | None = None
        opened._consumer = cast(Any, self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def poll(self, timeout: float) -> Message | None:
        if self._events is None:
            self._events = self._meanwhile(self)
        return self._events.pop(0) if self._events else self._consumer.poll(timeout)

    def consume(self, count: int, timeout: float) -> Events:
        events, self._events = (self._events or [])[:count], (self._events or [])[count:]
        return events or self._consumer.consume(count, timeout)

    def until(self, is_last: Callable[[Message], bool]) -> Events:
        """Return what comes, up to the first message or event that is the last one."""
        events: Events = []
        end = time.monotonic() + SECONDS
        while not events or not is_last(events[-1]):
            assert time.monotonic() < end, [(m.offset(), m.error()) for m in events]
            if (message := self._consumer.poll(0.25)) is not None:
                events.append(message)
        return events


def is_message(offset: int) -> Callable[[Message], bool]:
    return lambda message: message.error() is None and message.offset() == offset


def is_loss(message: Message) -> bool:
    error = message.error()
    return error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET


def call(function: Callable[[], None]) -> None:
    function()


def add_and_forget(topic: Topic, before: int, commits: Callable[[Callable[[], None]], object] = call) -> None:
    """Add ten messages in a transaction, and delete all before an offset while it is open: no consumer has got them by then.

    `commits` gets what commits the transaction.
    """
    producer = Producer({"bootstrap.servers": topic.servers, "transactional.id": topic.name})
    producer.init_transactions(60)
    producer.begin_transaction()
    for _ in range(10):
        producer.produce(topic.name, "{}", partition=0)
    producer.flush(60)
    topic.forget(before)
    commits(partial(producer.commit_transaction, 60))


def _offsets(messages: Sequence[Message]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"offset": [m.offset() for m in messages]})


def read(opened: MessageReader, topic: Topic, start: int, end: int, *, continues: bool) -> tuple[list[int], int]:
    """Return the offsets of the messages of a range, and how many are lost."""
    split = OffsetRange(topic.name, 0, start, end)
    found = opened.read([split], "t", _offsets, patience=60, continues=continues)[split]
    return [offset for part in found.parts for offset in part.column(0).to_pylist()], found.lost


def opened_for(topic: Topic, **settings: str) -> MessageReader:
    return MessageReader({"bootstrap.servers": topic.servers, "client.id": topic.name, **settings})


def messages_and_loss(topic: Topic, consumer: Away) -> Events:
    """Return ten messages of a topic, and behind them the loss of those up to the fifteenth, as one poll brings them."""
    messages = consumer.until(is_message(9))
    add_and_forget(topic, before=15)
    return messages + consumer.until(is_loss)


@pytest.mark.parametrize("continues", [False, True])
def test_messages_behind_a_range_that_come_with_a_loss_are_not_of_the_range(kafka: str, continues: bool) -> None:
    topic = Topic(kafka)
    topic.send(*["{}"] * 10)
    opened = opened_for(topic)

    Away(opened, partial(messages_and_loss, topic))
    assert read(opened, topic, 0, 5, continues=continues) == ([0, 1, 2, 3, 4], 0)
    if not continues:
        with pytest.raises(DataError, match=f'offsets 5 to 14 of partition 0 of topic "{topic.name}" are gone'):
            read(opened, topic, 5, 20, continues=False)
    assert read(opened, topic, 5, 20, continues=True) == ([15, 16, 17, 18, 19], 10)


def test_of_a_range_in_the_middle_of_which_a_loss_comes_the_rest_is_lost(kafka: str) -> None:
    topic = Topic(kafka)
    topic.send(*["{}"] * 10)
    opened = opened_for(topic)

    Away(opened, partial(messages_and_loss, topic))
    assert read(opened, topic, 0, 18, continues=True) == ([*range(10), 15, 16, 17], 5)
    assert read(opened, topic, 18, 20, continues=False) == ([18, 19], 0)


def test_a_loss_that_is_told_twice_is_one_while_messages_are_not_committed(kafka: str) -> None:
    """The second error is of the assignment before, and the broker does not show the open transaction's offsets yet."""
    topic = Topic(kafka)
    topic.send(*["{}"] * 10)
    opened = opened_for(topic)

    def told_twice(consumer: Away) -> Events:
        messages = consumer.until(is_message(9))
        add_and_forget(topic, before=15, commits=lambda commit: Timer(2, commit).start())
        loss = consumer.until(is_loss)
        return messages + loss + loss[-1:]

    Away(opened, told_twice)
    assert read(opened, topic, 0, 18, continues=True) == ([*range(10), 15, 16, 17], 5)


@pytest.mark.parametrize("continues", [False, True])
def test_the_end_of_a_transaction_at_the_end_of_a_range_is_not_lost(kafka: str, continues: bool) -> None:
    topic = Topic(kafka)
    topic.transact(([{}, {}, {}], True))
    # At the end of the partition the broker answers when there is more: it does not say before that this is the end.
    opened = opened_for(topic, **{"fetch.wait.max.ms": "30000"})

    def meanwhile(consumer: Away) -> Events:
        messages = consumer.until(is_message(2))
        add_and_forget(topic, before=9)
        return messages + consumer.until(is_loss)

    Away(opened, meanwhile)
    # Offset 3 is the end of the transaction.
    assert read(opened, topic, 0, 4, continues=continues) == ([0, 1, 2], 0)
    assert read(opened, topic, 4, 14, continues=True) == ([9, 10, 11, 12, 13], 5)


@pytest.mark.parametrize("continues", [False, True])
def test_a_loss_that_is_told_after_the_reader_has_gone_elsewhere_is_none(kafka: str, continues: bool) -> None:
    topic = Topic(kafka)
    topic.send(*["{}"] * 10)
    opened, late = opened_for(topic), Events()

    def meanwhile(consumer: Away) -> Events:
        messages = consumer.until(is_message(9))
        add_and_forget(topic, before=15)
        *before, loss = consumer.until(is_loss)
        late.append(loss)
        return messages + before

    consumer = Away(opened, meanwhile)
    assert read(opened, topic, 0, 5, continues=continues) == ([0, 1, 2, 3, 4], 0)
    consumer._events = late
    # Another process has read what is between.
    assert read(opened, topic, 16, 20, continues=continues) == ([16, 17, 18, 19], 0)


def test_an_error_fails_the_range_that_it_is_in(kafka: str) -> None:
    topic = Topic(kafka)
    topic.send(*["{}"] * 10)
    opened = opened_for(topic)
    error = Message(topic=topic.name, partition=0, offset=10, error=KafkaError(KafkaError._BAD_MSG))
    consumer = Away(opened, lambda consumer: [*consumer.until(is_message(9)), error])
    # The consumer has fetched ahead.
    assert read(opened, topic, 0, 5, continues=False) == ([0, 1, 2, 3, 4], 0)
    consumer._events = None
    with pytest.raises(JobError, match=f'table "t": partition 0 of topic "{topic.name}" cannot be read'):
        read(opened, topic, 5, 12, continues=False)
