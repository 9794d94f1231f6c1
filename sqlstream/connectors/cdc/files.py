"""Parquet files of changes that the driver has received: a repeated batch reads the same files.

They have the operation of each change, and values as texts, which workers convert to the declared types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sqlstream.catalog import Column, Table
from sqlstream.connectors.cdc.changes import INSERTED, DecodedChanges
from sqlstream.connectors.formats.changelogs import OPERATION
from sqlstream.duck.internal_columns import MODIFIED, PATH, ROW
from sqlstream.duck.sql import Select, quote_name, quote_text
from sqlstream.errors import DataError
from sqlstream.warehouse.filesystem import Filesystem

# The column of a file with the operation of each change.
_OPERATION = OPERATION.name


@dataclass(frozen=True, slots=True)
class ChangesFile:
    """A file of changes: the `number`th of its source, from 0 on. `end` is the log position after its changes.

    The `folder` is relative to the warehouse.
    """

    number: int
    end: int
    folder: str
    bytes: int

    @property
    def reached(self) -> tuple[str, Any]:
        """The one partition of the table, "", and the position after this file: [log position, number of the next file]."""
        return "", [self.end, self.number + 1]

    @property
    def path(self) -> str:
        return f"{self.folder}/{file_name(self.number)}"

    def to_list(self) -> list[Any]:
        return [self.number, self.end, self.folder, self.bytes]


def file_name(number: int) -> str:
    """Return the name of a file by its number."""
    return f"{number:010d}.parquet"


def number_of(name: str) -> int | None:
    """Return the number of a file by its name, None for a file of another kind."""
    stem, dot, ending = name.partition(".")
    return int(stem) if dot and ending == "parquet" and stem.isdecimal() else None


def in_files(batches: Iterator[pa.RecordBatch], most: int) -> Iterator[Iterator[pa.RecordBatch]]:
    """Yield groups of batches, each of at least `most` rows except the last. Read each group to its end before the next."""
    while (first := next(batches, None)) is not None:
        yield _up_to(first, batches, most)


def _up_to(first: pa.RecordBatch, batches: Iterator[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    yield first
    count = first.num_rows
    while count < most and (following := next(batches, None)) is not None:
        yield following
        count += following.num_rows


def write_rows(fs: Filesystem, path: str, table: Table, batches: Iterable[pa.RecordBatch]) -> None:
    """Write the rows of a snapshot, batches of texts, into a file as inserts."""
    schema = _schema(table)
    with fs.create(path, durable=True) as file, pq.ParquetWriter(file, schema) as writer:
        for rows in batches:
            operations = pa.array([INSERTED] * rows.num_rows, pa.string())
            writer.write_batch(pa.record_batch([operations, *rows.columns], schema=schema))


def write_changes(fs: Filesystem, path: str, table: Table, groups: Iterable[DecodedChanges]) -> int:
    """Write changes into a file, a row group for each group; return their number. Without changes there is no file."""
    schema, count = _schema(table), 0
    groups = iter(groups)
    first = next(groups, None)
    if first is None:
        return 0
    with fs.create(path, durable=True) as file, pq.ParquetWriter(file, schema) as writer:
        while first is not None:
            columns = [pa.array(values, pa.binary()).cast(pa.string()) for values in first.columns]
            operations = pa.array(first.operations, pa.string())
            writer.write_batch(pa.record_batch([operations, *columns], schema=schema))
            count += len(first.operations)
            first = next(groups, None)
    return count


def _schema(table: Table) -> pa.Schema:
    return pa.schema([(_OPERATION, pa.string()), *((c.name, pa.string()) for c in table.stored)])


def rows_of(fs: Filesystem, splits: Sequence[ChangesFile], table: Table, typed: Callable[[Column], str]) -> Select:
    """Return the changes in files, with the table's physical columns and their declared types.

    `typed` returns the SQL that converts the text of a column to its declared type.
    """
    paths = ", ".join(quote_text(fs.path_for_duckdb(split.path)) for split in splits)
    order_sqls = {MODIFIED.name: "CAST(0 AS BIGINT)", PATH.name: "filename", ROW.name: "file_row_number"}
    items = []
    for column in table.physical:
        sql = order_sqls.get(column.name) or (column.name if column.name == _OPERATION else typed(column))
        items.append(f"{sql} AS {quote_name(column.name)}")
    files = f"read_parquet([{paths}], filename = true, file_row_number = true)"
    return Select(f"SELECT {', '.join(items)} FROM {files}")


def mistyped(table: Table, error: Exception) -> DataError:
    """Return the error for a value that does not have its declared type, from DuckDB's error."""
    hint = "Declare the column as another type, or as STRING, which holds any value."
    detail = " ".join(str(error).split("\n")[0].split())
    return DataError(f'a value of table "{table.name}" is not as declared', table.span, detail=detail, hint=hint)
