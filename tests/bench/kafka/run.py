"""One run of sqlstream or Spark over topics, in a process of its own.

python -m tests.bench.kafka.run '{"system": "sqlstream", "work": "kafka_filter", ...}'  prints a Took as JSON
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sqlstream.connectors.kafka.options import MAX_ROWS
from sqlstream.storage.snapshot import JobHistory
from tests.bench import plain_spark
from tests.bench.child import answer
from tests.bench.data import DELAY_SECONDS
from tests.bench.kafka.work import TOPICS, KafkaWork, work_named
from tests.bench.rates import Point, log_points, steady_clock
from tests.bench.throughput import IN_PROCESS, SQLSTREAM, options_of
from tests.kinds import job_of

SPARK = "Spark"
OUTPUT = "emitted"


@dataclass(frozen=True, slots=True)
class Task:
    """What to run: a system and a work; the server and its topics, by the names in the query, and that of the result."""

    system: str
    work: str
    server: str
    topics: Mapping[str, str]
    output: str
    cores: int
    folder: str
    jars: list[str]


@dataclass(frozen=True, slots=True)
class Took:
    """How many messages a job had read when, in seconds from the start of its session, and the seconds to its end."""

    points: list[tuple[int, float]]
    seconds: float


def measure(task: Task) -> Took:
    """Run a task in this process."""
    begun, monotonic = time.time(), time.monotonic()
    with steady_clock():
        points = (_sqlstream if task.system in (SQLSTREAM, IN_PROCESS) else _spark)(task, work_named(task.work), begun)
    return Took([(point.rows, point.seconds) for point in points], time.monotonic() - monotonic)


def _sqlstream(task: Task, work: KafkaWork, begun: float) -> list[Point]:
    from sqlstream import Session

    folder = Path(task.folder)
    (folder / "project").mkdir()
    with Session(str(folder / "project"), str(folder / "warehouse"), options_of(task.system, task.cores)) as session:
        job_of(session.sql(";\n".join(statements(task, work)))).wait()
        return log_points(JobHistory(session.warehouse, OUTPUT).entries, begun)


def statements(task: Task, work: KafkaWork, *, flink: bool = False) -> list[str]:
    """Return the tables and the INSERT, for sqlstream or Flink, which differ in a name of a type only."""
    found = []
    connection = f"'connector' = 'kafka', 'properties.bootstrap.servers' = '{task.server}', 'format' = 'json'"
    for name in work.topics:
        columns = ", ".join(f"{c} {_type(type, flink)}" for c, type in TOPICS[name].columns.items())
        mark = f"WATERMARK FOR ts AS ts - INTERVAL '{DELAY_SECONDS}' SECOND"
        start = "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset'"
        options = f"{connection}, 'topic' = '{task.topics[name]}', {start}"
        found.append(f"CREATE TABLE {name} ({columns}, {mark}) WITH ({options})")
    columns = ", ".join(f"{c} {_type(type, flink)}" for c, type in work.columns.items())
    found.append(f"CREATE TABLE {OUTPUT} ({columns}) WITH ({connection}, 'topic' = '{task.output}')")
    return [*found, f"INSERT INTO {OUTPUT} {work.query}"]


def _type(type: str, flink: bool) -> str:
    return "TIMESTAMP(3)" if flink and type == "TIMESTAMP" else type


def _spark(task: Task, work: KafkaWork, begun: float) -> list[Point]:
    settings = {"spark.jars": ",".join(task.jars), "spark.sql.streaming.numRecentProgressUpdates": "1000"}
    spark = plain_spark.session(task.cores, rocksdb=work.name != "kafka_filter", settings=settings)
    for name in work.topics:
        schema = ", ".join(f"{c} {type}" for c, type in TOPICS[name].columns.items())
        read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", task.server)
        read = read.option("subscribe", task.topics[name]).option("startingOffsets", "earliest")
        read = read.option("maxOffsetsPerTrigger", MAX_ROWS.default)
        rows = read.load().selectExpr(f"from_json(CAST(value AS STRING), '{schema}') AS row").select("row.*")
        rows.withWatermark("ts", f"{DELAY_SECONDS} seconds").createOrReplaceTempView(name)
    if work.spark is None:
        raise ValueError(f"Spark has no {work.name}")
    found = spark.sql(work.spark).selectExpr("to_json(struct(*)) AS value")
    writer = (
        found.writeStream.format("kafka").option("kafka.bootstrap.servers", task.server).option("topic", task.output)
    )
    writer = writer.option("checkpointLocation", f"{task.folder}/checkpoint").outputMode("append")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    points, messages = list[Point](), 0
    for batch in query.recentProgress:
        messages += batch["numInputRows"]
        ended = datetime.fromisoformat(batch["timestamp"]).timestamp() + batch["batchDuration"] / 1000
        points.append(Point(messages, ended - begun))
    spark.stop()
    return points


if __name__ == "__main__":
    answer(Task, measure)
