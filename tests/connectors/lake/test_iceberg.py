"""Iceberg tables: what is written is what the library reads, once, whatever happens meanwhile; snapshots are read as a stream."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog

from sqlstream.catalog import Column, Table
from sqlstream.connectors.iceberg import upserts
from sqlstream.connectors.iceberg.catalogs import CatalogTable
from sqlstream.connectors.iceberg.commits import BatchProperty
from sqlstream.connectors.interface import SinkContext
from sqlstream.errors import SqlStreamError
from sqlstream.queries.query import open_query
from sqlstream.testing import Stream
from sqlstream.warehouse.filesystem import LocalFilesystem
from sqlstream.warehouse.paths import Warehouse
from tests.connectors.lake.jobs import run
from tests.connectors.lake.test_delta import COLUMNS, ROWS

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


def options(path: Path, table: str = "db.t", *more: str) -> str:
    """The options of a table in the catalog of a test."""
    given = ["'connector' = 'iceberg'", f"'table' = '{table}'", "'catalog.type' = 'sql'", *more]
    given += [f"'catalog.uri' = 'sqlite:///{path}/catalog.db'", f"'catalog.warehouse' = '{path}/lake'"]
    return f"WITH ({', '.join(given)})"


def catalog(path: Path) -> Catalog:
    found = load_catalog("default", type="sql", uri=f"sqlite:///{path}/catalog.db", warehouse=f"file://{path}/lake")
    found.create_namespace_if_not_exists("db")
    return found


def of_iceberg(path: Path, sql: str, table: str = "db.t") -> list[tuple[Any, ...]]:
    """Query an Iceberg table as the library reads it."""
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        con.register("iceberg", catalog(path).load_table(table).scan().to_arrow())
        return con.execute(sql).fetchall()


def read(project: Path, script: str, sql: str) -> list[tuple[Any, ...]]:
    run(str(project), script)
    return open_query(Warehouse(f"{project}/warehouse"), sql).fetchall()


def put(path: Path, keys: range) -> None:
    found = catalog(path)
    rows = pa.table({"k": pa.array(list(keys), pa.int64()), "v": pa.nulls(len(keys), pa.string())})
    found.create_table_if_not_exists("db.t", SCHEMA).append(rows)


@pytest.mark.parametrize("clause", ["", "PARTITIONED BY (name, b)"])
def test_what_is_written_is_what_others_and_jobs_read(tmp_path: Path, clause: str) -> None:
    table = COLUMNS.replace("u BIGINT", "u HUGEINT")
    script = f"""CREATE TABLE given ({COLUMNS});
        CREATE TABLE t ({table}) {clause} {options(tmp_path, "db.t", "'sink.create-table' = 'true'")};
        INSERT INTO t SELECT * FROM given"""
    with Stream(script) as stream:
        stream.batch("given", ROWS[:2])
        stream.restart()
        stream.batch("given", ROWS[2:])
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        types = ["BIGINT", "VARCHAR", "TIMESTAMP", "TIMESTAMPTZ", "DATE", "DECIMAL(7,2)", "VARCHAR[]", "BOOLEAN"]
        types += ["DOUBLE", "BIGINT"]
        rows = [con.execute(f"SELECT {', '.join(f'?::{t}' for t in types)}", list(r)).fetchone() for r in ROWS]
    assert of_iceberg(tmp_path, "FROM iceberg ORDER BY k") == rows
    written = catalog(tmp_path).load_table("db.t")
    assert len(written.snapshots()) == 2
    assert len(list(written.scan(row_filter="k == 3").plan_files())) == 1, "files are skipped by their statistics"
    back = f"CREATE TABLE t {options(tmp_path)}; CREATE TABLE back ({COLUMNS}); INSERT INTO back SELECT * FROM t"
    assert read(tmp_path, back, "SELECT * FROM back ORDER BY k") == rows


@pytest.mark.parametrize(("keys", "many"), [("k", False), ("k, p", False), ("k", True), ("k, p", True)])
def test_rows_take_the_place_of_those_with_their_key_in_one_commit(
    tmp_path: Path, keys: str, many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if many:
        # Then the rows of keys are found by their bounds, and others between these are written again.
        monkeypatch.setattr(upserts, "_LISTED", 2)
        monkeypatch.setattr(upserts, "_MANY", 2)
    script = f"""CREATE TABLE given (k BIGINT, p STRING, v BIGINT);
        CREATE TABLE sums (k BIGINT, p STRING, s BIGINT, PRIMARY KEY ({keys}) NOT ENFORCED)
        {options(tmp_path, "db.sums", "'sink.create-table' = 'true'")};
        INSERT INTO sums SELECT k, {"p" if "p" in keys else "MAX(p)"}, SUM(v) FROM given GROUP BY {keys} HAVING SUM(v) < 50"""
    with Stream(script) as stream:
        stream.batch("given", [(1, "a", 10), (2, "b", 20), (None, "c", 3), (4, "b", 1), (7, "a", 7)])
        one = catalog(tmp_path).load_table("db.sums")
        stream.restart()
        # Rows of keys in between stay.
        stream.batch(
            "given", [(1, "a", 5), (2, "b", 40), (None, "c", 1), (4, "b", 1), (4, "b", -1), (3, "a", 7), (9, "a", 2)]
        )
    assert of_iceberg(tmp_path, "SELECT k, p, s FROM iceberg ORDER BY k", "db.sums") == [
        *((1, "a", 15), (3, "a", 7), (4, "b", 1), (7, "a", 7), (9, "a", 2), (None, "c", 4))
    ]
    # The catalog knows the state before the batch, and the one behind it.
    log = catalog(tmp_path).load_table("db.sums").metadata.metadata_log
    assert [entry.metadata_file for entry in log].index(one.metadata_location) == len(log) - 1


@pytest.mark.parametrize("keys", ["", ", PRIMARY KEY (d) NOT ENFORCED"])
def test_a_time_that_the_library_does_not_have_is_an_error(tmp_path: Path, keys: str) -> None:
    script = f"""
        CREATE TABLE days (d DATE, n BIGINT{keys}) {options(tmp_path, "db.t", "'sink.create-table' = 'true'")};
        INSERT INTO days SELECT d, n FROM (VALUES (DATE '12026-01-01', 1)) AS v (d, n);
    """
    with pytest.raises(SqlStreamError, match="cannot have a date or time of a row") as refused:
        run(str(tmp_path), script)
    assert "the years 1 to 9999" in str(refused.value.detail)


def batches(path: Path, records: Path, committed: int = -1) -> BatchProperty:
    given = {"connector": "iceberg", "table": "db.t", "catalog.type": "sql"}
    given |= {"catalog.uri": f"sqlite:///{path}/catalog.db", "catalog.warehouse": f"{path}/lake"}
    table = Table("t", (Column("k", "BIGINT"),), options=given)
    return BatchProperty(
        CatalogTable.of(table, "/"), SinkContext(LocalFilesystem(), "/", str(records), committed, "job")
    )


def test_a_batch_is_written_once_and_again_when_another_writer_was_faster(tmp_path: Path) -> None:
    put(tmp_path, range(10))
    ours, tries = batches(tmp_path, tmp_path / "records"), []
    new = pa.table({"k": pa.array([100], pa.int64()), "v": pa.array(["new"])})

    def replace(transaction: Any, summary: Any) -> None:
        tries.append(1)
        transaction.overwrite(new, overwrite_filter="k == 4", snapshot_properties=summary)
        if len(tries) == 1:
            # Between our reading of the table and our commit somebody rewrites the same file.
            catalog(tmp_path).load_table("db.t").delete("k == 3")

    assert ours.commit(0, replace)
    assert len(tries) == 2, "a conflict is met with a fresh handle"
    assert not ours.commit(0, replace)
    assert sorted(of_iceberg(tmp_path, "SELECT k FROM iceberg")) == [(k,) for k in (0, 1, 2, 5, 6, 7, 8, 9, 100)]
    assert not batches(tmp_path, tmp_path / "records").commit(0, replace)
    shutil.copytree(tmp_path / "records", tmp_path / "copy")
    copy = batches(tmp_path, tmp_path / "copy", committed=0)
    for batch in (1, 2):
        assert copy.commit(batch, lambda transaction, summary: transaction.append(new))
    with pytest.raises(SqlStreamError, match="another process has written batch 2 of this job"):
        ours.commit(2, replace)
    with pytest.raises(SqlStreamError, match="up to 2, but the job goes on behind batch 0"):
        batches(tmp_path, tmp_path / "copy", committed=0).recover()


def test_files_of_a_batch_that_was_not_committed_go(tmp_path: Path) -> None:
    script = f"""CREATE TABLE given (k BIGINT);
        CREATE TABLE t (k BIGINT) {options(tmp_path, "db.t", "'sink.create-table' = 'true'")};
        INSERT INTO t SELECT * FROM given"""
    with Stream(script) as stream:
        stream.batch("given", [(1,)])
        [file] = (tmp_path / "lake" / "db" / "t" / "data").glob("*.parquet")
        left = file.with_name(file.name.replace("-0000000000-", "-0000000001-"))
        shutil.copy(file, left)
        stream.restart()
        assert (left.exists(), file.exists()) == (False, True)
        stream.batch("given", [(2,)])
    assert of_iceberg(tmp_path, "FROM iceberg ORDER BY k") == [(1,), (2,)]


def by_day(path: Path) -> None:
    table = catalog(path).create_table("db.t", pa.schema([("k", pa.int64()), ("v", pa.date32())]))
    with table.update_spec() as spec:
        spec.add_field("v", "month", "m")


def needing(path: Path) -> None:
    catalog(path).create_table(
        "db.t", pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
    )


def plain(path: Path) -> None:
    put(path, range(1))


@pytest.mark.parametrize(
    ("make", "columns", "message"),
    [
        (lambda path: catalog(path), "k BIGINT", 'there is no Iceberg table "db.t" in the catalog'),
        (plain, "k BIGINT, w STRING", 'the Iceberg table has no column "w"'),
        (plain, "k BIGINT, v BIGINT", 'column "v" is BIGINT here and VARCHAR in the Iceberg table'),
        (plain, "k BIGINT, v STRING) PARTITIONED BY (v", "the Iceberg table is not at all"),
        (by_day, "k BIGINT, v DATE", "the Iceberg table is partitioned by month, which no job can write"),
        (needing, "k BIGINT, v STRING", 'column "k" of the Iceberg table is required, and jobs write optional ones'),
    ],
)
def test_tables_that_cannot_be_written_are_refused_at_the_start(
    tmp_path: Path, make: Callable[[Path], None], columns: str, message: str
) -> None:
    make(tmp_path)
    declared = columns.partition(")")[0]
    script = f"""CREATE TABLE given ({declared}); CREATE TABLE t ({columns}) {options(tmp_path)};
        INSERT INTO t SELECT {", ".join(c.split()[0] for c in declared.split(", "))} FROM given"""
    with pytest.raises(SqlStreamError) as e, Stream(script):
        pass
    assert message in str(e.value)


# -- as a source


def followed(path: Path, *more: str) -> str:
    return (
        f"CREATE TABLE t {options(path, 'db.t', *more)}; CREATE TABLE seen (k BIGINT); INSERT INTO seen SELECT k FROM t"
    )


FOLLOW = "'source.monitor-interval' = '0 s'"


def test_snapshots_are_read_once_in_batches_of_any_size(tmp_path: Path) -> None:
    for number in range(3):
        put(tmp_path, range(number * 10, number * 10 + 10))
    script = followed(tmp_path, FOLLOW, "'source.max-bytes-per-batch' = '1 B'")
    count = "SELECT count(*), sum(k) FROM seen"
    assert read(tmp_path, script, count) == [(30, 435)]
    for number in range(3, 5):
        put(tmp_path, range(number * 10, number * 10 + 10))
    assert read(tmp_path, script, count) == [(50, 1225)]
    assert read(tmp_path, script, count) == [(50, 1225)]
    table = catalog(tmp_path).load_table("db.t")
    table.delete("k == 1")
    with pytest.raises(SqlStreamError, match=r"of the Iceberg table is no append"):
        read(tmp_path, script, "SELECT 1")


def test_where_reading_begins_and_ends(tmp_path: Path) -> None:
    for number in range(3):
        put(tmp_path, range(number * 10, number * 10 + 10))
    second = catalog(tmp_path).load_table("db.t").snapshots()[1].snapshot_id
    starts = {
        (f"'scan.snapshot-id' = '{second}'",): (20, 20),
        ("'scan.startup.mode' = 'latest'", FOLLOW): (0, 10),
        ("'scan.startup.mode' = 'snapshot-id'", f"'scan.startup.snapshot-id' = '{second}'", FOLLOW): (20, 30),
    }
    for number, given in enumerate(starts):
        (tmp_path / str(number)).mkdir()
        run(str(tmp_path / str(number)), followed(tmp_path, *given))
    put(tmp_path, range(30, 40))
    for number, (given, (first, later)) in enumerate(starts.items()):
        project = tmp_path / str(number)
        if first:
            found = open_query(Warehouse(f"{project}/warehouse"), "SELECT count(*) FROM seen").fetchall()
            assert found == [(first,)], given
        assert read(project, followed(tmp_path, *given), "SELECT count(*) FROM seen") == [(later,)], given


@pytest.mark.parametrize("lost", ["file", "snapshots"])
def test_what_the_table_no_longer_has_is_named(tmp_path: Path, lost: str) -> None:
    put(tmp_path, range(10))
    assert read(tmp_path, followed(tmp_path, FOLLOW), "SELECT count(*) FROM seen") == [(10,)]
    for _ in range(3):
        put(tmp_path, range(10))
    table = catalog(tmp_path).load_table("db.t")
    if lost == "file":
        for task in table.scan().plan_files():
            os.remove(task.file.file_path.removeprefix("file://"))
    else:
        for snapshot in table.snapshots()[:-1]:
            table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    said = 'reading Iceberg table "db.t" failed' if lost == "file" else "expired before the job had read them"
    with pytest.raises(SqlStreamError, match=said):
        read(tmp_path, followed(tmp_path, FOLLOW), "SELECT 1")
