"""Queries that need no catalog: they answer what they would beside one, and import next to nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from sqlstream.errors import SqlStreamError
from sqlstream.project import Project, find_project
from sqlstream.session.project_query import open_project_query
from sqlstream.session.state_queries import ProjectQueries
from tests.queries.small_job import SmallJob

CATALOG = """
CREATE TABLE counts (k STRING, declared BIGINT) WITH ('connector' = 'filesystem', 'path' = 'rows.csv', 'format' = 'csv');
CREATE TABLE files (k STRING, n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'rows.csv', 'format' = 'csv');
CREATE TABLE duckdb_tables (k STRING, n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'rows.csv', 'format' = 'csv');
CREATE TABLE topic (k STRING) WITH ('connector' = 'print');
"""
FUNCTIONS = """
from sqlstream import udf

@udf
def doubled(x: int) -> int:
    return 2 * x
"""
QUERIES = (
    "SELECT 1",
    "FROM state.good.departures ORDER BY ALL",
    "FROM state.good.departures AT (VERSION => 0) ORDER BY ALL",
    "WITH files AS (FROM state.good.departures) SELECT count(*) FROM files",
    "FROM counts ORDER BY ALL",
    "FROM files ORDER BY ALL",
    "FROM counts, files ORDER BY ALL",
    "FROM duckdb_tables",
    "SELECT doubled(21)",
    "SELECT job, version FROM sqlstream.jobs",
    "FROM sqlstream.diff('good.departures', 0, 1) ORDER BY ALL",
    "FROM sqlstream.verify('good')",
    "DESCRIBE STATE good",
    "DESCRIBE counts",
    "SHOW SAVEPOINTS",
    "SHOW savepoints",
    "SHOW TABLES",
    "SHOW CREATE TABLE files",
    "FROM topic",
    "FROM file",
    "SELECT doublet(1)",
    "SELECT nope FROM counts",
    "SELECT 1; SELECT 2",
    "DROP TABLE counts",
    "FROM state.good.departures AT (VERSION => 99)",
    "FROM read_csv('rows.csv')",
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    root = tmp_path_factory.mktemp("project")
    (root / "catalog").mkdir()
    (root / "udfs").mkdir()
    (root / "catalog" / "tables.sql").write_text(CATALOG)
    (root / "udfs" / "functions.py").write_text(FUNCTIONS)
    (root / "rows.csv").write_text("x,7\n")
    job = SmallJob(root / "warehouse", "good")
    job.batch([("a", 1, 10)], [("a", 1)])
    job.batch([("b", 2, 20)], [("b", 2)])
    return find_project(str(root), None)


def answer(project: Project, sql: str, *, whole: bool) -> object:
    """Return the columns and rows of a query, or its error; `whole` with the project's catalog in any case."""
    queries = ProjectQueries(project) if whole else None
    try:
        found = queries.query(sql) if queries is not None else open_project_query(project, sql)
        return found.columns, found.fetchall()
    except SqlStreamError as error:
        return error.render()
    finally:
        if queries is not None:
            queries.close()


@pytest.mark.parametrize("sql", QUERIES)
def test_the_answer_is_the_one_beside_a_catalog(project: Project, sql: str) -> None:
    assert answer(project, sql, whole=False) == answer(project, sql, whole=True)


def test_options_are_checked_though_the_query_needs_none(tmp_path: Path) -> None:
    (tmp_path / "sqlstream.toml").write_text('[options]\n"pipeline.nmae" = "${NOBODY_SET_THIS:-x}"\n')
    with pytest.raises(SqlStreamError, match=r"pipeline.nmae"):
        open_project_query(find_project(str(tmp_path), None), "SELECT 1")


def test_what_is_in_the_warehouse_is_found_without_the_catalog(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sqlstream.session.state_queries", None)
    for sql in ("SELECT 1", "FROM state.good.departures", "FROM counts", "FROM sqlstream.jobs"):
        assert open_project_query(project, sql).fetchall()
    with pytest.raises(ImportError):
        open_project_query(project, "FROM files")


# Each takes a large part of the time that a query on small state takes in all.
# Of the plan, records of jobs have the plain data of `sqlstream.logical.plan.state_settings`.
PLANS = ("sqlstream.logical.bind", "sqlstream.logical.plan.node", "sqlstream.physical")
HEAVY = ("sqlglot", "pyspark", "pandas", "polars", "sqlstream.connectors", *PLANS)
SHOWN = "print('imported:', *sorted({names!r} & sys.modules.keys()))"
COMMAND = """
import sys
from sqlstream.cli.main import cli
for words in {commands!r}:
    cli.main(words, standalone_mode=False)
"""


def imported(project: Project, code: str, names: Iterable[str]) -> str:
    """Run code in a process of its own; return which of the modules it has imported."""
    code = f"{code}\nimport sys\n{SHOWN.format(names={*names})}"
    done = subprocess.run([sys.executable, "-c", code], cwd=project.root, capture_output=True, text=True, check=False)
    title, *modules = done.stdout.splitlines()[-1].split() if done.stdout else [""]
    assert title == "imported:", done.stdout + done.stderr
    return " ".join(modules)


@pytest.mark.slow
def test_a_command_imports_no_compiler(project: Project) -> None:
    queries = (["query", "FROM state.good.departures"], ["query", "FROM counts", "--format", "json"])
    commands = [*queries, ["jobs"], ["--help"], ["query", "--help"], ["run", "--help"]]
    assert imported(project, COMMAND.format(commands=commands), HEAVY) == ""


@pytest.mark.slow
@pytest.mark.parametrize("sql", ["FROM files", "SELECT doubled(21)", "SHOW CREATE TABLE files", "SHOW TABLES"])
def test_a_query_that_needs_the_catalog_imports_no_spark(project: Project, sql: str) -> None:
    code = COMMAND.format(commands=[["query", sql]])
    assert imported(project, code, ("sqlglot", "pyspark", "py4j")) == "sqlglot"


def test_the_package_alone_imports_nothing_else(project: Project) -> None:
    assert (
        imported(
            project, "import sqlstream", (*HEAVY, "sqlstream.logical", "duckdb", "pyarrow", "numpy", "click", "msgspec")
        )
        == ""
    )
