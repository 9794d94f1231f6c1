"""What a person reads when a query is refused or fails: the words, the place, the hint."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import duckdb
import pytest

from sqlstream.errors import QueryError
from sqlstream.queries.query import list_relations, open_query, translate
from sqlstream.units import NO_TIME
from sqlstream.warehouse.paths import Warehouse
from tests.queries.small_job import SmallJob


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> SmallJob:
    job = SmallJob(tmp_path_factory.mktemp("errors") / "w", retention=(NO_TIME, 2))
    for version in range(6):
        job.batch([("a", 1, version + 10)], [("a", version)], watermark=version)
    for version in range(2):
        Path(f"{job.paths.log}/{version:010d}.json").unlink()
    return job


CASES = [
    (
        "SELECT k, -1.5e400 AS x FROM counts",
        """\
        error: the number is too large
          --> query:1:12
           |
         1 | SELECT k, -1.5e400 AS x FROM counts
           |            ^^^^^^^
        hint: The greatest DOUBLE is about 1.8e308. Infinity is CAST('Infinity' AS DOUBLE).""",
    ),
    (
        "DROP TABLE counts",
        """\
        error: DROP is not a query
          --> query:1:1
           |
         1 | DROP TABLE counts
           | ^^^^
        hint: Write one SELECT, WITH, VALUES, FROM, SHOW, DESCRIBE, SUMMARIZE or EXPLAIN statement.""",
    ),
    (
        "CREATE SAVEPOINT kept FOR JOB counts",
        """\
        error: CREATE is not a query
          --> query:1:1
           |
         1 | CREATE SAVEPOINT kept FOR JOB counts
           | ^^^^^^
        hint: Run it with sqlstream run -e, or with Session.sql in Python.""",
    ),
    (
        "MIGRATE STATE counts.sums AS SELECT 1",
        """\
        error: MIGRATE is not a query
          --> query:1:1
           |
         1 | MIGRATE STATE counts.sums AS SELECT 1
           | ^^^^^^^
        hint: Write it into a file for sqlstream run --migrate.""",
    ),
    (
        "WITH x AS (\n  INSERT INTO counts VALUES (1)\n) FROM x",
        """\
        error: a query cannot contain INSERT
          --> query:2:3
           |
         2 |   INSERT INTO counts VALUES (1)
           |   ^^^^^^
        hint: Write one SELECT, WITH, VALUES, FROM, SHOW, DESCRIBE, SUMMARIZE or EXPLAIN statement.""",
    ),
    (
        "FROM counts; FROM counts",
        """\
        error: only one statement can run at a time
          --> query:1:14
           |
         1 | FROM counts; FROM counts
           |              ^^^^
        hint: Write one SELECT, WITH, VALUES, FROM, SHOW, DESCRIBE, SUMMARIZE or EXPLAIN statement.""",
    ),
    (
        "-- nothing",
        """\
        error: there is no query
        hint: Write one SELECT, WITH, VALUES, FROM, SHOW, DESCRIBE, SUMMARIZE or EXPLAIN statement.""",
    ),
    (
        "PIVOT counts ON k",
        """\
        error: PIVOT must list its values here
          --> query:1:1
           |
         1 | PIVOT counts ON k
           | ^^^^^
        hint: Write PIVOT t ON c IN (value, ..) USING ..""",
    ),
    (
        "FROM query('SELECT 1')",
        """\
        error: the table function "query" is not available in queries
          --> query:1:6
           |
         1 | FROM query('SELECT 1')
           |      ^^^^^
        hint: Write the query itself.""",
    ),
    (
        "SELECT '日本', 'é' FRM counts",
        """\
        error: syntax error at or near "counts"
          --> query:1:22
           |
         1 | SELECT '日本', 'é' FRM counts
           |                      ^^^^^^""",
    ),
    (
        "SELECT 'é' AS x,\n  m FROM counts",
        """\
        error: column "m" does not exist
          --> query:2:3
           |
         2 |   m FROM counts
           |   ^
        hint: existing columns: k, n""",
    ),
    (
        "FROM state.hourly.departurs",
        """\
        error: table "state.hourly.departurs" does not exist
          --> query:1:6
           |
         1 | FROM state.hourly.departurs
           |      ^^^^^^^^^^^^^^^^^^^^^^
        hint: did you mean "state.hourly.departures"?""",
    ),
    (
        "DESCRIBE flights",
        """\
        error: table "flights" does not exist
        hint: existing tables: state.hourly.departures, counts, sqlstream.checks, sqlstream.jobs, \
