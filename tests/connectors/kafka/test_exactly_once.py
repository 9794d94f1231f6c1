"""Jobs that are killed at any moment: each row is in the topic once, and readers of committed rows never see half a batch."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from sqlstream.connectors.kafka.sink_options import ON_LOSS
from sqlstream.errors import JobError, OutageError
from sqlstream.testing import Stream
from tests.connectors.kafka.written import Message, make_topic, messages
from tests.forked import Forked, start_python
from tests.kafka_broker import Broker
from tests.processes import SECONDS

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

FILES, ROWS, FILES_PER_BATCH = 56, 25, 2
SCRIPT = """
CREATE TABLE given (k BIGINT, file BIGINT)
WITH ('connector' = 'filesystem', 'path' = 'given', 'format' = 'parquet', 'source.max-files-per-batch' = '{per_batch}');
CREATE TABLE topic (k BIGINT, file BIGINT) WITH ('connector' = 'kafka', 'topic' = '{topic}', 'format' = 'json',
    'sink.partitioner' = 'round-robin', 'properties.bootstrap.servers' = '{servers}',
    'sink.delivery-guarantee' = '{guarantee}');
INSERT INTO topic SELECT k, file FROM given;
"""
PLACES = ("sent", "commit", "committed", "job")


def prepare(folder: Path, servers: str, topic: str, guarantee: str) -> Path:
    (folder / "given").mkdir(parents=True)
    for number in range(FILES):
        keys = pa.array(range(number * ROWS, (number + 1) * ROWS))
        pq.write_table(pa.table({"k": keys, "file": [number] * ROWS}), folder / "given" / f"{number:03}.parquet")
    script = SCRIPT.format(servers=servers, topic=topic, guarantee=guarantee, per_batch=FILES_PER_BATCH)
    (folder / "job.sql").write_text(script)
    return folder


def start(project: Path, where: str) -> Forked:
    return start_python("-m", "tests.connectors.kafka.writing_job", str(project), where)


def killed_itself(project: Path, where: str) -> None:
    run = start(project, where)
    output, _ = run.communicate(timeout=SECONDS)
    assert run.returncode == -9, output


def finish(project: Path) -> None:
    run = start(project, "to the end")
    output, _ = run.communicate(timeout=SECONDS)
    assert run.returncode == 0, output


def rows(found: list[Message]) -> list[int]:
    return sorted(json.loads(m.value or "")["k"] for m in found)


def seen(found: list[Message]) -> Counter[tuple[int, int]]:
    """Return how many rows of each batch are in each partition: what a transaction shows together."""
    return Counter((json.loads(m.value or "")["file"] // FILES_PER_BATCH, m.partition) for m in found)


def test_kills_lose_and_repeat_no_row(kafka: str, tmp_path: Path) -> None:
    topic = make_topic(kafka, 2)
    project = prepare(tmp_path, kafka, topic, "exactly-once")
    moments, looks = random.Random(11), list[Counter[tuple[int, int]]]()
    for place in PLACES:
        killed_itself(project, place)
        looks.append(seen(messages(kafka, topic)))
    for _ in range(3):
        run = start(project, "3")
        assert run.stdout is not None
        assert run.stdout.readline() == "batch\n", run.communicate()[0]
        end = time.monotonic() + moments.uniform(0.0, 0.2)
        while time.monotonic() < end:
            looks.append(seen(messages(kafka, topic)))
        run.kill()
        run.communicate()
        looks.append(seen(messages(kafka, topic)))
    assert len(rows(messages(kafka, topic))) < FILES * ROWS, "the kills came after the end"
    finish(project)
    found = messages(kafka, topic)
    assert rows(found) == list(range(FILES * ROWS))
    assert len(messages(kafka, topic, committed=False)) > FILES * ROWS
    whole = seen(found)
    assert all(look[part] in (0, whole[part]) for look in looks for part in look)


@pytest.mark.thorough
def test_the_same_kills_repeat_rows_where_a_batch_is_written_at_least_once(kafka: str, tmp_path: Path) -> None:
    topic = make_topic(kafka, 2)
    project = prepare(tmp_path, kafka, topic, "at-least-once")
    killed_itself(project, "sent")
    killed_itself(project, "job")
    finish(project)
    found = rows(messages(kafka, topic))
    assert sorted(set(found)) == list(range(FILES * ROWS))
    # The third message block is the first task's of the second batch, with one file; the job commits a whole batch.
    assert len(found) == FILES * ROWS + ROWS + FILES_PER_BATCH * ROWS


COPY = """
CREATE TABLE given (k INT);
CREATE TABLE topic (k INT) WITH ('connector' = 'kafka', 'topic' = '{topic}', 'format' = 'csv',
    'properties.bootstrap.servers' = '{servers}', 'sink.delivery-guarantee' = 'exactly-once',
    'sink.transactional-id-prefix' = '{topic}'{more});
INSERT INTO topic SELECT * FROM given
"""


def copying(servers: str, topic: str, **more: str) -> Stream:
    options = "".join(f", '{name.replace('_', '.')}' = '{value}'" for name, value in more.items())
    return Stream(COPY.format(servers=servers, topic=topic, more=options))


def identity(stream: Stream, topic: str) -> str:
    """Return the group of the job, which is its transactional id, too."""
    [record] = Path(stream.warehouse).rglob("identity")
    return f"{topic}-{record.read_text().splitlines()[0]}"


def test_a_job_that_another_process_has_taken_over_writes_no_more(kafka: str) -> None:
    topic = make_topic(kafka)
    with copying(kafka, topic) as stream:
        stream.batch("given", [(1,)])
        other = Producer({"bootstrap.servers": kafka, "transactional.id": identity(stream, topic)})
        other.init_transactions(60)
        with pytest.raises(JobError, match="another process writes into topic") as told:
            stream.batch("given", [(2,)])
        # A restart would lock the other one out.
        assert not isinstance(told.value, OutageError)
        stream.restart()
        stream.batch("given", [(3,)])
    assert [m.value for m in messages(kafka, topic)] == ["1", "3"]


def test_a_batch_that_the_cluster_has_lost_is_named(kafka: str) -> None:
    topic = make_topic(kafka)
    with copying(kafka, topic) as stream:
        stream.batch("given", [(1,)])
        stream.batch("given", [(2,)])
        admin = AdminClient({"bootstrap.servers": kafka, "log_level": 0})
        group = identity(stream, topic)
        admin.delete_consumer_groups([group])[group].result(60)
        with pytest.raises(JobError, match="the cluster has lost a batch that the job wrote into topic") as told:
            stream.restart()
    assert f"'{ON_LOSS.name}' = 'continue'" in str(told.value.hint)


@pytest.mark.thorough
def test_a_broker_that_stops_for_a_while_and_a_transaction_that_it_ends(tmp_path: Path) -> None:
    quick = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "50"}
    with Broker(tmp_path / "kafka", quick) as broker:
        topic = make_topic(broker.servers)
        with copying(broker.servers, topic, properties_transaction_timeout_ms="3000") as stream:
            stream.batch("given", [(1,)])
            broker.stop()
            broker.start()
            stream.batch("given", [(2,)])
        assert [m.value for m in messages(broker.servers, topic)] == ["1", "2"]
