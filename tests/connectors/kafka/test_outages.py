"""A broker that is down for a while, and a job that is killed: nothing is lost, and nothing is read twice."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from sqlstream import Session
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.connectors.kafka.producing import Deadline
from sqlstream.connectors.kafka.producing import Topic as SinkTopic
from sqlstream.connectors.kafka.sink_options import retry_seconds
from sqlstream.errors import OutageError, SourceText
from sqlstream.jobs.job import Job
from sqlstream.local.engine import LocalEngine
from tests.connectors.kafka.topics import Topic
from tests.connectors.kafka.written import make_topic, messages
from tests.kafka_broker import Broker
from tests.kinds import job_of, jobs_of
from tests.processes import SECONDS, kill_family, wait_until, wait_with

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

LIVE = ", 'scan.bounded.mode' = 'unbounded', 'scan.max-rows-per-batch' = '10'"
KEPT = "CREATE TABLE kept (n INT); INSERT INTO kept SELECT n FROM t;"


SINKS = """
SET 'restart-strategy.exponential-delay.initial-backoff' = '10 ms';
SET 'execution.checkpointing.interval' = '0 s';
CREATE TABLE given (n INT) WITH ('connector' = 'filesystem', 'path' = 'given', 'format' = 'json',
    'source.monitor-interval' = '10 ms');
{tables}
"""
SINK = """
CREATE TABLE {name} (n INT) WITH ('connector' = 'kafka', 'topic' = '{topic}', 'format' = 'csv',
    'properties.bootstrap.servers' = '{servers}', 'sink.delivery-guarantee' = '{guarantee}', 'sink.retry-timeout' = '{retry}');
INSERT INTO {name} SELECT n FROM given WHERE n > 0;
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("outages") / "broker") as opened:
        yield opened


def sinks(servers: str, topics: Mapping[str, str], retry: str) -> SourceText:
    """Return a script of a job for each guarantee, into the topic that belongs to it."""
    tables = (
        SINK.format(name=guarantee.replace("-", "_"), guarantee=guarantee, topic=topic, servers=servers, retry=retry)
        for guarantee, topic in topics.items()
    )
    return SourceText("script", SINKS.replace("{tables}", "".join(tables)))


@pytest.mark.thorough
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


def begun(session: Session, planned: PlannedJob) -> Job:
    """Start a job; a machine with much to do may take longer than its job waits until brokers know of its first transaction."""
    jobs: list[Job] = []

    def starts() -> bool:
        with contextlib.suppress(OutageError):
            jobs.append(job_of(session._jobs.start(planned, {}, engine=LocalEngine())))
        return bool(jobs)

    wait_until(starts)
    return jobs[0]


def goes_on(jobs: Sequence[Job]) -> bool:
    assert all(job.status != "FAILED" for job in jobs), [job.error for job in jobs]
    return True


@pytest.mark.one_in(2, of="brokers of their own")
def test_jobs_that_write_start_again_when_the_brokers_are_back(broker: Broker, tmp_path: Path) -> None:
    topics = {guarantee: make_topic(broker.servers) for guarantee in ("exactly-once", "at-least-once")}

    def give(number: int) -> None:
        (tmp_path / f"{number}.json").write_text(f'{{"n": {number}}}\n')
        (tmp_path / f"{number}.json").rename(tmp_path / "given" / f"{number}.json")

    (tmp_path / "given").mkdir()
    with Session(str(tmp_path), notice=lambda text: None) as session:
        jobs = [begun(session, planned) for planned in jobs_of(session.compile(sinks(broker.servers, topics, "2 s")))]
        # The first batch has no row for the topics, so that the outage meets their first one.
        give(0)
        wait_until(lambda: goes_on(jobs) and [job.progress.rows_in for job in jobs] == [1, 1])
        broker.stop()
        give(1)
        wait_until(lambda: goes_on(jobs) and [job.status for job in jobs] == ["RESTARTING"] * 2)
        restarted = "SELECT min(restarts) > 1 FROM sqlstream.jobs"
        wait_until(lambda: goes_on(jobs) and session.query(restarted).fetchall() == [(True,)])
        broker.start()
        wait_until(lambda: goes_on(jobs) and [job.progress.rows_in for job in jobs] == [2, 2])
        give(2)
        wait_until(lambda: goes_on(jobs) and [job.progress.rows_in for job in jobs] == [3, 3])
        assert [job.status for job in jobs] == ["RUNNING"] * 2
        errors = session.query("SELECT error FROM sqlstream.restarts").fetchall()
        assert all("the brokers did not take the rows of topic" in error for (error,) in errors)
    assert [m.value for m in messages(broker.servers, topics["exactly-once"])] == ["1", "2"]
    assert {m.value for m in messages(broker.servers, topics["at-least-once"])} == {"1", "2"}


class UntilHeard(Deadline):
    """Is over when the time is, and its clients have heard why: a busy machine may not even have tried to connect until then."""

    def __init__(self, topic: SinkTopic):
        super().__init__(retry_seconds(topic.table))
        self._topic, self._patience = topic, Deadline(SECONDS)

    @property
    def remaining(self) -> float:
        waits = not self._topic.trouble and not self._patience.is_over
        return super().remaining or (0.1 if waits else 0.0)


def test_brokers_that_do_not_answer_when_a_job_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SinkTopic, "deadline", lambda topic: UntilHeard(topic))
    (tmp_path / "given").mkdir()
    with Session(str(tmp_path), notice=lambda text: None) as session:
        script = sinks("127.0.0.1:1", {"exactly-once": "a", "at-least-once": "b"}, "100 ms")
        for planned in jobs_of(session.compile(script)):
            with pytest.raises(OutageError, match="the brokers did not take the rows of topic") as away:
                session._jobs.start(planned, {}, engine=LocalEngine())
            assert "Connection refused" in str(away.value.detail)


@pytest.mark.spark
@pytest.mark.thorough
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
