"""Warehouse tables that are published: after every batch others read what `sqlstream query` does, whatever happened before."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from sqlstream.connectors.warehouse.publishing import Publisher
from sqlstream.errors import SqlStreamError
from sqlstream.jobs.ending import drop
from sqlstream.queries.query import open_query
from sqlstream.testing import Stream
from sqlstream.warehouse.locks import SessionLock
from sqlstream.warehouse.paths import Warehouse
from tests.connectors.lake.jobs import run
from tests.processes import SECONDS

KINDS = ("delta", "iceberg")


def iceberg(warehouse: str, table: str) -> Any:
    return load_catalog("sqlstream", type="sql", uri=f"sqlite:///{warehouse}/published/iceberg.db").load_table(
        f"sqlstream.{table}"
    )


def versions_of(kind: str, warehouse: str, table: str) -> Mapping[int, Callable[[], pa.Table]]:
    """Return how the library of a lakehouse reads each version of a published table, by its last batch."""
    if kind == "delta":
        path = f"{warehouse}/published/{table}"
        history = [entry for entry in DeltaTable(path).history() if "sqlstream.batch" in entry]
        return {
            int(entry["sqlstream.batch"].rpartition("/")[2]): DeltaTable(
                path, version=entry["version"]
            ).to_pyarrow_table
            for entry in history
        }
    found = iceberg(warehouse, table)
    # The last snapshot of a commit is the one that counts.
    return {
        int(s.summary["sqlstream.batch"].rpartition("/")[2]): found.scan(snapshot_id=s.snapshot_id).to_arrow
        for s in found.snapshots()
    }


def rows_of(table: pa.Table) -> list[str]:
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        con.register("found", table)
        return sorted(map(str, con.execute("FROM found").fetchall()))


def check(stream: Stream, kind: str, batches: int, only: Collection[int] = ()) -> None:
    """Check that the versions of a published table have the rows that the warehouse has behind their batches."""
    versions = versions_of(kind, stream.warehouse, "t")
    assert max(versions) == batches - 1
    for batch in only or versions:
        assert rows_of(versions[batch]()) == rows_of(stream.arrow(f"SELECT * FROM t AT (VERSION => {batch})")), batch


def crash_behind_the_commit(stream: Stream, monkeypatch: pytest.MonkeyPatch, rows: list[Any]) -> None:
    """Let a batch be committed, and its process die before it publishes it."""

    def crash(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Publisher, "committed", crash)
        with pytest.raises(KeyboardInterrupt):
            stream.batch("given", rows)
    stream.restart()


TYPES = (
    "k BIGINT, name STRING, ts TIMESTAMP(3), at_ TIMESTAMP_LTZ(3), amount DECIMAL(7, 2), tags ARRAY<STRING>, f DOUBLE"
)


# Neither lakehouse has unsigned integers: what has some is not published by the files that the warehouse has.
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "more"), [("delta", ""), ("iceberg", ""), ("delta", ", u UINTEGER")])
def test_added_rows_are_published_with_each_batch(
    kind: str, more: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    script = (
        f"CREATE TABLE given ({TYPES}{more}); CREATE TABLE t ({TYPES}{more}) WITH ('sqlstream.publish' = '{kind}');"
        " INSERT INTO t SELECT * FROM given WHERE k >= 0"
    )

    def row(k: int) -> tuple[Any, ...]:
        values = (k, f"a{k}", "2026-01-01 10:00:00", "2026-01-01 10:00:00+00", "1.50", ["x", "y"], None)
        return (*values, 2**31 + k) if more else values

    with Stream(script) as stream:
        for batch in range(5):
            stream.batch("given", [row(2 * batch), row(2 * batch + 1)])
        # A batch without rows makes no version.
        stream.batch("given", [row(-1)])
        stream.restart()
        crash_behind_the_commit(stream, monkeypatch, [row(12)])
        # The eighth file is merged with the others when it is written.
        for batch in range(7, 10):
            stream.batch("given", [row(2 * batch)])
        check(stream, kind, 10, only={0, 4, 6, 8, 9})
        assert len(versions_of(kind, stream.warehouse, "t")) == 9
        # Users hear nothing of what a library has to say about the files.
        assert not caplog.messages
        files = list(Path(f"{stream.warehouse}/published/t").rglob("*.parquet"))
        assert sum(os.stat(file).st_nlink > 1 for file in files) == (0 if more else 8)
        assert len(files) == 9


KEYED = "CREATE TABLE t (g BIGINT, n BIGINT, s BIGINT{key}) WITH ('sqlstream.publish' = '{kind}');"
SUMS = " INSERT INTO t SELECT g, COUNT(*), SUM(v) FROM given GROUP BY g HAVING SUM(v) % 3 > 0"


@pytest.mark.parametrize("kind", KINDS)
# Without a key all rows are written again.
@pytest.mark.parametrize("key", [", PRIMARY KEY (g) NOT ENFORCED", ""])
def test_changes_are_published_with_each_batch(kind: str, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "CREATE TABLE given (g BIGINT, v BIGINT);" + KEYED.format(key=key, kind=kind) + SUMS
    with Stream(script) as stream:
        stream.batch("given", [(0, 1), (1, 1), (2, 1), (None, 7)])
        stream.batch("given", [(0, 2), (1, 1), (3, 5)])
        crash_behind_the_commit(stream, monkeypatch, [(1, 1), (2, 1), (4, 1)])
        stream.batch("given", [(0, 1), (4, 2), (None, 1)])
        check(stream, kind, 4)
        stream.restart()
        assert len(versions_of(kind, stream.warehouse, "t")) == 4


def given(project: Path, number: int) -> None:
    """Put a file of input."""
    (project / "given").mkdir(exist_ok=True)
    keys = list(range(number * 10, number * 10 + 10))
    rows = pa.table({"k": keys, "g": [k % 4 for k in keys], "v": [k * 7 % 11 for k in keys]})
    pq.write_table(rows, project / "given" / f"{number:03}.parquet")


SCRIPT = """
CREATE TABLE given (k BIGINT, g BIGINT, v BIGINT)
WITH ('connector' = 'filesystem', 'path' = 'given', 'format' = 'parquet', 'source.max-files-per-batch' = '1');
CREATE TABLE added (k BIGINT, v BIGINT) {added};
INSERT INTO added SELECT k, v FROM given;
CREATE TABLE sums (g BIGINT, n BIGINT, s BIGINT, PRIMARY KEY (g) NOT ENFORCED) {sums};
INSERT INTO sums SELECT g, COUNT(*), SUM(v) FROM given GROUP BY g HAVING SUM(v) % 3 > 0;
"""


def publish(kind: str) -> str:
    return f"WITH ('sqlstream.publish' = '{kind}')"


def check_project(project: Path, **kinds: str) -> None:
    """Check that what tables are published as has the rows of the warehouse."""
    warehouse = f"{project}/warehouse"
    for table, kind in kinds.items():
        versions = versions_of(kind, warehouse, table)
        found = open_query(Warehouse(warehouse), f"SELECT * FROM {table}").to_arrow_table()
        assert rows_of(versions[max(versions)]()) == rows_of(found)
        assert found.num_rows


@pytest.mark.slow
def test_what_a_killed_process_did_not_publish_is_published_next(tmp_path: Path) -> None:
    for number in range(3):
        given(tmp_path, number)
    (tmp_path / "jobs.sql").write_text(SCRIPT.format(added=publish("delta"), sums=publish("iceberg")))
    command = [sys.executable, "-m", "tests.connectors.lake.jobs", str(tmp_path), f"{tmp_path}/jobs.sql"]
    # Commits to the two tables come in turns: the fourth one is that of the second batch of `sums`, behind the job's own.
    # The next process goes on to the end.
    ran = subprocess.run([*command, "before", "4"], timeout=SECONDS, check=True, capture_output=True, text=True)
    ends = [int(line.split()[-1]) for line in ran.stdout.splitlines() if line.startswith("ended with ")]
    assert ends == [-signal.SIGKILL, 0], ran.stdout
    check_project(tmp_path, added="delta", sums="iceberg")
    for table, kind in (("added", "delta"), ("sums", "iceberg")):
        assert list(versions_of(kind, f"{tmp_path}/warehouse", table)) in ([*range(3)], [*range(2, -1, -1)])


@pytest.mark.slow
def test_a_table_is_published_later_and_otherwise_and_no_more(tmp_path: Path) -> None:
    given(tmp_path, 0)
    given(tmp_path, 1)
    run(str(tmp_path), SCRIPT.format(added="", sums=""))
    warehouse = Warehouse(f"{tmp_path}/warehouse")
    assert not os.path.exists(f"{warehouse.root}/published")
    # What is there is published before anything new comes.
    both = SCRIPT.format(added=publish("delta"), sums=publish("iceberg"))
    run(str(tmp_path), both)
    check_project(tmp_path, added="delta", sums="iceberg")
    # The other way round, in a project that was moved.
    moved = tmp_path.with_name("moved")
    tmp_path.rename(moved)
    run(str(moved), both)
    check_project(moved, added="delta", sums="iceberg")
    run(str(moved), SCRIPT.format(added=publish("iceberg"), sums=publish("delta")))
    check_project(moved, added="iceberg", sums="delta")
    warehouse = Warehouse(f"{moved}/warehouse")
    session = SessionLock.open(warehouse)
    # As a process leaves it that is killed while it drops the job.
    shutil.rmtree(f"{warehouse.root}/published/sums/_delta_log")
    for job in ("added", "sums"):
        drop(warehouse, session, job, str(moved))
    session.close()
    assert os.listdir(f"{warehouse.root}/published") == ["iceberg.db"]
    with pytest.raises(Exception, match="does not exist"):
        iceberg(warehouse.root, "added")


def test_a_published_table_has_one_writer() -> None:
    script = f"CREATE TABLE given (k BIGINT); CREATE TABLE t (k BIGINT) {publish('delta')}; INSERT INTO t SELECT k FROM given"
    with Stream(script) as stream, pytest.raises(SqlStreamError) as refused:
        stream.script("INSERT INTO t VALUES (1)")
    assert refused.value.message == 'table "t" is published, and job "t" writes it already'


def test_a_missing_library_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    script = f"CREATE TABLE given (k BIGINT); CREATE TABLE t (k BIGINT) {publish('iceberg')}; INSERT INTO t SELECT k FROM given"
    with pytest.raises(SqlStreamError) as refused, Stream(script):
        pass
    assert "table \"t\": 'sqlstream.publish' = 'iceberg' needs pyiceberg" in refused.value.message
    assert refused.value.hint == "Install it: pip install -e '.[iceberg]'."


def test_a_type_that_a_lakehouse_lacks_is_refused() -> None:
    script = (
        f"CREATE TABLE given (k TIME); CREATE TABLE t (k TIME) {publish('delta')}; INSERT INTO t SELECT k FROM given"
    )
    with pytest.raises(SqlStreamError) as refused, Stream(script):
        pass
    assert refused.value.message == 'column "k" of table "t": Delta has no type for TIME'
