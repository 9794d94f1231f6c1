"""Writes files of raw lines: converts Parquet files that DuckDB has written, some rows at a time."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pyarrow.parquet as pq

from sqlstream.catalog import Column, Table
from sqlstream.connectors.formats.raw_codec import RawCodec
from sqlstream.connectors.formats.raw_lines import codec_of
from sqlstream.duck.sql import quote_name
from sqlstream.errors import DataError

_ROWS = 10_000
_HINT = "Write format csv or json, which can hold it."


def encoded_item(table: Table, columns: Sequence[Column]) -> str:
    """Return the select item of the column that lines hold: bytes, or a text that `to_raw` encodes."""
    [column] = [c for c in columns if c.name not in table.partitioned_by]
    return f"{codec_of(table).encoded(column.name)} AS {quote_name(column.name)}"


def to_raw(path: str, table: Table) -> None:
    """Replace a Parquet file, which has a column of `encoded_item`, by a file with its values, each with a line end.

    Raises DataError for NULL, and for a text or bytes that would be read as several lines.
    """
    codec = codec_of(table)
    with open(f"{path}.raw", "wb") as file, pq.ParquetFile(path) as rows:
        for batch in rows.iter_batches(_ROWS):
            file.write(_lines(batch.column(0).to_pylist(), codec, table))
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.raw", path)


def _lines(values: Sequence[str | bytes | None], codec: RawCodec, table: Table) -> bytes:
    lines: list[bytes] = []
    for value in values:
        if value is None:
            message = f'a row of table "{table.name}" is NULL, and format "raw" has no line for it'
            raise DataError(message, hint="Leave such rows out, or write format csv or json.")
        line = codec.bytes_of(value) if isinstance(value, str) else value
        if codec.size is None and (b"\n" in line or line.endswith(b"\r")):
            message = f'a row of table "{table.name}" contains the end of a line, and is no line of format "raw"'
            raise DataError(message, hint=_HINT)
        lines.append(line)
    return b"".join(line + b"\n" for line in lines)
