"""ALTER TABLE: the CREATE TABLE statement that would declare a table as it is when it is altered."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import assert_never

from sqlglot import exp

from sqlstream.catalog import Table
from sqlstream.errors import BindError, missing
from sqlstream.sql.nodes import (
    AddParts,
    AlterTable,
    ColumnDef,
    CreateTable,
    DropColumns,
    DropPart,
    ModifyParts,
    Name,
    RenameColumn,
    RenameTable,
    ResetTableOptions,
    SetTableOptions,
    TableParts,
)


def whole(statement: CreateTable, table: Table, source: CreateTable | None) -> CreateTable:
    """Return the statement that declares `table` without LIKE and without columns of its source.

    `source` is the whole statement of the table that LIKE names, None without LIKE.
    """
    span = statement.name.span
    before = source.columns if source is not None else ()
    written = {column.name.text.lower(): column for column in (*before, *statement.columns)}
    # The columns of a table whose source cannot be reached are not known.
    columns = tuple(
        written.get(column.name.lower()) or ColumnDef(Name(column.name, span), column.type, None, False, None, span)
        for column in table.columns
    )
    options = dict(statement.options)
    watermark, partitions = statement.watermark, statement.partitioned_by
    if source is not None and statement.like is not None:
        if statement.like.merges["OPTIONS"] != "EXCLUDING":
            options = {**source.options, **options}
        watermark = watermark or (source.watermark if table.watermark is not None else None)
        partitions = partitions or source.partitioned_by
    return replace(
        statement,
        columns=columns or statement.columns,
        watermark=watermark,
        primary_key=statement.primary_key or tuple(Name(name, span) for name in table.primary_key),
        options=options,
        like=None,
        partitioned_by=partitions,
    )


def altered(statement: CreateTable, alteration: AlterTable) -> CreateTable:
    """Return the statement of a table after ALTER TABLE.

    Raises BindError for a part that exists already or does not exist, and for a column that others are computed from.
    """
    described = f'table "{statement.name.text}"'
    match alteration.change:
        case AddParts(parts):
            return _with_new(statement, parts, described)
        case ModifyParts(parts):
            return _with_others(statement, parts, described)
        case DropColumns(names):
            dropped = {_existing(statement, name, described).name.text.lower() for name in names}
            others = tuple(column for column in statement.columns if column.name.text.lower() not in dropped)
            rest = replace(statement, columns=others)
            for name in names:
                _check_free(rest, name, "dropped", with_key=True)
            return rest
        case DropPart("WATERMARK", span):
            if statement.watermark is None:
                raise BindError(f"{described} has no watermark", span)
            return replace(statement, watermark=None)
        case DropPart(_, span):
            if not statement.primary_key:
                raise BindError(f"{described} has no primary key", span)
            return replace(statement, primary_key=())
        case RenameColumn(column, name):
            return _with_renamed(statement, column, name, described)
        case RenameTable(name):
            return replace(statement, name=replace(name, database=None))
        case SetTableOptions(options):
            return replace(statement, options={**statement.options, **options})
        case ResetTableOptions(keys):
            return _without_options(statement, keys, described)
        case change:
            assert_never(change)


def _with_new(statement: CreateTable, parts: TableParts, described: str) -> CreateTable:
    for column in parts.columns:
        if _column(statement, column.name.text) is not None:
            hint = f"Write MODIFY {column.name.text} .. to change it."
            raise BindError(f'{described} has a column "{column.name.text}"', column.name.span, hint=hint)
    if parts.watermark is not None and statement.watermark is not None:
        raise BindError(f"{described} has a watermark", parts.watermark.span, hint="Write MODIFY WATERMARK FOR ..")
    if parts.primary_key and statement.primary_key:
        hint = "Write MODIFY PRIMARY KEY (..) NOT ENFORCED."
        raise BindError(f"{described} has a primary key", parts.primary_key[0].span, hint=hint)
    return _with_parts(replace(statement, columns=(*statement.columns, *parts.columns)), parts, described)


def _with_others(statement: CreateTable, parts: TableParts, described: str) -> CreateTable:
    others = {_existing(statement, c.name, described).name.text.lower(): c for c in parts.columns}
    if parts.watermark is not None and statement.watermark is None:
        raise BindError(f"{described} has no watermark", parts.watermark.span, hint="Write ADD WATERMARK FOR ..")
    if parts.primary_key and not statement.primary_key:
        hint = "Write ADD PRIMARY KEY (..) NOT ENFORCED."
        raise BindError(f"{described} has no primary key", parts.primary_key[0].span, hint=hint)
    columns = tuple(others.get(column.name.text.lower(), column) for column in statement.columns)
    return _with_parts(replace(statement, columns=columns), parts, described)


def _with_parts(statement: CreateTable, parts: TableParts, described: str) -> CreateTable:
    """Return the statement, which has the columns of `parts`, with these in their places, and with the watermark and the key."""
    columns = list(statement.columns)
    for name, position in parts.positions.items():
        column = next(c for c in columns if c.name.text.lower() == name.lower())
        columns.remove(column)
        at = 0
        if position is not None:
            before = _existing(replace(statement, columns=tuple(columns)), position, described)
            at = columns.index(before) + 1
        columns.insert(at, column)
    return replace(
        statement,
        columns=tuple(columns),
        watermark=parts.watermark or statement.watermark,
        primary_key=parts.primary_key or statement.primary_key,
    )


def _with_renamed(statement: CreateTable, column: Name, name: Name, described: str) -> CreateTable:
    before = _existing(statement, column, described)
    other = _column(statement, name.text)
    if other is not None and other is not before:
        raise BindError(f'{described} has a column "{other.name.text}"', name.span)
    _check_free(statement, column, "renamed", with_key=False)
    key = (name if part.text.lower() == column.text.lower() else part for part in statement.primary_key)
    columns = (replace(c, name=name) if c is before else c for c in statement.columns)
    return replace(statement, columns=tuple(columns), primary_key=tuple(key))


def _without_options(statement: CreateTable, keys: Iterable[Name], described: str) -> CreateTable:
    options = dict(statement.options)
    for key in keys:
        if key.text == "connector":
            hint = "Write DROP TABLE, then CREATE TABLE, for a table of another kind."
            raise BindError(f'the option "connector" of {described} cannot be reset', key.span, hint=hint)
        if key.text not in options:
            hint = missing("option", key.text, options)
            raise BindError(f'{described} has no option "{key.text}"', key.span, hint=hint)
        del options[key.text]
    return replace(statement, options=options)


def _column(statement: CreateTable, name: str) -> ColumnDef | None:
    return next((column for column in statement.columns if column.name.text.lower() == name.lower()), None)


def _existing(statement: CreateTable, name: Name, described: str) -> ColumnDef:
    column = _column(statement, name.text)
    if column is None:
        names = [column.name.text for column in statement.columns]
        hint = missing("column", name.text, names)
        raise BindError(f'column "{name.text}" does not exist in {described}', name.span, hint=hint)
    return column


def _check_free(statement: CreateTable, name: Name, what: str, *, with_key: bool) -> None:
    """Raise BindError if a column is part of what a table computes, of its partitions, or `with_key` of its primary key."""

    def refuse(use: str, hint: str) -> BindError:
        return BindError(f'column "{name.text}" cannot be {what}: {use}', name.span, hint=hint)

    key = name.text.lower()
    for column in statement.columns:
        if column.expression is not None and key in _named(column.expression):
            hint = f"Write DROP {column.name.text} first."
            raise refuse(f'column "{column.name.text}" is computed from it', hint)
    watermark = statement.watermark
    if watermark is not None and key in {watermark.column.text.lower(), *_named(watermark.expression)}:
        raise refuse("the watermark is computed from it", "Write DROP WATERMARK first, and ADD WATERMARK FOR .. then.")
    if with_key and key in _lower(statement.primary_key):
        raise refuse("it is part of the primary key", "Write DROP PRIMARY KEY first.")
    if key in _lower(statement.partitioned_by):
        raise refuse("the table is partitioned by it", "Write DROP TABLE, then CREATE TABLE.")


def _named(expression: exp.Expr) -> Collection[str]:
    """Return the names of the columns in an expression, in lower case."""
    return {column.name.lower() for column in expression.find_all(exp.Column)}


def _lower(names: Iterable[Name]) -> Collection[str]:
    return {name.text.lower() for name in names}
