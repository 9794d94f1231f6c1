"""A PostgreSQL server that goes away while jobs run: they start again by themselves, and what is lost for good is an error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sqlstream import Session
from sqlstream.errors import DataError, SourceText, UsageError
from sqlstream.jobs.job import Job
from sqlstream.local.engine import LocalEngine
from tests.kinds import job_of, jobs_of
from tests.postgres_server import Database, PostgresServer
from tests.processes import wait_until

pytestmark = pytest.mark.slow

SCRIPT = """
SET 'restart-strategy.exponential-delay.initial-backoff' = '10 ms';
SET 'execution.checkpointing.interval' = '0 s';
CREATE TABLE orders (id BIGINT, item STRING, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'postgres-cdc', 'url' = '{url}', 'table-name' = 'orders', 'source.monitor-interval' = '10 ms',
  'connect.max-retries' = '0');
CREATE TABLE copied (id BIGINT, item STRING, PRIMARY KEY (id) NOT ENFORCED);
CREATE TABLE counts (item STRING, n BIGINT, PRIMARY KEY (item) NOT ENFORCED)
WITH ('connector' = 'postgresql', 'url' = '{url}', 'table' = 'counts', 'sink.create-table' = 'true', 'sink.max-retries' = '0');
INSERT INTO copied SELECT * FROM orders;
INSERT INTO counts SELECT item, COUNT(*) FROM orders GROUP BY item
"""


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[Database]:
    database = postgres.database()
    database.run(
        "CREATE TABLE orders (id bigint PRIMARY KEY, item text)",
        "ALTER TABLE orders REPLICA IDENTITY FULL",
        "INSERT INTO orders SELECT g, 'item ' || g % 3 FROM generate_series(1, 10) g",
    )
    yield database
    database.drop_slots()


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with Session(str(tmp_path), notice=lambda text: None) as session:
        yield session


def start(session: Session, url: str) -> list[Job]:
    planned = jobs_of(session.compile(SourceText("t", SCRIPT.format(url=url))))
    return [job_of(session._jobs.start(one, {}, engine=LocalEngine())) for one in planned]


def settle(session: Session, database: Database, jobs: list[Job]) -> None:
    """Wait until what jobs make of the orders is what queries over them give."""
    orders = database.run("SELECT id, item FROM orders ORDER BY id")
    counts = database.run("SELECT item, count(*) FROM orders GROUP BY item ORDER BY item")

    def is_there() -> bool:
        assert all(job.status != "FAILED" for job in jobs), [job.error for job in jobs]
        if any(job.progress.rows_in == 0 for job in jobs):
            return False
        copied = session.query("SELECT id, item FROM copied ORDER BY id").fetchall()
        return (copied, database.run("SELECT item, n FROM counts ORDER BY item")) == (orders, counts)

    wait_until(is_there)


def test_jobs_start_again_when_the_server_is_back(
    postgres: PostgresServer, database: Database, session: Session
) -> None:
    jobs = start(session, database.url)
    settle(session, database, jobs)
    database.run("UPDATE orders SET item = 'changed' WHERE id % 2 = 0", "DELETE FROM orders WHERE id = 3")
    with postgres.away():
        wait_until(lambda: [job.status for job in jobs] == ["RESTARTING"] * 2)
    database.run("INSERT INTO orders VALUES (11, 'new')", "DELETE FROM orders WHERE id = 10")
    settle(session, database, jobs)
    assert [job.status for job in jobs] == ["RUNNING"] * 2
    restarted = session.query("SELECT job, restarts > 0 FROM sqlstream.jobs ORDER BY job").fetchall()
    assert restarted == [("copied", True), ("counts", True)]


def test_a_slot_that_is_dropped_while_the_job_is_down(database: Database, session: Session) -> None:
    jobs = start(session, database.url)
    settle(session, database, jobs)
    for job in jobs:
        job.stop()
        job.wait()
    database.run("INSERT INTO orders VALUES (11, 'new')")
    database.drop_slots()
    for job in start(session, database.url):
        with pytest.raises(DataError, match="does not exist any more") as lost:
            job.wait()
        assert lost.value.message.startswith('changes of table "orders" are lost: replication slot "sqlstream_orders_')
        assert "cannot be brought up to date any more" in str(lost.value.detail)
        assert "Drop the job and start it afresh: it begins with a new snapshot." in str(lost.value.hint)
    statuses = session.query("SELECT status, restarts FROM sqlstream.jobs").fetchall()
    assert statuses == [("FAILED", 0)] * 2


def test_a_server_that_nobody_has_reached_yet_is_no_outage(session: Session) -> None:
    with pytest.raises(UsageError, match='table "orders": the PostgreSQL server cannot be reached'):
        start(session, "host=/nowhere")
