"""Columns of a table matched by name with the columns of a file, whose types may be narrower than declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

from sqlstream.catalog import OP_COLUMN, Column, Table
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.connectors.formats.malformed import skips
from sqlstream.connectors.formats.parquet_types import conversion, may_not_fit, unfit
from sqlstream.connectors.formats.read_errors import name_file
from sqlstream.duck.internal_columns import ROW
from sqlstream.duck.sql import quote_name
from sqlstream.errors import DataError, missing


def named_items(
    con: duckdb.DuckDBPyConnection,
    split: FileSplit,
    table: Table,
    columns: Sequence[Column],
    there: Mapping[str, Any],
    number: str,
) -> tuple[str, str | None]:
    """Return (select items that read some columns from a file, SQL of WRONG); None for WRONG if no row can be malformed.

    `there` maps the file's columns to their DuckDB types, None for a column without a SQL type. `number` is the column with the
    row's number. A value that does not fit its column makes the query fail; if the table skips malformed rows, it becomes NULL.
    Raises DataError if the types of the file's columns do not fit.
    """
    by_name = {name.lower(): (name, type_) for name, type_ in there.items()}
    _check_columns(split, table, list(there))
    items, cases = [], list[str]()
    for column in columns:
        if column.metadata == ROW.metadata:
            items.append(f"{number} AS {quote_name(column.name)}")
            continue
        if column.name.lower() not in by_name:
            items.append(f"CAST(NULL AS {column.type}) AS {quote_name(column.name)}")
            continue
        name, type_ = by_name[column.name.lower()]
        if type_ is None:
            message = f'column "{name}" of {name_file(split.path, table)} has no type in SQL'
            raise DataError(message, hint="Declare the columns of the table, without this one.")
        converted = conversion(quote_name(name), type_, con.sqltype(column.type), narrow=True)
        if converted is None:
            raise DataError(
                f'column "{name}" of {name_file(split.path, table)} is {type_}, which does not fit {column.type}',
                hint="Declare the column with the file's type and convert it in a computed column or in the query.",
            )
        if may_not_fit(type_, con.sqltype(column.type)):
            cases.append(unfit(quote_name(name), converted, column))
            converted = f"TRY({converted})" if skips(table) else converted
        items.append(f"{converted} AS {quote_name(column.name)}")
    return ", ".join(items) or "1", f"CASE {' '.join(cases)} END" if cases else None


def _check_columns(split: FileSplit, table: Table, file_columns: Sequence[str]) -> None:
    """Raise DataError unless a file has at least one of the columns, and all that are NOT NULL, in the key, or the operation.

    Others may be missing: the file may be older than the column.
    """
    there = {name.lower() for name in file_columns}
    operation = table.options.get(OP_COLUMN, "").lower()
    key = {name.lower() for name in table.primary_key}
    for column in table.stored:
        needed = column.not_null or column.name.lower() in (operation, *key)
        if needed and column.name.lower() not in there:
            hint = missing("column", column.name, file_columns)
            raise DataError(f'{name_file(split.path, table)} has no column "{column.name}"', hint=hint)
    if table.stored and not any(c.name.lower() in there for c in table.stored):
        hint = missing("column", table.stored[0].name, file_columns)
        raise DataError(f"{name_file(split.path, table)} has none of the columns of the table", hint=hint)
