"""Kafka to Kafka on one machine: one broker, the same topics, each system in a process of its own, one after the other.

A run over the first tenth of the messages tells how long a start takes; the rest of the whole run's time is what the rest of the
messages took. All write at least once, and must give the same messages.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

from sqlstream.testing.kafka_broker import Broker
from tests.bench.flink import HEAP, Flink
from tests.bench.kafka.run import SPARK, SQLSTREAM, Task, statements
from tests.bench.kafka.topics import fill, make_topics, summary
from tests.bench.kafka.work import KafkaWork

START_SHARE = 10
# As Kafka's own scripts start it.
BROKER = ("-Xmx1g", "-XX:+UseG1GC")
Systems = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KafkaRun:
    """Messages a second once started, the seconds of the whole run, and the number and the checksum of the result."""

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
            for share, count in (("first", each // START_SHARE), ("all", each)):
                make_topics(server, [f"{topic}-{share}" for topic in work.topics], cores)
                for topic in work.topics:
                    fill(server, f"{topic}-{share}", topic, count, cores)
            for _ in range(repeat):
                for system in wanted:
                    found.setdefault(system, []).append(self._both(server, system, work, rows, cores))
        if len({tuple(run.summary) for runs in found.values() for run in runs}) > 1:
            answers = {system: runs[0].summary for system, runs in found.items()}
            raise RuntimeError(f"the systems do not agree on {work.name}: {answers}")
        return found

    def _both(self, server: str, system: str, work: KafkaWork, rows: int, cores: int) -> KafkaRun:
        seconds, output = [], ""
        for share in ("first", "all"):
            output = f"{work.name}-{uuid4().hex[:8]}"
            make_topics(server, [output], cores)
            folder = self.folder / output
            folder.mkdir(parents=True)
            topics = {topic: f"{topic}-{share}" for topic in work.topics}
            task = Task(system, work.name, server, topics, output, cores, str(folder), self.spark_jars)
            seconds.append(self._seconds(task, work))
        start, whole = seconds
        rest = rows - rows // START_SHARE
        return KafkaRun(rest / (whole - start), whole, summary(server, output, work, rows // len(work.topics)))

    def _seconds(self, task: Task, work: KafkaWork) -> float:
        if task.system not in (SQLSTREAM, SPARK):
            assert self.flink is not None
            return self.flink.seconds(
                statements(task, work, flink=True), HEAP, task.cores, Path(task.folder) / "job", self.log
            )
        command = [sys.executable, "-m", "tests.bench.kafka.run", json.dumps(asdict(task))]
        with self.log.open("ab") as errors:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, check=True)
        return float(json.loads(done.stdout.splitlines()[-1])["seconds"])
