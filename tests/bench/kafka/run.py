"""One run of sqlstream or Spark over topics, in a process of its own.

python -m tests.bench.kafka.run '{"system": "sqlstream", "work": "kafka_filter", ...}'  prints the seconds as JSON
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlstream.connectors.kafka.options import MAX_ROWS
from tests.bench import plain_spark
from tests.bench.child import answer
from tests.bench.data import DELAY_SECONDS
from tests.bench.kafka.work import TOPICS, KafkaWork, work_named
from tests.kinds import job_of

SQLSTREAM, SPARK = "sqlstream", "Spark"


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
    """The seconds that a job took, with the start of its session."""

    seconds: float


def measure(task: Task) -> Took:
    """Run a task in this process."""
    work, begun = work_named(task.work), time.time()
    if task.system == SQLSTREAM:
        _sqlstream(task, work)
    else:
        _spark(task, work)
    return Took(time.time() - begun)


def _sqlstream(task: Task, work: KafkaWork) -> None:
    from sqlstream import Session

    folder = Path(task.folder)
    (folder / "project").mkdir()
    with Session(
        str(folder / "project"), str(folder / "warehouse"), {"parallelism.default": str(task.cores)}
    ) as session:
        job_of(session.sql(";\n".join(statements(task, work)))).wait()


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
    found.append(f"CREATE TABLE emitted ({columns}) WITH ({connection}, 'topic' = '{task.output}')")
    return [*found, f"INSERT INTO emitted {work.query}"]


def _type(type: str, flink: bool) -> str:
    return "TIMESTAMP(3)" if flink and type == "TIMESTAMP" else type


def _spark(task: Task, work: KafkaWork) -> None:
    settings = {"spark.jars": ",".join(task.jars)}
    spark = plain_spark.session(task.cores, rocksdb=work.name != "kafka_filter", settings=settings)
    for name in work.topics:
        schema = ", ".join(f"{c} {type}" for c, type in TOPICS[name].columns.items())
        read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", task.server)
        read = read.option("subscribe", task.topics[name]).option("startingOffsets", "earliest")
        read = read.option("maxOffsetsPerTrigger", MAX_ROWS.default)
        rows = read.load().selectExpr(f"from_json(CAST(value AS STRING), '{schema}') AS row").select("row.*")
        rows.withWatermark("ts", f"{DELAY_SECONDS} seconds").createOrReplaceTempView(name)
    found = spark.sql(work.spark).selectExpr("to_json(struct(*)) AS value")
    writer = (
        found.writeStream.format("kafka").option("kafka.bootstrap.servers", task.server).option("topic", task.output)
    )
    writer = writer.option("checkpointLocation", f"{task.folder}/checkpoint").outputMode("append")
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    answer(Task, measure)
