"""Files as sinks: formats and partitions come back, a batch is published once, and what a job wrote can go."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sqlstream.catalog import Column, Table
from sqlstream.compiler import Compiler
from sqlstream.connectors.file_sink import FileSink, discard
from sqlstream.errors import Source, SqlStreamError
from sqlstream.queries import relation
from sqlstream.storage.filesystem import LocalFilesystem
from sqlstream.storage.records import write_sealed
from sqlstream.testing import Stream

COLUMNS = (
    "k BIGINT, name STRING, ts TIMESTAMP(3), at TIMESTAMP_LTZ(3), day DATE, amount DECIMAL(7, 2), tags ARRAY<STRING>,"
    " b BOOLEAN"
)
ROWS = [
    (1, "a,b", "2026-01-01 10:00:00", "2026-01-01 10:00:00+00", "2026-01-01", "1.50", ["x", "y"], True),
    (2, "", None, None, None, None, None, None),
    (3, None, "2026-01-02 00:00:00", "2026-01-02 12:00:00+02", "2026-01-02", "-3", [], False),
    (4, 'say "so"', "2026-01-03 00:00:00", "2026-01-03 12:00:00+00", "2026-01-02", "0", ["ü/=%"], False),
]


def run(folder: Path, options: str, clause: str = "", rows: Sequence[Sequence[Any]] = ROWS) -> list[tuple[Any, ...]]:
    """Write the rows with a job, in two batches, and return what the table reads then."""
    table = (
        f"CREATE TABLE files ({COLUMNS}) {clause} WITH ('connector' = 'filesystem', 'path' = '{folder}', {options});"
    )
    script = f"CREATE TABLE given ({COLUMNS}); {table} INSERT INTO files SELECT * FROM given;"
    with Stream(script) as stream:
        stream.batch("given", rows[:2])
        stream.restart()
        stream.batch("given", rows[2:])
        found = stream.compiler.catalog.relation("files")
        assert isinstance(found, Table)
        with duckdb.connect() as con:
            con.execute("SET TimeZone = 'UTC'")
            return sorted(con.execute(f"FROM {relation(con, found, '/')}").fetchall(), key=lambda r: int(r[0]))


@pytest.mark.parametrize(
    "options", ["'format' = 'parquet'", "'format' = 'json'", "'format' = 'csv', 'csv.header' = 'true'"]
)
@pytest.mark.parametrize("clause", ["", "PARTITIONED BY (day)", "PARTITIONED BY (name, b)"])
def test_what_is_written_comes_back(tmp_path: Path, options: str, clause: str) -> None:
    if "csv" in options:
        options += ", 'csv.field-delimiter' = ';'"
    found = run(tmp_path / "files", options, clause)
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        types = [t.strip().split(" ", 1)[1] for t in COLUMNS.replace("7, 2", "7;2").split(",")]
        types = [t.replace("7;2", "7,2").replace("STRING", "VARCHAR").replace("_LTZ(3)", "TZ") for t in types]
        types = ["VARCHAR[]" if "ARRAY" in t else t for t in types]
        expected = [con.execute(f"SELECT {', '.join(f'?::{t}' for t in types)}", list(r)).fetchone() for r in ROWS]
    assert found == expected


def test_folders_are_named_as_hive_names_them(tmp_path: Path) -> None:
    run(tmp_path / "files", "'format' = 'json'", "PARTITIONED BY (day, name)")
    folders = {os.path.relpath(r, tmp_path / "files") for r, _, files in os.walk(tmp_path / "files") if files}
    assert folders == {
        "day=2026-01-01/name=a%2Cb",
        "day=__HIVE_DEFAULT_PARTITION__/name=",
        "day=2026-01-02/name=__HIVE_DEFAULT_PARTITION__",
        "day=2026-01-02/name=say%20%22so%22",
    }
    [file] = (tmp_path / "files" / "day=2026-01-01" / "name=a%2Cb").iterdir()
    assert file.suffix == ".json"
    assert "name" not in duckdb.sql(f"FROM read_json('{file}', hive_partitioning = false)").columns


# -- publishing

TABLE = Table("files", (Column("k", "BIGINT"),), options={"path": "files", "format": "json"})


def staged(sink: FileSink, batch: int, *keys: int) -> list[str]:
    with duckdb.connect() as con:
        values = ", ".join(f"({k})" for k in keys)
        count, files = sink.write(con, TABLE.columns, f"FROM (VALUES {values}) _(k)", batch)
    assert count == len(keys)
    return files


def published(folder: Path) -> list[int]:
    files = sorted(f for f in (folder / "files").iterdir() if f.is_file())
    assert all(f.name.endswith(".json") for f in files)
    return sorted(k for f in files for (k,) in duckdb.sql(f"SELECT k FROM read_json('{f}')").fetchall())


def test_a_batch_that_is_repeated_is_published_once(tmp_path: Path) -> None:
    fs, sink, records = LocalFilesystem(), FileSink.of(TABLE, str(tmp_path), "job"), str(tmp_path / "records")
    sink.publish(fs, records, 0, [*staged(sink, 0, 1, 2), *staged(sink, 0, 3)])
    sink.publish(fs, records, 0, [*staged(sink, 0, 1), *staged(sink, 0, 2, 3)])
    assert published(tmp_path) == [1, 2, 3]
    assert not os.path.exists(sink.staging)


def test_a_batch_that_was_half_published_is_finished(tmp_path: Path) -> None:
    fs, sink, records = LocalFilesystem(), FileSink.of(TABLE, str(tmp_path), "job"), str(tmp_path / "records")
    first = [*staged(sink, 4, 1, 2), *staged(sink, 4, 3)]
    # The process dies after the first of two renames; another attempt of the batch had left a file.
    write_sealed(fs, f"{records}/0000000004.json", str(first).replace("'", '"'))
    sink._rename(first[:1])
    staged(sink, 4, 1, 2, 3)
    assert published(tmp_path) == [1, 2]
    again = FileSink.of(TABLE, str(tmp_path), "job")
    again.recover(fs, records)
    assert published(tmp_path) == [1, 2, 3]
    again.publish(fs, records, 4, staged(again, 4, 1, 2, 3))
    assert published(tmp_path) == [1, 2, 3]


def test_what_was_staged_and_not_published_goes(tmp_path: Path) -> None:
    sink = FileSink.of(TABLE, str(tmp_path), "job")
    staged(sink, 0, 1)
    assert published(tmp_path) == []
    sink.recover(LocalFilesystem(), str(tmp_path / "records"))
    assert not os.path.exists(sink.staging)


def test_only_the_files_of_the_job_are_discarded(tmp_path: Path) -> None:
    fs = LocalFilesystem()
    for job in ("one", "two"):
        sink, records = FileSink.of(TABLE, str(tmp_path), job), str(tmp_path / job)
        sink.recover(fs, records)
        sink.publish(fs, records, 0, staged(sink, 0, 1 if job == "one" else 2))
    discard(fs, str(tmp_path / "one"))
    assert published(tmp_path) == [2]


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("'path' = 's3://bucket/x', 'format' = 'csv'", 'writing to "s3://bucket/x"'),
        ("'path' = 'x/*.csv', 'format' = 'csv'", 'writing to the glob "x/*.csv"'),
    ],
)
def test_where_files_cannot_be_written(clause: str, message: str) -> None:
    compiler = Compiler()
    script = "CREATE TABLE g (k INT) WITH ('connector' = 'datagen');"
    script += f"CREATE TABLE f (k INT) WITH ('connector' = 'filesystem', {clause});"
    try:
        with pytest.raises(SqlStreamError) as e:
            compiler.scripts([Source("test", f"{script} INSERT INTO f SELECT k FROM g")])
    finally:
        compiler.close()
    assert message in str(e.value)
