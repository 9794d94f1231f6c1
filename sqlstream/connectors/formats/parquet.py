"""Parquet files: columns by name, whose types may be narrower than declared; whole files, or ranges of their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb

from sqlstream.catalog import Column, Table
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.connectors.formats.malformed import skips
from sqlstream.connectors.formats.named_columns import named_items
from sqlstream.connectors.formats.read_errors import reading
from sqlstream.connectors.read_plan import WRONG, ReadPlan
from sqlstream.duck.sql import Select, union_all
from sqlstream.duck.text_files import duckdb_paths


def read_parquet(
    con: duckdb.DuckDBPyConnection,
    splits: Sequence[FileSplit],
    table: Table,
    columns: Sequence[Column],
    copies: Mapping[str, str],
) -> ReadPlan:
    """Return the plan that reads Parquet files, or ranges of their rows, see `ReadFiles`. `copies` is ignored.

    Raises DataError if a file cannot be read, or if its columns do not fit.
    """
    groups = [(group, *_parquet_items(con, group[0], table, columns)) for group in _same_schema(con, splits, table)]
    is_marked = skips(table) and any(why for *_, why in groups)
    selects = []
    for group, items, why in groups:
        select_items = f"{items}, {why or 'CAST(NULL AS VARCHAR)'} AS {WRONG}" if is_marked else items
        whole = [s.path for s in group if s.rows is None]
        if whole:
            source = f"read_parquet({duckdb_paths(whole)}, hive_partitioning = false)"
            selects.append(Select(f"SELECT {select_items} FROM {source}"))
        for split in group:
            if split.rows is not None:
                # DuckDB skips the row groups outside of the range by this predicate.
                where = f"file_row_number >= {split.rows[0]} AND file_row_number < {split.rows[1]}"
                source = f"read_parquet({duckdb_paths([split.path])}, hive_partitioning = false)"
                selects.append(Select(f"SELECT {select_items} FROM {source} WHERE {where}"))
    sql = union_all(selects)
    return ReadPlan.of_marked(sql) if is_marked else ReadPlan(sql)


# The properties in which columns of two Parquet files may differ.
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


def _parquet_items(
    con: duckdb.DuckDBPyConnection, split: FileSplit, table: Table, columns: Sequence[Column]
) -> tuple[str, str | None]:
    with reading([split], table):
        described = con.execute(
            f"SELECT * FROM read_parquet({duckdb_paths([split.path])}, hive_partitioning = false) LIMIT 0"
        ).description
    there = {name: type_ for name, type_, *_ in described or ()}
    return named_items(con, split, table, columns, there, "file_row_number")
