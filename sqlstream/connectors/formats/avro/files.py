"""Reads Avro's container files: columns by name, whose types may be narrower than declared. Files are never divided.

DuckDB scans them as an Arrow stream, which decodes some blocks at a time and starts again with each scan.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column, Table
from sqlstream.connectors.formats.avro.containers import AvroContainer, DamagedContainer, container
from sqlstream.connectors.formats.avro.decoding import chosen, decode_blocks
from sqlstream.connectors.formats.avro.values import check_package
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.connectors.formats.malformed import skips
from sqlstream.connectors.formats.named_columns import named_items
from sqlstream.connectors.formats.read_errors import name_file, reading
from sqlstream.connectors.read_plan import WRONG, ReadPlan
from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import Select, union_all

_NUMBER = internal("number")
_BATCH_ROWS = 100_000
_numbers = itertools.count()


@dataclass(frozen=True)
class ScannedContainers:
    """The rows of files with one schema, as an Arrow stream, which starts again with each scan.

    It has some `fields`, and a further column with a row's number in its file, from 0. A damaged file raises DamagedContainer
    during the scan, and so does a value of one of the fields that does not fit.
    """

    files: tuple[AvroContainer, ...]
    fields: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        return self.fields.append(pa.field(_NUMBER, pa.int64()))

    def batches(self) -> Iterator[pa.RecordBatch]:
        for file in self.files:
            number = 0
            for count, blocks in file.chunks():
                try:
                    rows = decode_blocks(file, blocks, count, self.fields)
                except ValueError as error:
                    raise DamagedContainer(file.path, str(error)) from error
                numbers = pa.array(range(number, number + count), pa.int64())
                number += count
                yield from pa.Table.from_arrays([*rows.columns, numbers], schema=self.schema).to_batches(_BATCH_ROWS)

    def __arrow_c_schema__(self) -> Any:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return pa.RecordBatchReader.from_batches(self.schema, self.batches()).__arrow_c_stream__()


def read_avro(
    con: duckdb.DuckDBPyConnection,
    splits: Sequence[FileSplit],
    table: Table,
    columns: Sequence[Column],
    copies: Mapping[str, str],
) -> ReadPlan:
    """Return the plan that reads container files, from streams that are registered in the connection, see `ReadFiles`.

    Raises UsageError if fastavro is not installed, and DataError if a file is not a container file, or its columns do not fit.
    """
    check_package(table)
    groups: dict[str, list[tuple[FileSplit, AvroContainer]]] = {}
    for split in splits:
        with reading([split], table):
            file = container(split.path, name_file(split.path, table))
        groups.setdefault(file.text, []).append((split, file))
    relations, streams = list[tuple[str, str, str | None]](), {}
    names = {column.name.lower() for column in columns}
    for group in groups.values():
        name, schema = f"_avro_{next(_numbers)}", group[0][1].schema
        streams[name] = ScannedContainers(tuple(file for _, file in group), chosen(schema, names))
        con.register(name, streams[name])
        # The types of other fields are not needed, but their names are.
        types = dict.fromkeys(field["name"] for field in schema.record["fields"])
        types |= zip(streams[name].fields.names, con.sql(f"FROM {name}").types, strict=False)
        relations.append((name, *named_items(con, group[0][0], table, columns, types, _NUMBER)))
    if not (skips(table) and any(why for *_, why in relations)):
        sql = union_all(Select(f"SELECT {items} FROM {name}") for name, items, _ in relations)
        return ReadPlan(sql, keep=True, streams=streams)
    marked = (
        f"SELECT {items}, {why or 'CAST(NULL AS VARCHAR)'} AS {WRONG} FROM {name}" for name, items, why in relations
    )
    return ReadPlan.of_marked(union_all(map(Select, marked)), keep=True, streams=streams)


def file_columns(path: str, named: str) -> Sequence[Column]:
    """Return the columns in the schema of a container file; `named` is its name in messages.

    Raises DataError if it is not a container file, and UnsupportedError for a field without a type in SQL.
    """
    return container(path, named).schema.columns()
