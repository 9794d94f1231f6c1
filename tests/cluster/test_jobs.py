"""Jobs on a standalone Spark cluster: executors are other processes, know nothing of the driver's environment, and are killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import psutil
import pytest

from sqlstream.queries.query import open_query
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.paths import Warehouse
from tests.cluster.standalone import StandaloneCluster, standalone_cluster
from tests.command_line import run_command
from tests.forked import Forked, start_python
from tests.processes import SECONDS, await_end, wait_with
from tests.spark.orders import write_orders
from tests.stores import conftest as stores
from tests.stores.server import S3Server

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
FILES, FILES_IN_STORE = 5, 2
UDF = """
from sqlstream import udf

@udf
def parity(id: int) -> int:
    return id % 2
"""
SCRIPT = """
SET 'pipeline.name' = 'both';
SET 'parallelism.default' = '2';
CREATE TABLE orders (id BIGINT, shop STRING, price DECIMAL(10, 2), ts TIMESTAMP(3),
    WATERMARK FOR ts AS ts - INTERVAL '2' MINUTE)
WITH ('connector' = 'filesystem', 'path' = 'in/orders', 'format' = 'parquet', 'source.max-files-per-batch' = '1',
    'source.monitor-interval' = '100 ms');
CREATE TABLE payments (id BIGINT, amount DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '2' MINUTE)
WITH ('connector' = 'filesystem', 'path' = 'in/payments', 'format' = 'parquet', 'source.max-files-per-batch' = '1',
    'source.monitor-interval' = '100 ms');
CREATE TABLE sales (shop STRING, parity BIGINT, window_start TIMESTAMP(3), n BIGINT, total DECIMAL(38, 2));
CREATE TABLE paid (id BIGINT, shop STRING, amount DOUBLE);

EXECUTE STATEMENT SET BEGIN
    INSERT INTO sales
    WITH by_shop AS (
        SELECT shop, parity(id) AS parity, window_start, window_end, COUNT(*) AS n, SUM(price) AS total
        FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '30' SECOND))
        GROUP BY shop, parity(id), window_start, window_end
    )
    SELECT shop, parity, window_start, n, total FROM by_shop;
    INSERT INTO paid
    SELECT orders.id, shop, amount FROM orders JOIN payments
        ON orders.id = payments.id AND payments.ts BETWEEN orders.ts AND orders.ts + INTERVAL '1' MINUTE;
END;
"""
SALES = """
SELECT shop, id % 2, time_bucket(INTERVAL '30 seconds', ts, TIMESTAMP '1970-01-01') AS start, count(*), sum(price)
FROM read_parquet('{folder}/in/orders/*.parquet') GROUP BY ALL ORDER BY ALL
"""
PAID = """
SELECT o.id, o.shop, p.amount
FROM read_parquet('{folder}/in/orders/*.parquet') o JOIN read_parquet('{folder}/in/payments/*.parquet') p
    ON o.id = p.id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL 1 MINUTE ORDER BY ALL
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def prepared(tmp_path: Path, files: int) -> Path:
    write_orders(tmp_path / "in" / "orders", files)
    (tmp_path / "in" / "payments").mkdir()
    with duckdb.connect() as con:
        for number in range(files):
            con.execute(
                f"""COPY (SELECT id, id / 4 AS amount, ts + to_milliseconds(CAST(hash(id, 4) % 90000 AS BIGINT)) AS ts
                FROM read_parquet('{tmp_path}/in/orders/{number:03d}.parquet') WHERE hash(id, 5) % 3 > 0)
                TO '{tmp_path}/in/payments/{number:03d}.parquet' (FORMAT parquet)"""
            )
    (tmp_path / "both.sql").write_text(SCRIPT)
    (tmp_path / "udfs").mkdir()
    (tmp_path / "udfs" / "parity.py").write_text(UDF)
    return tmp_path


