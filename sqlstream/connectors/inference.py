"""The columns of a table that declares none: those of its source."""

from __future__ import annotations

from dataclasses import replace

from sqlstream.catalog import Table
from sqlstream.connectors.registry import exists, is_built_in
from sqlstream.connectors.tables import inferred_columns, may_infer, no_columns
from sqlstream.errors import SqlStreamError, UsageError
from sqlstream.sql.nodes import ColumnDef, CreateTable, Name


def with_columns(statement: CreateTable, project: str, within: tuple[str, ...] = ()) -> CreateTable:
    """Return the statement with the columns of its source before those that it computes, where it declares none.

    `project` is where relative paths start, and files must lie `within` folders, if there are any. Raises BindError when the
    source does not tell its columns.
    """
    if statement.like is not None or any(c.type is not None and c.metadata is None for c in statement.columns):
        return statement
    table = replace(_undeclared(statement), within=within)
    found = inferred_columns(table, project)
    if found is None and not statement.columns:
        raise no_columns(table)
    span = statement.name.span
    columns = (ColumnDef(Name(c.name, span), c.type, None, False, None, span) for c in found or ())
    return replace(statement, columns=(*columns, *statement.columns))


def without_columns(statement: CreateTable, problem: SqlStreamError) -> Table | None:
    """Return the table whose columns cannot be inferred now, with that as its problem; None where they never can."""
    table = _undeclared(statement)
    return replace(table, problem=problem) if may_infer(table) else None


def only_named(statement: CreateTable) -> Table | None:
    """Return the table of a connector of another package as a name alone, None for one of ours: queries import no package."""
    table = _undeclared(statement)
    if is_built_in(table.connector) or not exists(table.connector):
        return None
    reason = f'table "{table.name}" has the connector "{table.connector}", whose rows only a job reads'
    return replace(table, problem=UsageError(reason, hint="Query what that job writes or keeps."))


def _undeclared(statement: CreateTable) -> Table:
    options = {key: value.value for key, value in statement.options.items()}
    places = {k: (v.key_span or v.span, v.span) for k, v in statement.options.items()}
    name = statement.name
    return Table(name.text, (), None, (), options, statement.temporary, name.span, places=places)
