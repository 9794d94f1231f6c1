"""A broker that is down for a while, and a job that is killed: nothing is lost, and nothing is read twice."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sqlstream import Session
from sqlstream.compiler.compiler import PlannedJob
from sqlstream.errors import SourceText
from sqlstream.local.engine import LocalEngine
from sqlstream.testing.kafka_broker import Broker
from tests.connectors.kafka.topics import Topic
from tests.processes import kill_family, wait_until, wait_with

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

LIVE = ", 'scan.bounded.mode' = 'unbounded', 'scan.max-rows-per-batch' = '10'"
KEPT = "CREATE TABLE kept (n INT); INSERT INTO kept SELECT n FROM t;"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "broker") as opened:
        yield opened


def test_an_outage_is_waited_for(broker: Broker, tmp_path: Path) -> None:
    topic = Topic(broker.servers)
    topic.send({"n": 1})
    conf = {"execution.checkpointing.interval": "0 s"}
    with Session(str(tmp_path), conf=conf, notice=lambda text: None) as session:
        script = SourceText("script", topic.table("n INT", LIVE) + KEPT)
        [planned] = [one for one in session.compile(script) if isinstance(one, PlannedJob)]
        job = session._jobs.start(planned, {}, engine=LocalEngine())
        said: list[str] = []

        def has_said(words: str) -> bool:
            said.extend(job.warnings())
            assert job.status == "RUNNING"
            return any(words in text for text in said)

        wait_until(lambda: job.progress.rows_in == 1)
        broker.stop()
        wait_until(lambda: has_said(f"no broker of Kafka answers at {broker.servers}"))
        broker.start()
        wait_until(lambda: has_said("Kafka answers again"))
        topic.send({"n": 2})
        wait_until(lambda: job.progress.rows_in == 2)
        job.stop()
        assert session.query("SELECT n FROM kept ORDER BY n").fetchall() == [(1,), (2,)]


@pytest.mark.spark
def test_a_killed_job_reads_each_message_once(kafka: str, tmp_path: Path) -> None:
    topic = Topic(kafka, 2)
    for partition in range(2):
        topic.send(*({"n": n} for n in range(partition, 200, 2)), partition=partition)
    (tmp_path / "job.sql").write_text(topic.table("n INT", LIVE) + KEPT)
    kept = tmp_path / "warehouse"

    @contextmanager
    def running() -> Iterator[subprocess.Popen[str]]:
        """Run the job until it is killed."""
        command = [sys.executable, "-m", "sqlstream", "run", "job.sql"]
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        try:
            yield process
        finally:
            kill_family(process)

    def rows() -> list[int]:
        with Session(str(tmp_path)) as session:
            return sorted(n for (n,) in session.query("SELECT n FROM kept").fetchall())

    with running() as first:
        wait_with(first, lambda: len(list(kept.glob("jobs/kept/checkpoint/commits/[0-9]*"))) >= 3)
    before = rows()
    assert before == sorted(set(before))
    with running() as second:
        wait_with(second, lambda: len(rows()) >= 200)
    assert rows() == list(range(200))
