"""The columns of a table that declares none: those of its source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column, Table
from sqlstream.connectors.filesystem.listing import Place
from sqlstream.connectors.nexmark import source as nexmark
from sqlstream.duck.text_files import duckdb_paths
from sqlstream.errors import BindError, SqlStreamError, UsageError
from sqlstream.sql.nodes import ColumnDef, CreateTable, Name


def with_columns(statement: CreateTable, project: str) -> CreateTable:
    """Return the statement with the columns of its source before those that it computes, where it declares none.

    `project` is where relative paths start. Raises BindError when the source does not tell its columns.
    """
    if statement.like is not None or any(c.type is not None and c.metadata is None for c in statement.columns):
        return statement
    options = {key: value.value for key, value in statement.options.items()}
    match options.get("connector"):
        case "nexmark":
            found: Sequence[Column] = nexmark.COLUMNS
        case "filesystem" if options.get("format", "parquet").lower() == "parquet" and "path" in options:
            found = _parquet_columns(statement, options["path"], project)
        case _ if statement.columns:
            return statement
        case _:
            raise BindError(
                f'table "{statement.name.text}" has no columns',
                statement.name.span,
                hint="Declare them; they are inferred for Parquet files and for nexmark only.",
            )
    span = statement.name.span
    columns = (ColumnDef(Name(c.name, span), c.type, None, False, None, span) for c in found)
    return replace(statement, columns=(*columns, *statement.columns))


def without_columns(statement: CreateTable, problem: SqlStreamError) -> Table | None:
    """Return the table of files whose columns cannot be inferred now, with that as its problem; None for one of another kind."""
    options = {key: value.value for key, value in statement.options.items()}
    if options.get("connector") != "filesystem" or "path" not in options:
        return None
    places = {k: (v.key_span or v.span, v.span) for k, v in statement.options.items()}
    name = statement.name
    return Table(name.text, (), None, (), options, statement.temporary, name.span, problem=problem, places=places)


def _parquet_columns(statement: CreateTable, path: str, project: str) -> Sequence[Column]:
    name, span = statement.name.text, statement.name.span
    try:
        files = Place(path, project).files()
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f'table "{name}": "{path}" cannot be listed', detail=str(error)) from error
    first = min((f for f in files or () if f.size), default=None)
    if first is None:
        raise BindError(
            f'table "{name}" declares no columns, and there is no file at "{path}" to infer them from',
            span,
            hint="Declare the columns, or put the first file there before.",
        )
    with duckdb.connect(config={"threads": 1}) as con:
        try:
            source = f"read_parquet({duckdb_paths([first.path])}, hive_partitioning = false)"
            rows = con.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
        except duckdb.Error as error:
            message = f'table "{name}": the columns of "{first.path}" cannot be read'
            raise BindError(message, span, hint="Is it a whole Parquet file?") from error
    return [Column(column, type) for column, type, *_ in rows]
