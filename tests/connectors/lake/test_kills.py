"""Jobs that write and read tables of lakehouses, killed around their commits: every row counts once."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from sqlstream.queries.query import open_query
from sqlstream.warehouse.paths import Warehouse
from tests.processes import SECONDS

FILES, ROWS = 6, 50
# The tables of a lakehouse that jobs write; each process makes some commits, and is killed around one of them.
SCRIPT = """
CREATE TABLE given (k BIGINT, g BIGINT, v BIGINT)
WITH ('connector' = 'filesystem', 'path' = 'given', 'format' = 'parquet', 'source.max-files-per-batch' = '1');

CREATE TABLE delta_rows (k BIGINT, g BIGINT) PARTITIONED BY (g)
WITH ('connector' = 'delta', 'path' = 'delta_rows', 'sink.create-table' = 'true', 'source.monitor-interval' = '0 s');
INSERT INTO delta_rows SELECT k, g FROM given;

CREATE TABLE delta_sums (g BIGINT, n BIGINT, s BIGINT, PRIMARY KEY (g) NOT ENFORCED)
WITH ('connector' = 'delta', 'path' = 'delta_sums', 'sink.create-table' = 'true', 'delta.enableChangeDataFeed' = 'true');
INSERT INTO delta_sums SELECT g, COUNT(*), SUM(v) FROM given GROUP BY g HAVING SUM(v) % 3 > 0;

CREATE TABLE iceberg_rows (k BIGINT, g BIGINT) PARTITIONED BY (g)
WITH ('connector' = 'iceberg', 'table' = 'db.rows', 'catalog.type' = 'sql', 'catalog.uri' = 'sqlite:///catalog.db',
      'catalog.warehouse' = 'iceberg', 'sink.create-table' = 'true', 'source.monitor-interval' = '0 s');
INSERT INTO iceberg_rows SELECT k, g FROM given;

CREATE TABLE iceberg_sums (g BIGINT, n BIGINT, s BIGINT, PRIMARY KEY (g) NOT ENFORCED)
WITH ('connector' = 'iceberg', 'table' = 'db.sums', 'catalog.type' = 'sql', 'catalog.uri' = 'sqlite:///catalog.db',
      'catalog.warehouse' = 'iceberg', 'sink.create-table' = 'true');
INSERT INTO iceberg_sums SELECT g, COUNT(*), SUM(v) FROM given GROUP BY g HAVING SUM(v) % 3 > 0;

CREATE TABLE from_iceberg (k BIGINT, g BIGINT);
INSERT INTO from_iceberg SELECT k, g FROM iceberg_rows;

CREATE TABLE from_delta (k BIGINT, g BIGINT);
INSERT INTO from_delta SELECT k, g FROM delta_rows;
"""
# Four tables are written in turns: these are commits of each of them, one in each process.
POINTS = [("after", 1), ("before", 2), ("after", 4), ("after", 7)]


def start(project: Path, *arguments: str) -> subprocess.Popen[str]:
    (project / "script.sql").write_text(SCRIPT)
    command = [sys.executable, "-m", "tests.connectors.lake.jobs", str(project), f"{project}/script.sql", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.slow
@pytest.mark.thorough
def test_kills_around_commits_change_nothing(tmp_path: Path) -> None:
    numbers = random.Random(14)
    (tmp_path / "given").mkdir()
    for number in range(FILES):
        keys = range(number * ROWS, (number + 1) * ROWS)
        values = {"k": keys, "g": [k % 4 for k in keys], "v": [numbers.randrange(100) for _ in keys]}
        pq.write_table(pa.table({k: list(v) for k, v in values.items()}), tmp_path / "given" / f"{number:03}.parquet")
    run = start(tmp_path, *(word for when, nth in POINTS for word in (when, str(nth))))
    output, _ = run.communicate(timeout=SECONDS)
    assert run.returncode == 0, output
    ends = [int(line.split()[-1]) for line in output.splitlines() if line.startswith("ended with ")]
    assert ends == [*[-signal.SIGKILL] * len(POINTS), 0], output
    delta = [DeltaTable(f"{tmp_path}/{name}") for name in ("delta_rows", "delta_sums")]
    check(tmp_path, "from_delta", *(table.to_pyarrow_table() for table in delta))
    # Each batch is one version, behind that of the empty table.
    assert delta[0].version() == FILES
    left = {f.name for f in (tmp_path / "delta_rows").rglob("*.parquet")}
    assert {Path(uri).name for uri in delta[0].file_uris()} == left
    catalog = load_catalog(
        "default", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/iceberg"
    )
    iceberg = [catalog.load_table(f"db.{name}") for name in ("rows", "sums")]
    check(tmp_path, "from_iceberg", *(table.scan().to_arrow() for table in iceberg))
    assert len(iceberg[0].snapshots()) == FILES
    left = {f.name for f in (tmp_path / "iceberg" / "db" / "rows").rglob("*.parquet")}
    assert {Path(task.file.file_path).name for task in iceberg[0].scan().plan_files()} == left


def check(project: Path, copy: str, rows: pa.Table, sums: pa.Table) -> None:
    """Compare tables with the answers over all rows: one that was appended to, one of sums, and a copy of the first."""
    given = f"read_parquet('{project}/given/*.parquet')"
    with duckdb.connect() as con:
        con.register("rows", rows)
        con.register("sums", sums)
        expected = sorted(con.execute(f"SELECT k, g FROM {given}").fetchall())
        assert sorted(con.execute("SELECT k, g FROM rows").fetchall()) == expected
        totals = f"SELECT g, count(*), sum(v)::BIGINT FROM {given} GROUP BY g HAVING sum(v) % 3 > 0"
        assert sorted(con.execute("FROM sums").fetchall()) == sorted(con.execute(totals).fetchall())
    assert sorted(open_query(Warehouse(f"{project}/warehouse"), f"SELECT * FROM {copy}").fetchall()) == expected
