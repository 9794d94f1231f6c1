"""Rows from a test or a user, as Python values or text, in files that jobs read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import duckdb
from duckdb.sqltypes import DuckDBPyType

from sqlstream.catalog import Table
from sqlstream.duck import databases
from sqlstream.duck.errors import plain
from sqlstream.duck.sql import quote_name, quote_text
from sqlstream.errors import BindError, missing


def write_rows(table: Table, rows: Iterable[Sequence[object] | Mapping[str, object]], path: str) -> None:
    """Write rows to a Parquet file, with each value cast to the type of its column.

    A row is a sequence in the order of the table's physical columns, or a mapping by column, in which missing columns are NULL.
    Raises BindError for a row or a value that does not fit.
    """
    columns = table.physical
    tuples = [_row(table, row) for row in rows]
    names = ", ".join(quote_name(c.name) for c in columns)
    marks = ", ".join(f"({', '.join(f'CAST(? AS {c.type})' for c in columns)})" for _ in tuples)
    nothing = f"(VALUES ({', '.join(f'CAST(NULL AS {c.type})' for c in columns)}))"
    source = f"(VALUES {marks}) t({names})" if tuples else f"{nothing} t({names}) WHERE false"
    values = [_value(v, c.type) for row in tuples for v, c in zip(row, columns, strict=True)]
    with databases.passing() as con:
        try:
            con.execute(f"COPY (SELECT {names} FROM {source}) TO {quote_text(path)} (FORMAT parquet)", values)
        except duckdb.Error as e:
            raise _misfit(con, table, tuples) or e from None


def _row(table: Table, row: Sequence[object] | Mapping[str, object]) -> tuple[object, ...]:
    """Return a row in the order of the physical columns; columns that a mapping lacks are NULL. Raises BindError."""
    columns = table.physical
    if not isinstance(row, Mapping):
        if len(row) != len(columns):
            raise BindError(f'a row of table "{table.name}" has {len(columns)} columns, not {len(row)}: {tuple(row)}')
        return tuple(row)
    by_name = {name.lower(): value for name, value in row.items()}
    names = [c.name for c in columns]
    for name in row:
        if name.lower() not in {k.lower() for k in names}:
            hint = missing("column", name, names)
            raise BindError(f'column "{name}" does not exist in table "{table.name}": {dict(row)}', hint=hint)
    return tuple(by_name.get(name.lower()) for name in names)


def _value(value: object, type: str) -> object:
    """Return a value as DuckDB takes it: it cannot tell by itself whether a mapping is a MAP or a STRUCT."""
    is_named = isinstance(value, Mapping | list | tuple) and ("MAP(" in type or "STRUCT(" in type)
    if not is_named and "JSON" not in type:
        return value
    kind = DuckDBPyType(type)
    shaped = _shaped(value, kind)
    return duckdb.Value(shaped, kind) if is_named and type != "JSON" else shaped


def _shaped(value: object, type: DuckDBPyType) -> object:
    """Return a nested value with all fields of its STRUCTs, NULL for missing ones, and with JSON values as text."""
    if str(type) == "JSON":
        return value if value is None or _is_document(value) else json.dumps(value, default=str)
    if type.id not in ("struct", "map", "list", "array") or not isinstance(value, Mapping | list | tuple):
        return value
    children = {name: child for name, child in type.children if isinstance(child, DuckDBPyType)}
    if isinstance(value, Mapping) and type.id == "struct":
        names = {name.lower(): name for name in value}
        fields = {n: _shaped(value.get(names.pop(n.lower(), n)), child) for n, child in children.items()}
        # DuckDB raises an error for fields that the STRUCT does not have.
        return {**fields, **{name: value[name] for name in names.values()}}
    if isinstance(value, Mapping) and type.id == "map":
        return {key: _shaped(inner, children["value"]) for key, inner in value.items()}
    if not isinstance(value, Mapping) and type.id in ("list", "array"):
        return [_shaped(inner, children["child"]) for inner in value]
    return value


def _is_document(value: object) -> bool:
    """Return whether a value is the JSON text of an object or an array. Any other text is a JSON string, as in JSON lines."""
    if not isinstance(value, str):
        return False
    try:
        return isinstance(json.loads(value), dict | list)
    except ValueError:
        return False


def _misfit(con: duckdb.DuckDBPyConnection, table: Table, rows: Sequence[tuple[object, ...]]) -> BindError | None:
    """Return the error for the first value that does not fit its column, None if all fit."""
    for number, row in enumerate(rows, 1):
        for column, value in zip(table.physical, row, strict=True):
            try:
                con.execute(f"SELECT CAST(? AS {column.type})", [_value(value, column.type)])
            except duckdb.Error as e:
                message = f'row {number} for table "{table.name}": column "{column.name}" cannot hold {value!r}'
                return BindError(f"{message} ({column.type})", detail=f"DuckDB says: {plain(e)}.")
    return None
