"""Process functions that store or emit whole rows of their tables, the type Row: each call decides the columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from duckdb.sqltypes import DuckDBPyType

from sqlstream.catalog import ROW, Column, ProcessFunction
from sqlstream.duck.sql import quote_name
from sqlstream.errors import BindError, Span
from sqlstream.logical.plan.expressions import Schema
from sqlstream.names import row_fields


def with_rows(function: ProcessFunction, schemas: Sequence[Schema], span: Span | None = None) -> ProcessFunction:
    """Replace the type Row in a process function by the columns of a call's tables, `schemas`.

    A state, or an output, of type Row gets the columns of the tables whose methods get a Row. Raises BindError if these tables
    have different columns, or if there is no such table.
    """

    def row(what: str, *, broadcast: bool = False) -> tuple[Column, ...]:
        row_schemas = [
            schema
            for table, schema in zip(function.tables, schemas, strict=True)
            if table.columns is None and table.broadcast == broadcast
        ]
        described, at = f'process function "{function.name}": {what}', f" --> {function.location}"
        if not row_schemas:
            kind = "broadcast table" if broadcast else "table"
            hint = "Write the class of the rows in its place."
            raise BindError(f"{described} is a Row, but no method of a {kind} gets one", span, detail=at, hint=hint)
        if any(other != row_schemas[0] for other in row_schemas):
            hint = "Write a dataclass with the columns of all of them in place of Row."
            raise BindError(f"{described} is a Row, but its tables have different columns", span, detail=at, hint=hint)
        return tuple(Column(f.name, f.type) for f in row_schemas[0])

    outputs, states, sides = function.outputs, function.states, function.side_outputs
    if _is_row(outputs):
        outputs = row("what it emits")
    if any(s.type == ROW for s in states):
        states = tuple(
            replace(s, type=_struct(row(f'state "{s.name}"', broadcast=s.broadcast))) if s.type == ROW else s
            for s in states
        )
    if any(_is_row(s.columns) for s in sides):
        sides = tuple(replace(s, columns=row(f'side output "{s.name}"')) if _is_row(s.columns) else s for s in sides)
    if (outputs, states, sides) == (function.outputs, function.states, function.side_outputs):
        return function
    return replace(function, outputs=outputs, states=states, side_outputs=sides)


def _is_row(columns: Sequence[Column]) -> bool:
    return any(c.type == ROW for c in columns)


def _struct(columns: Sequence[Column]) -> str:
    """Return the STRUCT type of a row with these columns; its fields have the names of the row's attributes in Python."""
    names = row_fields(c.name for c in columns)
    fields = ", ".join(f"{quote_name(name)} {c.type}" for name, c in zip(names, columns, strict=True))
    return str(DuckDBPyType(f"STRUCT({fields})"))
