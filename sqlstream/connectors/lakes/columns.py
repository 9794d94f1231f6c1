"""Conversions between declared columns and the columns of a lakehouse table: to infer, create, write and read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sqlstream.catalog import Column, Table
from sqlstream.connectors.formats.parquet_types import conversion
from sqlstream.duck import databases
from sqlstream.duck.sql import Items, Relation, no_rows, quote_name
from sqlstream.errors import DataError, UnsupportedError, UsageError, missing

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, slots=True)
class Lakehouse:
    """The types of a kind of lakehouse, by their names in DuckDB.

    `stored_as` maps each type that it lacks to the type that it stores instead; it cannot store the types of `not_stored`.
    """

    name: str
    stored_as: Mapping[str, str]
    not_stored: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column that a job writes: its name in the lakehouse table, and the SQL that computes it from declared columns."""

    name: str
    sql: str


def columns_of(schema: pa.Schema) -> tuple[Column, ...]:
    """Return the columns of an Arrow schema with DuckDB's types."""
    with databases.passing() as con:
        described = con.from_arrow(schema.empty_table())
        return tuple(Column(n, str(t)) for n, t in zip(described.columns, described.types, strict=True))


def created(table: Table, lakehouse: Lakehouse) -> pa.Schema:
    """Return the columns of the lakehouse table to create for a declared table.

    Raises UnsupportedError for a column whose type the lakehouse cannot store.
    """
    columns = []
    for column in table.writable:
        if column.type in lakehouse.not_stored:
            message = f'column "{column.name}" of table "{table.name}": {lakehouse.name} has no type for {column.type}'
            raise UnsupportedError(message, table.span, hint="Write it as a STRING.")
        columns.append(Column(column.name, lakehouse.stored_as.get(column.type, column.type)))
    with databases.passing() as con:
        return con.sql(no_rows(columns)).to_arrow_table().schema


def stored(schema: pa.Schema, table: Table, lakehouse: Lakehouse) -> list[StoredColumn]:
    """Return the columns that a job writes, in the order of the lakehouse table's `schema`.

    Raises UsageError if the schema lacks a declared column, has another type for it, or has an undeclared NOT NULL column.
    """
    named, of, result = f'table "{table.name}"', f"the {lakehouse.name} table", []
    declared, columns = {c.name.lower(): c for c in table.writable}, columns_of(schema)
    for column in table.writable:
        if column.name.lower() not in (c.name.lower() for c in columns):
            hint = missing("column", column.name, [c.name for c in columns])
            raise UsageError(f'{named}: {of} has no column "{column.name}"', table.span, hint=hint)
    for column, field in zip(columns, schema, strict=True):
        own = declared.get(column.name.lower())
        if own is not None:
            result.append(StoredColumn(column.name, _converted(own, column, table, lakehouse)))
        elif not field.nullable:
            message = f'{named}: column "{column.name}" of {of} must not be NULL, and is not declared'
            raise UsageError(message, table.span, hint="Declare it, and write it.")
    return result


def _converted(own: Column, column: Column, table: Table, lakehouse: Lakehouse) -> str:
    with databases.passing() as con:
        sql = conversion(quote_name(own.name), con.sqltype(own.type), con.sqltype(column.type))
    if sql is None and lakehouse.stored_as.get(own.type) == column.type:
        sql = f"CAST({quote_name(own.name)} AS {column.type})"
    if sql is None:
        message = f'table "{table.name}": column "{own.name}" is {own.type} here and {column.type} in the {lakehouse.name} table'
        raise UsageError(message, table.span, hint=f"Declare it with the type that the {lakehouse.name} table has.")
    return sql


def items(columns: Sequence[StoredColumn]) -> Items:
    """Return stored columns, computed from declared ones."""
    return Items(", ".join(f"{c.sql} AS {quote_name(c.name)}" for c in columns))


def columns_by_name(con: duckdb.DuckDBPyConnection, relation: Relation) -> dict[str, tuple[str, Any]]:
    """Return the columns of a relation: lower-case name to (name, DuckDB type)."""
    described = con.execute(f"SELECT * FROM {relation} LIMIT 0").description
    return {name.lower(): (name, type_) for name, type_, *_ in described or ()}


def read_item(
    con: duckdb.DuckDBPyConnection,
    column: Column,
    columns: Mapping[str, tuple[str, Any]],
    table: Table,
    lakehouse: Lakehouse,
) -> str:
    """Return the SQL that computes a declared column from the lakehouse table's columns, as `columns_by_name` returns them.

    Raises DataError if the lakehouse table has no column of the name, or its type does not fit.
    """
    if column.name.lower() not in columns:
        hint = missing("column", column.name, [name for name, _ in columns.values()])
        raise DataError(f'table "{table.name}": the {lakehouse.name} table has no column "{column.name}"', hint=hint)
    name, type_ = columns[column.name.lower()]
    sql = conversion(quote_name(name), type_, con.sqltype(column.type))
    if sql is None:
        there = f'column "{name}" of the {lakehouse.name} table is {type_}, which does not fit {column.type}'
        hint = f"Declare the column with the type that the {lakehouse.name} table has."
        raise DataError(f'table "{table.name}": {there}', hint=hint)
    return sql


def check_partitions(table: Table, partitions: Sequence[str], lakehouse: Lakehouse) -> None:
    """Raise UsageError if PARTITIONED BY is declared and differs from the `partitions` of the lakehouse table."""
    if table.partitioned_by and [p.lower() for p in partitions] != [p.lower() for p in table.partitioned_by]:
        by = f"by {', '.join(partitions)}" if partitions else "not at all"
        declared = ", ".join(table.partitioned_by)
        message = f'table "{table.name}" is declared as PARTITIONED BY ({declared}); the {lakehouse.name} table is {by}'
        hint = f"Declare what the {lakehouse.name} table is, or leave out PARTITIONED BY."
        raise UsageError(message, table.span, hint=hint)
