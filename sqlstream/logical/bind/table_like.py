"""`CREATE TABLE .. LIKE source`: what the new table inherits from the other one, by Flink's rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sqlstream.catalog import Catalog, Column, Table
from sqlstream.errors import BindError, Span
from sqlstream.sql.nodes import CreateTable, TableLike


def source_table(like: TableLike, catalog: Catalog) -> Table:
    """Return the table that LIKE names. Raises BindError if there is none, or for a view."""
    match catalog.relation(like.table.text):
        case Table() as table:
            return table
        case None:
            hint = catalog.relation_hint(like.table.text)
            raise BindError(f'table "{like.table.text}" does not exist', like.table.span, hint=hint)
        case _:
            raise BindError(f'"{like.table.text}" is a view', like.table.span, hint="Only a table has what LIKE takes.")


def inherited(statement: CreateTable, source: Table) -> Table:
    """Return the source table without what the statement excludes or overwrites: columns, watermark, key and options.

    Raises BindError for anything that both define without EXCLUDING or OVERWRITING, and if the column of an inherited watermark
    is left out.
    """
    like = statement.like
    assert like is not None
    own = {c.name.text.lower(): c for c in statement.columns}
    columns = []
    for column in source.columns:
        computed = column.expression is not None
        merge = like.merges["GENERATED"] if computed else "INCLUDING"
        if merge == "EXCLUDING" or (merge == "OVERWRITING" and column.name.lower() in own):
            continue
        if (twice := own.get(column.name.lower())) is not None:
            hint = "Write OVERWRITING GENERATED to replace it." if computed and twice.expression else None
            raise _twice(f'column "{column.name}"', source, twice.span, hint)
        columns.append(column)
    watermark = None if like.merges["WATERMARKS"] == "EXCLUDING" else source.watermark
    if watermark is not None and statement.watermark is not None:
        if like.merges["WATERMARKS"] == "INCLUDING":
            raise _twice("a watermark", source, statement.watermark.span, "Write OVERWRITING WATERMARKS to replace it.")
        watermark = None
    key = () if like.merges["CONSTRAINTS"] == "EXCLUDING" else source.primary_key
    if key and statement.primary_key:
        raise _twice(
            "a primary key", source, statement.primary_key[0].span, "Write EXCLUDING CONSTRAINTS to leave it out."
        )
    _check_columns(columns, own, (watermark.column,) if watermark else (), like.span)
    return replace(
        source, columns=tuple(columns), watermark=watermark, primary_key=key, options=_options(statement, source)
    )


def _options(statement: CreateTable, source: Table) -> Mapping[str, str]:
    assert statement.like is not None
    match statement.like.merges["OPTIONS"]:
        case "EXCLUDING":
            return {}
        case "OVERWRITING":
            return {name: value for name, value in source.options.items() if name not in statement.options}
        case _:
            for name, value in statement.options.items():
                if name in source.options:
                    raise _twice(
                        f'option "{name}"',
                        source,
                        value.key_span or value.span,
                        "Write OVERWRITING OPTIONS to replace it.",
                    )
            return source.options


def _check_columns(columns: Iterable[Column], own: Mapping[str, object], needed: Iterable[str], span: Span) -> None:
    names = {c.name.lower() for c in columns} | set(own)
    for name in needed:
        if name.lower() not in names:
            raise BindError(
                f'the watermark is for column "{name}", which is left out',
                span,
                hint="Write EXCLUDING WATERMARKS, too.",
            )


def _twice(what: str, source: Table, span: Span, hint: str | None) -> BindError:
    return BindError(f'table "{source.name}" has {what}, too', span, hint=hint)
