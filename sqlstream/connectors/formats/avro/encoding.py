"""Encodes rows as Avro messages, with the schema in the table's options, its subject's newest one, or one made from columns."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from sqlstream.catalog import Column, Table
from sqlstream.connectors.formats.avro.schemas import Avro, AvroSchema, given_schema
from sqlstream.connectors.formats.avro.values import CONFLUENT, check_package, registered
from sqlstream.connectors.formats.avro.written_schemas import record_name, schema_of_columns
from sqlstream.connectors.formats.fitting import FittedColumns
from sqlstream.connectors.formats.schema_registry import (
    KEY_PART,
    VALUE_PART,
    NoSchema,
    SchemaRegistry,
    framed,
    subject_of,
    written_id,
)
from sqlstream.errors import BindError, DataError
from sqlstream.units import parse_boolean

LATEST = "use-latest-version"


def check(table: Table, format: str, columns: Sequence[Column], part: str = VALUE_PART) -> None:
    """Raise BindError unless some columns can be encoded, as far as that is known without the schema registry."""
    check_package(table)
    if _is_latest(table, format):
        if given_schema(table, format) is not None:
            raise BindError(f'table "{table.name}" has both "{format}.schema" and "{format}.{LATEST}"', table.span)
        return
    schema = _own_schema(table, format, columns, part)
    _fitted(table, columns, schema)


def encoder(
    table: Table, format: str, columns: Sequence[Column], part: str = VALUE_PART
) -> Callable[[pa.Table], list[bytes]]:
    """Return the function that encodes rows of some columns as messages. With a registry, get or register their schema first.

    Raises BindError for columns that do not fit their fields, DataError for a schema that does not exist or is not compatible.
    """
    check_package(table)
    schema, id = _schema_with_id(table, format, columns, part)
    fitted = _fitted(table, columns, schema)

    def encode(rows: pa.Table) -> list[bytes]:
        bodies = encoded(schema, fitted.rows(rows), table)
        return bodies if id is None else [framed(id, body) for body in bodies]

    return encode


def _schema_with_id(table: Table, format: str, columns: Sequence[Column], part: str) -> tuple[AvroSchema, int | None]:
    if not _is_latest(table, format):
        schema = _own_schema(table, format, columns, part)
        if format != CONFLUENT:
            return schema, None
        subject = subject_of(table, format, schema.full_name, part)
        return schema, written_id(table, format, subject, schema.text, "AVRO")
    subject = subject_of(table, format, _record_name(table, part), part)
    try:
        newest_schema = SchemaRegistry.of(table, format).newest(subject)
    except NoSchema as error:
        message = f'table "{table.name}": the schema registry has no subject "{subject}"'
        hint = f"Register a schema, set '{format}.subject', or leave out '{format}.{LATEST}'."
        raise DataError(message, detail=f"{error}.", hint=hint) from None
    return registered(newest_schema, f'the schema of subject "{subject}"'), newest_schema.id


def _own_schema(table: Table, format: str, columns: Sequence[Column], part: str) -> AvroSchema:
    return given_schema(table, format) or schema_of_columns(tuple(columns), _record_name(table, part))


def _record_name(table: Table, part: str) -> str:
    name = record_name(table.name)
    return f"{name}_key" if part == KEY_PART else name


def _is_latest(table: Table, format: str) -> bool:
    return parse_boolean(table.options.get(f"{format}.{LATEST}", "false"))


def _fitted(table: Table, columns: Sequence[Column], schema: AvroSchema) -> FittedColumns:
    """Return the fields to write. Raises BindError for a field that needs a value, and has neither a column nor a default."""
    fitted_columns = FittedColumns.of(table, columns, schema.arrow, schema.name)
    for field in schema.record["fields"]:
        if (
            field["name"] not in fitted_columns.fields
            and "default" not in field
            and "null" not in _options(field["type"])
        ):
            message = (
                f'field "{field["name"]}" of {schema.name} has neither a column of table "{table.name}" nor a default'
            )
            raise BindError(message, table.span)
    return fitted_columns


def _options(type: Avro) -> Sequence[Avro]:
    return type if isinstance(type, list) else [type]


def encoded(schema: AvroSchema, rows: pa.Table, table: Table) -> list[bytes]:
    """Encode rows of a schema's fields as messages, without a schema id. Raises DataError for a row that does not fit."""
    import fastavro

    messages, stream = [], io.BytesIO()
    try:
        for row in records(schema, rows):
            fastavro.schemaless_writer(stream, schema.parsed, row)
            messages.append(stream.getvalue())
            stream.seek(0)
            stream.truncate()
    except Exception as error:
        # The encoder may raise anything for a value that does not fit.
        message = f'a row of table "{table.name}" does not fit {schema.name}'
        raise DataError(message, detail=f"{str(error) or type(error).__name__}.") from error
    return messages


def records(schema: AvroSchema, rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows of a schema's fields as fastavro takes them: maps as dicts, and times as numbers."""
    fields = {field["name"]: field["type"] for field in schema.record["fields"]}
    for number, field in enumerate(rows.schema):
        if "-millis" not in json.dumps(fields[field.name]):
            rows = rows.set_column(number, field.name, rows.column(number).cast(_stored(field.type)))
    mapped = [field for field in rows.schema if "map" in str(field.type)]
    row_dicts: list[dict[str, Any]] = rows.to_pylist()
    for row in row_dicts if mapped else ():
        row.update({field.name: _value(row[field.name], field.type) for field in mapped})
    return row_dicts


def _stored(type: pa.DataType) -> pa.DataType:
    """Return the type of values as Avro stores them: Python's times would end in the year 9999."""
    if pa.types.is_timestamp(type) or pa.types.is_time64(type):
        return pa.int64()
    if pa.types.is_date32(type):
        return pa.int32()
    if pa.types.is_map(type):
        return pa.map_(type.key_type, _stored(type.item_type))
    if pa.types.is_list(type):
        return pa.list_(_stored(type.value_type))
    if pa.types.is_struct(type):
        return pa.struct([field.with_type(_stored(field.type)) for field in type])
    return type


def _value(value: Any, type: pa.DataType) -> Any:
    """Return a value whose maps, lists of pairs in Arrow, are dicts."""
    if value is None:
        return None
    if pa.types.is_map(type):
        return {key: _value(item, type.item_type) for key, item in value}
    if pa.types.is_list(type):
        return [_value(item, type.value_type) for item in value]
    if pa.types.is_struct(type):
        return {field.name: _value(value[field.name], field.type) for field in type}
    return value
