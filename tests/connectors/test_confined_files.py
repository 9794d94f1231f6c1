"""Tables whose files must lie in some folders read nothing else: a file may become a link after its table was accepted."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sqlstream.catalog import Column, Table
from sqlstream.connectors.delta.location import Location
from sqlstream.connectors.duckdb.connector import DuckDBFile
from sqlstream.connectors.filesystem.connector import Files, WrittenFiles
from sqlstream.connectors.filesystem.lookup import CurrentFilesLookup, files_now
from sqlstream.connectors.filesystem.splits import FileDiscovery
from sqlstream.connectors.interface import ReadContext, SinkContext
from sqlstream.connectors.registry import find
from sqlstream.connectors.relational.writer import DatabaseSink
from sqlstream.connectors.sqlite.lookup import SQLiteFile
from sqlstream.errors import DataError
from sqlstream.warehouse.filesystem import LocalFilesystem
from tests.command_line import run_command

LEADS_OUTSIDE = "leads outside of where its files may be"
KEYS = pa.table({"a": [1]})


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for folder in ("in", "private"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.csv").write_text("1\n")
        (tmp_path / folder / "y.csv").write_text("2\n")
        for connect in (sqlite3.connect, duckdb.connect):
            con = connect(tmp_path / folder / f"x.{connect.__module__.strip('_').removesuffix('3')}")
            con.execute("CREATE TABLE t (a BIGINT PRIMARY KEY)")
            con.commit()
            con.close()
    return tmp_path


def confined(project: Path, connector: str, path: str) -> Table:
    options = {"connector": connector, "path": path, "format": "csv", "table": "t"}
    table = Table("t", (Column("a", "BIGINT"),), options=options, primary_key=("a",))
    return replace(table, within=(os.path.realpath(project / "in"),))


def become_a_link(project: Path, name: str) -> None:
    """Replace a file of the folder that is allowed by a link to one of another folder."""
    (project / "in" / name).unlink()
    (project / "in" / name).symlink_to(project / "private" / name)


def test_a_file_that_has_become_a_link_is_not_read(project: Path) -> None:
    table = confined(project, "filesystem", "in/*.csv")
    found = FileDiscovery.of(table, project=str(project), parallelism=1)
    assert found.poll() == 2
    splits = found.next_batch()
    assert splits is not None
    context = ReadContext(str(project), "")
    assert [Files(table).located(split, context).path for split in splits] == [
        s.path for s in files_now(table, str(project))
    ]
    # After it was listed, and after it was handed out.
    again = FileDiscovery.of(table, project=str(project), parallelism=1)
    assert again.poll() == 2
    become_a_link(project, "x.csv")
    with pytest.raises(DataError, match=LEADS_OUTSIDE):
        again.next_batch()
    with pytest.raises(DataError, match=LEADS_OUTSIDE):
        [Files(table).located(split, context) for split in splits]
    with pytest.raises(DataError, match=LEADS_OUTSIDE):
        CurrentFilesLookup(table, str(project))(KEYS)
    # A table of anybody else follows links.
    assert len(files_now(replace(table, within=()), str(project))) == 2


def test_a_folder_that_has_become_a_link_is_not_read_or_written(project: Path) -> None:
    table = confined(project, "filesystem", "in/day=1")
    (project / "in" / "day=1").symlink_to(project / "private")
    with pytest.raises(DataError, match=LEADS_OUTSIDE):
        files_now(table, str(project))
    context = SinkContext(LocalFilesystem(), str(project), str(project / "records"), job="j")
    with pytest.raises(DataError, match=LEADS_OUTSIDE):
        WrittenFiles(table).committer(context)
    with pytest.raises(DataError, match=LEADS_OUTSIDE):
        Location.of(confined(project, "delta", "in/day=1"), str(project))
    # One that leads elsewhere in what is allowed does.
    (project / "in" / "day=2").mkdir()
    (project / "in" / "day=2" / "z.csv").symlink_to(project / "in" / "x.csv")
    assert len(files_now(confined(project, "filesystem", "in/day=2"), str(project))) == 1


@pytest.mark.parametrize("connector", ["sqlite", "duckdb"])
def test_a_database_that_has_become_a_link_is_not_opened(project: Path, connector: str) -> None:
    name = f"x.{connector}"
    table = confined(project, connector, f"in/{name}")
    lookup: Callable[[pa.Table], pa.Table] = {"sqlite": SQLiteFile, "duckdb": DuckDBFile}[connector](
        table, str(project)
    )
    context = SinkContext(LocalFilesystem(), str(project), str(project / "records"), job="j")
    declared = find(connector)
    assert declared is not None
    assert declared.sink_type is not None
    assert issubclass(declared.sink_type, DatabaseSink)
    writer = declared.sink_type.writer_type(table, context)
    assert lookup(KEYS).num_rows == 0
    writer.prepare()
    become_a_link(project, name)
    for use in (lambda: lookup(KEYS), writer.prepare, lambda: writer.transaction().__enter__()):
        with pytest.raises(DataError, match=LEADS_OUTSIDE):
            use()


def test_the_columns_of_a_link_are_not_told(project: Path) -> None:
    pq.write_table(pa.table({"secret": [1]}), project / "private" / "z.parquet")
    (project / "in" / "z.parquet").symlink_to(project / "private" / "z.parquet")
    sql = "CREATE TABLE f WITH ('connector' = 'filesystem', 'path' = 'in/*.parquet', 'format' = 'parquet'); DESCRIBE f"
    found = run_command(project, "run", "-e", sql, f"--files-within={os.path.realpath(project / 'in')}")
    assert LEADS_OUTSIDE in found.stderr
    assert "secret" not in found.stdout + found.stderr
    assert "secret" in run_command(project, "run", "-e", sql).stdout
