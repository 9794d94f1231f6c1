"""CREATE TABLE .. AS: the table that it declares, and the INSERT that writes the rows of its query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlstream.catalog import Table
from sqlstream.compiler.catalog_answers import create_table
from sqlstream.duck.sql import quote_name
from sqlstream.errors import BindError, SourceText, missing
from sqlstream.logical.plan.node import Node
from sqlstream.secrets import shown
from sqlstream.sql.nodes import ColumnDef, CreateTable, CreateTableAs, Insert, Name
from sqlstream.sql.statements import parse_script


def declared_as(statement: CreateTableAs, query: Node) -> CreateTable:
    """Return the CREATE TABLE that a CREATE TABLE .. AS stands for: the columns of its query, then its computed columns.

    A column that the statement declares with a type has this type in place of the query's. Raises BindError if the query has no
    such column.
    """
    table = statement.table
    own: Mapping[str, ColumnDef] = {
        column.name.text.lower(): column for column in table.columns if column.type is not None
    }
    names = [field.name for field in query.schema]
    for column in own.values():
        if column.name.text.lower() not in {name.lower() for name in names}:
            hint = missing("column", column.name.text, names)
            raise BindError(f'column "{column.name.text}" is not a column of the query', column.name.span, hint=hint)
    span = statement.query_span
    typed = (
        own.get(field.name.lower()) or ColumnDef(Name(field.name, span), field.type, None, False, None, span)
        for field in query.schema
    )
    computed = (column for column in table.columns if column.type is None)
    return replace(table, columns=(*typed, *computed))


def insert_of(statement: CreateTableAs) -> Insert:
    """Return the INSERT that writes the rows of the query, parsed from a text of its own, which the job's record stores."""
    span = statement.query_span
    start, end = span.source.as_written(span.start, span.end)
    text = (span.source.text if span.source.written is None else span.source.written)[start:end]
    [insert] = parse_script(SourceText(span.source.name, f"INSERT INTO {quote_name(statement.table.name.text)} {text}"))
    assert isinstance(insert, Insert)
    return insert


def declaration_of(table: Table) -> str | None:
    """Return the CREATE TABLE of a table that a query has declared; None if its options contain a secret."""
    is_public = all(shown(key, value) == value for key, value in table.options.items())
    return create_table(table) if is_public else None
