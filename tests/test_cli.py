"""The command line without Spark: exit codes, messages, what needs no Java."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sqlstream
from sqlstream.testing import Stream

TABLE = """
CREATE TABLE events (k INT, x BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'filesystem', 'path' = 'events', 'format' = 'parquet');
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "catalog").mkdir()
    (tmp_path / "catalog" / "events.sql").write_text(TABLE)
    return tmp_path


def run(project: Path, *arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": path} if path is not None else dict(os.environ)
    if path is not None:
        environment.pop("JAVA_HOME", None)
    command = [sys.executable, "-m", "sqlstream", *arguments]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


def test_version_and_help(project: Path) -> None:
    assert run(project, "--version").stdout == f"sqlstream, version {sqlstream.__version__}\n"
    shown = run(project)
    assert shown.returncode == 0
    assert shown.stdout.startswith("Usage: sqlstream")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "error: there is no SQL to run\nhint: Name a file, or give SQL with -e."),
        (["run", "nothing.sql"], 'error: file "nothing.sql" does not exist'),
        (["run", "-e", "SELECT y FROM events"], 'error: column "y" does not exist in table "events"\n  --> -e:1:8'),
        (["run", "-e", "SELEC 1"], "syntax error: "),
        (["run", "-e", "SELECT k FROM event"], 'hint: did you mean "events"?'),
        (["run", "-e", "SELECT 1 FROM events", "--set", "pipeline.nam=x"], 'hint: did you mean "pipeline.name"?'),
        (["run", "-e", "SELECT 1 FROM events", "--set", "x"], 'error: --set "x" is not KEY=VALUE'),
        (["run", "--wat"], "No such option"),
        (["query", "DROP TABLE x", "--warehouse", "."], "error: "),
        (["query", "SELECT * FROM nope"], "error: "),
        (["stop", "x"], 'error: job "x" does not exist'),
        (["drop", "x"], 'error: job "x" does not exist'),
        (["jobs", "--project", "nowhere"], 'error: project folder "nowhere" does not exist'),
    ],
)
def test_what_is_wrong_ends_with_2(project: Path, arguments: list[str], message: str) -> None:
    done = run(project, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_table_declared_twice_names_both_files(project: Path) -> None:
    (project / "catalog" / "more.sql").write_text(TABLE)
    done = run(project, "explain", "-e", "SELECT k FROM events")
    assert done.returncode == 2
    assert '"events" is declared twice, first in catalog/events.sql' in done.stderr
    assert "--> catalog/more.sql:2:14" in done.stderr


def test_a_catalog_holds_definitions_only(project: Path) -> None:
    (project / "catalog" / "job.sql").write_text("SELECT k FROM events")
    done = run(project, "explain", "-e", "SELECT k FROM events")
    assert done.returncode == 2
    assert "a catalog file holds CREATE TABLE, CREATE VIEW and CREATE FUNCTION only" in done.stderr


@pytest.mark.parametrize("stage", ["ast", "logical", "optimized", "physical"])
def test_explain_needs_no_java(project: Path, stage: str) -> None:
    query = (
        "SELECT k, COUNT(*) AS n FROM TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY k, window_start"
    )
    done = run(project, "explain", "-e", query, "--stage", stage, path="/nonexistent")
    assert done.returncode == 0, done.stderr
    assert "-- job result (bounded)" in done.stdout


def test_no_java_is_one_sentence(project: Path) -> None:
    (project / "events").mkdir()
    done = run(project, "run", "-e", "SELECT k FROM events", path="/nonexistent")
    assert done.returncode == 2
    assert "openjdk-17" in done.stderr
    assert "Traceback" not in done.stderr


def test_formats_and_output(project: Path) -> None:
    script = TABLE.replace("'connector' = 'filesystem', 'path' = 'events', 'format' = 'parquet'", "").replace(
        " WITH ()", ""
    )
    script = (
        script[: script.index("WITH (")]
        + "; CREATE TABLE kept (k INT, x BIGINT); INSERT INTO kept SELECT k, x FROM events"
    )
    with Stream(script.replace("\n;", ";")) as stream:
        stream.batch("events", [(1, 10, "2026-01-01"), (2, None, "2026-01-01")])
        shutil.copytree(stream.warehouse, project / "warehouse")
    sql = "SELECT k, x FROM kept ORDER BY k"
    assert run(project, "query", sql, "--format", "csv").stdout == "k,x\n1,10\n2,\n"
    assert json.loads(run(project, "query", sql, "--format", "json").stdout) == [{"k": 1, "x": 10}, {"k": 2, "x": None}]
    assert run(project, "query", sql).stdout.splitlines()[-1] == "(2 rows)"
    assert run(project, "query", sql, "--format", "csv", "--output", "out.csv").stdout == ""
    assert (project / "out.csv").read_text() == "k,x\n1,10\n2,\n"


def test_only_the_public_names_are_there() -> None:
    assert sqlstream.__all__ == sorted(sqlstream.__all__) == ["Job", "Session", "SqlStreamError", "udf"]
    assert all(getattr(sqlstream, name) for name in sqlstream.__all__)
    assert {n for n in vars(sqlstream) if not n.startswith("_") and not hasattr(vars(sqlstream)[n], "__path__")} <= {
        *sqlstream.__all__,
        *(m.removesuffix(".py") for m in os.listdir(os.path.dirname(sqlstream.__file__))),
        "TYPE_CHECKING",
        "Any",
    }
