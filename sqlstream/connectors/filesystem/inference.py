"""The columns of a table of files that declares none, from the schema of a file."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column, Table
from sqlstream.connectors.confined_files import check_files
from sqlstream.connectors.filesystem.listing import PathPattern
from sqlstream.connectors.formats.avro.files import file_columns
from sqlstream.connectors.formats.copies import near
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.connectors.formats.read_errors import name_file
from sqlstream.duck import databases
from sqlstream.duck.text_files import duckdb_paths, sentence
from sqlstream.errors import BindError, UsageError

# Formats whose files have a schema.
INFERRED = ("parquet", "avro")


def columns_of_files(table: Table, project: str) -> Sequence[Column]:
    """Return the columns of a table's first file, by modification time, that is not empty.

    Raises UsageError if the files cannot be listed, and BindError if there is no file, or its schema cannot be read.
    """
    name, span, path = table.name, table.span, table.options["path"]
    try:
        files = PathPattern(path, project).files()
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f'table "{name}": "{path}" cannot be listed', detail=str(error)) from error
    check_files(table, [file.path for file in files or ()])
    first = min((f for f in files or () if f.size), default=None)
    if first is None:
        raise BindError(
            f'table "{name}" declares no columns, and there is no file at "{path}" to infer them from',
            span,
            hint="Declare the columns, or put the first file there before.",
        )
    near_first = near(FileSplit(first.path, first.size, first.mtime_ns, first.size))
    if table.options.get("format", "").lower() == "avro":
        return file_columns(near_first.path, name_file(near_first.path, table))
    with databases.passing() as con:
        try:
            source = f"read_parquet({duckdb_paths([near_first.path])}, hive_partitioning = false)"
            rows = con.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
        except (duckdb.Error, UnicodeError, RuntimeError) as error:
            message = f'table "{name}": the columns of "{first.path}" cannot be read'
            detail = sentence(str(error)) or None
            raise BindError(message, span, detail=detail, hint="Is it a complete Parquet file?") from error
    return [Column(column, type) for column, type, *_ in rows]
