"""State checks: looked at behind the commit of a batch, they warn, or stop a job with its state intact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sqlstream import Session
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import BindError, JobError, SourceText, SqlStreamError
from sqlstream.jobs.job import Job
from sqlstream.local.engine import LocalEngine
from tests.processes import wait_until

TABLES = """
CREATE TABLE t (k BIGINT, v BIGINT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'parquet',
    'source.monitor-interval' = '10 ms');
CREATE TABLE sums (k BIGINT, s BIGINT, PRIMARY KEY (k) NOT ENFORCED);
"""
JOB = f"{TABLES} INSERT INTO sums SELECT k, SUM(v) AS s FROM t GROUP BY k;"
NEGATIVE = "CREATE STATE CHECK positive ON sums.aggregate_1{} AS (SELECT k, s FROM state.sums.aggregate_1 WHERE s < 0);"


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with Session(str(tmp_path), conf={"sqlstream.unbounded-state": "allow"}, notice=lambda text: None) as opened:
        yield opened


def put(session: Session, name: str, *rows: tuple[int, int]) -> None:
    folder = Path(session.project.root)
    (folder / "in").mkdir(exist_ok=True)
    pq.write_table(pa.table({"k": [k for k, _ in rows], "v": [v for _, v in rows]}), folder / f".{name}")
    (folder / f".{name}").rename(folder / "in" / f"{name}.parquet")


def start(session: Session, script: str = JOB) -> Job:
    """Start the job of a script as a session does, in this process."""
    [planned] = [one for one in session.compile(SourceText("script", script)) if isinstance(one, PlannedJob)]
    return session._jobs.start(planned, {}, engine=LocalEngine())


def done(session: Session, job: Job, rows: int) -> None:
    """Wait until a job has committed so many rows."""
    wait_until(lambda: session.query("SELECT rows_in FROM sqlstream.jobs").fetchall() == [(rows,)])


def told(session: Session) -> list[tuple[object, ...]]:
    return session.query("SELECT name, operator, status, version, rows, detail FROM sqlstream.checks").fetchall()


@pytest.mark.slow
def test_a_broken_check_stops_the_job_with_its_state_and_again_until_it_is_dropped(session: Session) -> None:
    put(session, "1", (1, 5), (2, 7))
    job = start(session)
    done(session, job, 2)
    session.sql(NEGATIVE.format(""))
    put(session, "2", (1, -9))
    with pytest.raises(JobError) as raised:
        job.wait(60)
    assert '"positive" is broken by 1 row' in raised.value.message
    assert "k = 1, s = -4" in raised.value.message
    [(name, operator, status, version, rows, detail)] = told(session)
    assert (name, operator, status, rows, detail) == ("positive", "aggregate_1", "broken", 1, "k = 1, s = -4")
    assert sorted(session.query("SELECT k, s FROM state.sums.aggregate_1").fetchall()) == [(1, -4), (2, 7)]
    # It runs no batch as long as its state is broken.
    put(session, "3", (2, 1))
    with pytest.raises(JobError, match="positive"):
        start(session).wait(60)
    assert session.query("SELECT version FROM sqlstream.jobs").fetchall() == [(version,)]
    session.sql("DROP STATE CHECK positive")
    again = start(session)
    done(session, again, 4)
    again.stop()
    assert again.wait(60)
    assert told(session) == []
    assert (2, 8) in session.query("SELECT k, s FROM sums").fetchall()


@pytest.mark.slow
def test_a_check_that_warns_lets_the_job_go_on(session: Session) -> None:
    session.sql(NEGATIVE.format(" WITH ('every' = '1 batch', 'action' = 'warn')"))
    put(session, "1", (1, -5))
    job = start(session)
    done(session, job, 1)
    put(session, "2", (1, 9))
    done(session, job, 2)
    job.stop()
    assert job.wait(60)
    [warning] = job.warnings()
    assert "k = 1, s = -5" in warning
    [(_, _, status, *_)] = told(session)
    assert status == "passed"
    shown = session.sql("SHOW STATE CHECKS")
    assert shown is not None


def test_max_rows(session: Session) -> None:
    put(session, "1", (1, 5), (2, 7))
    limited = f"SET 'sqlstream.state.max-rows.aggregate_1' = '2'; SET 'sqlstream.state.max-rows' = '1'; {JOB}"
    job = start(session, limited)
    done(session, job, 2)
    put(session, "2", (3, 1))
    with pytest.raises(JobError, match='operator "aggregate_1" has 3 rows, at most 2 rows') as raised:
        job.wait(60)
    assert "given by SET 'sqlstream.state.max-rows.aggregate_1'" in str(raised.value.hint)
    assert raised.value.detail == "Its state is as version 1 left it, and can be queried."
    assert told(session)[0][:3] == ("max-rows", "aggregate_1", "broken")
    warned = start(session, f"SET 'sqlstream.state.max-rows-action' = 'warn'; {limited}")
    wait_until(lambda: warned.is_waiting)
    warned.stop()
    assert warned.wait(60)
    assert "3 rows" in " ".join(warned.warnings())


def test_a_limit_says_how_it_was_given(session: Session) -> None:
    put(session, "1", (1, 5), (2, 7))
    session.options.set("sqlstream.state.max-rows", "1")
    with pytest.raises(JobError, match='"aggregate_1" has 2 rows, at most 1 row may') as raised:
        start(session).wait(60)
    assert "given by --set sqlstream.state.max-rows," in str(raised.value.hint)
    (Path(session.project.root) / "sqlstream.toml").write_text("[options]\nsqlstream.state.max-rows = 1\n")
    with Session(session.project.root) as configured:
        assert configured.options.as_set("sqlstream.state.max-rows") == '"sqlstream.state.max-rows" in sqlstream.toml:2'


@pytest.mark.parametrize(
    ("statement", "message", "place"),
    [
        ("CREATE STATE CHECK c ON sums.aggregat AS (SELECT 1)", 'no operator "aggregat"', "aggregat"),
        ("CREATE STATE CHECK c ON sums AS (SELECT x FROM state.sums.aggregate_1)", 'column "x" does not exist', "x"),
        ("CREATE STATE CHECK c ON sums AS (DELETE FROM t)", "DELETE is not a query", "DELETE"),
        ("CREATE STATE CHECK c ON sums WITH ('often' = '1') AS (SELECT 1)", 'option "often" does not exist', "'often'"),
        ("CREATE STATE CHECK c ON sums WITH ('every' = '0') AS (SELECT 1)", "needs a number of batches", "'0'"),
        ("CREATE STATE CHECK c ON sums WITH ('action' = 'x') AS (SELECT 1)", "needs one of stop, warn", "'x'"),
        ("CREATE STATE CHECK c ON sums AS (SELECT 1", 'this "(" is not closed', "("),
        ('CREATE STATE CHECK "max-rows" ON sums AS (SELECT 1)', "is the name of the checks", '"max-rows"'),
        ("DROP STATE CHECK nothing", 'state check "nothing" does not exist', "nothing"),
        (f"SET 'sqlstream.state.max-rows.agregate_1' = '1'; {JOB}", 'has no operator "agregate_1"', None),
    ],
)
def test_errors_point_into_the_statement(session: Session, statement: str, message: str, place: str | None) -> None:
    put(session, "1", (1, 5))
    job = start(session)
    with pytest.raises(SqlStreamError) as raised:
        session.sql(statement)
    job.stop()
    assert job.wait(60)
    assert message in raised.value.message
    if place is not None:
        assert raised.value.span is not None
        assert raised.value.span.text == place


def test_a_check_of_a_job_that_is_not_there_yet_is_compiled_when_it_starts(session: Session) -> None:
    session.sql("CREATE STATE CHECK c ON sums AS (SELECT nothing FROM state.sums.aggregate_1)")
    put(session, "1", (1, 5))
    with pytest.raises(SqlStreamError, match='column "nothing" does not exist'):
        start(session).wait(60)
    with pytest.raises(BindError, match="exists already"):
        session.sql("CREATE STATE CHECK c ON sums AS (SELECT 1 WHERE false)")
    session.sql("CREATE OR REPLACE STATE CHECK c ON sums AS (SELECT 1 WHERE false)")
    job = start(session)
    done(session, job, 1)
    job.stop()
    assert job.wait(60)


@pytest.mark.slow
def test_a_row_with_a_time_that_python_lacks_is_shown(session: Session) -> None:
    put(session, "1", (1, 5))
    job = start(session)
    done(session, job, 1)
    rows = "SELECT k, TIMESTAMP '10000-01-01' AS at FROM state.sums.aggregate_1 WHERE s < 0"
    session.sql(f"CREATE STATE CHECK late ON sums.aggregate_1 AS ({rows});")
    put(session, "2", (1, -9))
    with pytest.raises(JobError, match='"late" is broken by 1 row') as raised:
        job.wait(60)
    assert "k = 1, at = '10000-01-01 00:00:00'" in raised.value.message