sqlstream.operators, sqlstream.restarts, sqlstream.savepoints, sqlstream.snapshots and 2 more""",
    ),
    (
        "SHOW SAVEPOINTS",
        """\
        error: table "SAVEPOINTS" does not exist
        hint: did you mean "sqlstream.savepoints"?""",
    ),
    (
        "SELECT 1 FROM flights AS f",
        """\
        error: table "flights" does not exist
          --> query:1:15
           |
         1 | SELECT 1 FROM flights AS f
           |               ^^^^^^^
        hint: existing tables: state.hourly.departures, counts, sqlstream.checks, sqlstream.jobs, \
sqlstream.operators, sqlstream.restarts, sqlstream.savepoints, sqlstream.snapshots and 2 more""",
    ),
    (
        "SELECT\n\tkount(*) FROM counts",
        """\
        error: function "kount" does not exist
          --> query:2:2
           |
         2 | \tkount(*) FROM counts
           | \t^^^^^^^^
        hint: did you mean "count"?""",
    ),
    (
        "SELECT k, count(*) FROM counts",
        """\
        error: column "k" must appear in the GROUP BY clause or must be part of an aggregate function
          --> query:1:8
           |
         1 | SELECT k, count(*) FROM counts
           |        ^
        Either add it to the GROUP BY list, or use ANY_VALUE("k") if the exact value of "k" is not important.""",
    ),
    (
        "FROM read_text('/etc/passwd')",
        """\
        error: "/etc/passwd" is outside of what a query may read
          --> query:1:6
           |
         1 | FROM read_text('/etc/passwd')
           |      ^^^^^^^^^^^^^^^^^^^^^^^^
        hint: A query reads files of the warehouse and of declared tables only.""",
    ),
    (
        "FROM counts c,\n state.hourly.departures AT (VERSION => 1) d",
        """\
        error: job "hourly" keeps no version 1
          --> query:2:26
           |
         2 |  state.hourly.departures AT (VERSION => 1) d
           |                          ^^^^^^^^^^^^^^^^^
        Its oldest version is 2 of 2026-01-01 00:00:02, its newest 5 of 2026-01-01 00:00:05.""",
    ),
    (
        "FROM state.hourly.departures AT (VERSION => 2)",
        """\
        error: job "hourly" keeps no version that old
          --> query:1:30
           |
         1 | FROM state.hourly.departures AT (VERSION => 2)
           |                              ^^^^^^^^^^^^^^^^^
        Its oldest version is 3 of 2026-01-01 00:00:03, its newest 5 of 2026-01-01 00:00:05.""",
    ),
    (
        "FROM sqlstream.diff(newer := 4, older := 2, state := 'hourly.departures')",
        """\
        error: job "hourly" keeps no version that old
          --> query:1:6
           |
         1 | FROM sqlstream.diff(newer := 4, older := 2, state := 'hourly.departures')
           |      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        Its oldest version is 3 of 2026-01-01 00:00:03, its newest 5 of 2026-01-01 00:00:05.""",
    ),
    (
        "FROM counts AT (VERSION => 6)",
        """\
        error: job "hourly" keeps no version 6
          --> query:1:13
           |
         1 | FROM counts AT (VERSION => 6)
           |             ^^^^^^^^^^^^^^^^^
        Its oldest version is 2 of 2026-01-01 00:00:02, its newest 5 of 2026-01-01 00:00:05.""",
    ),
    (
        "FROM counts AT (TIMESTAMP => '2025-12-31')",
        """\
        error: job "hourly" keeps no version of 2025-12-31 00:00:00 or before
          --> query:1:13
           |
         1 | FROM counts AT (TIMESTAMP => '2025-12-31')
           |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        Its oldest version is 2 of 2026-01-01 00:00:02, its newest 5 of 2026-01-01 00:00:05.""",
    ),
    (
        "FROM counts AT (TIMESTAMP => 'infinity')",
        """\
        error: AT takes a time that is not infinite
          --> query:1:13
           |
         1 | FROM counts AT (TIMESTAMP => 'infinity')
           |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^""",
    ),
    (
        "FROM counts AT (VERSION => n)",
        """\
        error: column "n" does not exist
          --> query:1:13
           |
         1 | FROM counts AT (VERSION => n)
           |             ^^^^^^^^^^^^^^^^^""",
    ),
    (
        "FROM counts AT (VERSION => (SELECT max(n) FROM counts))",
        """\
        error: AT takes a constant, or a query over sqlstream.*
          --> query:1:13
           |
         1 | FROM counts AT (VERSION => (SELECT max(n) FROM counts))
           |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        hint: A query in it can read the tables of sqlstream.*, such as sqlstream.snapshots.""",
    ),
    (
        "FROM counts AT (VERSION => (SELECT version FROM sqlstream.snapshots))",
        """\
        error: more than one row returned by a subquery used as an expression - scalar subqueries can only return a single row
          --> query:1:13
           |
         1 | FROM counts AT (VERSION => (SELECT version FROM sqlstream.snapshots))
           |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^""",
    ),
    (
        "FROM counts AT (VERSION => (SELECT max(version) FROM sqlstream.snapshots WHERE job = 'none'))",
        """\
        error: AT takes one value that is not NULL
          --> query:1:13
           |
         1 | FROM counts AT (VERSION => (SELECT max(version) FROM sqlstream.snapshots WHERE job = 'none'))
           |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^""",
    ),
    (
        "FROM counts AT (VERSION => 'x')",
        """\
        error: could not convert string 'x' to BIGINT
          --> query:1:13
           |
         1 | FROM counts AT (VERSION => 'x')
           |             ^^^^^^^^^^^^^^^^^^^""",
    ),
    (
        "FROM counts AT (VERSION => )",
        """\
        error: this AT clause is not complete
          --> query:1:13
           |
         1 | FROM counts AT (VERSION => )
           |             ^^^^^^^^^^^^^^^^
        hint: Write AT (VERSION => ..).""",
    ),
    (
        "FROM (FROM counts) AT (VERSION => 3)",
        """\
        error: AT must follow the name of a table or view
          --> query:1:20
           |
         1 | FROM (FROM counts) AT (VERSION => 3)
           |                    ^^^^^^^^^^^^^^^^^""",
    ),
    (
        "FROM sqlstream.jobs AT (VERSION => 3)",
        """\
        error: "sqlstream.jobs" has no older versions: only state and tables of the warehouse do
          --> query:1:21
           |
         1 | FROM sqlstream.jobs AT (VERSION => 3)
           |                     ^^^^^^^^^^^^^^^^^""",
    ),
    (
        "FROM count AT (VERSION => 3)",
        """\
        error: table "count" does not exist
          --> query:1:6
           |
         1 | FROM count AT (VERSION => 3)
           |      ^^^^^
        hint: did you mean "counts"?""",
    ),
    (
        "SELECT d.k, x FROM counts AT (VERSION => 4) AS d WHERE y",
        """\
        error: column "y" does not exist
          --> query:1:56
           |
         1 | SELECT d.k, x FROM counts AT (VERSION => 4) AS d WHERE y
           |                                                        ^
        hint: existing columns: k and others""",
    ),
    (
        "SELECT state.hourly.departures.n FROM state.hourly.departures AT (VERSION => 4)",
        """\
        error: referenced table "state.hourly.departures" not found
          --> query:1:8
           |
         1 | SELECT state.hourly.departures.n FROM state.hourly.departures AT (VERSION => 4)
           |        ^^^^^^^^^^^^^^^^^^^^^^^^^
        Candidate tables: "hourly.departures\"""",
    ),
]


