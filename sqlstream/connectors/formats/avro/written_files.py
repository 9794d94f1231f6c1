"""Writes Avro's container files: converts Parquet files that DuckDB has written, some rows at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sqlstream.catalog import Column, Table
from sqlstream.connectors.formats.avro.encoding import records
from sqlstream.connectors.formats.avro.schemas import AvroSchema, given_schema
from sqlstream.connectors.formats.avro.values import AVRO, check_package
from sqlstream.connectors.formats.avro.written_schemas import record_name, schema_of_columns
from sqlstream.connectors.formats.fitting import FittedColumns
from sqlstream.errors import DataError

CODECS = ("null", "deflate", "bzip2", "xz")
CODEC = f"{AVRO}.codec"
_ROWS = 10_000
# Bytes of a block, before it is compressed.
_BLOCK_BYTES = 64 << 10


def codec(text: str) -> str:
    """Return the value of the option CODEC. Raises ValueError unless it is one of CODECS."""
    if text not in CODECS:
        raise ValueError(f'"{text}" is not one of {", ".join(CODECS)}')
    return text


def check_columns(table: Table) -> None:
    """Raise BindError unless the columns of a table can be written, and UsageError unless fastavro is installed."""
    check_package(table)
    fitted_columns(table, table.writable)


def fitted_columns(table: Table, columns: Sequence[Column]) -> FittedColumns:
    """Return the fields that files contain: the partition columns are only in paths. Raises BindError as `FittedColumns.of`."""
    inside = _inside(table, columns)
    schema = _schema(table, columns)
    return FittedColumns.of(table, inside, schema.arrow, schema.name)


def to_avro(path: str, table: Table, columns: Sequence[Column]) -> None:
    """Replace a Parquet file, which has a table's `fitted_columns`, by an Avro file with the same rows.

    Raises DataError for a row that does not fit.
    """
    import fastavro

    schema = _schema(table, columns)
    compressed = table.options.get(CODEC, "deflate")
    with open(f"{path}.avro", "wb") as file:
        try:
            fastavro.writer(file, schema.parsed, _records(path, schema), compressed, sync_interval=_BLOCK_BYTES)
        except OSError:
            raise
        except Exception as error:
            # The encoder may raise anything for a value that does not fit.
            message = f'a row of table "{table.name}" does not fit {schema.name}'
            raise DataError(message, detail=f"{str(error) or type(error).__name__}.") from error
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.avro", path)


def _records(path: str, schema: AvroSchema) -> Iterator[dict[str, Any]]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_ROWS):
            yield from records(schema, pa.Table.from_batches([batch]))


def _inside(table: Table, columns: Sequence[Column]) -> tuple[Column, ...]:
    return tuple(c for c in columns if c.name not in table.partitioned_by)


def _schema(table: Table, columns: Sequence[Column]) -> AvroSchema:
    return given_schema(table, AVRO) or schema_of_columns(_inside(table, columns), record_name(table.name))
