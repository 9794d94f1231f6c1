"""Joins on Spark, stopped and killed on the way: what comes out is DuckDB's answer over all rows."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pytest

from sqlstream.queries.query import open_query
from sqlstream.warehouse.paths import Warehouse
from tests.processes import SECONDS, kill_group, wait_with
from tests.spark.orders import LIVE, start, version

pytestmark = [pytest.mark.spark, pytest.mark.slow]
FILES, ROWS = 8, 500
JOB = "pairs_set"
TABLES = """
SET 'sqlstream.unbounded-state' = 'allow';
CREATE TABLE orders (id BIGINT, customer BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE)
WITH ('connector' = 'filesystem', 'path' = 'orders', 'format' = 'parquet', 'source.max-files-per-batch' = '1');
CREATE TABLE payments (id BIGINT, order_id BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE)
WITH ('connector' = 'filesystem', 'path' = 'payments', 'format' = 'parquet', 'source.max-files-per-batch' = '1');
"""
PAIRS = """SELECT o.id AS order_id, p.id AS payment FROM orders o FULL JOIN payments p
ON o.id = p.order_id AND p.ts BETWEEN o.ts - INTERVAL '5' SECOND AND o.ts + INTERVAL '30' SECOND"""
PAID = "SELECT o.id AS order_id, p.id AS payment FROM orders o LEFT JOIN payments p ON o.id = p.order_id"
SCRIPT = f"""{TABLES}
CREATE TABLE pairs (order_id BIGINT, payment BIGINT);
CREATE TABLE paid (order_id BIGINT, payment BIGINT);
EXECUTE STATEMENT SET BEGIN
INSERT INTO pairs {PAIRS};
INSERT INTO paid {PAID.replace("SELECT", "SELECT /*+ STATE_TTL('o' = '1 d', 'p' = '2 d') */", 1)};
END
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with orders and payments that are up to a minute out of order, and not later."""
    with duckdb.connect() as con:
        for table, column, seed in (
            ("orders", "CAST(hash(i) % 90 AS BIGINT) AS customer", 1),
            ("payments", "xor(i, 1) AS order_id", 2),
        ):
            (tmp_path / table).mkdir()
            for number in range(FILES):
                path = tmp_path / table / f"{number}.parquet"
                con.execute(
                    f"""COPY (
                        SELECT i AS id, {column},
                            TIMESTAMP '2026-01-01' + to_milliseconds(CAST(i * 100 + hash(i, {seed}) % 50000 AS BIGINT)) AS ts
                        FROM range({number * ROWS}, {(number + 1) * ROWS}) t(i) WHERE hash(i, {seed}, 1) % 4 > 0
                    ) TO '{path}' (FORMAT parquet)"""
                )
                os.utime(path, (1_700_000_000 + number,) * 2)
    (tmp_path / "orders.sql").write_text(SCRIPT)
    (tmp_path / "udfs").mkdir()
    return tmp_path


@pytest.mark.thorough
def test_joins_go_on_after_kills(project: Path) -> None:
    warehouse = Warehouse(str(project / "warehouse"))
    for _ in range(2):
        # There are at least as many batches as files of a table.
        wanted = min(version(project, JOB) + 2, FILES - 1)
        run = start(project, *LIVE, "--set-table", "payments.source.monitor-interval=100 ms")
        wait_with(run, lambda wanted=wanted: version(project, JOB) >= wanted)
        kill_group(run)
    run = start(project)
    output, _ = run.communicate(timeout=SECONDS)
    assert run.returncode == 0, output
    with duckdb.connect() as con:
        for table in ("orders", "payments"):
            con.execute(f"CREATE VIEW {table} AS FROM '{project}/{table}/*.parquet'")
        for table, query in (("pairs", PAIRS), ("paid", PAID)):
            expected = con.execute(f"FROM ({query}) ORDER BY ALL").fetchall()
            assert len(expected) > ROWS
            assert open_query(warehouse, f"SELECT * FROM {table} ORDER BY ALL").fetchall() == expected
    assert open_query(warehouse, "SELECT sum(late_rows) FROM sqlstream.operators").fetchall() == [(0,)]
