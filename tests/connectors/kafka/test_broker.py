"""The broker that tests and demos use."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer

from tests import kafka_broker
from tests.processes import await_end, kill_group, wait_with

pytestmark = pytest.mark.kafka


def test_a_committed_transaction_is_read_and_an_aborted_one_is_not(kafka: str) -> None:
    topic = f"transactions-{uuid.uuid4().hex[:8]}"
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": topic})
    producer.init_transactions(60)
    for text, commits in [("kept", True), ("dropped", False), ("last", True)]:
        producer.begin_transaction()
        producer.produce(topic, text)
        producer.flush(60)
        (producer.commit_transaction if commits else producer.abort_transaction)(60)
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    texts: list[bytes] = []
    while texts[-1:] != [b"last"]:
        texts += [value for message in consumer.consume(10, 1) if (value := message.value()) is not None]
    consumer.close()
    assert texts == [b"kept", b"last"]


@pytest.mark.thorough
def test_a_shared_broker_ends_with_the_last_process_that_uses_it_however_that_ends(tmp_path: Path) -> None:
    code = (
        "import sys, time, pathlib, tests.kafka_broker as kafka_broker\n"
        f"with kafka_broker.shared_broker(pathlib.Path({str(tmp_path)!r})) as servers:\n"
        "    print(servers, flush=True)\n"
        "    time.sleep(600)\n"
    )
    first, second = (
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True)
        for _ in range(2)
    )
    assert first.stdout is not None
    assert second.stdout is not None
    servers = first.stdout.readline()
    assert second.stdout.readline() == servers
    broker = [p for p in psutil.process_iter() if "kafka.Kafka" in (c := _command(p)) and str(tmp_path) in c]
    assert len(broker) == 1
    kill_group(first)
    with kafka_broker.shared_broker(tmp_path) as still:
        assert still == servers.strip()
        wait_with(second, lambda: True)
        kill_group(second)
    await_end(broker)


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
