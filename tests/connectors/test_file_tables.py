"""What files tell beside their rows: metadata, partitions; and the columns of a table that declares none."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sqlstream.catalog import Table
from sqlstream.compiler.compiler import Compiler
from sqlstream.connectors.formats.faults import take
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.connectors.formats.reading import read
from sqlstream.errors import DataError, SourceText, SqlStreamError
from sqlstream.session.state_queries import snapshot


def declared(script: str, project: Path) -> Table:
    compiler = Compiler(project=str(project))
    try:
        compiler.scripts([SourceText("test", script)])
        [table] = compiler.catalog.tables.values()
        return table
    finally:
        compiler.close()


def rows(table: Table, project: Path, columns: str = "*", order: str = "ALL") -> Sequence[tuple[Any, ...]]:
    with duckdb.connect(config={"threads": 1}) as con:
        return con.execute(
            f"SELECT {columns} FROM {snapshot(con, table, str(project)).relation} ORDER BY {order}"
        ).fetchall()


def put(path: Path, text: str) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (1_700_000_000, 1_700_000_000))
    return len(text)


METADATA = """
CREATE TABLE t (
    k INT, path STRING METADATA FROM 'file.path' VIRTUAL, `file.name` STRING NOT NULL METADATA,
    bytes BIGINT METADATA FROM 'file.size', seen TIMESTAMP_LTZ(3) METADATA FROM 'file.modification-time',
    n BIGINT METADATA FROM 'row-number', twice AS n * 2
) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'FORMAT')
"""


@pytest.mark.parametrize(("format", "text"), [("json", '{"k": 7}\n{"k": 8}\n'), ("csv", "7\n8\n")])
def test_metadata_of_text_files(tmp_path: Path, format: str, text: str) -> None:
    size = put(tmp_path / "in" / "a", text)
    put(tmp_path / "in" / "b", text)
    table = declared(METADATA.replace("FORMAT", format), tmp_path)
    found = rows(table, tmp_path, 'k, path, "file.name", bytes, epoch(seen), n, twice', "path, n")
    expected = []
    for name in "ab":
        file = str(tmp_path / "in" / name)
        expected += [(7, file, name, size, 1.7e9, 0, 0), (8, file, name, size, 1.7e9, 1, 2)]
    assert found == expected


def test_row_numbers_of_a_range_of_parquet_are_those_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    path = str(tmp_path / "in" / "a.parquet")
    pq.write_table(pa.table({"k": pa.array(range(100), pa.int32())}), path, row_group_size=10)
    table = declared(METADATA.replace("FORMAT", "parquet"), tmp_path)
    size = os.path.getsize(path)
    splits = [FileSplit(path, size, 1, 1, (20, 40), last=False), FileSplit(path, size, 1, 1, (60, 70))]
    with duckdb.connect() as con:
        found = con.execute(f"SELECT k, n, bytes FROM {read(con, splits, table).relation} ORDER BY k").fetchall()
    assert found == [(k, k, size) for k in (*range(20, 40), *range(60, 70))]


def test_rows_that_are_skipped_are_counted_beside_metadata(tmp_path: Path) -> None:
    put(tmp_path / "in" / "a", "7\nx\n")
    put(tmp_path / "in" / "b", "y\nz\n")
    script = METADATA.replace("'FORMAT'", "'csv', 'csv.ignore-parse-errors' = 'true'")
    table = declared(script, tmp_path)
    with duckdb.connect(config={"threads": 1}) as con:
        splits = [FileSplit(str(tmp_path / "in" / name), 4, 1, 4) for name in "ab"]
        plan = take(con, splits, table)
        assert con.execute(f'SELECT k, "file.name" FROM {plan.well_formed}').fetchall() == [(7, "a")]
        assert plan.skipped(con) == 3


PARTITIONED = """
CREATE TABLE t (day DATE, k INT, name STRING) PARTITIONED BY (day, name)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'csv')
"""


def test_partitions_are_read_from_the_path(tmp_path: Path) -> None:
    put(tmp_path / "in" / "day=2026-01-01" / "name=a%2Fb" / "1.csv", "1\n2\n")
    put(tmp_path / "in" / "day=2026-01-01" / "name=a%2Fb" / "2.csv", "3\n")
    put(tmp_path / "in" / "day=__HIVE_DEFAULT_PARTITION__" / "name=" / "1.csv", "4\n")
    found = rows(declared(PARTITIONED, tmp_path), tmp_path, "day::VARCHAR, k, name", "k")
    assert found == [("2026-01-01", k, "a/b") for k in (1, 2, 3)] + [(None, 4, "")]


def test_a_file_in_no_partition(tmp_path: Path) -> None:
    put(tmp_path / "in" / "day=2026-01-01" / "1.csv", "1\n")
    with pytest.raises(SqlStreamError, match='is in no partition "name"'):
        rows(declared(PARTITIONED, tmp_path), tmp_path)


@pytest.mark.parametrize("options", ["", ", 'csv.errors-to' = 'bad'"])
@pytest.mark.parametrize(("type", "value"), [("INT", "abc"), ("INT", "1.5"), ("DATE", "tuesday"), ("TIMESTAMP(3)", "")])
def test_a_partition_whose_value_does_not_fit(tmp_path: Path, type: str, value: str, options: str) -> None:
    put(tmp_path / "in" / f"k={value}" / "1.csv", "1\n")
    script = f"""CREATE TABLE t (k {type}, n INT) PARTITIONED BY (k)
        WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'csv'{options})"""
    with pytest.raises(DataError) as caught:
        rows(declared(script, tmp_path), tmp_path)
    file = tmp_path / "in" / f"k={value}" / "1.csv"
    assert caught.value.message == f'file "{file}" of table "t" is in partition k=\'{value}\''
    assert (caught.value.detail or "").startswith('Column "k" does not hold a')


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            "CREATE TABLE t (k INT METADATA)",
            'column "k": only tables with the connector "filesystem" or "kafka" or "upsert-kafka" have METADATA',
        ),
        (METADATA.replace("file.size", "file.sizes"), 'metadata "file.sizes" does not exist'),
        (PARTITIONED.replace("(day, name)", "(days)"), 'column "days" does not exist in table "t"'),
        (PARTITIONED.replace("(day, name)", "(day, name, k)"), "needs a column that is not in PARTITIONED BY"),
        ("CREATE TABLE t (k INT) PARTITIONED BY (k)", "PARTITIONED BY without the connector 'filesystem'"),
        (
            METADATA + "; CREATE TABLE s (n INT) WITH ('connector' = 'datagen'); INSERT INTO t (n) SELECT n FROM s",
            'column "n" of table "t" is read from the source, and not written',
        ),
    ],
)
def test_what_cannot_be_declared(tmp_path: Path, script: str, message: str) -> None:
    with pytest.raises(SqlStreamError) as e:
        declared(script.replace("FORMAT", "csv"), tmp_path)
    assert message in e.value.message


def test_columns_are_those_of_the_first_file(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    data = pa.table({"k": pa.array([1], pa.int16()), "seen": pa.array([0], pa.timestamp("us")), "x": [{"y": ["z"]}]})
    pq.write_table(data, tmp_path / "in" / "a.parquet")
    options = "WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'parquet')"
    table = declared(f"CREATE TABLE t {options}", tmp_path)
    assert [(c.name, c.type) for c in table.columns] == [
        ("k", "SMALLINT"),
        ("seen", "TIMESTAMP"),
        ("x", "STRUCT(y VARCHAR[])"),
    ]
    body = "(WATERMARK FOR seen AS seen - INTERVAL '1' SECOND, kk AS k + 1, name STRING METADATA FROM 'file.name')"
    more = declared(f"CREATE TABLE t {body} {options}", tmp_path)
    assert [c.name for c in more.columns] == ["k", "seen", "x", "kk", "name"]
    assert more.watermark is not None
    assert rows(more, tmp_path, "kk, name") == [(2, "a.parquet")]


def test_no_file_to_infer_columns_from(tmp_path: Path) -> None:
    script = "CREATE TABLE t WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'parquet')"
    with pytest.raises(SqlStreamError, match='no file at "in" to infer them from'):
        declared(script, tmp_path)
    put(tmp_path / "in" / "a.parquet", "not Parquet")
    with pytest.raises(SqlStreamError, match=r'the columns of ".*a.parquet" cannot be read') as unreadable:
        declared(script, tmp_path)
    assert "a.parquet" in (unreadable.value.detail or "")
