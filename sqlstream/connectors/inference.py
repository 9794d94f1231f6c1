"""Tables that declare no columns, and get the columns of their source."""

from __future__ import annotations

from dataclasses import replace

from sqlstream.catalog import Table
from sqlstream.connectors.registry import exists, is_built_in
from sqlstream.connectors.tables import inferred_columns, may_infer, no_columns
from sqlstream.errors import SqlStreamError, UsageError
from sqlstream.sql.nodes import ColumnDef, CreateTable, Name


def with_columns(statement: CreateTable, project: str, within: tuple[str, ...] = ()) -> CreateTable:
    """Return a CREATE TABLE with the columns of its source in front, if it declares no physical columns.

    A statement with physical columns, or with LIKE, is returned unchanged. `project` is the folder of relative paths, and
    `within` has the folders in which the files must lie, if it is not empty. Raises BindError if the columns cannot be inferred,
    and the connector's errors.
    """
    if statement.like is not None or any(c.type is not None and c.metadata is None for c in statement.columns):
        return statement
    table = replace(_undeclared(statement), within=within)
    source_columns = inferred_columns(table, project)
    if source_columns is None and not statement.columns:
        raise no_columns(table)
    span = statement.name.span
    columns = (ColumnDef(Name(c.name, span), c.type, None, False, None, span) for c in source_columns or ())
    return replace(statement, columns=(*columns, *statement.columns))


def without_columns(statement: CreateTable, problem: SqlStreamError) -> Table | None:
    """Return a table without columns that has `problem`, if its columns may be inferred later; None if they never can be."""
    table = _undeclared(statement)
    return replace(table, problem=problem) if may_infer(table) else None


def only_named(statement: CreateTable) -> Table | None:
    """Return a table of another package's connector without columns, with a problem that says why a query cannot read it.

    Thus queries do not import the package. Return None for a built-in connector, and for one that does not exist.
    """
    table = _undeclared(statement)
    if is_built_in(table.connector) or not exists(table.connector):
        return None
    reason = f'table "{table.name}" has the connector "{table.connector}", whose rows only a job reads'
    return replace(table, problem=UsageError(reason, hint="Query what that job writes or keeps."))


def _undeclared(statement: CreateTable) -> Table:
    options = {key: value.value for key, value in statement.options.items()}
    option_spans = {k: (v.key_span or v.span, v.span) for k, v in statement.options.items()}
    name = statement.name
    return Table(name.text, (), None, (), options, statement.temporary, name.span, option_spans=option_spans)
