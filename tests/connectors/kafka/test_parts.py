"""How rows are divided over the writers of a topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sqlstream.catalog import Column, Table
from sqlstream.connectors.batch import Batch
from sqlstream.connectors.kafka.parts import TopicPart, divided
from sqlstream.connectors.kafka.sink import TopicSink
from sqlstream.errors import BindError

WRITERS = 3
COLUMNS = (Column("k", "INTEGER"), Column("v", "VARCHAR"))
KEYED = {"key.format": "csv", "key.fields": "k"}


def table(more: Mapping[str, str] = MappingProxyType({}), columns: Sequence[Column] = COLUMNS) -> Table:
    options = {"topic": "t", "format": "csv", "sink.parallelism": str(WRITERS), **more}
    return Table(name="t", columns=tuple(columns), options=options)


def parts(folder: Path, of: Table) -> list[list[tuple[Any, ...]]]:
    """Return the rows of each writer of a batch in two files."""
    paths = []
    for number in range(2):
        rows = {of.columns[0].name: [k % 5 for k in range(20)], "v": [f"{number}-{k}" for k in range(20)]}
        pq.write_table(pa.table(rows), folder / f"{number}.parquet")
        paths.append(str(folder / f"{number}.parquet"))
    batch = Batch(0, of.columns, tuple(paths))
    found = []
    for number in range(WRITERS):
        part = divided(batch, TopicPart(of, False, number, WRITERS, None, "", "", ""))
        found.append([tuple(row.values()) for row in part.table(part.rows()).to_pylist()])
    return found


def test_each_row_has_one_writer(tmp_path: Path) -> None:
    # A column may be called as DuckDB calls the number of a row.
    numbered = (Column("file_row_number", "INTEGER"), COLUMNS[1])
    for of in (table(), table(KEYED), table(columns=numbered)):
        rows = [row for part in parts(tmp_path, of) for row in part]
        assert sorted(rows) == sorted((k % 5, f"{number}-{k}") for number in range(2) for k in range(20))


def test_rows_are_dealt_out_by_their_places_or_their_keys(tmp_path: Path) -> None:
    assert [len(part) for part in parts(tmp_path, table())] == [14, 14, 12]
    # A job that goes on with another version must divide a batch as it was: these must never change.
    keys = [{k for k, _ in part} for part in parts(tmp_path, table(KEYED))]
    assert keys == [{0, 3}, {2}, {1, 4}]


def test_changes_without_a_key_have_one_writer() -> None:
    with pytest.raises(BindError, match="several writers of changes need a key"):
        TopicSink(table({"format": "debezium-json"})).check(None)
    TopicSink(table({**KEYED, "format": "debezium-json"})).check(None)
