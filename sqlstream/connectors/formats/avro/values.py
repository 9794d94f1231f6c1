"""Values in Avro: with the id of a registry's schema in front, or of the one schema that the table gives."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sqlstream.catalog import Column, Table
from sqlstream.connectors.formats.avro.decoding import decode
from sqlstream.connectors.formats.avro.schemas import (
    AvroSchema,
    aliases_of,
    defaults_of,
    given_schema,
    schema_of_columns,
)
from sqlstream.connectors.formats.decoded import Decoded, bytes_of, literal, relation
from sqlstream.connectors.formats.schema_registry import (
    HEAD,
    NoSchema,
    RegisteredSchema,
    SchemaRegistry,
    by_schema,
    framed,
    subject_of,
    written_id,
)
from sqlstream.errors import DataError, UsageError

if TYPE_CHECKING:
    import duckdb

AVRO, CONFLUENT = "avro", "avro-confluent"


def confluent_values(
    con: duckdb.DuckDBPyConnection, values: str, table: Table, columns: Sequence[Column], kept: Sequence[str]
) -> str:
    """Return the marked rows of values whose schemas are in a registry; `kept` are further columns of them that stay."""
    _check_package(table)
    messages, rest = bytes_of(con, values, kept)
    reader, registry = given_schema(table, CONFLUENT), SchemaRegistry.of(table, CONFLUENT)
    groups, faults = by_schema(messages)
    decoded = [Decoded("", rest.slice(0, 0), (), faults)]
    for id, numbers in groups.items():
        try:
            schema = registered(registry.by_id(id), f"schema {id}")
        except NoSchema:
            absent = dict.fromkeys(numbers, f"The registry has no schema {id}")
            decoded.append(Decoded("", rest.slice(0, 0), (), absent))
            continue
        decoded.append(_renamed(decode(schema, [messages[n][HEAD:] for n in numbers], numbers), reader))
    return relation(con, table, columns, rest, decoded, _defaults(reader))


def avro_values(
    con: duckdb.DuckDBPyConnection, values: str, table: Table, columns: Sequence[Column], kept: Sequence[str]
) -> str:
    """Return the marked rows of values that have the schema of the table; `kept` are further columns of them that stay."""
    _check_package(table)
    schema = given_schema(table, AVRO)
    if schema is None:
        hint = f"Write the schema with which they were written into WITH (..): '{AVRO}.schema' = '{{\"type\": \"record\", ..}}'."
        raise DataError(f'table "{table.name}": messages in "{AVRO}" do not say what their schema is', hint=hint)
    messages, rest = bytes_of(con, values, kept)
    numbers = [number for number, message in enumerate(messages) if message is not None]
    absent = {n: "There is no value" for n, message in enumerate(messages) if message is None}
    decoded = decode(schema, [messages[n] for n in numbers], numbers)
    return relation(con, table, columns, rest, [decoded, Decoded("", rest.slice(0, 0), (), absent)], {})


def columns_of(table: Table, format: str) -> Sequence[Column]:
    """Return the columns of a table that declares none: those of the schema that it gives, or its subject has now."""
    schema = given_schema(table, format)
    if schema is None:
        subject = subject_of(table, format, table.name)
        try:
            found = SchemaRegistry.of(table, format).newest(subject)
        except NoSchema as error:
            hint = f"Declare the columns, or set '{format}.subject'."
            message = f'table "{table.name}": the schema registry has no subject "{subject}"'
            raise DataError(message, detail=f"{error}.", hint=hint) from None
        schema = registered(found, f'the schema of subject "{subject}"')
    return schema.columns()


@lru_cache(maxsize=1024)
def registered(found: RegisteredSchema, name: str) -> AvroSchema:
    """Return a schema of a registry, by what messages call it. Raises DataError where it is none of Avro's."""
    if found.kind != "AVRO":
        raise DataError(f"{name} is {found.kind}, not Avro")
    return AvroSchema(found.text, name, tuple(_references(found)))


def _references(found: RegisteredSchema) -> Sequence[tuple[str, str]]:
    """Return what a schema refers to, each before those that refer to it."""
    return [pair for name, schema in found.references for pair in (*_references(schema), (name, schema.text))]


def _renamed(decoded: Decoded, reader: AvroSchema | None) -> Decoded:
    """Return rows whose writer had other names for some fields than the reader."""
    there = {name.lower() for name in decoded.rows.column_names}
    found = {
        name: alias
        for name, aliases in aliases_of(reader).items()
        for alias in aliases
        if name not in there and alias in there
    }
    return replace(decoded, names=found)


def _defaults(reader: AvroSchema | None) -> Mapping[str, str]:
    return {name: literal(value) for name, value in defaults_of(reader).items()}


def encoder(table: Table, format: str, columns: Sequence[Column]) -> Callable[[pa.Table], list[bytes]]:
    """Return what makes messages of rows. Its schema is the one that the table gives, or that of its columns, registered once."""
    _check_package(table)
    name = "".join(c if c.isalnum() and c.isascii() else "_" for c in table.name)
    schema = given_schema(table, format) or schema_of_columns(tuple(columns), name)
    id = written_id(table, format, schema.full_name, schema.text, "AVRO") if format == CONFLUENT else None

    def encode(rows: pa.Table) -> list[bytes]:
        import fastavro

        found = []
        for row in rows.to_pylist():
            stream = io.BytesIO()
            try:
                fastavro.schemaless_writer(stream, schema.parsed, _written(row, rows.schema))
            except Exception as error:
                message = f'a row of table "{table.name}" does not fit {schema.name}'
                raise DataError(message, detail=f"{type(error).__name__}: {error}.") from error
            body = stream.getvalue()
            found.append(body if id is None else framed(id, body))
        return found

    return encode


def _written(row: Mapping[str, Any], schema: pa.Schema) -> dict[str, Any]:
    """Return a row as fastavro takes it: maps are lists of pairs in Arrow."""
    return {name: _value(value, schema.field(name).type) for name, value in row.items()}


def _value(value: Any, type: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_map(type):
        return {key: _value(item, type.item_type) for key, item in value}
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        return [_value(item, type.value_type) for item in value]
    if pa.types.is_struct(type):
        return {field.name: _value(value[field.name], field.type) for field in type}
    return value


def _check_package(table: Table) -> None:
    if importlib.util.find_spec("fastavro") is None:
        hint = "Install it: pip install 'sqlstream[avro]'."
        raise UsageError(f'table "{table.name}": Avro needs the package "fastavro"', hint=hint)