@pytest.mark.parametrize(("sql", "expected"), CASES, ids=[sql for sql, _ in CASES])
def test_error_text(job: SmallJob, sql: str, expected: str) -> None:
    with pytest.raises(QueryError) as raised:
        open_query(job.warehouse, sql)
    assert str(raised.value) == dedent(expected)


FETCH_CASES = [
    (
        "SELECT n,\n k::INT FROM counts\n AT (VERSION => 4) c WHERE k::INT = 1",
        """\
        error: could not convert string 'a' to INTEGER when casting from source column k
          --> query:3:29
           |
         3 |  AT (VERSION => 4) c WHERE k::INT = 1
           |                             ^^^^^""",
    ),
    (
        f"SELECT n::INT, {'1, ' * 50}k::INT, {'2, ' * 50} n::INT FROM counts",
        f"""\
        error: could not convert string 'a' to INTEGER when casting from source column k
          --> query:1:167
           |
         1 | ... {"1, " * 11}k::INT, {"2, " * 22}2...
           | {" " * 38}^^^^^""",
    ),
    ("SELECT error('no ' || k) FROM counts", "error: no a"),
]


@pytest.mark.parametrize(("sql", "expected"), FETCH_CASES)
def test_error_text_while_fetching(job: SmallJob, sql: str, expected: str) -> None:
    relation = open_query(job.warehouse, sql)
    with pytest.raises(duckdb.Error) as raised:
        relation.fetchall()
    assert str(translate(raised.value, sql)) == dedent(expected)
    with pytest.raises((duckdb.Error, OSError)) as raised_by_arrow:
        relation.to_arrow_reader(10).read_all()
    assert str(translate(raised_by_arrow.value, sql)) == dedent(expected)


