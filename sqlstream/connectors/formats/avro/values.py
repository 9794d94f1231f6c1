"""Reads Avro values: with the id of a registry's schema in front, or all with the schema in the table's options."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from sqlstream.catalog import Column, Table
from sqlstream.connectors.formats.avro.decoding import decode
from sqlstream.connectors.formats.avro.schemas import (
    AvroSchema,
    aliases_of,
    defaults_of,
    given_schema,
)
from sqlstream.connectors.formats.decoded import DecodedValues, bytes_of, literal, relation
from sqlstream.connectors.formats.schema_registry import (
    HEAD,
    NoSchema,
    RegisteredSchema,
    SchemaRegistry,
    by_schema,
    subject_of,
)
from sqlstream.distribution import install_command
from sqlstream.duck.sql import Relation
from sqlstream.errors import DataError, UsageError

if TYPE_CHECKING:
    import duckdb

AVRO, CONFLUENT = "avro", "avro-confluent"


def confluent_values(
    con: duckdb.DuckDBPyConnection,
    values: Relation,
    table: Table,
    columns: Sequence[Column],
    passthrough: Sequence[str],
) -> Relation:
    """Return the marked rows of values with the id of a registry's schema in front, see `ReadValues`."""
    check_package(table)
    messages, rest = bytes_of(con, values, passthrough)
    reader, registry = given_schema(table, CONFLUENT), SchemaRegistry.of(table, CONFLUENT)
    groups, faults = by_schema(messages)
    decoded = [DecodedValues("", rest.slice(0, 0), (), faults)]
    names = _names(columns, reader)
    for id, numbers in groups.items():
        try:
            schema = registered(registry.by_id(id), f"schema {id}")
        except NoSchema:
            absent = dict.fromkeys(numbers, f"The registry has no schema {id}")
            decoded.append(DecodedValues("", rest.slice(0, 0), (), absent))
            continue
        decoded.append(_renamed(decode(schema, [messages[n][HEAD:] for n in numbers], numbers, names), reader))
    return relation(con, table, columns, rest, decoded, _defaults(reader))


def avro_values(
    con: duckdb.DuckDBPyConnection,
    values: Relation,
    table: Table,
    columns: Sequence[Column],
    passthrough: Sequence[str],
) -> Relation:
    """Return the marked rows of values that have the schema in the table's options, see `ReadValues`."""
    check_package(table)
    schema = given_schema(table, AVRO)
    if schema is None:
        hint = f"Write the schema with which they were written into WITH (..): '{AVRO}.schema' = '{{\"type\": \"record\", ..}}'."
        raise DataError(f'table "{table.name}": messages in "{AVRO}" do not say what their schema is', hint=hint)
    messages, rest = bytes_of(con, values, passthrough)
    numbers = [number for number, message in enumerate(messages) if message is not None]
    absent = {n: "There is no value" for n, message in enumerate(messages) if message is None}
    decoded = decode(schema, [messages[n] for n in numbers], numbers, _names(columns, None))
    return relation(con, table, columns, rest, [decoded, DecodedValues("", rest.slice(0, 0), (), absent)], {})


def columns_of(table: Table, format: str) -> Sequence[Column]:
    """Return the columns of a table that declares none: of the schema in its options, or of its subject's newest schema."""
    schema = given_schema(table, format)
    if schema is None:
        subject = subject_of(table, format, table.name)
        try:
            newest_schema = SchemaRegistry.of(table, format).newest(subject)
        except NoSchema as error:
            hint = f"Declare the columns, or set '{format}.subject'."
            message = f'table "{table.name}": the schema registry has no subject "{subject}"'
            raise DataError(message, detail=f"{error}.", hint=hint) from None
        schema = registered(newest_schema, f'the schema of subject "{subject}"')
    return schema.columns()


@lru_cache(maxsize=1024)
def registered(schema: RegisteredSchema, name: str) -> AvroSchema:
    """Return a registry's schema; `name` is its name in messages. Raises DataError if it is not an Avro schema."""
    if schema.kind != "AVRO":
        raise DataError(f"{name} is {schema.kind}, not Avro")
    return AvroSchema(schema.text, name, tuple(_references(schema)))


def _references(schema: RegisteredSchema) -> Sequence[tuple[str, str]]:
    """Return (name, text) of all schemas that a schema refers to, each after the schemas that it needs itself."""
    return [pair for name, reference in schema.references for pair in (*_references(reference), (name, reference.text))]


def _names(columns: Sequence[Column], reader: AvroSchema | None) -> frozenset[str]:
    """Return the names in lower case of the fields from which columns may be read, with the aliases in the reader's schema."""
    names, aliases = [column.name.lower() for column in columns], aliases_of(reader)
    return frozenset((*names, *(alias for name in names for alias in aliases.get(name, ()))))


def _renamed(decoded: DecodedValues, reader: AvroSchema | None) -> DecodedValues:
    """Return decoded rows with the names of the writer's fields that the reader's schema knows by an alias."""
    there = {name.lower() for name in decoded.rows.column_names}
    names = {
        name: alias
        for name, aliases in aliases_of(reader).items()
        for alias in aliases
        if name not in there and alias in there
    }
    return replace(decoded, names=names)


def _defaults(reader: AvroSchema | None) -> Mapping[str, str]:
    return {name: literal(value) for name, value in defaults_of(reader).items()}


def check_package(table: Table) -> None:
    """Raise UsageError unless the package fastavro is installed."""
    if importlib.util.find_spec("fastavro") is None:
        hint = f"Install it: {install_command('avro')}."
        raise UsageError(f'table "{table.name}": Avro needs the package "fastavro"', hint=hint)
