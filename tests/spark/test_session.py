"""The Python session, on one JVM: jobs by name, what happens when a script runs again, functions, results."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import duckdb
import pytest

from sqlstream import Session, SqlStreamError
from sqlstream.errors import DataError, JobError, UsageError
from sqlstream.session.changes import Changes
from tests.kinds import job_of, of_type
from tests.processes import SECONDS

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.one_in(3, of="sessions on Spark")]

EVENTS = """
CREATE TABLE events (k INT, x BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'filesystem', 'path' = 'events', 'format' = '{format}'{more});
"""
SUMS = """
CREATE TABLE {name} (k INT, total BIGINT);
INSERT INTO {name} SELECT k, SUM(x) FROM TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY k, window_start, window_end;
"""
ROWS = "(1, 5, TIMESTAMP '2026-01-01 00:00:01'), (2, 7, TIMESTAMP '2026-01-01 00:00:02'), (1, 1, TIMESTAMP '2026-01-01 00:00:12')"


@pytest.fixture(scope="module")
def spark_session(shared_jvm: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    project = tmp_path_factory.mktemp("project")
    (project / "events").mkdir()
    write(project, "a.parquet", ROWS)
    with Session(str(project), output=io.StringIO(), notice=lambda text: None) as session:
        session.sql(EVENTS.format(format="parquet", more=""))
        yield session


def write(project: Path, name: str, rows: str) -> None:
    with duckdb.connect() as con:
        con.execute(
            f"COPY (SELECT k::INT AS k, x::BIGINT AS x, ts FROM (VALUES {rows}) t(k, x, ts)) "
            f"TO '{project}/events/{name}' (FORMAT parquet)"
        )


@pytest.fixture
def notices() -> list[str]:
    return []


@pytest.fixture
def session(spark_session: Session, notices: list[str]) -> Session:
    spark_session.notice = notices.append
    return spark_session


@pytest.fixture
def sums(session: Session) -> None:
    """The table `sums`, whichever test comes first: another process may run the one before."""
    job_of(session.sql(SUMS.format(name="sums"))).wait()


def rows(session: Session, sql: str) -> list[tuple[object, ...]]:
    return session.query(sql).fetchall()


def test_a_job_runs_to_its_end_and_is_skipped_then(session: Session, notices: list[str]) -> None:
    job = job_of(session.sql(SUMS.format(name="ended")))
    assert job.wait(SECONDS)
    assert job.status == "FINISHED"
    assert (job.progress.rows_in, job.progress.rows_out) == (3, 3)
    assert sorted(rows(session, "FROM ended")) == [(1, 1), (1, 5), (2, 7)]
    again = job_of(session.sql(SUMS.format(name="ended")))
    assert again.wait()
    assert "is finished and was skipped" in notices[-1]
    assert len(rows(session, "FROM ended")) == 3


def test_fresh_starts_anew(session: Session) -> None:
    for _ in range(2):
        job = job_of(session.sql(SUMS.format(name="anew"), fresh=True))
        job.wait()
    assert len(rows(session, "FROM anew")) == 3


def test_another_query_under_the_same_name_is_refused(session: Session) -> None:
    job = job_of(session.sql(SUMS.format(name="fixed")))
    job.wait()
    with pytest.raises(UsageError) as caught:
        session.sql(SUMS.format(name="fixed").replace("SUM(x)", "MAX(x)"))
    text = caught.value.render()
    assert text.startswith('error: job "fixed" exists with another query\n  --> sql:3:1\n')
    assert "\n-  Project" in text
    assert "max(" in text
    assert "--fresh" in text


def test_a_select_over_input_that_ends_is_a_relation(session: Session) -> None:
    found = of_type(duckdb.DuckDBPyRelation, session.sql("SELECT k, x FROM events WHERE k = 1 LIMIT 1"))
    assert found.columns == ["k", "x"]
    assert found.fetchall() in ([(1, 5)], [(1, 1)])
    totals = of_type(duckdb.DuckDBPyRelation, session.sql("SELECT k, SUM(x) AS total FROM events GROUP BY k"))
    assert sorted(totals.fetchall()) == [(1, 6), (2, 7)]
    assert not [j for (j,) in rows(session, "SELECT job FROM sqlstream.jobs") if str(j).startswith("select")]


def test_a_select_over_input_that_goes_on_is_an_iterator_of_changes(session: Session) -> None:
    made = "CREATE TABLE IF NOT EXISTS made (n INT) WITH ('connector' = 'datagen', 'rows-per-second' = '20000')"
    session.sql(made)
    session.sql("SET 'sqlstream.unbounded-state' = 'allow'")
    limited = of_type(Changes, session.sql("SELECT n FROM made LIMIT 3"))
    assert [change.kind for change in islice(limited, 3)] == ["+I"] * 3
    assert limited.job.wait(SECONDS), "LIMIT does not end the job"
    assert list(limited) == []
    assert limited.job.status == "FINISHED"
    signs = "SELECT n > 0 AS positive, COUNT(*) AS total FROM made GROUP BY n > 0"
    with of_type(Changes, session.sql(signs)) as changes:
        state: dict[bool, int] = {}
        for kind, row in changes:
            if kind in ("+I", "+U"):
                state[row["positive"]] = row["total"]
            if len(state) == 2 and all(total > 20_000 for total in state.values()):
                break
        assert changes.job.progress.rows_in > 0
    assert changes.job.status == "STOPPED"
    session.sql("RESET 'sqlstream.unbounded-state'")
    assert not [j for (j,) in rows(session, "SELECT job FROM sqlstream.jobs") if str(j).startswith("select")]


def test_waiting_at_the_end_of_input_keeps_windows_open(session: Session) -> None:
    session.sql("SET 'execution.end-of-input' = 'wait'")
    try:
        job = job_of(session.sql(SUMS.format(name="growing")))
        job.wait()
        assert job.status == "STOPPED"
        assert sorted(rows(session, "FROM growing")) == [(1, 5), (2, 7)]
        assert rows(session, 'SELECT k, "sum(x)" FROM state.growing.window_aggregate_1') == [(1, 1)]
        write(Path(session.project.root), "b.parquet", "(1, 2, TIMESTAMP '2026-01-01 00:00:13')")
        session.sql("SET 'execution.end-of-input' = 'finish'")
        job = job_of(session.sql(SUMS.format(name="growing")))
        job.wait()
        assert sorted(rows(session, "FROM growing")) == [(1, 3), (1, 5), (2, 7)]
    finally:
        session.sql("SET 'execution.end-of-input' = 'finish'")
        os.unlink(f"{session.project.root}/events/b.parquet")


@pytest.mark.usefixtures("sums")
def test_a_registered_function_runs_in_jobs_and_queries(session: Session) -> None:
    factor = 3

    def scaled(x: int) -> int:
        if x < 0:
            raise ValueError("negative")
        return x * factor

    session.register(scaled)
    found = of_type(duckdb.DuckDBPyRelation, session.sql("SELECT k, scaled(x) AS y FROM events WHERE k = 2"))
    assert found.fetchall() == [(2, 21)]
    assert rows(session, "SELECT scaled(k) FROM sums ORDER BY 1 LIMIT 1") == [(3,)]
    with pytest.raises(JobError) as caught:
        session.sql("SELECT scaled(-x) FROM events")
    text = caught.value.render()
    assert 'failed: function "scaled" raised ValueError: negative' in text
    assert "arguments: x=-" in text
    assert f"log: {session.project.log_file}" in text
    assert session.jobs[-1].status == "FAILED"


def test_a_value_that_does_not_fit_names_column_and_row(session: Session) -> None:
    job = job_of(session.sql("CREATE TABLE small (k INT, t TINYINT); INSERT INTO small SELECT k, x * 100 FROM events"))
    with pytest.raises(DataError, match='column "t" of table "small" cannot hold') as caught:
        job.wait()
    assert "row: k=" in caught.value.render()
    assert rows(session, "FROM small") == []


@pytest.mark.usefixtures("sums")
def test_results_are_pandas_and_arrow_too(session: Session) -> None:
    relation = session.query("SELECT k, total FROM sums ORDER BY ALL")
    assert list(relation.df().total) == [1, 5, 7]
    assert session.query("SELECT total FROM sums ORDER BY 1").arrow().read_all().column(0).to_pylist() == [1, 5, 7]


def test_drop_deletes_state_and_rows(session: Session) -> None:
    job = job_of(session.sql(SUMS.format(name="gone")))
    job.wait()
    session.drop("gone")
    with pytest.raises(SqlStreamError, match="into which no job has written yet"):
        session.query("FROM gone")
    with pytest.raises(UsageError, match='job "gone" does not exist'):
        session.drop("gone")


def test_a_missing_folder_is_found_before_the_job_starts(session: Session) -> None:
    session.sql("CREATE TABLE nothing (k INT) WITH ('connector' = 'filesystem', 'path' = 'nowhere', 'format' = 'json')")
    with pytest.raises(SqlStreamError, match=r'no file or directory matches ".*nowhere"'):
        session.sql("SELECT * FROM nothing")


def test_an_aggregate_of_no_rows_has_its_row(session: Session) -> None:
    for name in ("full", "void"):
        os.makedirs(f"{session.project.root}/{name}", exist_ok=True)
    with duckdb.connect() as con:
        con.execute(f"COPY (SELECT 1::BIGINT AS k) TO '{session.project.root}/full/a.parquet' (FORMAT parquet)")
    source = "(k BIGINT) WITH ('connector' = 'filesystem', 'format' = 'parquet', 'path' = '{}'{})"
    followed = ", 'source.monitor-interval' = '100 ms'"
    session.sql(f"CREATE TABLE full_ {source.format('full', '')}; CREATE TABLE void_ {source.format('void', '')}")
    session.sql(f"CREATE TABLE following {source.format('void', followed)}")
    job_of(session.sql("CREATE TABLE no_rows (n BIGINT); INSERT INTO no_rows SELECT COUNT(*) FROM void_")).wait()
    assert rows(session, "FROM no_rows") == [(0,)]
    # A join is a level above: the row passes it.
    joined = "SELECT f.k, c.n FROM full_ f LEFT JOIN (SELECT COUNT(*) AS n FROM void_) c ON TRUE"
    job_of(session.sql(f"CREATE TABLE beside (k BIGINT, n BIGINT); INSERT INTO beside {joined}")).wait()
    assert rows(session, "FROM beside") == [(1, 0)]
    sets = "SELECT k, COUNT(*) FROM void_ GROUP BY ROLLUP (k)"
    job_of(session.sql(f"CREATE TABLE rolled (k BIGINT, n BIGINT); INSERT INTO rolled {sets}")).wait()
    assert rows(session, "FROM rolled") == [(None, 0)]
    # There is a first batch without any input.
    job = job_of(session.sql("CREATE TABLE so_far (n BIGINT); INSERT INTO so_far SELECT COUNT(*) FROM following"))
    while job.progress.batch is None:
        assert job.wait(0.1) is False
    job.stop()
    job.wait()
    assert rows(session, "FROM so_far") == [(0,)]
