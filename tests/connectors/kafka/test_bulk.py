"""The client that takes many messages at once, without brokers: what it refuses, and what it is after its end."""

from __future__ import annotations

import signal
import socket
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from sqlstream.catalog import Table
from sqlstream.connectors.kafka import bulk
from sqlstream.connectors.kafka.producing import BulkSender, Sender, Topic
from sqlstream.connectors.kafka.sink_options import one_topic
from sqlstream.errors import BindError, UsageError

OPTIONS = {"connector": "kafka", "topic": "t", "format": "json", "properties.bootstrap.servers": "127.0.0.1:1"}


def opened(topic: str = "t", more: Mapping[str, Any] | None = None) -> bulk.BulkProducer:
    heard: list[Any] = []
    given = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "error_cb": heard.append}
    return bulk.BulkProducer(topic, {**given, "on_delivery": lambda error, _: heard.append(error), **(more or {})})


def block(count: int) -> bulk.MessageBlock:
    numbers = pa.array(map(str, range(count)))
    return bulk.MessageBlock.of(pa.nulls(count, pa.string()), numbers, np.full(count, -1, np.int32))


def test_what_the_queue_does_not_hold_comes_back_in_its_order() -> None:
    client = opened(more={"queue.buffering.max.messages": 10})
    rest = client.produce(block(25))
    assert client.error(rest).code() == KafkaError._QUEUE_FULL
    assert rest.messages["value_length"].tolist() == [2] * 15
    assert (np.diff(rest.messages["value"].astype(np.int64)) == 2).all()
    assert client.flush(0.0) == 10
    client.close()


def test_a_client_that_is_closed_takes_nothing() -> None:
    client = opened()
    client.close()
    client.close()
    client.poll(0.0)
    assert client.flush(0.0) == 0
    rest = client.produce(block(3))
    assert (len(rest), client.error(rest).code()) == (3, KafkaError._STATE)


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def flush_interrupted(client: bulk.BulkProducer) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    client.flush(10.0)


def test_a_signal_is_not_lost_with_what_became_of_a_message() -> None:
    before = signal.signal(signal.SIGALRM, interrupt)
    # It lets clients in, and says nothing: the first that this one has to tell is that the message was not delivered.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        client = opened(more={"bootstrap.servers": address, "message.timeout.ms": 1000, "linger.ms": 0})
        client.produce(block(1))
        try:
            with pytest.raises(KeyboardInterrupt):
                flush_interrupted(client)
        finally:
            signal.signal(signal.SIGALRM, before)
            client.close()


@pytest.mark.slow
def test_what_is_not_delivered_is_told() -> None:
    failed: list[Any] = []
    client = opened(
        more={"message.timeout.ms": 10, "linger.ms": 0, "on_delivery": lambda error, _: failed.append(error)}
    )
    client.produce(block(3))
    assert client.flush(60.0) == 0
    assert [error.code() for error in failed] == [KafkaError._MSG_TIMED_OUT] * 3
    client.close()


def test_a_topic_that_cannot_be() -> None:
    with pytest.raises(KafkaException, match="refuses the topic"):
        opened("x" * 600)
    assert one_topic(Table("t", (), options={**OPTIONS, "topic": "x" * 249})) == "x" * 249
    with pytest.raises(BindError, match="at most 249 characters, not of 250"):
        one_topic(Table("t", (), options={**OPTIONS, "topic": "x" * 250}))


@pytest.mark.parametrize("kind", [Sender, BulkSender])
def test_properties_that_do_not_go_together(kind: type[Sender]) -> None:
    table = Table("t", (), options={**OPTIONS, "properties.acks": "1"})
    with pytest.raises(UsageError, match="refuses the properties of a client that writes") as told:
        kind(Topic(table), {"enable.idempotence": True})
    assert "`acks` must be set to `all`" in (told.value.detail or "")


def test_tokens_that_python_gets_are_left_to_it() -> None:
    login = {"properties.sasl.oauthbearer.metadata.authentication.type": "aws_iam"}
    assert BulkSender.is_for(Table("t", (), options=OPTIONS))
    assert not BulkSender.is_for(Table("t", (), options={**OPTIONS, **login}))
