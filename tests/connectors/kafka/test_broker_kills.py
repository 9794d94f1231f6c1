"""Kills of a broker between transactions: what was committed is there when it is back."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka import Producer

from tests.connectors.kafka.written import make_topic, messages
from tests.kafka_broker import Broker
from tests.kafka_transactions import kill_between_transactions, none_is_ending, suspend
from tests.processes import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@contextmanager
def transactions(servers: str, topic: str) -> Iterator[list[int]]:
    """Commit one message after the other, each in a transaction; yield those of which the client knows that they are in."""
    committed, ends = list[int](), Event()
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic, "log_level": 0})

    def run() -> None:
        producer.init_transactions(60)
        while not ends.is_set():
            producer.begin_transaction()
            producer.produce(topic, str(len(committed)))
            producer.commit_transaction(120)
            committed.append(len(committed))

    thread = Thread(target=run)
    thread.start()
    try:
        yield committed
    finally:
        ends.set()
        thread.join()


def is_seen_ending(broker: Broker) -> bool:
    suspend(broker)
    try:
        return not none_is_ending(broker.folder / "data")
    finally:
        os.kill(broker.pid, signal.SIGCONT)


@pytest.mark.thorough
def test_a_broker_is_killed_when_no_transaction_waits_for_its_markers(tmp_path: Path) -> None:
    with Broker(tmp_path / "kafka") as broker:
        topic = make_topic(broker.servers)
        with transactions(broker.servers, topic) as committed:
            wait_until(lambda: len(committed) > 10)
            wait_until(lambda: is_seen_ending(broker))
            kill_between_transactions(broker)
            assert none_is_ending(broker.folder / "data")
            before = len(committed)
            broker.start()
            wait_until(lambda: len(committed) > before + 10)
        # With the last commit's markers its rows are seen.
        wait_until(lambda: not is_seen_ending(broker))
        assert [int(m.value or "") for m in messages(broker.servers, topic)] == committed
