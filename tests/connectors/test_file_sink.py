"""Files as sinks: formats and partitions come back, a batch is published once, and what a job wrote can go."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sqlstream import Session
from sqlstream.catalog import Column, Table
from sqlstream.compiler.compiler import Compiler
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.connectors.filesystem.sink import FileSink, discard
from sqlstream.duck.sql import Select
from sqlstream.errors import SourceText, SqlStreamError
from sqlstream.local.engine import LocalEngine
from sqlstream.session.state_queries import snapshot
from sqlstream.storage.recovery import Versions
from sqlstream.testing import Stream
from sqlstream.warehouse.filesystem import LocalFilesystem
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.records import write_sealed
from tests.processes import SECONDS

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
            return sorted(con.execute(f"FROM {snapshot(con, found, '/').relation}").fetchall(), key=lambda r: int(r[0]))


@pytest.mark.parametrize(
    "options",
    ["'format' = 'parquet'", "'format' = 'avro'", "'format' = 'json'", "'format' = 'csv', 'csv.header' = 'true'"],
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
    assert "name" not in duckdb.read_json(str(file), hive_partitioning=False).columns


# -- publishing

TABLE = Table("files", (Column("k", "BIGINT"),), options={"path": "files", "format": "json"})


def staged(sink: FileSink, batch: int, *keys: int) -> list[str]:
    with duckdb.connect() as con:
        values = ", ".join(f"({k})" for k in keys)
        count, files = sink.write(con, TABLE.columns, Select(f"FROM (VALUES {values}) _(k)"), batch)
    assert count == len(keys)
    return files


def published(folder: Path) -> list[int]:
    files = sorted(f for f in (folder / "files").iterdir() if f.is_file())
    assert all(f.name.endswith(".json") for f in files)
    return sorted(k for f in files for (k,) in duckdb.execute(f"SELECT k FROM read_json('{f}')").fetchall())


def test_a_batch_that_is_repeated_is_published_once(tmp_path: Path) -> None:
    fs, records = LocalFilesystem(), str(tmp_path / "records")
    sink = FileSink.open(fs, TABLE, str(tmp_path), records)
    sink.publish(fs, records, 0, [*staged(sink, 0, 1, 2), *staged(sink, 0, 3)])
    sink.publish(fs, records, 0, [*staged(sink, 0, 1), *staged(sink, 0, 2, 3)])
    assert published(tmp_path) == [1, 2, 3]
    assert not os.path.exists(sink.staging)


def test_a_batch_that_was_half_published_is_finished(tmp_path: Path) -> None:
    fs, records = LocalFilesystem(), str(tmp_path / "records")
    sink = FileSink.open(fs, TABLE, str(tmp_path), records)
    first = [*staged(sink, 4, 1, 2), *staged(sink, 4, 3)]
    # The process dies after the first of two renames; another attempt of the batch had left a file.
    write_sealed(fs, f"{records}/0000000004.json", str(first).replace("'", '"'))
    sink._rename(first[:1])
    staged(sink, 4, 1, 2, 3)
    assert published(tmp_path) == [1, 2]
    again = FileSink.open(fs, TABLE, str(tmp_path), records)
    again.recover(fs, records, -1)
    assert published(tmp_path) == [1, 2, 3]
    again.publish(fs, records, 4, staged(again, 4, 1, 2, 3))
    assert published(tmp_path) == [1, 2, 3]


def test_what_was_staged_and_not_published_goes(tmp_path: Path) -> None:
    sink = FileSink.open(LocalFilesystem(), TABLE, str(tmp_path), str(tmp_path / "records"))
    staged(sink, 0, 1)
    assert published(tmp_path) == []
    sink.recover(LocalFilesystem(), str(tmp_path / "records"), -1)
    assert not os.path.exists(sink.staging)


def test_only_the_files_of_the_job_are_discarded(tmp_path: Path) -> None:
    fs = LocalFilesystem()
    for job in ("one", "two"):
        records = str(tmp_path / job)
        sink = FileSink.open(fs, TABLE, str(tmp_path), records)
        sink.publish(fs, records, 0, staged(sink, 0, 1 if job == "one" else 2))
    discard(fs, str(tmp_path / "one"), str(tmp_path))
    assert published(tmp_path) == [2]


def written(project: Path, table: Table = TABLE, *, dies: bool = False) -> FileSink:
    """A sink of a project that has published a row, and a second one half, or not at all if its process `dies`."""
    fs, records = LocalFilesystem(), str(project / "records")
    sink = FileSink.open(fs, table, str(project), records)
    sink.publish(fs, records, 0, staged(sink, 0, 1))
    if dies:
        write_sealed(fs, f"{records}/0000000001.json", json.dumps(staged(sink, 1, 2)))
    return sink


def goes_on(project: Path, table: Table = TABLE, committed: int = 0) -> FileSink:
    fs, records = LocalFilesystem(), str(project / "records")
    sink = FileSink.open(fs, table, str(project), records, committed)
    sink.recover(fs, records, committed)
    return sink


def test_a_copied_project_has_its_files_with_it(tmp_path: Path) -> None:
    written(tmp_path / "a", dies=True)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    # Before its first start, too.
    shutil.copytree(tmp_path / "a", tmp_path / "dropped")
    discard(LocalFilesystem(), str(tmp_path / "dropped" / "records"), str(tmp_path / "dropped"))
    assert published(tmp_path / "dropped") == []
    goes_on(tmp_path / "b")
    assert (published(tmp_path / "b"), published(tmp_path / "a")) == ([1, 2], [1])
    discard(LocalFilesystem(), str(tmp_path / "b" / "records"), str(tmp_path / "b"))
    assert (published(tmp_path / "b"), published(tmp_path / "a")) == ([], [1])
    goes_on(tmp_path / "a")
    assert published(tmp_path / "a") == [1, 2]


@pytest.mark.parametrize("moved", [False, True])
def test_a_copy_that_writes_the_same_folder_leaves_the_files_of_the_original_alone(tmp_path: Path, moved: bool) -> None:
    outside = replace(TABLE, options={**TABLE.options, "path": str(tmp_path / "files")})
    first = written(tmp_path / "a", outside, dies=True)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    if moved:
        shutil.rmtree(tmp_path / "a")
    second = goes_on(tmp_path / "b", outside)
    assert (second.tag == first.tag) == moved
    assert published(tmp_path) == ([1, 2] if moved else [1]), "what was half published belongs to the original"
    second.publish(LocalFilesystem(), str(tmp_path / "b" / "records"), 2, staged(second, 2, 3))
    if not moved:
        goes_on(tmp_path / "a", outside)
    assert published(tmp_path) == [1, 2, 3]
    discard(LocalFilesystem(), str(tmp_path / "b" / "records"), str(tmp_path / "b"))
    assert published(tmp_path) == ([] if moved else [1, 2])


def test_what_was_begun_in_the_old_folder_is_finished_there(tmp_path: Path) -> None:
    written(tmp_path, dies=True)
    goes_on(tmp_path, replace(TABLE, options={**TABLE.options, "path": "others"}))
    assert published(tmp_path) == [1, 2]


def test_files_of_batches_that_are_repeated_go(tmp_path: Path) -> None:
    fs, records = LocalFilesystem(), str(tmp_path / "records")
    sink = written(tmp_path)
    (tmp_path / "files" / "part-of-another-program.json").write_text('{"k": 9}')
    restored = tmp_path / "backup"
    shutil.copytree(records, restored)
    for batch in (3, 4):
        sink.publish(fs, records, batch, staged(sink, batch, batch))
    shutil.rmtree(records)
    restored.rename(records)
    # A batch without rows leaves no record; its commit says that it is not repeated.
    goes_on(tmp_path, committed=3)
    assert published(tmp_path) == [1, 3, 9]
    again = goes_on(tmp_path, committed=2)
    assert published(tmp_path) == [1, 9]
    again.publish(fs, records, 3, staged(again, 3, 3, 4))
    goes_on(tmp_path, committed=2)
    assert published(tmp_path) == [1, 3, 4, 9]


def put(project: Path, *numbers: int) -> None:
    for number in numbers:
        (project / "in").mkdir(exist_ok=True)
        path = project / "in" / f"{number}.json"
        path.write_text(f'{{"k": {number}}}\n')
        os.utime(path, (1_700_000_000 + number,) * 2)


def copied(project: Path, batches: int) -> tuple[list[int], list[str]]:
    """Run a job that copies files, so many in a batch; return what is in the folder of its results, and what it warns of."""
    script = f"""
        CREATE TABLE given (k BIGINT)
        WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'source.max-files-per-batch' = '{batches}');
        CREATE TABLE files (k BIGINT) WITH ('connector' = 'filesystem', 'path' = 'files', 'format' = 'json');
        INSERT INTO files SELECT k FROM given"""
    conf = {"execution.end-of-input": "wait"}
    with Session(str(project), conf=conf, notice=lambda text: None) as session:
        [planned] = [one for one in session.compile(SourceText("script", script)) if isinstance(one, PlannedJob)]
        job = session._jobs.start(planned, {}, engine=LocalEngine())
        assert job.wait(SECONDS)
        return published(project), job.warnings()


def test_a_warehouse_that_was_restored_beside_newer_files_counts_no_row_twice(tmp_path: Path) -> None:
    put(tmp_path, 1, 2)
    assert copied(tmp_path, 1) == ([1, 2], [])
    shutil.copytree(tmp_path / "warehouse", tmp_path / "backup")
    put(tmp_path, 3, 4, 5)
    assert copied(tmp_path, 1) == ([1, 2, 3, 4, 5], [])
    shutil.rmtree(tmp_path / "warehouse")
    (tmp_path / "backup").rename(tmp_path / "warehouse")
    put(tmp_path, 6)
    # With other batches than the first time.
    found, warnings = copied(tmp_path, 2)
    assert found == [1, 2, 3, 4, 5, 6]
    assert warnings == [
        f'table "files": removed 3 files from "{tmp_path}/files", of batches that the job now repeats:'
        " its warehouse is older than these files"
    ]
    assert copied(tmp_path, 2) == ([1, 2, 3, 4, 5, 6], [])


def test_a_job_that_goes_back_counts_no_row_twice(tmp_path: Path) -> None:
    put(tmp_path, 1, 2, 3)
    assert copied(tmp_path, 1)[0] == [1, 2, 3]
    Versions(Warehouse(str(tmp_path / "warehouse")), "files").go_back(0)
    put(tmp_path, 4)
    found, [warning] = copied(tmp_path, 3)
    assert found == [1, 2, 3, 4]
    # The next batch is repeated as it was, and its file is that of then.
    assert warning.startswith('table "files": removed 1 file from ')


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("'path' = 'hdfs://host/x', 'format' = 'csv'", 'writing to "hdfs://host/x"'),
        ("'path' = 'x/*.csv', 'format' = 'csv'", 'writing to the glob "x/*.csv"'),
        ("'path' = 's3://b/day=1/x?', 'format' = 'csv'", 'writing to the glob "s3://b/day=1/x?"'),
    ],
)
def test_where_files_cannot_be_written(clause: str, message: str) -> None:
    compiler = Compiler()
    script = "CREATE TABLE g (k INT) WITH ('connector' = 'datagen');"
    script += f"CREATE TABLE f (k INT) WITH ('connector' = 'filesystem', {clause});"
    try:
        with pytest.raises(SqlStreamError) as e:
            compiler.scripts([SourceText("test", f"{script} INSERT INTO f SELECT k FROM g")])
    finally:
        compiler.close()
    assert message in str(e.value)
