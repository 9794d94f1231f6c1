"""Topics with several writers: each has its part of a batch in exactly once, whatever dies between two of them."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from sqlstream.catalog import Column, Table
from sqlstream.compiler.compiler import Compiler
from sqlstream.connectors import worker_processes
from sqlstream.connectors.batch import Batch
from sqlstream.connectors.interface import BatchWriter, SinkContext
from sqlstream.connectors.kafka import parallel
from sqlstream.connectors.kafka.sink import TopicSink
from sqlstream.errors import DamageError, JobError, SourceText
from sqlstream.options import Options
from sqlstream.testing import Stream
from sqlstream.warehouse.filesystem import LocalFilesystem
from tests.connectors.kafka.written import make_topic, markers, messages
from tests.connectors.two_jobs import PARALLELISM, batches
from tests.kinds import jobs_of
from tests.processes import SECONDS

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

COPY = """
CREATE TABLE given (k INT, v STRING);
CREATE TABLE topic (k INT, v STRING) WITH ('connector' = 'kafka', 'topic' = '{topic}', 'format' = 'csv',
    'key.format' = 'csv', 'key.fields' = 'k', 'properties.bootstrap.servers' = '{servers}',
    'sink.delivery-guarantee' = '{guarantee}', 'sink.parallelism' = '2');
INSERT INTO topic SELECT * FROM given
"""
LAST = """
CREATE TABLE given (k INT);
CREATE TABLE topic (k INT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = '{topic}',
    'key.format' = 'csv', 'value.format' = 'json', 'properties.bootstrap.servers' = '{servers}', 'sink.parallelism' = '2');
INSERT INTO topic SELECT k, count(*) FROM given GROUP BY k HAVING count(*) < 3
"""


def copying(servers: str, topic: str, guarantee: str = "exactly-once") -> Stream:
    return Stream(COPY.format(servers=servers, topic=topic, guarantee=guarantee))


def identity(stream: Stream) -> str:
    [record] = Path(stream.warehouse).rglob("identity")
    return f"sqlstream-{record.read_text().splitlines()[0]}"


def test_a_writer_that_dies_behind_the_others_writes_its_part_once(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(kafka, 2)
    monkeypatch.setattr(worker_processes, "MODULE", "tests.connectors.kafka.mortal_writers")
    monkeypatch.setenv("MORTAL", "writer:1:1:before")
    monkeypatch.setenv("MORTAL_ONCE", str(tmp_path / "once"))
    with copying(kafka, topic) as stream:
        own = identity(stream)
        for first in range(0, 60, 20):
            stream.batch("given", [(k % 7, str(k)) for k in range(first, first + 20)])
        assert (tmp_path / "once").exists()
        assert markers(kafka, topic, [f"{own}-0", f"{own}-1", own]) == [2, 2, -1001]
        other = Producer({"bootstrap.servers": kafka, "transactional.id": f"{own}-1"})
        other.init_transactions(60)
        with pytest.raises(JobError, match="another process writes into topic"):
            stream.batch("given", [(k, "61") for k in range(9)])
    found = [m for m in messages(kafka, topic) if "61" not in (m.value or "")]
    assert sorted(int((m.value or "").split(",")[1]) for m in found) == list(range(60))
    # A key has one writer, so its rows stay in order.
    for key in {m.key for m in found}:
        rows = [int((m.value or "").split(",")[1]) for m in found if m.key == key]
        assert rows == sorted(rows)


class InThisProcess:
    """Workers without processes, which take a second to start."""

    def __init__(self, modules: Sequence[str]):
        self._modules = modules

    def run(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        return [pickle.loads(pickle.dumps(call))() for call in calls]

    def close(self) -> None:
        pass


def test_writers_without_transactions(kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "WorkerProcesses", InThisProcess)
    topic = make_topic(kafka, 2)
    with copying(kafka, topic, "none") as stream:
        stream.batch("given", [(k % 7, str(k)) for k in range(20)])
    found = [str(m.value).split(",")[1] for m in messages(kafka, topic, committed=False)]
    assert sorted(map(int, found)) == list(range(20))


def test_the_rows_of_a_key_have_one_writer(kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "WorkerProcesses", InThisProcess)
    topic = make_topic(kafka, 2)
    with Stream(LAST.format(servers=kafka, topic=topic)) as stream:
        for last in range(1, 5):
            stream.batch("given", [(k,) for k in range(10) if k % 4 < last])
    found = messages(kafka, topic)
    assert len(found) == sum(1 for last in range(1, 5) for k in range(10) if k % 4 < last <= k % 4 + 3)
    rows = {str(m.key): m.value for m in found}
    expected = {
        str(k): None if 4 - k % 4 > 2 else json.dumps({"k": k, "n": 4 - k % 4}).replace(" ", "") for k in range(10)
    }
    assert rows == expected


class OnlyTheFirst(InThisProcess):
    """Workers of which all but the first die in the batch 1."""

    def run(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        if any(isinstance(a, Batch) and a.number == 1 for a in getattr(calls[0], "args", ())):
            super().run(calls[:1])
            raise JobError("the others died")
        return super().run(calls)


@pytest.mark.thorough
def test_a_batch_of_some_writers_whose_rows_are_gone_is_named(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, columns, data = make_topic(kafka), (Column("k", "BIGINT"),), tmp_path / "data" / "0"
    data.mkdir(parents=True)

    def opened(writers: int) -> BatchWriter:
        options = {"topic": topic, "format": "csv", "properties.bootstrap.servers": kafka}
        options |= {"sink.delivery-guarantee": "exactly-once", "sink.parallelism": str(writers)}
        context = SinkContext(LocalFilesystem(), "", str(tmp_path), 0, job="test", warehouse=str(tmp_path))
        return TopicSink(Table(name="topic", columns=columns, options=options)).open(context)

    def batch(number: int) -> Batch:
        path = data / f"rows-{number}.parquet"
        pq.write_table(pa.table({"k": range(number * 10, number * 10 + 10)}), path)
        return Batch(number, columns, (str(path),))

    monkeypatch.setattr(parallel, "WorkerProcesses", OnlyTheFirst)
    writer = opened(2)
    writer.recover()
    writer.write(batch(0))
    with pytest.raises(JobError, match="the others died"):
        writer.write(batch(1))
    monkeypatch.setattr(parallel, "WorkerProcesses", InThisProcess)
    (data / "rows-1.parquet").unlink()
    with pytest.raises(DamageError, match="is missing"):
        opened(2).recover()
    (tmp_path / "pending.json").unlink()
    with pytest.raises(JobError, match="but for the parts of some writers") as told:
        opened(3).recover()
    assert "'sink.parallelism' = '2'" in str(told.value.hint)
    writer = opened(2)
    writer.recover()
    writer.write(batch(1))
    assert sorted(int(m.value or "") for m in messages(kafka, topic)) == list(range(20))


FILES, ROWS = 5, 40
SCRIPT = """
CREATE TABLE given (k BIGINT, file BIGINT)
WITH ('connector' = 'filesystem', 'path' = 'given', 'format' = 'parquet', 'source.max-files-per-batch' = '1');
CREATE TABLE topic (k BIGINT, file BIGINT) WITH ('connector' = 'kafka', 'topic' = '{topic}', 'format' = 'json',
    'properties.bootstrap.servers' = '{servers}', 'sink.delivery-guarantee' = 'exactly-once'{more});
