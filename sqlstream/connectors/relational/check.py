"""Checks of a database's table against its declaration, before the first row is written."""

from __future__ import annotations

from sqlstream.catalog import Column, Table
from sqlstream.connectors.relational.dialect import DatabaseTable, Dialect
from sqlstream.errors import BindError, missing

CREATE = "sink.create-table"


def no_table(table: Table, name: str, dialect: Dialect) -> BindError:
    """Return the error for a table that the database does not have."""
    hint = f"Create it, or let sqlstream do it: '{CREATE}' = 'true'."
    at = table.option_span("table", value=True)
    return BindError(f'table "{table.name}": {dialect.name} has no table "{name}"', at, hint=hint)


def check_columns(table: Table, database_table: DatabaseTable, dialect: Dialect) -> None:
    """Raise BindError unless the database's table has all declared columns, with types that hold their values.

    Also raise it if the database demands a value for a column that is not declared.
    """
    columns = {c.name: c for c in database_table.columns}
    for column in table.writable:
        there = columns.get(column.name)
        if there is None:
            _refuse(table, f'has no column "{column.name}"', dialect, missing("column", column.name, columns))
        elif there.generated:
            _refuse(table, f'computes column "{column.name}" itself', dialect, "Leave it out of the declaration.")
        elif not dialect.fits(column.type, there.type):
            raise _wrong_type(table, column, there.type, dialect)
    declared = {c.name for c in table.writable}
    for there in database_table.columns:
        if there.must_be_given and there.name not in declared:
            what = f'demands a value for column "{there.name}" (NOT NULL, without a default), which is not declared'
            _refuse(table, what, dialect, "Declare the column, or give it a default there.")


def check_key(table: Table, database_table: DatabaseTable, dialect: Dialect) -> None:
    """Raise BindError if the dialect needs a unique index over the PRIMARY KEY and the table has none."""
    if table.primary_key and dialect.needs_index and frozenset(table.primary_key) not in database_table.unique:
        key = ", ".join(table.primary_key)
        what = f"has no unique index over the columns of the PRIMARY KEY ({key})"
        _refuse(table, what, dialect, f"Make one: CREATE UNIQUE INDEX name ON {table.options['table']} ({key}).")


def _refuse(table: Table, what: str, dialect: Dialect, hint: str) -> None:
    message = f'table "{table.name}": table "{table.options["table"]}" of {dialect.name} {what}'
    raise BindError(message, table.span, hint=hint)


def _wrong_type(table: Table, column: Column, there: str, dialect: Dialect) -> BindError:
    message = f'table "{table.name}": column "{column.name}" is {there} in {dialect.name}, and declared {column.type}'
    hint = (
        f"Types that hold its values: {', '.join(dialect.fitting(column.type))}. Or declare the column as another type."
    )
    return BindError(message, table.span, hint=hint)
