"""Kafka to Kafka on one machine: one broker, the same topics, each system in a process of its own, one after the other.

Each tells how many messages it has read when: so the rate is that of the messages after the first quarter. All write at least
once, and must give the same messages.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

from tests.bench.flink import HEAP, Flink
from tests.bench.kafka.run import SPARK, Task, Took, statements
from tests.bench.kafka.topics import fill, make_topics, summary
from tests.bench.kafka.work import KafkaWork
from tests.bench.rates import Point, Rate, passes, warm_rate
from tests.bench.throughput import IN_PROCESS, SQLSTREAM
from tests.kafka_broker import Broker

# As Kafka's own scripts start it.
BROKER = ("-Xmx1g", "-XX:+UseG1GC")
Systems = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KafkaRun:
    """Messages a second once warm, the seconds of the whole run, and the number and the checksum of the result."""

    rows_per_second: float
    whole_seconds: float
    summary: list[int]


@dataclass(frozen=True, slots=True)
class KafkaBench:
    """The jars that Spark needs for a broker, Flink if it is there, and where runs write."""

    spark_jars: list[str]
    flink: Flink | None
    folder: Path
    log: Path

    def run(self, work: KafkaWork, rows: int, cores: int, repeat: int, wanted: Systems) -> dict[str, list[KafkaRun]]:
        """Run systems in turns over topics of so many messages in all."""
        each = rows // len(work.topics)
        found: dict[str, list[KafkaRun]] = {}
        home = self.folder / f"broker-{work.name}"
        home.mkdir()
        with Broker(home, java=BROKER) as broker:
            server = broker.servers
            make_topics(server, work.topics, cores)
            for topic in work.topics:
                fill(server, topic, topic, each, cores)
            for _ in range(repeat):
                for system in wanted:
                    found.setdefault(system, []).append(self._measured(server, system, work, each, cores))
        if len({tuple(run.summary) for runs in found.values() for run in runs}) > 1:
            answers = {system: runs[0].summary for system, runs in found.items()}
            raise RuntimeError(f"the systems do not agree on {work.name}: {answers}")
        return found

    def _measured(self, server: str, system: str, work: KafkaWork, each: int, cores: int) -> KafkaRun:
        output = f"{work.name}-{uuid4().hex[:8]}"
        make_topics(server, [output], cores)
        folder = self.folder / output
        folder.mkdir(parents=True)
        topics = {topic: topic for topic in work.topics}
        task = Task(system, work.name, server, topics, output, cores, str(folder), self.spark_jars)
        total = each * len(work.topics)
        if system in (SQLSTREAM, IN_PROCESS, SPARK):
            rate, whole = self._ours(task, total)
        else:
            assert self.flink is not None
            run = self.flink.run(statements(task, work, flink=True), HEAP, cores, folder / "job", self.log)
            rate, whole = run.rate(total), run.whole_seconds
        return KafkaRun(rate.per_second, whole, summary(server, output, work, each))

    def _ours(self, task: Task, total: int) -> tuple[Rate, float]:
        command, begun = [sys.executable, "-m", "tests.bench.kafka.run", json.dumps(asdict(task))], time.monotonic()
        with self.log.open("ab") as errors:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, check=True)
        whole = time.monotonic() - begun
        took = Took(**json.loads(done.stdout.splitlines()[-1]))
        return warm_rate(passes((Point(*point) for point in took.points), total), total, took.seconds), whole
