"""Sources and sinks on Spark, on one JVM: generated rows through a table into files, classes of the project's, restarts."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import duckdb
import pytest

from sqlstream import Session
from sqlstream.connectors import worker_processes
from sqlstream.errors import SqlStreamError
from sqlstream.jobs.job import Job
from tests.connectors.kafka.written import make_topic, markers, messages
from tests.kinds import job_of
from tests.processes import SECONDS, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow]

OWN = """
import json
import os

import pyarrow as pa

from sqlstream.connectors import Sink, Source, TwoPhaseSink


class Numbers(Source):
    def __init__(self, count: str):
        self.count = int(count)

    def partitions(self):
        return ["even", "odd"]

    def latest_position(self, partition):
        return self.count

    def read(self, partition, start, end):
        return pa.table({"k": [k for k in range(start, end) if k % 2 == (partition == "odd")]})


class Lines(Sink):
    def __init__(self, file: str):
        self.file = file

    def write(self, batch, table):
        with open(self.file, "a") as file:
            file.write(json.dumps([batch, table.column("k").to_pylist()]) + "\\n")


class Transactions(TwoPhaseSink):
    def __init__(self, folder: str):
        self.folder = folder

    def begin(self, batch, task):
        os.makedirs(self.folder, exist_ok=True)
        return f"{self.folder}/{task}-{os.getpid()}"

    def write(self, path, table):
        with open(path, "a") as file:
            file.writelines(f"{k}\\n" for k in table.column("k").to_pylist())

    def prepare(self, path):
        return path

    def commit(self, path):
        os.rename(path, f"{path}.done")

    def on_commit(self, version):
        with open(f"{self.folder}/version", "w") as file:
            file.write(str(version))
