"""The rows of a batch as sinks outside of the warehouse ask for them."""

import re
from pathlib import Path

import duckdb
import pytest

from sqlstream.catalog import Column
from sqlstream.connectors.batch import Batch
from sqlstream.connectors.interface import SinkContext
from sqlstream.duck.sql import Select
from sqlstream.storage.zsets import WEIGHT
from sqlstream.warehouse.filesystem import LocalFilesystem

COLUMNS = (Column("k", "INTEGER"), Column("v", "VARCHAR"))


def batch(folder: Path, *files: str, changing: bool = True, order: tuple[Column, ...] = ()) -> Batch:
    """Return a batch whose files have the rows of some VALUES."""
    names = ", ".join(["k", "v", *(c.name for c in order), *([WEIGHT] if changing else [])])
    paths = [str(folder / f"{number}.parquet") for number, _ in enumerate(files)]
    for path, values in zip(paths, files, strict=True):
        duckdb.execute(f"COPY (SELECT * FROM (VALUES {values}) AS t({names})) TO '{path}'")
    return Batch(7, COLUMNS, tuple(paths), changing, ("k",), order)


def rows(batch: Batch, sql: Select) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in batch.table(sql).to_pylist()), key=str)


def test_rows_of_all_files(tmp_path: Path) -> None:
    found = batch(tmp_path, "(1, 'a')", "(2, NULL)", changing=False)
    assert rows(found, found.rows()) == rows(found, found.upserts()) == [(1, "a"), (2, None)]
    assert rows(found, found.changes()) == [(1, "a", 1), (2, None, 1)]
    assert rows(found, found.deletes()) == []


def test_changes_of_a_key_in_several_files_are_one(tmp_path: Path) -> None:
    # 1 is replaced, 2 deleted, 3 new, 4 comes and goes, 5 goes and comes as it was.
    found = batch(
        tmp_path,
        "(1, 'old', -1), (2, 'old', -1), (3, 'new', 1), (4, 'x', 1), (5, 'same', -1)",
        "(1, 'new', 1), (4, 'x', -1), (5, 'same', 1)",
    )
    assert rows(found, found.changes()) == [(1, "new", 1), (1, "old", -1), (2, "old", -1), (3, "new", 1)]
    assert rows(found, found.upserts()) == [(1, "new"), (3, "new")]
    assert rows(found, found.deletes()) == [(2,)]


def test_the_last_row_of_a_key_counts(tmp_path: Path) -> None:
    order = (Column("place", "INTEGER"),)
    found = batch(tmp_path, "(1, 'first', 10, 1), (2, 'only', 11, 1)", "(1, 'last', 12, 1)", order=order)
    assert rows(found, found.upserts()) == [(1, "last"), (2, "only")]
    assert rows(found, found.deletes()) == []


def test_the_name_of_a_job_in_a_table_stays(tmp_path: Path) -> None:
    context = SinkContext(LocalFilesystem(), "", str(tmp_path / "a"), job="sums")
    other = SinkContext(LocalFilesystem(), "", str(tmp_path / "b"), job="sums")
    name = context.identity()
    assert re.fullmatch("sums-[0-9a-f]{8}", name)
    assert name == context.identity()
    assert name != other.identity()


@pytest.mark.parametrize("changing", [True, False])
def test_a_batch_without_files_of_a_key_has_no_deletes(tmp_path: Path, changing: bool) -> None:
    found = batch(tmp_path, "(1, 'a', 1)" if changing else "(1, 'a')", changing=changing)
    assert rows(found, found.deletes()) == []
