"""The workers' side of a source: splits of any kind as SQL that stands in a FROM clause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar, assert_never

import duckdb

from sqlstream.catalog import Table
from sqlstream.connectors.datagen.source import read_generated
from sqlstream.connectors.filesystem.roots import Root
from sqlstream.connectors.filesystem.splits import Split as FileSplit
from sqlstream.connectors.formats.faults import take as take_files
from sqlstream.connectors.formats.faults import translate
from sqlstream.connectors.formats.malformed import skips
from sqlstream.connectors.formats.reading import ReadPlan
from sqlstream.connectors.formats.reading import read as read_files
from sqlstream.connectors.nexmark.source import read_nexmark
from sqlstream.connectors.python.source import read_python
from sqlstream.connectors.socket.source import files_of, read_lines
from sqlstream.connectors.splits import BatchRange, LinesFile, PartitionRange, RowRange, Split
from sqlstream.connectors.warehouse.source import read_tables
from sqlstream.errors import DataError
from sqlstream.warehouse.paths import Warehouse

S = TypeVar("S")


def take(
    con: duckdb.DuckDBPyConnection, splits: Sequence[Split], table: Table, *, warehouse: str, time: int
) -> ReadPlan:
    """Return how to read splits as `read` does, once their rows were taken where malformed ones are skipped."""
    if (files := files_among(splits)) and skips(table):
        return take_files(con, files, table)
    return read(con, splits, table, warehouse=warehouse, time=time)


def locate(splits: Sequence[Split], table: Table, *, project: str, warehouse: str) -> list[Split]:
    """Return splits with the paths of their files: descriptors name files as they are called below what may have moved."""
    found: list[Split] = []
    for split in splits:
        match split:
            case FileSplit() if split.root:
                found.append(split.located(Root.of(table.options["path"], project)))
            case LinesFile():
                found.append(replace(split, path=f"{Warehouse(warehouse).root}/{split.path}"))
            case _:
                found.append(split)
    return found


def read(
    con: duckdb.DuckDBPyConnection, splits: Sequence[Split], table: Table, *, warehouse: str, time: int
) -> ReadPlan:
    """Return how to read splits of a table, all of one kind; `time` (ms) is when their batch was decided."""
    match splits[0]:
        case FileSplit():
            return read_files(con, _all(splits, FileSplit), table)
        case BatchRange():
            return read_tables(Warehouse(warehouse), _all(splits, BatchRange), table)
        case LinesFile():
            return read_lines(con, _all(splits, LinesFile), table)
        case PartitionRange():
            return read_python(con, _all(splits, PartitionRange), table)
        case RowRange() if table.connector == "nexmark":
            return read_nexmark(con, _all(splits, RowRange), table)
        case RowRange():
            return read_generated(_all(splits, RowRange), table, time)
    assert_never(splits[0])


def explain_unreadable(error: duckdb.Error, splits: Sequence[Split], table: Table) -> DataError | None:
    """Return DuckDB's error of reading the splits as people should see it, None when it is about something else."""
    files = files_among(splits)
    return translate(error, files, table) if files and "format" in table.options else None


def files_among(splits: Sequence[Split]) -> list[FileSplit]:
    """Return the files, or parts of them, that splits of a table with a format are."""
    return _all(splits, FileSplit) or files_of(_all(splits, LinesFile))


def _all(splits: Sequence[Split], kind: type[S]) -> list[S]:
    return [s for s in splits if isinstance(s, kind)]