INSERT INTO topic SELECT k, file FROM given;
"""


def go_on(project: Path, servers: str, topic: str, writers: int, steps: int) -> None:
    """Run batches of the job in this process, with another number of writers."""
    more = f", 'sink.parallelism' = '{writers}'" if writers > 1 else ""
    compiler = Compiler(Options({"parallelism.default": str(PARALLELISM)}), project=str(project))
    text = SCRIPT.format(topic=topic, servers=servers, more=more)
    [planned] = jobs_of(compiler.scripts([SourceText("job", text)]))
    for _ in itertools.islice(batches(str(project), planned), steps):
        continue
    compiler.close()


@pytest.mark.thorough
def test_a_job_that_dies_between_two_writers_goes_on_with_another_number_of_them(kafka: str, tmp_path: Path) -> None:
    topic = make_topic(kafka, 2)
    (tmp_path / "given").mkdir()
    for number in range(FILES):
        keys = pa.array(range(number * ROWS, (number + 1) * ROWS))
        pq.write_table(pa.table({"k": keys, "file": [number] * ROWS}), tmp_path / "given" / f"{number:03}.parquet")
    text = SCRIPT.format(topic=topic, servers=kafka, more=", 'sink.parallelism' = '2'")
    (tmp_path / "job.sql").write_text(text)
    place = {"MORTAL": "job:0:1:before", "MORTAL_ONCE": str(tmp_path / "once")}
    command = [sys.executable, "-m", "tests.connectors.kafka.writing_job", str(tmp_path), "to the end"]
    run = subprocess.run(command, env={**os.environ, **place}, capture_output=True, text=True, timeout=SECONDS)
    assert run.returncode == -9, run.stdout + run.stderr
    seen = [json.loads(m.value or "") for m in messages(kafka, topic)]
    # The part of one writer alone is seen of the second batch.
    assert sorted(row["k"] for row in seen) == [*range(ROWS), *range(ROWS + 1, 2 * ROWS, 2)]
    # The batch is finished by the two that it had.
    go_on(tmp_path, kafka, topic, 1, 2)
    go_on(tmp_path, kafka, topic, 3, FILES)
    found = [json.loads(m.value or "") for m in messages(kafka, topic)]
    assert sorted(row["k"] for row in found) == list(range(FILES * ROWS))