def run(project: Path, cluster: StandaloneCluster, *arguments: str) -> Forked:
    words = ("-m", "sqlstream", "run", "both.sql", *cluster.arguments, *arguments)
    return start_python(*words, cwd=project, own_group=True)


def answers(folder: Path) -> list[list[tuple[object, ...]]]:
    """Return what DuckDB says of all rows at once."""
    with duckdb.connect() as con:
        return [con.execute(sql.format(folder=folder)).fetchall() for sql in (SALES, PAID)]


def has_read_all(warehouse: Warehouse, project: Path) -> bool:
    if not warehouse.jobs():
        return False
    with duckdb.connect() as con:
        count = f"SELECT count(*) FROM read_parquet('{project}/in/*/*.parquet', union_by_name => true)"
        [rows] = con.execute(count).fetchone() or (0,)
    found = open_query(warehouse, "SELECT coalesce(max(rows_in), 0) FROM sqlstream.jobs").fetchall()
    return found == [(rows,)]


def has_begun(warehouse: Warehouse, versions: int = 2) -> bool:
    found = last_committed(warehouse.fs, warehouse.job("both"))
    return found is not None and found >= versions


def drain(project: Path, job: Forked, *arguments: str) -> None:
    asked = run_command(project, "stop", "--drain", "both", *arguments)
    assert asked.returncode == 0, asked.stderr
    output, _ = job.communicate(timeout=SECONDS)
    assert job.returncode == 0, output


def results(warehouse: Warehouse) -> list[list[tuple[object, ...]]]:
    return [open_query(warehouse, f"FROM {table} ORDER BY ALL").fetchall() for table in ("sales", "paid")]


@pytest.mark.thorough
def test_windows_and_a_join_when_an_executor_is_killed(cluster: StandaloneCluster, tmp_path: Path) -> None:
    project = prepared(tmp_path, FILES)
    job = run(project, cluster)
    warehouse = Warehouse(str(project / "warehouse"))
    wait_with(job, lambda: has_begun(warehouse))
    executors = cluster.executors()
    assert len(executors) == 2
    executors[0].kill()
    asked = run_command(project, "query", "SELECT sum(n) > 0 FROM state.both.by_shop", "--format", "csv")
    assert asked.stdout.splitlines()[1:] == ["true"], asked.stdout + asked.stderr
    wait_with(job, lambda: has_read_all(warehouse, project))
    drain(project, job)
    assert results(warehouse) == answers(project)


@pytest.fixture
def s3() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.close()


@pytest.mark.thorough
def test_a_warehouse_in_a_store(
    cluster: StandaloneCluster, tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = prepared(tmp_path, FILES_IN_STORE)
    # Workers of the cluster know nothing of the store: what they need comes with the job.
    stores.use(monkeypatch, s3.environment, project)
    cache = ("--set", f"spark.executorEnv.SQLSTREAM_CACHE={project}/cache")
    bucket = s3.bucket()
    place = ("--set", f"spark.sql.streaming.checkpointLocation={project}/scratch")
    job = run(project, cluster, "--warehouse", f"{bucket}/wh", *place, *cache)
    warehouse = Warehouse(f"{bucket}/wh")
    wait_with(job, lambda: has_read_all(warehouse, project))
    drain(project, job, "--warehouse", f"{bucket}/wh")
    assert results(warehouse) == answers(project)
    assert not [*(project / "scratch").rglob("offsets")]


@pytest.mark.thorough
def test_no_process_outlives_who_has_started_the_cluster(tmp_path: Path) -> None:
    starts = f"""
from pathlib import Path
from tests.cluster.standalone import StandaloneCluster
cluster = StandaloneCluster(Path({str(tmp_path)!r}), workers=0)
print(*[one.pid for one in cluster.processes()], flush=True)
input()
"""
    words = [sys.executable, "-c", starts]
    starter = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert starter.stdout is not None
    processes = [psutil.Process(int(word)) for word in starter.stdout.readline().split()]
    assert len(processes) == 2
    starter.kill()
    starter.communicate()
    await_end(processes)
