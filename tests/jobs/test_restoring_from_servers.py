"""Savepoints of jobs that read from servers, or write into them: what goes on, what is read again, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sqlstream import Session, SqlStreamError
from sqlstream.errors import SourceText
from sqlstream.jobs.job import Job
from sqlstream.jobs.savepoints.named_savepoints import take_savepoint
from sqlstream.jobs.savepoints.restore_plans import plan_restore
from sqlstream.local.engine import LocalEngine
from tests.connectors.kafka.topics import Topic
from tests.connectors.kafka.written import messages
from tests.kinds import jobs_of
from tests.mariadb_server import MariaDBServer
from tests.postgres_server import PostgresServer
from tests.processes import SECONDS, wait_until

pytestmark = pytest.mark.slow

LIVE = ", 'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'unbounded', 'scan.poll-interval' = '10 ms'"
COUNTS = "CREATE TABLE n (k BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED); INSERT INTO n SELECT k, count(*) FROM t GROUP BY k"


@contextmanager
def opened(folder: Path, notices: list[str] | None = None, **options: str) -> Iterator[Session]:
    """Open a session; `options` are of table `t`, as from outside."""
    said = [] if notices is None else notices
    given = {"t": options} if options else None
    conf = {"execution.checkpointing.interval": "0 s"}
    with Session(str(folder), conf=conf, table_options=given, notice=said.append) as session:
        yield session


def started(session: Session, script: str, savepoint: str | None = None, name: str | None = None) -> Job:
    """Start the job of a script in this process, as `run --from --as` does."""
    starting = session.compiler.table_options.starting
    compiled = session.compile(SourceText("script", script))
    planned, restores = plan_restore(compiled, session.warehouse, savepoint, name, starting)
    [job] = jobs_of([one for one in planned if one is not None])
    return session._jobs.start(replace(job), {}, engine=LocalEngine(), restore=restores.get(job.name))


def stopped(job: Job, rows: int) -> None:
    """Wait until a job has read so many rows in all, and stop it."""
    wait_until(lambda: job.progress.rows_in == rows and job.is_waiting)
    job.stop()
    assert job.wait(SECONDS)


def counts(session: Session) -> list[tuple[int, int]]:
    return session.query("SELECT k, n FROM n ORDER BY k").fetchall()


@pytest.mark.kafka
def test_a_job_goes_back_to_its_offsets_or_begins_where_it_is_told(kafka: str, tmp_path: Path) -> None:
    topic = Topic(kafka, 2)
    script = topic.table("k BIGINT", LIVE) + COUNTS
    topic.send({"k": 1}, {"k": 1}, {"k": 2})
    with opened(tmp_path) as s:
        stopped(started(s, script), 3)
        take_savepoint(s.warehouse, "n", "three")
        topic.send({"k": 2}, {"k": 3}, partition=1)
        stopped(started(s, script), 5)
        assert counts(s) == [(1, 2), (2, 2), (3, 1)]
        topic.send({"k": 4})
        stopped(started(s, script, "three"), 6)
        assert counts(s) == [(1, 2), (2, 2), (3, 1), (4, 1)]
    notices: list[str] = []
    with opened(tmp_path, notices, **{"scan.startup.mode": "latest-offset"}) as s:
        job = started(s, script, "three")
        wait_until(lambda: job.is_waiting)
        topic.send({"k": 5})
        stopped(job, 4)
        assert counts(s) == [(1, 2), (2, 1), (5, 1)]
        assert any(notice.startswith('warning: table "t" is read from where its options say') for notice in notices)


@pytest.mark.kafka
def test_a_job_does_not_go_back_behind_its_transactions(kafka: str, tmp_path: Path) -> None:
    given, written, of_fork = Topic(kafka), Topic(kafka), Topic(kafka)
    exactly_once = ", 'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{0}'"

    def script(out: Topic) -> str:
        sink = out.table("k BIGINT", exactly_once.format(out.name) + ", 'scan.bounded.mode' = 'unbounded'", name="out")
        return f"{given.table('k BIGINT', LIVE)} {sink} INSERT INTO out SELECT k FROM t"

    given.send({"k": 1}, {"k": 2})
    with opened(tmp_path) as s:
        stopped(started(s, script(written)), 2)
        take_savepoint(s.warehouse, "out", "two")
        given.send({"k": 3})
        stopped(started(s, script(written)), 3)
        with pytest.raises(SqlStreamError, match='job "out" cannot go back to savepoint "two"') as refused:
            started(s, script(written), "two")
        assert 'outside of the warehouse: "out" (kafka).' in str(refused.value.detail)
        # The job is as it was. A fork writes another topic, what comes after the savepoint.
        stopped(
            started(
                s, script(of_fork).replace("TABLE out", "TABLE out_b").replace("INTO out", "INTO out_b"), "two", "b"
            ),
            3,
        )
        given.send({"k": 4})
        stopped(started(s, script(written)), 4)
    assert sorted(str(m.value) for m in messages(kafka, written.name)) == [f'{{"k":{k}}}' for k in (1, 2, 3, 4)]
    assert [str(m.value) for m in messages(kafka, of_fork.name)] == ['{"k":3}']


def test_a_job_does_not_go_back_behind_what_it_wrote_into_a_database(postgres: PostgresServer, tmp_path: Path) -> None:
    database = postgres.database()
    script = f"""
    CREATE TABLE t (k BIGINT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'csv',
        'source.monitor-interval' = '10 ms');
    CREATE TABLE n (k BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED)
    WITH ('connector' = 'postgresql', 'url' = '{database.url}', 'table' = 'counted', 'sink.create-table' = 'true');
    INSERT INTO n SELECT k, count(*) FROM t GROUP BY k
    """
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("1\n1\n2\n")
    with opened(tmp_path) as s:
        stopped(started(s, script), 3)
        take_savepoint(s.warehouse, "n", "three")
        (tmp_path / "in" / "b.csv").write_text("2\n3\n")
        stopped(started(s, script), 5)
        with pytest.raises(SqlStreamError, match='job "n" cannot go back to savepoint "three"') as refused:
            started(s, script, "three")
        assert 'outside of the warehouse: "n" (postgresql).' in str(refused.value.detail)
        # Dropped, it comes back; rows with a key replace those that came after the savepoint.
        s.drop("n")
        (tmp_path / "in" / "c.csv").write_text("3\n")
        stopped(started(s, script, "three"), 6)
    assert database.run("SELECT k, n FROM counted ORDER BY k") == [(1, 2), (2, 2), (3, 2)]


def test_a_job_with_a_replication_slot_goes_neither_back_nor_beside_itself(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    database = postgres.database()
    database.run("CREATE TABLE orders (id bigint PRIMARY KEY)", "INSERT INTO orders VALUES (1), (2)")
    script = f"""
    CREATE TABLE t (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'postgres-cdc', 'url' = '{database.url}',
        'table-name' = 'orders', 'source.monitor-interval' = '10 ms');
    CREATE TABLE n (id BIGINT, PRIMARY KEY (id) NOT ENFORCED);
    INSERT INTO n SELECT id FROM t
    """
    try:
        with opened(tmp_path) as s:
            stopped(started(s, script), 2)
            take_savepoint(s.warehouse, "n", "two")
            # Nothing has come since, so it simply goes on.
            database.run("INSERT INTO orders VALUES (3)")
            stopped(started(s, script, "two"), 3)
            with pytest.raises(
                SqlStreamError, match=r'job "n" cannot go back in table "t" \(postgres-cdc\)'
            ) as refused:
                started(s, script, "two")
            assert refused.value.detail == "What the job has read since the savepoint cannot be read again."
            with pytest.raises(SqlStreamError, match=r'a fork cannot read table "t" \(postgres-cdc\)'):
                started(s, script.replace("TABLE n", "TABLE b").replace("INTO n", "INTO b"), "two", "b")
            database.run("DELETE FROM orders WHERE id = 1")
            stopped(started(s, script), 4)
            assert s.query("FROM n ORDER BY id").fetchall() == database.run("SELECT id FROM orders ORDER BY id")
    finally:
        database.drop_slots()


def test_a_job_goes_back_in_a_binary_log_and_beside_itself(mariadb: MariaDBServer, tmp_path: Path) -> None:
    database = mariadb.database()
    database.run("CREATE TABLE orders (id bigint PRIMARY KEY)", "INSERT INTO orders VALUES (1), (2)")
    script = f"""
    CREATE TABLE t (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'mysql-cdc', 'url' = '{database.url}',
        'table-name' = 'orders', 'source.monitor-interval' = '10 ms');
    CREATE TABLE n (id BIGINT, PRIMARY KEY (id) NOT ENFORCED);
    INSERT INTO n SELECT id FROM t
    """
    fork = script.replace("TABLE n", "TABLE b").replace("INTO n", "INTO b")
    with opened(tmp_path) as s:
        stopped(started(s, script), 2)
        take_savepoint(s.warehouse, "n", "two")
        database.run("INSERT INTO orders VALUES (3)")
        stopped(started(s, script), 3)
        database.run("DELETE FROM orders WHERE id = 1")
        # Much log without changes of the table, which the job need not read again.
        database.run("CREATE TABLE other SELECT repeat('x', 100) FROM seq_1_to_20000")
        stopped(started(s, script), 4)
        for savepoint in ("two", None, "two"):
            stopped(started(s, script, savepoint), 4)
            assert s.query("FROM n ORDER BY id").fetchall() == [(2,), (3,)]
        stopped(started(s, fork, "two", "b"), 4)
        assert s.query("FROM b ORDER BY id").fetchall() == [(2,), (3,)]
    with opened(tmp_path, None, **{"scan.startup.mode": "latest-offset"}) as s:
        job = started(s, script, "two")
        wait_until(lambda: job.is_waiting)
        database.run("INSERT INTO orders VALUES (4)")
        stopped(job, 3)
        assert s.query("FROM n ORDER BY id").fetchall() == [(1,), (2,), (4,)]
    with opened(tmp_path) as s:
        database.server.administration().run("FLUSH BINARY LOGS")
        database.server.purge_log()
        job = started(s, script, "two")
        with pytest.raises(SqlStreamError, match="the server has purged its log file"):
            job.wait(SECONDS)