def test_state_that_is_swept_while_it_is_read(tmp_path: Path) -> None:
    job = SmallJob(tmp_path)
    job.batch([("a", 1, 10)])
    relation = open_query(job.warehouse, "FROM state.hourly.departures")
    next(tmp_path.rglob("partials-*.parquet")).unlink()
    with pytest.raises(duckdb.Error) as raised:
        relation.fetchall()
    expected = "error: the state changed while it was read\nhint: Run the query again."
    assert str(translate(raised.value, "FROM state.hourly.departures")) == expected
    with pytest.raises(QueryError, match="the state changed while it was read"):
        open_query(job.warehouse, "FROM state.hourly.departures")


def test_without_a_warehouse(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path / "none"))
    for sql in (
        "FROM state.hourly.departures",
        "FROM sqlstream.jobs",
        "SHOW TABLES",
        "FROM state.a.b AT (VERSION => 1)",
    ):
        with pytest.raises(QueryError) as raised:
            open_query(warehouse, sql)
        assert str(raised.value) == (
            f'error: there is no warehouse at "{tmp_path}/none"\nhint: Run a job first, or name its folder with --warehouse.'
        )
    assert open_query(warehouse, "SELECT 1").fetchall() == [(1,)]
    planes = {"planes": "(VALUES (1))"}
    assert open_query(warehouse, "FROM planes", catalog_tables=planes).fetchall() == [(1,)]
    assert not (tmp_path / "none").exists()


def test_an_empty_warehouse(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path))
    assert open_query(warehouse, "FROM sqlstream.jobs").fetchall() == []
    tables = ("checks", "jobs", "operators", "restarts", "savepoints", "sinks", "snapshots", "watermarks")
    assert list_relations(warehouse) == [("sqlstream", name) for name in tables]
    with pytest.raises(QueryError, match=r'table "state\.a\.b" does not exist'):
        open_query(warehouse, "FROM state.a.b")


def wrong(tmp_path: Path, text: str) -> tuple[Path, QueryError]:
    """Return a declared JSON file of some text, and the error of a query that reads it."""
    path = tmp_path / "a.json"
    path.write_text(text)
    (tmp_path / "w").mkdir()
    sql = "SELECT sum(a) FROM t"
    tables = {"t": f"(FROM read_json('{path}', format = 'newline_delimited', columns = {{a: 'INTEGER'}}))"}
    try:
        open_query(Warehouse(str(tmp_path / "w")), sql, catalog_tables=tables, allowed_paths=[str(path)]).fetchall()
    except QueryError as error:
        return path, error
    except duckdb.Error as error:
        return path, translate(error, sql)
    raise AssertionError("the query ran")


# DuckDB looks into the first lines as soon as a view is made, and names the next line.
@pytest.mark.parametrize("before", [1, 50_000])
def test_a_declared_file_that_is_malformed(tmp_path: Path, before: int) -> None:
    path, error = wrong(tmp_path, '{"a": 1}\n\n' * before + '{"a":\n{"a": 2}\n')
    assert error.message == f'line {2 * before + 1} of file "{path}" is malformed'
    assert error.detail == 'The line is not a JSON object: {"a":'


def test_a_declared_file_that_does_not_fit(tmp_path: Path) -> None:
    path, error = wrong(tmp_path, '{"a": 1}\n{"a": "x"}\n')
    assert error.message == f'line 2 of file "{path}" does not fit its table'
    assert error.detail == 'Failed to cast value to numerical: "x".'


def test_of_several_jobs_the_one_that_forgot_a_version_is_named(tmp_path: Path) -> None:
    jobs = [SmallJob(tmp_path, "archive"), SmallJob(tmp_path, "hourly", retention=(NO_TIME, 2))]
    for job in jobs:
        for version in range(6):
            job.batch([("a", 1, version + 10)], [("a", version)], watermark=version)
    with pytest.raises(QueryError) as raised:
        open_query(jobs[0].warehouse, "FROM counts AT (TIMESTAMP => '2026-01-01 00:00:02')")
    assert raised.value.message == 'job "hourly" keeps no version that old'
    assert "Its oldest version is 3 of" in (raised.value.detail or "")
