"""ALTER TABLE in a session: tables of the catalog, of the warehouse, of jobs and of records; EXPLAIN of CREATE TABLE AS."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from sqlstream import Session
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import BindError, SourceText, SqlStreamError, UnsupportedError
from sqlstream.local.engine import LocalEngine
from tests.processes import SECONDS

GIVEN = "CREATE TABLE given (k INT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');"


def run(session: Session, script: str) -> None:
    """Run the only job of a script to its end."""
    [planned] = [one for one in session.compile(SourceText("script", script)) if isinstance(one, PlannedJob)]
    job = session._jobs.start(planned, {}, engine=LocalEngine())
    assert job.wait(SECONDS)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a table in its catalog, and rows of it."""
    (tmp_path / "catalog").mkdir()
    (tmp_path / "catalog" / "given.sql").write_text(GIVEN)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"k": 1, "more": "x"}\n')
    return tmp_path


def test_a_table_of_the_catalog_is_altered_for_the_session(project: Path) -> None:
    script = "ALTER TABLE given ADD more STRING; CREATE TABLE o (k INT, more STRING); INSERT INTO o SELECT k, more FROM given"
    with Session(str(project), notice=lambda text: None) as session:
        run(session, script)
        assert session.query("FROM o").fetchall() == [(1, "x")]
        # Also from its record: the file of the catalog has no such column.
        assert session.verify("o")
    with Session(str(project), notice=lambda text: None) as session:
        assert session.verify("o")
        with pytest.raises(BindError, match='column "more" does not exist'):
            session.compile(SourceText("script", "SELECT more FROM given"))
        # The next run of the script is the same job.
        run(session, script)


def test_a_changed_table_makes_another_query(project: Path) -> None:
    script = "CREATE TABLE o (k INT); INSERT INTO o SELECT k FROM given"
    with Session(str(project), notice=lambda text: None) as session:
        run(session, script)
    other = f"ALTER TABLE given SET ('path' = 'elsewhere'); {script}"
    with (
        Session(str(project), notice=lambda text: None) as session,
        pytest.raises(SqlStreamError, match='job "o" exists with another query'),
    ):
        run(session, other)


def test_a_table_whose_rows_are_in_the_warehouse_keeps_its_name(project: Path) -> None:
    with Session(str(project), notice=lambda text: None) as session:
        run(session, "CREATE TABLE o (k INT); INSERT INTO o SELECT k FROM given")
        with pytest.raises(UnsupportedError, match='another name for table "o"') as raised:
            session.sql("ALTER TABLE o RENAME TO p")
        assert raised.value.hint == "Declare another table, and write INSERT INTO it SELECT * FROM o."


def test_jobs_that_run_are_named(project: Path) -> None:
    notices = list[str]()
    with Session(str(project), notice=notices.append) as session:
        session.compiler.jobs_of = lambda table: ["busy"] if table == "given" else []
        session.sql("ALTER TABLE given ADD more STRING")
    assert 'job "busy" runs, and goes on with table "given" as it was' in notices[0]


def test_columns_that_the_source_has_stay_when_others_are_added(project: Path) -> None:
    duckdb.sql(f"COPY (SELECT 1 AS k, TIMESTAMP '2026-01-01' AS ts) TO '{project}/in/a.parquet'")
    with Session(str(project), notice=lambda text: None) as session:
        session.sql("""
            CREATE TABLE files WITH ('connector' = 'filesystem', 'path' = 'in/a.parquet', 'format' = 'parquet');
            ALTER TABLE files ADD (twice AS k * 2, WATERMARK FOR ts AS ts)""")
        relation = session.sql("DESCRIBE files")
        assert isinstance(relation, duckdb.DuckDBPyRelation)
        assert [row[0] for row in relation.fetchall()] == ["k", "ts", "twice"]


def test_secrets_of_an_alteration_are_in_no_record(project: Path) -> None:
    kafka = "'connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'k:1', 'format' = 'json'"
    with Session(str(project), notice=lambda text: None) as session:
        script = f"""CREATE TABLE t (k INT) WITH ({kafka}); ALTER TABLE t SET ('properties.sasl.password' = 'hunter22');
            CREATE TABLE o (k INT); INSERT INTO o SELECT k FROM t"""
        [planned] = [one for one in session.compile(SourceText("script", script)) if isinstance(one, PlannedJob)]
        assert planned.script is None


def test_explain_of_create_table_as_declares_nothing(project: Path) -> None:
    with Session(str(project), notice=lambda text: None) as session:
        plan = session.sql("EXPLAIN CREATE TABLE high AS SELECT MAX(k) AS k FROM given")
        assert isinstance(plan, duckdb.DuckDBPyRelation)
        assert plan.fetchall()[0] == ("-- job high (bounded)",)
        plan = session.sql("EXPLAIN OPTIMIZED CREATE MATERIALIZED TABLE high AS SELECT k FROM given")
        assert isinstance(plan, duckdb.DuckDBPyRelation)
        with pytest.raises(BindError, match='table "high" does not exist'):
            session.compile(SourceText("script", "SELECT k FROM high"))
        with pytest.raises(SqlStreamError, match="CREATE has no plan"):
            session.sql("EXPLAIN CREATE VIEW v AS SELECT k FROM given")
