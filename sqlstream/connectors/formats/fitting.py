"""Rows of a table converted to the fields of a schema, with which they are written. No conversion may lose a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from sqlstream.catalog import Column, Table
from sqlstream.connectors.formats.parquet_types import conversion
from sqlstream.duck import databases
from sqlstream.duck.sql import quote_name
from sqlstream.errors import BindError, missing

_ROWS = "_fitted_rows"


@dataclass(frozen=True, slots=True)
class FittedColumns:
    """The fields of a schema that have a column, in the schema's order, and the select item that computes each of them."""

    fields: tuple[str, ...]
    items: tuple[str, ...]

    @classmethod
    def of(cls, table: Table, columns: Sequence[Column], schema: pa.Schema, name: str) -> FittedColumns:
        """Return the fields of some columns; `name` is the schema's name in messages.

        Columns and fields match by name, whatever the case. Raises BindError for a column without a field, or whose field cannot
        hold all of its values.
        """
        by_name = {column.name.lower(): column for column in columns}
        there = {field.lower() for field in schema.names}
        for column in columns:
            if column.name.lower() not in there:
                hint = missing("field", column.name, schema.names)
                message = f'column "{column.name}" of table "{table.name}" is no field of {name} that can be written'
                raise BindError(message, table.span, hint=hint)
        fields, items = [], []
        with databases.passing() as con:
            con.register(_ROWS, schema.empty_table())
            for field, type_ in zip(schema.names, con.sql(f"FROM {_ROWS}").types, strict=True):
                if (own := by_name.get(field.lower())) is None:
                    continue
                item = conversion(quote_name(own.name), con.sqltype(own.type), type_)
                if item is None:
                    message = f'column "{own.name}" of table "{table.name}" is {own.type}, which does not fit {type_} in {name}'
                    raise BindError(message, table.span, hint=f"Declare it as {type_}, and CAST it in the query.")
                fields.append(field)
                items.append(f"{item} AS {quote_name(field)}")
        return cls(tuple(fields), tuple(items))

    def rows(self, rows: pa.Table) -> pa.Table:
        """Convert rows of the table's columns to rows of the fields."""
        with databases.passing() as con:
            con.register(_ROWS, rows)
            return con.sql(f"SELECT {', '.join(self.items)} FROM {_ROWS}").to_arrow_table()
