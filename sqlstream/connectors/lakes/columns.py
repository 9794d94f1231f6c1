"""The columns of a table in a lakehouse beside those that are declared: inferred, created, and written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sqlstream.catalog import Column, Table
from sqlstream.connectors.formats.parquet_types import conversion
from sqlstream.duck import databases
from sqlstream.duck.sql import no_rows, quote_name
from sqlstream.errors import DataError, UnsupportedError, UsageError, missing

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, slots=True)
class Lakehouse:
    """A kind of lakehouse: what it stores in place of types that it does not have, and types that it cannot hold."""

    name: str
    stored_as: Mapping[str, str]
    not_stored: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column as a job writes it: its name in the lakehouse, and the expression over the declared columns."""

    name: str
    sql: str


def columns_of(schema: pa.Schema) -> tuple[Column, ...]:
    """Return the columns of an Arrow schema with DuckDB's types."""
    with databases.passing() as con:
        described = con.from_arrow(schema.empty_table())
        return tuple(Column(n, str(t)) for n, t in zip(described.columns, described.types, strict=True))


def created(table: Table, lakehouse: Lakehouse) -> pa.Schema:
    """Return the columns of a table that is to be made for a declared one."""
    columns = []
    for column in table.writable:
        if column.type in lakehouse.not_stored:
            message = f'column "{column.name}" of table "{table.name}": {lakehouse.name} has no type for {column.type}'
            raise UnsupportedError(message, table.span, hint="Write it as a STRING.")
        columns.append(Column(column.name, lakehouse.stored_as.get(column.type, column.type)))
    with databases.passing() as con:
        return con.sql(no_rows(columns)).to_arrow_table().schema


def stored(schema: pa.Schema, table: Table, lakehouse: Lakehouse) -> list[StoredColumn]:
    """Return the columns that a job writes. Raises UsageError where a lakehouse cannot hold them, or needs others."""
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


def items(columns: Sequence[StoredColumn]) -> str:
    """Return the select items of columns as they are stored."""
    return ", ".join(f"{c.sql} AS {quote_name(c.name)}" for c in columns)


def found_columns(con: duckdb.DuckDBPyConnection, relation: str) -> dict[str, tuple[str, Any]]:
    """Return the names and types of the columns of a relation, by their names in lower case."""
    described = con.execute(f"SELECT * FROM {relation} LIMIT 0").description
    return {name.lower(): (name, type_) for name, type_, *_ in described or ()}


def read_item(
    con: duckdb.DuckDBPyConnection,
    column: Column,
    found: Mapping[str, tuple[str, Any]],
    table: Table,
    lakehouse: Lakehouse,
) -> str:
    """Return the SQL that reads a declared column from those that were found. Raises DataError where none of these fits."""
    if column.name.lower() not in found:
        hint = missing("column", column.name, [name for name, _ in found.values()])
        raise DataError(f'table "{table.name}": the {lakehouse.name} table has no column "{column.name}"', hint=hint)
    name, type_ = found[column.name.lower()]
    sql = conversion(quote_name(name), type_, con.sqltype(column.type))
    if sql is None:
        there = f'column "{name}" of the {lakehouse.name} table is {type_}, which does not fit {column.type}'
        hint = f"Declare the column with the type that the {lakehouse.name} table has."
        raise DataError(f'table "{table.name}": {there}', hint=hint)
    return sql


def check_partitions(table: Table, found: Sequence[str], lakehouse: Lakehouse) -> None:
    """Raise UsageError unless a table is partitioned as it is declared, if that is declared."""
    if table.partitioned_by and [p.lower() for p in found] != [p.lower() for p in table.partitioned_by]:
        by = f"by {', '.join(found)}" if found else "not at all"
        declared = ", ".join(table.partitioned_by)
        message = f'table "{table.name}" is declared as PARTITIONED BY ({declared}); the {lakehouse.name} table is {by}'
        hint = f"Declare what the {lakehouse.name} table is, or leave out PARTITIONED BY."
        raise UsageError(message, table.span, hint=hint)