"""

EVENTS = """
CREATE TABLE nexmark (WATERMARK FOR `dateTime` AS `dateTime`)
WITH ('connector' = 'nexmark', 'events.num' = '200000', 'base-time' = '2026-01-01 00:00:00');
CREATE TABLE bids (auction BIGINT, price BIGINT, channel STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts);
CREATE TABLE totals (channel STRING, bids BIGINT, e TIMESTAMP(3)) PARTITIONED BY (channel)
WITH ('connector' = 'filesystem', 'path' = 'totals', 'format' = 'json');
INSERT INTO bids SELECT bid.auction, bid.price, bid.channel, `dateTime` FROM nexmark WHERE event_type = 2;
INSERT INTO totals
SELECT channel, COUNT(*), window_end FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)
WHERE NOT starts_with(channel, 'channel-') GROUP BY channel, window_start, window_end;
"""


@pytest.fixture(scope="module")
def session(shared_jvm: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    project = tmp_path_factory.mktemp("project")
    (project / "udfs").mkdir()
    (project / "udfs" / "own.py").write_text(OWN)
    with Session(str(project), output=io.StringIO(), notice=lambda text: None) as opened:
        yield opened


def test_bounded_jobs_of_a_script_run_in_order(session: Session) -> None:
    job = job_of(session.sql(EVENTS))
    assert job.wait(SECONDS)
    files = f"{session.project.root}/totals/**/*.json"
    found = duckdb.execute(
        f"SELECT channel, sum(bids)::INT, count(*) FROM read_json('{files}') GROUP BY 1 ORDER BY 1"
    ).fetchall()
    expected = session.query(
        "SELECT channel, count(*)::INT, 2 FROM bids WHERE NOT starts_with(channel, 'channel-') GROUP BY 1 ORDER BY 1"
    )
    assert found == expected.fetchall()
    assert len(found) == 4
    # The declared table reads its partitions from the path.
    assert (
        session.query("SELECT channel, sum(bids)::INT, count(*) FROM totals GROUP BY 1 ORDER BY 1").fetchall() == found
    )
    session.drop("totals")
    assert not list(Path(session.project.root, "totals").rglob("*.json"))


@pytest.mark.thorough
def test_a_job_follows_another_one_over_restarts_of_both(session: Session) -> None:
    session.sql("""
        CREATE TABLE ticks (n BIGINT, at_ TIMESTAMP(3)) WITH (
            'connector' = 'datagen', 'rows-per-second' = '200', 'fields.n.kind' = 'sequence', 'fields.n.start' = '0',
            'fields.n.end' = '100000000');
        CREATE TABLE first (n BIGINT) WITH ('source.monitor-interval' = '100 ms');
        CREATE TABLE second (n BIGINT);
    """)
    for wanted in (200, 500):
        first = job_of(session.sql("INSERT INTO first SELECT n FROM ticks"))
        second = job_of(session.sql("INSERT INTO second SELECT n FROM first"))
        wait_until(partial(has_written, second, wanted))
        first.stop()
        assert first.wait(SECONDS)
        wait_until(lambda: rows_of(session, "first") == rows_of(session, "second"))
        second.stop()
        assert second.wait(SECONDS)
    found = session.query("SELECT count(*), count(DISTINCT n), max(n) + 1 FROM second").fetchall()
    assert len(set(found[0])) == 1
    assert session.query("SELECT count(*) FROM first ANTI JOIN second USING (n)").fetchall() == [(0,)]


def has_written(job: Job, rows: int) -> bool:
    return job.progress.rows_out > rows


def rows_of(session: Session, table: str) -> int:
    [(count,)] = session.query(f"SELECT count(*) FROM {table}").fetchall()
    return int(count)


def test_classes_of_the_project(session: Session) -> None:
    answer = session.sql(
        """
        CREATE TABLE numbers (k BIGINT) WITH ('connector' = 'python', 'class' = 'own.Numbers', 'count' = '1000');
        CREATE TABLE lines (k BIGINT) WITH ('connector' = 'python', 'class' = 'own.Lines', 'file' = 'FILE');
        CREATE TABLE parts (k BIGINT) WITH ('connector' = 'python', 'class' = 'own.Transactions', 'folder' = 'FILE.parts');
        EXECUTE STATEMENT SET BEGIN
            INSERT INTO lines SELECT k FROM numbers;
            INSERT INTO parts SELECT k FROM numbers;
        END;
    """.replace("FILE", f"{session.project.root}/lines")
    )
    assert job_of(answer).wait(SECONDS)
    written = [json.loads(line) for line in Path(session.project.root, "lines").read_text().splitlines()]
    assert sorted(k for _, keys in written for k in keys) == list(range(1000))
    # Workers have written them, one for each partition of the source.
    parts = list(Path(session.project.root, "lines.parts").glob("*.done"))
    assert len(parts) == 2
    assert not any(part.name.endswith(f"-{os.getpid()}.done") for part in parts)
    assert sorted(int(line) for part in parts for line in part.read_text().splitlines()) == list(range(1000))
    assert Path(session.project.root, "lines.parts", "version").exists()


CHANGES = """
CREATE TABLE orders (id BIGINT, item STRING, price BIGINT, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'filesystem', 'path' = 'orders', 'format' = 'debezium-json', 'source.max-files-per-batch' = '2');
CREATE TABLE items (item STRING, total BIGINT, PRIMARY KEY (item) NOT ENFORCED);
INSERT INTO items SELECT item, SUM(price) FROM orders GROUP BY item;
"""


@pytest.mark.thorough
def test_changes_of_files_count_in_their_order(session: Session) -> None:
    # No table has a watermark: the job ends when all is read.
    for number in range(7):
        envelopes = [{"op": "u", "after": {"id": id, "item": "ab"[id % 2], "price": number}} for id in range(4)]
        deleted = {"op": "d", "before": {"id": number}}
        path = Path(session.project.root) / "orders" / f"{number}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{json.dumps(e)}\n" for e in [*envelopes, deleted]))
    job = job_of(session.sql(CHANGES))
    assert job.wait(SECONDS)
    assert session.query("FROM items ORDER BY ALL").fetchall() == [("a", 12), ("b", 12)]
    found = session.query(
        "SELECT state_rows, absent_deletes FROM sqlstream.operators WHERE operator = 'orders_current'"
    )
    assert found.fetchall() == [(4, 3)]


CSV = """
CREATE TABLE {name} (k BIGINT, s STRING) WITH ('connector' = 'filesystem', 'path' = '{name}', 'format' = 'csv'{options});
CREATE TABLE {name}_copies (k BIGINT, s STRING);
INSERT INTO {name}_copies SELECT k, s FROM {name};
"""


def test_rows_of_csv_that_are_long_or_end_in_several_ways(session: Session) -> None:
    folder = Path(session.project.root) / "endings"
    folder.mkdir()
    long = "x" * 2_500_000
    (folder / "a.csv").write_bytes(f'1,a\r\n2,"{long}"\n3,"b\r\nc"\nx,d\n'.encode())
    job = job_of(session.sql(CSV.format(name="endings", options=", 'csv.errors-to' = 'bad'")))
    assert job.wait(SECONDS)
    assert session.query("FROM endings_copies ORDER BY ALL").fetchall() == [(1, "a"), (2, long), (3, "b\r\nc")]
    found = session.query("SELECT row_number, text, reason FROM bad").fetchall()
    assert found == [(4, "x,d", 'Column "k" does not hold a BIGINT')]


def test_a_malformed_row_of_csv_fails_with_its_place(session: Session) -> None:
    path = Path(session.project.root) / "strict" / "a.csv"
    path.parent.mkdir()
    path.write_bytes(b"1,a\r\n2,b\nx,d\n")
    with pytest.raises(SqlStreamError) as caught:
        job_of(session.sql(CSV.format(name="strict", options=""))).wait(SECONDS)
    said = str(caught.value)
    assert f'row 3 of file "{path}" of table "strict" is malformed' in said
    assert not [word for word in ("Traceback", "Proxy") if word in said]


TOPIC = """
CREATE TABLE pieces (k BIGINT)
WITH ('connector' = 'filesystem', 'path' = 'pieces', 'format' = 'json', 'source.max-files-per-batch' = '1');
CREATE TABLE topic (k BIGINT) WITH ('connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}',
    'format' = 'csv', 'key.format' = 'csv', 'key.fields' = 'k', 'sink.delivery-guarantee' = 'exactly-once',
    'sink.parallelism' = '2');
INSERT INTO topic SELECT k FROM pieces;
"""


@pytest.mark.kafka
def test_several_writers_of_a_topic_are_tasks(session: Session, kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Processes of our own would not start.
    monkeypatch.setattr(worker_processes, "MODULE", "nothing")
    folder = Path(session.project.root, "pieces")
    folder.mkdir()
    for number in range(4):
        (folder / f"{number}.json").write_text(
            "".join(f'{{"k":{k}}}\n' for k in range(number * 100, number * 100 + 100))
        )
    topic = make_topic(kafka)
    job = job_of(session.sql(TOPIC.format(topic=topic, servers=kafka)))
    assert job.wait(SECONDS)
    assert sorted(int(m.value or "") for m in messages(kafka, topic)) == list(range(400))
    [record] = Path(session.project.warehouse).rglob("jobs/topic/output/*/identity")
    own = f"sqlstream-{record.read_text().splitlines()[0]}"
    assert markers(kafka, topic, [f"{own}-0", f"{own}-1"]) == [3, 3]
