"""Lakehouses in an object store: options are passed through, files arrive there, and nothing shows a secret."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from sqlstream.errors import SourceText, SqlStreamError
from sqlstream.jobs.job import Job
from sqlstream.local.engine import LocalEngine
from sqlstream.queries.query import open_query
from sqlstream.session.session import Session
from sqlstream.testing import Stream
from sqlstream.warehouse import file_cache
from sqlstream.warehouse.paths import Warehouse
from tests.connectors.lake.jobs import run
from tests.kinds import jobs_of
from tests.processes import wait_until
from tests.stores.server import KEY, SECRET

# The library of Delta holds Python's lock while it waits for an answer: the server is another process.
_SERVE = """
import signal
from tests.stores.server import S3Server
server = S3Server()
print(server.url, *(server.bucket() for _ in range(3)), flush=True)
signal.pause()
"""


class Store:
    """An S3 server in a process of its own, with some buckets."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", _SERVE]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url, *self._buckets = self._process.stdout.readline().split()

    def bucket(self) -> str:
        return self._buckets.pop()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def server() -> Iterator[Store]:
    found = Store()
    yield found
    found.close()


def delta(server: Store, bucket: str, folder: Path, secret: str = SECRET) -> str:
    storage = {"AWS_ENDPOINT_URL": server.url, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": secret}
    storage |= {"AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1", "AWS_CONDITIONAL_PUT": "etag"}
    given = ", ".join(f"'storage.{name}' = '{value}'" for name, value in storage.items())
    return f"WITH ('connector' = 'delta', 'path' = '{bucket}/t', {given}, 'sink.create-table' = 'true')"


def iceberg(server: Store, bucket: str, folder: Path) -> str:
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": bucket, "s3.endpoint": server.url}
    catalog |= {"s3.access-key-id": KEY, "s3.secret-access-key": SECRET, "s3.region": "us-east-1"}
    given = ", ".join(f"'catalog.{name}' = '{value}'" for name, value in catalog.items())
    return f"WITH ('connector' = 'iceberg', 'table' = 'db.t', {given}, 'sink.create-table' = 'true')"


@pytest.mark.slow
@pytest.mark.parametrize("options", [delta, iceberg])
def test_tables_in_a_store_are_written_and_read(tmp_path: Path, server: Store, options: object) -> None:
    assert callable(options)
    given = options(server, server.bucket(), tmp_path)
    script = f"CREATE TABLE given (k BIGINT, p STRING); CREATE TABLE t (k BIGINT, p STRING) PARTITIONED BY (p) {given};"
    with Stream(f"{script} INSERT INTO t SELECT * FROM given") as stream:
        stream.batch("given", [(1, "a"), (2, "b c")])
        stream.restart()
        stream.batch("given", [(3, None)])
    run(
        str(tmp_path),
        f"CREATE TABLE t {given}; CREATE TABLE back (k BIGINT, p STRING); INSERT INTO back SELECT * FROM t",
    )
    rows = open_query(Warehouse(f"{tmp_path}/warehouse"), "SELECT * FROM back ORDER BY k").fetchall()
    assert rows == [(1, "a"), (2, "b c"), (3, None)]


PUBLISHED = """
CREATE TABLE given (k BIGINT, g BIGINT)
WITH ('connector' = 'filesystem', 'path' = 'given', 'format' = 'parquet', 'source.monitor-interval' = '1 h');
CREATE TABLE added (k BIGINT, g BIGINT) {publish};
CREATE TABLE per_g (g BIGINT, n BIGINT, PRIMARY KEY (g) NOT ENFORCED) {publish};
SET 'pipeline.name' = 'both';
EXECUTE STATEMENT SET BEGIN
    INSERT INTO added SELECT k, g FROM given;
    INSERT INTO per_g SELECT g, COUNT(*) FROM given GROUP BY g;
END;
"""


def has_read(job: Job, rows: int) -> bool:
    return job.error is not None or (job.progress.rows_in == rows and job.is_waiting)


@pytest.mark.slow
def test_tables_of_a_warehouse_in_a_store_are_published(
    tmp_path: Path, server: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"AWS_ENDPOINT_URL": server.url, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    environment |= {"AWS_REGION": "us-east-1", "SQLSTREAM_CACHE": f"{tmp_path}/cache"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    file_cache.user_cache.cache_clear()
    (tmp_path / "given").mkdir()
    warehouse, rows = f"{server.bucket()}/wh", []
    # What is there already is published as one version, then each batch.
    given = "WITH ('sqlstream.publish' = 'delta')"
    for number, publish in enumerate(("", given, given)):
        keys = range(number * 10, number * 10 + 10)
        rows += [(k, k % 3) for k in keys]
        pq.write_table(pa.table({"k": keys, "g": [k % 3 for k in keys]}), tmp_path / "given" / f"{number}.parquet")
        with Session(str(tmp_path), warehouse=warehouse) as session:
            script = PUBLISHED.format(publish=publish)
            [planned] = jobs_of(session.compile(SourceText("script", script)))
            job = session._jobs.start(planned, {}, engine=LocalEngine())
            wait_until(partial(has_read, job, len(rows)))
            job.stop()
            job.wait()
    counts = Counter(g for _, g in rows)
    for name, expected in (("added", rows), ("per_g", sorted(counts.items()))):
        found = DeltaTable(f"{warehouse}/published/{name}", storage_options={**environment, "AWS_ALLOW_HTTP": "true"})
        assert sorted(tuple(row.values()) for row in found.to_pyarrow_table().to_pylist()) == expected
        batches = [entry["sqlstream.batch"] for entry in found.history() if "sqlstream.batch" in entry]
        assert len(batches) == len(set(batches)) == 3
    with Session(str(tmp_path), warehouse=warehouse) as session:
        session.drop("both")
    assert list(Warehouse(warehouse).fs.walk(warehouse)) == []


@pytest.mark.slow
def test_errors_of_a_store_show_no_secret(tmp_path: Path, server: Store) -> None:
    given = delta(server, "s3://no-such-bucket", tmp_path, "hunter2-is-secret")
    with pytest.raises(SqlStreamError) as e:
        run(
            str(tmp_path),
            f"CREATE TABLE t (k BIGINT) {given}; CREATE TABLE back (k BIGINT); INSERT INTO back SELECT * FROM t",
        )
    assert "hunter2" not in str(e.value)
    assert 'table "t"' in str(e.value)
