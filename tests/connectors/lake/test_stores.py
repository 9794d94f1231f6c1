"""Lakehouses in an object store: options are passed through, files arrive there, and nothing shows a secret."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sqlstream.errors import SqlStreamError
from sqlstream.queries.query import open_query
from sqlstream.testing import Stream
from sqlstream.warehouse.paths import Warehouse
from tests.connectors.lake.jobs import run
from tests.stores.server import KEY, SECRET

# The library of Delta holds Python's lock while it waits for an answer: the server is another process.
_SERVE = """
import signal
from tests.stores.server import S3Server
server = S3Server()
print(server.url, server.bucket(), server.bucket(), flush=True)
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
