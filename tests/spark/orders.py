"""A small stream with everything that makes recovery hard: disorder, NULLs, many windows, values that must be kept."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import duckdb

from sqlstream.queries.query import open_query
from sqlstream.storage.joblog import JobLog
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.paths import Warehouse
from tests.command_line import run_command
from tests.forked import Forked, start_python
from tests.processes import SECONDS

FILES = 24
ROWS = 2_000
SCRIPT = """
CREATE TABLE orders (id BIGINT, shop STRING, price DECIMAL(10, 2), ts TIMESTAMP(3),
    WATERMARK FOR ts AS ts - INTERVAL '2' MINUTE)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'parquet', 'source.max-files-per-batch' = '1');

CREATE TABLE sales (shop STRING, window_start TIMESTAMP(3), n BIGINT, total DECIMAL(38, 2), prices BIGINT, first_id BIGINT);

INSERT INTO sales
WITH by_shop AS (
    SELECT shop, window_start, window_end, COUNT(*) AS n, SUM(price) AS total,
        COUNT(DISTINCT price) AS prices, MIN(id) AS first_id
    FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '30' SECOND))
    GROUP BY shop, window_start, window_end
)
SELECT shop, window_start, n, total, prices, first_id FROM by_shop;
"""
BATCH = """
SELECT shop, time_bucket(INTERVAL '30 seconds', ts, TIMESTAMP '1970-01-01') AS window_start, count(*) AS n,
    sum(price) AS total, count(DISTINCT price) AS prices, min(id) AS first_id
FROM read_parquet('{path}/*.parquet') GROUP BY ALL ORDER BY ALL
"""
# For a run that does not end by itself, however slowly a test looks at it.
LIVE = ("--set-table", "orders.source.monitor-interval=100 ms")


def write_orders(folder: Path, files: int = FILES, rows: int = ROWS) -> None:
    """Write files whose rows are up to a minute out of order, also across files."""
    folder.mkdir(parents=True)
    with duckdb.connect() as con:
        for number in range(files):
            con.execute(
                f"""COPY (
                    SELECT i AS id, CASE WHEN hash(i) % 20 = 0 THEN NULL ELSE 'shop ' || hash(i, 1) % 7 END AS shop,
                        CAST(CAST(hash(i, 2) % 500 AS DOUBLE) / 4 AS DECIMAL(10, 2)) AS price,
                        TIMESTAMP '2026-01-01' + to_milliseconds(CAST(i * 20 + hash(i, 3) % 60000 AS BIGINT)) AS ts
                    FROM range({number * rows}, {(number + 1) * rows}) t(i)
                ) TO '{folder}/{number:03d}.parquet' (FORMAT parquet)"""
            )
            moment = 1_700_000_000 + number
            os.utime(folder / f"{number:03d}.parquet", (moment, moment))


def batch_answer(folder: Path) -> list[tuple[object, ...]]:
    """Return what DuckDB says about all rows at once."""
    with duckdb.connect() as con:
        return con.execute(BATCH.format(path=folder)).fetchall()


def start(project: Path, *arguments: str) -> Forked:
    """Start `sqlstream run` in a process group of its own."""
    return start_python("-m", "sqlstream", "run", "orders.sql", *arguments, cwd=project, own_group=True)


def ask(project: Path, sql: str) -> list[tuple[Any, ...]]:
    """Return what a query finds in the project's warehouse."""
    return open_query(Warehouse(str(project / "warehouse")), sql).fetchall()


def version(project: Path, job: str = "sales") -> int:
    """Return the last version that a job has committed, -1 before the first."""
    warehouse = Warehouse(str(project / "warehouse"))
    committed = last_committed(warehouse.fs, warehouse.job(job))
    return -1 if committed is None else committed


def has_read(project: Path, rows: int) -> bool:
    """Return whether the job `sales` has committed so many rows. It reads a file: a query takes as much as a batch."""
    warehouse = Warehouse(str(project / "warehouse"))
    entry = JobLog(warehouse.fs, warehouse.job("sales").log).entry(version(project))
    return entry is not None and entry.rows_in == rows


def command(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `sqlstream` to its end, one that needs no JVM."""
    return run_command(project, *arguments)


def drain(project: Path, run: Forked) -> None:
    """End a live run from another process, when it has closed all windows."""
    asked = command(project, "stop", "--drain", "sales")
    assert asked.returncode == 0, asked.stderr
    output, _ = run.communicate(timeout=SECONDS)
    assert run.returncode == 0, output
