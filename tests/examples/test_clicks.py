"""`examples/clicks`: its job between two topics of a real broker, with a restart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from sqlstream.testing import Stream
from tests.processes import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "clicks" / "clicks.sql"


def test_every_click_is_counted_once(kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA", kafka)
    prefix = f"clicks-{uuid4().hex[:8]}-"
    producer = Producer({"bootstrap.servers": kafka})

    def click(minute: int) -> None:
        for visitor in range(20):
            row = {"page": "home", "visitor": visitor % 7, "ts": f"2026-03-02 09:{minute:02}:{visitor + 10}"}
            producer.produce(f"{prefix}clicks", json.dumps(row))
        producer.flush()

    click(0)
    with Stream(SCRIPT.read_text().replace("'topic' = '", f"'topic' = '{prefix}")) as stream:
        for minute in (1, 2):
            wait_until(lambda minute=minute: _rows_in(stream) == minute * 20)
            stream.restart()
            click(minute)
        wait_until(lambda: _rows_in(stream) == 60)
        stream.finish()
    rows = _written(kafka, f"{prefix}clicks_per_page")
    assert [(row["window_start"][11:16], row["clicks"], row["visitors"]) for row in rows] == [
        ("09:00", 20, 7),
        ("09:01", 20, 7),
        ("09:02", 20, 7),
    ]


def _rows_in(stream: Stream) -> int:
    """Let the job read what there is; return how many rows it has read."""
    for run in stream.runs.values():
        run.pull()
    [(rows,)] = stream.query("SELECT rows_in FROM sqlstream.jobs")
    return int(rows or 0)


def _written(kafka: str, topic: str) -> list[dict[str, Any]]:
    """Return what is committed in a topic of one partition."""
    settings = {"bootstrap.servers": kafka, "group.id": topic, "isolation.level": "read_committed"}
    consumer = Consumer(settings)
    place = TopicPartition(topic, 0, 0)
    consumer.assign([place])
    _, end = consumer.get_watermark_offsets(place)
    rows: list[dict[str, Any]] = []
    while consumer.position([place])[0].offset < end:
        rows += [json.loads(message.value() or b"") for message in consumer.consume(100, 0.2)]
    consumer.close()
    return rows
