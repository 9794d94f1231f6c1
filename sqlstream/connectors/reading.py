"""The workers' side of a source: splits of any kind as SQL that stands in a FROM clause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import duckdb

from sqlstream.catalog import Table
from sqlstream.connectors.splits import BatchRange, Split
from sqlstream.connectors.tables import read_tables
from sqlstream.errors import DataError
from sqlstream.storage.files import Split as FileSplit
from sqlstream.storage.filesystem import Warehouse
from sqlstream.storage.formats import ReadPlan
from sqlstream.storage.formats import read as read_files
from sqlstream.storage.read_errors import translate

S = TypeVar("S")


def read(
    con: duckdb.DuckDBPyConnection, splits: Sequence[Split], table: Table, *, warehouse: str, time: int
) -> ReadPlan:
    """Return how to read splits of a table, all of one kind; `time` (ms) is when their batch was decided."""
    match splits[0]:
        case FileSplit():
            return read_files(con, _all(splits, FileSplit), table)
        case BatchRange():
            return read_tables(Warehouse(warehouse), _all(splits, BatchRange), table)
    raise TypeError(f"no reader of {splits[0]}")


def explain_unreadable(error: duckdb.Error, splits: Sequence[Split], table: Table) -> DataError | None:
    """Return DuckDB's error of reading the splits as people should see it, None when it is about something else."""
    files = _all(splits, FileSplit)
    return translate(error, files, table) if files else None


def _all(splits: Sequence[Split], kind: type[S]) -> list[S]:
    return [s for s in splits if isinstance(s, kind)]
