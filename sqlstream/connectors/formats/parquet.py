"""Parquet files: columns by name, of types that may be narrower than declared, whole files or ranges of their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb

from sqlstream.catalog import OP_COLUMN, Column, Table
from sqlstream.connectors.filesystem.splits import FileSplit
from sqlstream.connectors.formats.parquet_types import conversion
from sqlstream.connectors.formats.read_errors import name_file, reading
from sqlstream.connectors.read_plan import ReadPlan
from sqlstream.duck.internal_columns import ROW
from sqlstream.duck.sql import quote_name
from sqlstream.duck.text_files import duckdb_paths
from sqlstream.errors import DataError, missing


def read_parquet(
    con: duckdb.DuckDBPyConnection,
    splits: Sequence[FileSplit],
    table: Table,
    columns: Sequence[Column],
    copies: Mapping[str, str],
) -> ReadPlan:
    """Return how to read Parquet files, or ranges of their rows."""
    selects = []
    for group in _same_schema(con, splits, table):
        whole = [s.path for s in group if s.rows is None]
        items = _parquet_items(con, group[0], table, columns)
        if whole:
            selects.append(f"SELECT {items} FROM read_parquet({duckdb_paths(whole)}, hive_partitioning = false)")
        for split in group:
            if split.rows is not None:
                # DuckDB skips the row groups outside of the range by this predicate.
                where = f"file_row_number >= {split.rows[0]} AND file_row_number < {split.rows[1]}"
                source = f"read_parquet({duckdb_paths([split.path])}, hive_partitioning = false)"
                selects.append(f"SELECT {items} FROM {source} WHERE {where}")
    return ReadPlan(" UNION ALL ".join(selects))


# All that tells one Parquet column from another.
_SCHEMA = "(name, type, type_length, num_children, converted_type, scale, precision, logical_type, repetition_type)"


def _same_schema(con: duckdb.DuckDBPyConnection, splits: Sequence[FileSplit], table: Table) -> list[list[FileSplit]]:
    """Group splits by the schema of their files: DuckDB reads a list of files as the first one declares."""
    by_path: dict[str, list[FileSplit]] = {}
    for split in splits:
        by_path.setdefault(split.path, []).append(split)
    with reading(splits, table):
        rows = con.execute(
            f"SELECT file_name, list(s ORDER BY column_id) FROM (SELECT file_name, column_id, {_SCHEMA} AS s"
            f" FROM parquet_schema({duckdb_paths(by_path)})) GROUP BY file_name"
        ).fetchall()
    groups: dict[str, list[FileSplit]] = {}
    for path, schema in sorted(rows):
        groups.setdefault(str(schema), []).extend(by_path[path])
    return list(groups.values())


def _parquet_items(con: duckdb.DuckDBPyConnection, split: FileSplit, table: Table, columns: Sequence[Column]) -> str:
    with reading([split], table):
        described = con.execute(
            f"SELECT * FROM read_parquet({duckdb_paths([split.path])}, hive_partitioning = false) LIMIT 0"
        ).description
    found = {name.lower(): (name, type_) for name, type_, *_ in described or ()}
    _check_columns(split, table, [name for name, _ in found.values()])
    items = []
    for column in columns:
        if column.metadata == ROW.metadata:
            items.append(f"file_row_number AS {quote_name(column.name)}")
            continue
        if column.name.lower() not in found:
            items.append(f"CAST(NULL AS {column.type}) AS {quote_name(column.name)}")
            continue
        name, type_ = found[column.name.lower()]
        converted = conversion(quote_name(name), type_, con.sqltype(column.type))
        if converted is None:
            raise DataError(
                f'column "{name}" of {name_file(split.path, table)} is {type_}, which does not fit {column.type}',
                hint="Declare the column with the file's type and convert it in a computed column or in the query.",
            )
        items.append(f"{converted} AS {quote_name(column.name)}")
    return ", ".join(items) or "1"


def _check_columns(split: FileSplit, table: Table, found: Sequence[str]) -> None:
    """Raise DataError unless a Parquet file has the columns that it needs: one at least, and those that are never NULL.

    Others may be missing: the file may be older than the column.
    """
    there = {name.lower() for name in found}
    operation = table.options.get(OP_COLUMN, "").lower()
    key = {name.lower() for name in table.primary_key}
    for column in table.stored:
        needed = column.not_null or column.name.lower() in (operation, *key)
        if needed and column.name.lower() not in there:
            hint = missing("column", column.name, found)
            raise DataError(f'{name_file(split.path, table)} has no column "{column.name}"', hint=hint)
    if table.stored and not any(c.name.lower() in there for c in table.stored):
        hint = missing("column", table.stored[0].name, found)
        raise DataError(f"{name_file(split.path, table)} has none of the columns of the table", hint=hint)
