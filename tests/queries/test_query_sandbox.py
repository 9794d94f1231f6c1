"""A query reads, and only what it may: many ways to write a file, to change settings, or to read what is outside."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sqlstream.errors import QueryError, SourceText
from sqlstream.queries.query import open_query
from sqlstream.queries.statement import parse_statement
from tests.queries.small_job import SmallJob

SECRET = "swordfish"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sandbox")
    job = SmallJob(root / "warehouse")
    job.batch([("a", 1, 10)], [("a", 1)])
    for path in (root / "secret.csv", root / "warehouse-2" / "secret.csv", root / "declared" / "t.csv"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(SECRET if "secret" in path.name else "x\n1\n")
    (root / "one.csv").write_text("y\n2\n")
    (root / "segment.parquet").symlink_to(next((root / "warehouse/tables/counts/hourly/data/0").iterdir()))
    return root


def run(root: Path, sql: str) -> list[tuple[Any, ...]]:
    """Run a query; `~` is the folder around the warehouse, `@segment` a file of state."""
    from sqlstream.warehouse.paths import Warehouse

    segment = str((root / "segment.parquet").resolve())
    relation = open_query(
        Warehouse(str(root / "warehouse")),
        sql.replace("@segment", segment).replace("~", str(root)),
        allowed_paths=[str(root / "declared"), str(root / "one.csv")],
        temp_directory=str(root / "spill"),
    )
    return relation.fetchall()


def contents(root: Path) -> Mapping[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


WRITES = [
    "COPY (SELECT 1) TO '@segment'",
    "COPY (SELECT 1) TO '~/warehouse/new.csv'",
    "COPY counts FROM '@segment'",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '@segment'",
    "EXPLAIN (ANALYZE, FORMAT json) COPY (SELECT 1) TO '@segment'",
    "EXPLAIN ANALYZE WITH x AS (COPY (SELECT 1) TO '@segment') FROM x",
    "WITH x AS (COPY (SELECT 1) TO '@segment') SELECT 1",
    "WITH x AS (COPY (SELECT 1) TO '@segment') FROM x",
    "WITH x AS MATERIALIZED (COPY (SELECT 1) TO '@segment') FROM x",
    "WITH x AS NOT MATERIALIZED(/* */COPY (SELECT 1) TO '@segment') FROM x",
    "WITH RECURSIVE x AS (COPY (SELECT 1) TO '@segment') FROM x",
    "(WITH x AS (COPY (SELECT 1) TO '@segment') FROM x)",
    "WITH a AS (WITH x AS (COPY (SELECT 1) TO '@segment') FROM x) FROM a",
    "SELECT (WITH x AS (COPY (SELECT 1) TO '@segment') FROM x)",
    "SELECT 1 WHERE EXISTS (WITH x AS (COPY (SELECT 1) TO '@segment') FROM x)",
    "SELECT 1 ORDER BY (WITH x AS (COPY (SELECT 1) TO '@segment') FROM x)",
    "SELECT 1 LIMIT (WITH x AS (COPY (SELECT 1) TO '@segment') FROM x)",
    "SELECT 1 GROUP BY (WITH x AS (COPY (SELECT 1) TO '@segment') FROM x)",
    "SELECT 1 QUALIFY (WITH x AS (COPY (SELECT 1) TO '@segment') FROM x) = 1",
    "SELECT sum(1) FILTER (WHERE (WITH x AS (COPY (SELECT 1) TO '@segment') FROM x) = 1)",
    "SELECT sum(1) OVER (ORDER BY (WITH x AS (COPY (SELECT 1) TO '@segment') FROM x))",
    "SELECT list_transform([1], lambda y: (WITH x AS (COPY (SELECT 1) TO '@segment') FROM x))",
    "SELECT * REPLACE ((WITH x AS (COPY (SELECT 1) TO '@segment') FROM x) AS n) FROM counts",
    "VALUES ((WITH x AS (COPY (SELECT 1) TO '@segment') FROM x))",
    "FROM range((WITH x AS (COPY (SELECT 1) TO '@segment') FROM x))",
    "FROM counts JOIN counts c ON (WITH x AS (COPY (SELECT 1) TO '@segment') FROM x) = 1",
    "FROM counts, LATERAL (WITH x AS (COPY (SELECT 1) TO '@segment') FROM x)",
    "FROM (PIVOT (WITH x AS (COPY (SELECT 1) TO '@segment') FROM x) ON a IN (1))",
    "FROM counts UNION ALL (WITH x AS (COPY (SELECT 'a', 1) TO '@segment') FROM x)",
    "DESCRIBE WITH x AS (COPY (SELECT 1) TO '@segment') FROM x",
    "SUMMARIZE WITH x AS (COPY (SELECT 1) TO '@segment') FROM x",
    "FROM counts AT (VERSION => (WITH x AS (COPY (SELECT 0) TO '@segment') FROM x))",
    "FROM query('WITH x AS (COPY (SELECT 1) TO ''@segment'') FROM x')",
    "FROM query($$COPY (SELECT 1) TO '@segment'$$)",
    "FROM json_execute_serialized_sql(json_serialize_sql('WITH x AS (COPY (SELECT 1) TO ''@segment'') FROM x'))",
    "SELECT 1; COPY (SELECT 1) TO '@segment'",
    "SELECT 1 /* ; */; /* */ COPY (SELECT 1) TO '@segment'",
    "PREPARE p AS COPY (SELECT 1) TO '@segment'",
    "EXECUTE p",
    "EXPORT DATABASE '~/warehouse/new'",
    "IMPORT DATABASE '~/warehouse/new'",
    "ATTACH '~/warehouse/new.db' AS new",
    "ATTACH '@segment' AS new",
    "CREATE TABLE t AS SELECT 1",
    "CREATE OR REPLACE VIEW counts AS SELECT 1",
    "CREATE MACRO m() AS 1",
    "CREATE SECRET s (TYPE s3)",
    "INSERT INTO counts VALUES ('x', 1)",
    "WITH x AS (INSERT INTO sqlstream.jobs (job) VALUES ('x') RETURNING *) FROM x",
    "WITH x AS (UPDATE sqlstream.jobs SET job = 'x' RETURNING *) FROM x",
    "WITH x AS (DELETE FROM sqlstream.jobs RETURNING *) FROM x",
    "MERGE INTO counts USING counts c ON true WHEN MATCHED THEN DELETE",
    "DELETE FROM counts",
    "TRUNCATE counts",
    "DROP VIEW counts",
    "ALTER VIEW counts RENAME TO c",
    "SET temp_directory = '~'",
    "RESET lock_configuration",
    "SET VARIABLE v = 1",
    "PRAGMA enable_profiling",
    "CALL enable_logging(storage = 'file')",
    "FROM enable_logging(storage := 'file', storage_path := '~/warehouse')",
    "FROM enable_profiling(save_location := '~/warehouse/profile')",
    "FROM checkpoint()",
    "CHECKPOINT",
    "VACUUM",
    "LOAD httpfs",
    "INSTALL httpfs",
    "FORCE INSTALL httpfs",
    "USE state.hourly",
    "BEGIN",
    "CONNECT x",
    "DETACH state",
    "FROM arrow_scan(1, 2, 3)",
    "FROM pandas_scan(1)",
    "FROM python_map_function()",
    "FROM read_duckdb('~/warehouse/new.db')",
]


@pytest.mark.parametrize("sql", WRITES)
def test_nothing_but_a_query_runs(root: Path, sql: str) -> None:
    before = contents(root)
    with pytest.raises(QueryError):
        run(root, sql)
    assert contents(root) == before


READS = [
    "FROM read_text('~/secret.csv')",
    "FROM '~/secret.csv'",
    "FROM read_csv('~/secret.csv')",
    "FROM read_text('~/warehouse/../secret.csv')",
    "FROM read_text('~/warehouse/jobs/../../secret.csv')",
    "FROM read_text('~/warehouse-2/secret.csv')",
    "FROM read_text('~/declared/../secret.csv')",
    "FROM read_text('~/*.csv')",
    "FROM read_text('~/ware*-2/*')",
    "FROM read_text(['~/declared/t.csv', '~/secret.csv'])",
    "FROM glob('~/*')",
    "FROM glob('/etc/*')",
    "FROM read_blob('/proc/self/environ')",
    "FROM read_text('/dev/stdin')",
    "FROM sniff_csv('~/secret.csv')",
    "FROM read_json_objects('file://~/secret.csv')",
    "FROM 'http://localhost/x.csv'",
    "FROM read_parquet('s3://bucket/x.parquet')",
    "FROM duckdb_secrets()",
    "SELECT getenv('HOME')",
]


@pytest.mark.parametrize("sql", READS)
def test_nothing_outside_is_read(root: Path, sql: str) -> None:
    try:
        rows = run(root, sql)
    except (QueryError, duckdb.Error):
        return
    pytest.fail(f"read {rows}")


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT 1", [(1,)]),
        ("WITH x AS (SELECT 1 AS a) FROM x", [(1,)]),
        ("VALUES (1)", [(1,)]),
        ("FROM range(1)", [(0,)]),
        ("((SELECT 1));", [(1,)]),
        ("TABLE counts", [("a", 1)]),
        ("FROM (PIVOT counts ON k IN ('a') USING sum(n))", [(1,)]),
        ("SELECT 'COPY x TO y; DROP TABLE z' AS \"INSERT\"", [("COPY x TO y; DROP TABLE z",)]),
        ("SELECT copy FROM (SELECT n AS copy FROM counts) AS insert WHERE (copy) = 1", [(1,)]),
        ("SHOW DATABASES", [("memory",), ("state",)]),
        ("SELECT count(*) FROM (DESCRIBE counts)", [(2,)]),
        ("FROM '~/declared/t.csv', '~/one.csv'", [(1, 2)]),
        ("FROM counts POSITIONAL JOIN read_parquet('@segment') AS s", [("a", 1, "a", 1)]),
    ],
)
def test_queries_run(root: Path, sql: str, expected: list[tuple[Any, ...]]) -> None:
    assert run(root, sql) == expected


@pytest.mark.parametrize(
    "sql",
    ["EXPLAIN FROM counts", "EXPLAIN ANALYZE FROM counts", "EXPLAIN (FORMAT json) (SELECT 1)", "SUMMARIZE counts"],
)
def test_statements_about_queries_run(root: Path, sql: str) -> None:
    assert run(root, sql)


def test_big_results_spill_into_a_directory_of_their_own(root: Path) -> None:
    assert run(root, "SELECT current_setting('temp_directory')") == [(str(root / "spill"),)]
    assert not os.path.exists(root / "spill")


def test_every_table_function_is_known_to_be_harmless_or_refused() -> None:
    """A newer DuckDB may have new ones; they are refused until somebody has looked at them."""
    connection = duckdb.connect()
    names = connection.execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type IN ('table', 'table_macro')"
    ).fetchall()
    allowed = set()
    for (name,) in names:
        try:
            parse_statement(SourceText("query", f'FROM "{name}"()'), connection)
            allowed.add(name)
        except QueryError as error:
            assert "is not available in queries" in error.message  # noqa: PT017
    dangerous = {"query", "query_table", "read_duckdb", "arrow_scan", "enable_logging", "json_execute_serialized_sql"}
    assert not allowed & dangerous
    assert allowed >= {"range", "read_parquet", "read_csv", "read_json", "glob"}
