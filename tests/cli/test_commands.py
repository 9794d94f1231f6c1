"""The command line without Spark: exit codes, messages, what needs no Java."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sqlstream
from sqlstream.testing import Stream
from tests.command_line import run_command
from tests.kinds import job_of, of_type

pytestmark = pytest.mark.slow

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
    return run_command(project, *arguments, environment=None if path is None else environment(path))


def in_new_interpreter(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sqlstream", *arguments]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)


def environment(path: str) -> dict[str, str]:
    """Return the environment with another PATH, and no other way to a Java."""
    return {**{k: v for k, v in os.environ.items() if k != "JAVA_HOME"}, "PATH": path}


# In this order: each finds what the one before has left.
EACH_COMMAND = (
    ("--version",),
    ("explain", "-e", "SELECT k FROM events"),
    ("run", "-e", "CREATE TABLE t (a INT); INSERT INTO t VALUES (1); SHOW TABLES"),
    ("query", "SELECT a FROM t"),
    ("check",),
    ("stop", "--all"),
    ("drop", "t_values"),
    ("jobs",),
    ("docs", "sql/windows"),
    ("run", "-e", "SELECT y FROM events"),
)


@pytest.mark.thorough
def test_each_command_is_the_same_in_a_new_interpreter(tmp_path: Path) -> None:
    seen = []
    for way in (in_new_interpreter, run_command):
        project = tmp_path / way.__name__
        (project / "catalog").mkdir(parents=True)
        (project / "catalog" / "events.sql").write_text(TABLE)
        ran = [way(project, *arguments) for arguments in EACH_COMMAND]
        assert [done.returncode for done in ran] == [0] * (len(EACH_COMMAND) - 1) + [2], ran
        seen.append([(done.stdout, done.stderr) for done in ran])
    assert seen[0] == seen[1]
    assert all(out or err for out, err in seen[0])


def test_version_and_help(project: Path) -> None:
    assert run(project, "--version").stdout == f"sqlstream, version {sqlstream.__version__}\n"
    shown = run(project)
    assert shown.returncode == 0
    assert shown.stdout.startswith("Usage: sqlstream")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "error: there is no SQL to run\nhint: Name a file, give SQL with -e, or name - for standard input."),
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
    (project / "catalog" / "odd.sql").write_text("CREATE TABLE odd (k INT) WITHH")
    done = run(project, "explain", "-e", "SELECT k FROM events")
    assert done.returncode == 0
    only = "a catalog file holds CREATE TABLE, CREATE VIEW and CREATE FUNCTION only"
    assert done.stderr.splitlines() == [
        f"warning: catalog/job.sql:1:1: {only}",
        'warning: catalog/odd.sql:1:26: unexpected "WITHH"; so there is no odd',
    ]
    assert "error: there is no warehouse" in run(project, "jobs").stderr
    wrong = run(project, "explain", "-e", "SELECT k FROM odd")
    assert wrong.returncode == 2
    assert " --> catalog/odd.sql:1:26" in wrong.stderr


@pytest.mark.parametrize("stage", ["ast", "logical", "optimized", "physical"])
def test_explain_needs_no_java(project: Path, stage: str) -> None:
    query = (
        "SELECT k, COUNT(*) AS n FROM TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY k, window_start"
    )
    done = run(project, "explain", "-e", query, "--stage", stage, path="/nonexistent")
    assert done.returncode == 0, done.stderr
    assert "-- job result (bounded)" in done.stdout


def test_explain_is_for_people_and_verbose_for_those_who_look_inside(project: Path) -> None:
    query = "SELECT k, COUNT(*) FROM TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY k, window_start"
    plain = run(project, "explain", "-e", query).stdout
    assert "2. aggregate in tumbling windows of 1 h by ts\n" in plain
    assert "__" not in plain
    assert "Spark" not in plain
    verbose = run(project, "explain", "-e", query, "--verbose").stdout
    assert "Spark stage 1" in verbose
    assert "part partials: SELECT" in verbose


def test_help_says_each_command_in_whole(project: Path) -> None:
    shown = run(project, "--help").stdout
    commands = shown.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert len(commands) >= 6
    assert all(line.endswith(".") and not line.endswith("...") for line in commands), commands
    assert max(map(len, shown.splitlines())) <= 80, shown


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


def test_statements_that_need_no_spark(project: Path) -> None:
    # Without a Java: what can be answered or written by this process alone.
    script = """
        CREATE TABLE t (a INT, b STRING);
        INSERT INTO t VALUES (1, 'x'), (2, NULL);
        SHOW TABLES LIKE 't';
        DESCRIBE t;
        SHOW CREATE TABLE t;
        EXPLAIN LOGICAL SELECT k FROM events;
        VALUES (7, 'seven');
        SHOW JOBS
    """
    first = run(project, "run", "-e", script, path="/usr/bin/nothing")
    assert first.returncode == 0, first.stderr
    shown = [" ".join(line.split()) for line in first.stdout.splitlines()]
    for line in ("t warehouse", "a INTEGER true NULL NULL NULL", '"a" INTEGER,', "-- job result (bounded)"):
        assert line in shown
    assert "+I | 7 | seven" in shown
    assert any(line.startswith("t_values FINISHED 0 infinity 2 2") for line in shown)
    assert "starting Spark" not in first.stderr
    again = run(project, "run", "-e", script, path="/usr/bin/nothing")
    assert again.returncode == 0, again.stderr
    query = "SELECT a, b, count(*) AS n FROM t GROUP BY ALL ORDER BY a"
    assert run(project, "query", query, "--format", "csv").stdout == "a,b,n\n1,x,2\n2,,2\n"
    # --fresh discards what earlier runs inserted, and not what this one did.
    twice = "CREATE TABLE t (a INT, b STRING); INSERT INTO t VALUES (5, 'y'); INSERT INTO t VALUES (6, 'z')"
    assert run(project, "run", "--fresh", "-e", twice).returncode == 0
    assert run(project, "query", "FROM t ORDER BY a", "--format", "csv").stdout == "a,b\n5,y\n6,z\n"


def test_insert_values_into_a_table_that_has_other_columns_now(project: Path) -> None:
    assert run(project, "run", "-e", "CREATE TABLE t (a INT); INSERT INTO t VALUES (1)").returncode == 0
    changed = run(project, "run", "-e", "CREATE TABLE t (a INT, b INT); INSERT INTO t VALUES (1, 2)")
    assert changed.returncode == 2
    assert 'job "t_values" exists, and writes other columns' in changed.stderr
    assert 'hint: Delete it and the rows that it wrote: sqlstream drop "t_values".' in changed.stderr


def answer(session: sqlstream.Session, sql: str) -> duckdb.DuckDBPyRelation:
    return of_type(duckdb.DuckDBPyRelation, session.sql(sql))


def test_answers_as_relations(project: Path) -> None:
    with sqlstream.Session(str(project), notice=lambda text: None) as session:
        relation = answer(session, "SHOW COLUMNS FROM events LIKE 'ts'")
        assert relation.columns[:2] == ["name", "type"]
        assert [row[:2] for row in relation.fetchall()] == [("ts", "TIMESTAMP")]
        assert answer(session, "SHOW VIEWS").fetchall() == []
        assert answer(session, "EXPLAIN SELECT k FROM events").fetchall()[0] == ("-- job result (bounded)",)
        job = job_of(session.sql("CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2)"))
        assert (job.status, job.progress.rows_out) == ("FINISHED", 2)
        assert job_of(session.sql("INSERT INTO t VALUES (3)")).progress.rows_out == 3
        with pytest.raises(sqlstream.SqlStreamError, match="cannot hold 99999999999"):
            session.sql("INSERT INTO t VALUES (99999999999)")
        session.sql("INSERT INTO t VALUES (4)")
        assert sorted(session.query("FROM t").fetchall()) == [(1,), (2,), (3,), (4,)]
        assert answer(session, "SHOW JOBS").fetchall()[0][:2] == ("t_values", "FINISHED")


def test_null_and_an_empty_text_differ_in_csv(project: Path) -> None:
    query = """SELECT NULL AS a, '' AS b, 'x' AS c, 'say "y", z' AS "d,e", 5 AS n"""
    shown = run(project, "query", query, "--format", "csv").stdout
    assert shown == 'a,b,c,"d,e",n\n,"",x,"say ""y"", z",5\n'


def test_a_missing_folder_and_a_missing_java_are_found_before_spark_starts(project: Path) -> None:
    missing_folder = run(project, "run", "-e", "SELECT k FROM events")
    assert missing_folder.returncode == 2
    assert missing_folder.stderr.startswith('error: table "events": no file or directory matches')
    (project / "events").mkdir()
    # No Java of ours, and none of Homebrew's on the machine that runs this.
    no_java = run(project, "run", "-e", "SELECT k FROM events", path="/usr/bin/nothing")
    assert "starting Spark" not in no_java.stderr
    assert no_java.stderr.startswith("error: Spark needs Java")


def test_a_dropped_job_leaves_nothing(project: Path) -> None:
    assert run(project, "run", "-e", "CREATE TABLE t (a INT); INSERT INTO t VALUES (1)").returncode == 0
    assert run(project, "drop", "t_values").returncode == 0
    assert [str(p.relative_to(project)) for p in (project / "warehouse").rglob("*") if p.is_file()] == []
    assert list((project / "warehouse" / "jobs").iterdir()) == []
    assert list((project / "warehouse" / "sessions").iterdir()) == []


def test_jobs_are_counted_since_they_began(project: Path) -> None:
    assert run(project, "run", "-e", "CREATE TABLE t (a INT); INSERT INTO t VALUES (1)").returncode == 0
    assert "rows_in" in run(project, "jobs").stdout


def test_a_table_of_the_warehouse_must_be_declared_and_the_error_says_so(project: Path) -> None:
    assert run(project, "run", "-e", "CREATE TABLE kept (k INT); INSERT INTO kept VALUES (1)").returncode == 0
    shown = run(project, "run", "-e", "SELECT k FROM kept LIMIT 1")
    assert shown.returncode == 2
    assert "hint: It is a table of the warehouse: repeat its CREATE TABLE here" in shown.stderr


def test_jobs_of_a_new_project_are_none(project: Path) -> None:
    shown = run(project, "run", "-e", "SHOW JOBS")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "(0 rows)" in shown.stdout


def test_state_that_grows_can_be_an_error(project: Path) -> None:
    script = "CREATE TABLE t (k INT) WITH ('connector' = 'datagen'); SELECT k, COUNT(*) FROM t GROUP BY k"
    shown = run(project, "run", "-e", script, "--set", "sqlstream.unbounded-state=error")
    assert shown.returncode == 2
    assert "the state of GROUP BY without a window grows without a bound: it keeps a row for every key" in shown.stderr


def test_the_list_of_commands_is_whole(project: Path) -> None:
    shown = run(project, "--help").stdout
    assert "..." not in shown.partition("Commands:")[2].partition("Examples:")[0]
    for command in ("run", "query", "explain", "jobs", "stop", "drop", "check"):
        assert f"\n  {command} " in shown


THREE = """
CREATE TABLE t (a INT);
CREATE TABLE u (a INT);
INSERT INTO t SELECT a FROM (VALUES (1)) AS v(a);
INSERT INTO u SELECT a FROM (VALUES (1)) AS v(a);
SET 'pipeline.name' = 'again';
INSERT INTO u SELECT a FROM (VALUES (2)) AS v(a)
"""


def test_fresh_is_for_all_jobs_or_for_those_it_names(project: Path) -> None:
    (project / "three.sql").write_text(THREE)

    def skipped(*arguments: str) -> set[str]:
        done = run(project, "run", *arguments)
        assert done.returncode == 0, done.stderr
        return {line.split('"')[1] for line in done.stderr.splitlines() if "was skipped" in line}

    assert skipped("three.sql") == set()
    assert skipped("three.sql") == {"t", "u", "again"}
    # A bare --fresh does not take the file for the name of a job.
    assert skipped("--fresh", "three.sql") == set()
    assert skipped("--fresh=T", "three.sql") == {"u", "again"}
    assert skipped("three.sql", "--fresh=u", "--fresh=again") == {"t"}
    assert run(project, "query", "SELECT a FROM u ORDER BY a", "--format", "csv").stdout == "a\n1\n2\n"
    unknown = run(project, "run", "three.sql", "--fresh=agian")
    assert unknown.returncode == 2
    assert unknown.stderr == ('error: there is no job "agian" in the SQL to start anew\nhint: did you mean "again"?\n')


def test_sql_from_standard_input_and_from_files(project: Path) -> None:
    def piped(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run_command(project, *arguments, given=text)

    done = piped("CREATE TABLE t (a INT); INSERT INTO t VALUES (1)", "run", "-")
    assert done.returncode == 0, done.stderr
    assert "--> standard input:1:8" in piped("SELECT y FROM events", "run", "-").stderr
    assert piped("SELECT a FROM t", "query", "-", "--format", "csv").stdout == "a\n1\n"
    (project / "q.sql").write_text("-- a comment\nSELECT a + 1 AS b FROM t;\n")
    assert run(project, "query", "-f", "q.sql", "--format", "csv").stdout == "b\n2\n"
    assert piped("SELECT 5 AS n", "query", "-f", "-", "--format", "csv").stdout == "n\n5\n"
    for arguments, message in (
        (["query"], "error: there is no query"),
        (["query", "SELECT 1", "-f", "q.sql"], "error: there are two queries"),
        (["query", "-f", "nothing.sql"], 'error: file "nothing.sql" does not exist'),
    ):
        wrong = run(project, *arguments)
        assert (wrong.returncode, wrong.stdout) == (2, "")
        assert message in wrong.stderr


def test_options_of_tables_from_the_command_line(project: Path) -> None:
    live = ("--set-table", "events.source.monitor-interval=1 s")
    shown = run(project, "explain", "-e", "SELECT k FROM events", *live)
    assert "-- job result (unbounded)" in shown.stdout, shown.stderr
    for arguments, message in (
        (["--set-table", "event.path=x"], 'error: options are given for table "event", which does not exist'),
        (["--set-table", "events.pth=x"], 'error: table "events": option "pth" does not exist for format "parquet"'),
        (["--set-table", "events.pth=x"], "From outside, table \"events\" was given 'pth' = 'x'."),
        (["--set-table", "events=x"], 'error: --set-table "events=x" is not TABLE.OPTION=VALUE'),
    ):
        wrong = run(project, "run", "-e", "SELECT k FROM events", *arguments)
        assert (wrong.returncode, wrong.stdout) == (2, "")
        assert message in wrong.stderr


def test_what_stop_takes(project: Path) -> None:
    assert "error: stop takes the names of jobs, or --all" in run(project, "stop").stderr
    assert "error: stop takes the names of jobs, or --all" in run(project, "stop", "--all", "x").stderr
    none = run(project, "stop", "--all")
    assert (none.returncode, none.stderr) == (0, "no job is running\n")


def test_a_table_that_cannot_be_used_fails_those_that_use_it(project: Path) -> None:
    (project / "catalog" / "broken.sql").write_text(
        "CREATE TABLE people (id INT, name STRING) WITH ('connector' = 'python', 'class' = 'far.People');"
    )
    (project / "udfs").mkdir()
    (project / "udfs" / "far.py").write_text(
        "import no_such_package.inner\nfrom sqlstream import udf\n\n@udf\ndef near(x: int) -> int:\n    return x\n"
    )
    (project / "udfs" / "good.py").write_text(
        "from sqlstream import udf\n\n@udf\ndef double(x: int) -> int:\n    return 2 * x\n"
    )
    fine = run(project, "run", "-e", "CREATE TABLE t (a BIGINT); INSERT INTO t VALUES (double(4)); SHOW TABLES")
    assert fine.returncode == 0, fine.stderr
    assert (
        "warning: udfs/far.py cannot be imported: ModuleNotFoundError: No module named 'no_such_package'"
        "; its functions are not known" in fine.stderr
    )
    assert "people" in fine.stdout
    assert run(project, "query", "SELECT double(a) AS b FROM t", "--format", "csv").stdout == "b\n16\n"
    for command in (["run", "-e", "SELECT name FROM people"], ["explain", "-e", "SELECT near(k) FROM events"]):
        wrong = run(project, *command)
        assert wrong.returncode == 2
        assert "udfs/far.py cannot be imported" in wrong.stderr.split("error: ")[1]
    assert "hint: Install it: pip install no_such_package" in run(project, "query", "SELECT near(a) FROM t").stderr


def test_a_package_that_is_missing_fails_those_that_need_it(project: Path) -> None:
    (project / "catalog" / "outside.sql").write_text(
        "CREATE TABLE users (id INT, name STRING) WITH ('connector' = 'postgresql', 'url' = 'postgresql://x', 'table' = 'u');"
        "CREATE TABLE visits (id INT, p AS PROCTIME()) WITH ('connector' = 'datagen', 'number-of-rows' = '1');"
    )
    # A module of this name that cannot be imported stands in for one that is not there.
    (project / "psycopg.py").write_text("raise ModuleNotFoundError(\"No module named 'psycopg'\", name='psycopg')\n")
    made = in_new_interpreter(project, "run", "-e", "CREATE TABLE t (a INT); INSERT INTO t VALUES (1)")
    assert made.returncode == 0, made.stderr
    join = "SELECT v.id, u.name FROM visits v JOIN users FOR SYSTEM_TIME AS OF v.p AS u ON u.id = v.id"
    wrong = in_new_interpreter(project, "explain", "-e", join)
    assert wrong.returncode == 2
    assert "hint: Install it: pip install -e '.[postgresql]'." in wrong.stderr


def test_a_large_table_is_written_in_parts(project: Path) -> None:
    lines = run(project, "query", "SELECT 7 AS x, range AS n, 'end' AS e FROM range(10000, 35000)").stdout.splitlines()
    assert len(lines) == 25003
    assert lines[2] == "7   10000   end"
    assert lines[25001] == "7   34999   end"
    assert lines[25002] == "(25000 rows)"


def test_a_table_without_files_to_infer_its_columns_from_fails_those_that_use_it(project: Path) -> None:
    (project / "catalog" / "later.sql").write_text(
        "CREATE TABLE later (WATERMARK FOR ts AS ts)"
        " WITH ('connector' = 'filesystem', 'path' = 'in/later', 'format' = 'parquet');"
        "CREATE VIEW seen AS SELECT id FROM later;"
    )
    assert run(project, "run", "-e", "CREATE TABLE t (a INT); INSERT INTO t VALUES (1)").returncode == 0
    assert run(project, "query", "SELECT a FROM t", "--format", "csv").stdout == "a\n1\n"
    message = 'table "later" declares no columns, and there is no file at "in/later" to infer them from'
    uses = ("SELECT id FROM later", "SELECT id FROM seen", "INSERT INTO later SELECT 1", "DESCRIBE later")
    for sql in (*uses, "CREATE TABLE copy LIKE later", "SHOW CREATE TABLE later"):
        wrong = run(project, "run", "-e", sql)
        assert wrong.returncode == 2, sql
        assert message in wrong.stderr, sql
        assert "hint: Declare the columns, or put the first file there before." in wrong.stderr, sql
    wrong = run(project, "query", "SELECT * FROM later")
    assert wrong.returncode == 2
    assert "no file" in wrong.stderr
    shown = run(project, "run", "-e", "SHOW TABLES").stdout
    assert "later" in shown
    (project / "in" / "later").mkdir(parents=True)
    row = pa.table({"id": [5], "ts": [datetime(2026, 1, 1)]})
    pq.write_table(row, project / "in" / "later" / "1.parquet")
    assert run(project, "query", "SELECT id FROM later", "--format", "csv").stdout == "id\n5\n"
    assert run(project, "explain", "-e", "SELECT id FROM seen").returncode == 0


def test_a_warehouse_where_none_can_be(project: Path) -> None:
    done = run(project, "run", "-e", "CREATE TABLE t (a INT); INSERT INTO t VALUES (1)", "--warehouse", "/proc/x")
    assert done.returncode == 2
    assert done.stderr.startswith('error: the folder "/proc/x/sessions" cannot be made')
    assert "hint: Choose another folder with --warehouse." in done.stderr
    assert "Traceback" not in done.stderr
