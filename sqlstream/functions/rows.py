"""Rows that functions return: columns from a type hint, and the conversion of Python objects to Arrow, column by column."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any, Literal

import pyarrow as pa

from sqlstream.duck.sql import quote_name
from sqlstream.functions import types
from sqlstream.functions.codecs import Codec, StructOf, column
from sqlstream.functions.invocation import SHOWN, named, shown

# Raised for a value that is not of its type: see `codecs.column`.
MISMATCHES = (pa.ArrowException, TypeError, ValueError, OverflowError)


class WrongRow(Exception):
    """A row does not have its declared type. `row` is its index; the message ends a sentence: `which is no BIGINT`."""

    def __init__(self, row: int, what: str):
        super().__init__(what)
        self.row = row


class WrongTable(Exception):
    """An Arrow table lacks the columns of the rows; the message ends a sentence: `without the column ..`, `whose column ..`."""


@dataclass(frozen=True, slots=True)
class RowColumn:
    """A column of rows: its name, its DuckDB type, and the codec of its values."""

    name: str
    type: str
    codec: Codec


@dataclass(frozen=True, slots=True)
class RowType:
    """The type of rows. By `shape` a row is one value, an instance of `row_class` with a field per column, a tuple, or a mapping.

    If no class is known (`row_class` is None), rows of several columns may be dicts or tuples.
    """

    columns: tuple[RowColumn, ...]
    shape: Literal["value", "fields", "tuple", "mapping"]
    row_class: type | None = None

    @property
    def type(self) -> str:
        """The DuckDB type of a row."""
        if self.shape == "value":
            return self.columns[0].type
        return f"STRUCT({', '.join(f'{quote_name(c.name)} {c.type}' for c in self.columns)})"

    def arrow(self, arrays: list[pa.Array]) -> pa.Array:
        """Return the columns of rows as one array: of structs, or of plain values."""
        if self.shape == "value":
            return arrays[0]
        fields = [pa.field(c.name, c.codec.arrow) for c in self.columns]
        return pa.StructArray.from_arrays(arrays, fields=fields)

    def arrays(self, rows: list[Any]) -> list[pa.Array]:
        """Return one array per column; a row that is None becomes NULLs. Raises WrongRow."""
        return [self._array(c, values) for c, values in zip(self.columns, self._split(rows), strict=True)]

    def table_arrays(self, table: pa.Table | pa.RecordBatch) -> list[pa.Array]:
        """Return the columns of an Arrow table of rows, in the order of `columns` and cast to their types. Raises WrongTable."""
        names = [c.name for c in self.columns]
        if missing := [name for name in names if name not in table.column_names]:
            raise WrongTable(f'without the column "{missing[0]}"')
        if extra := [name for name in table.column_names if name not in names]:
            raise WrongTable(f'with an unexpected column "{extra[0]}"')
        return [self._cast(table.column(c.name), c) for c in self.columns]

    def _cast(self, values: pa.Array | pa.ChunkedArray, of: RowColumn) -> pa.Array:
        array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        try:
            return array if array.type == of.codec.arrow else array.cast(of.codec.arrow)
        except pa.ArrowException as error:
            what = f'whose column "{of.name}" is an array of {array.type}'
            raise WrongTable(f"{what}, which is no {of.type}: {named(error)}") from error

    def _array(self, of: RowColumn, values: list[Any]) -> pa.Array:
        try:
            return column(of.codec, values)
        except MISMATCHES:
            for row, value in enumerate(values):
                try:
                    column(of.codec, [value])
                except MISMATCHES as error:
                    raise WrongRow(row, self._no(of, value)) from error
            raise

    def _no(self, of: RowColumn, value: Any) -> str:
        if self.shape == "value":
            return f"which is no {of.type}"
        return f'whose field "{of.name}" is {shown(value, SHOWN)} ({type(value).__qualname__}), which is no {of.type}'

    def _split(self, rows: list[Any]) -> list[list[Any]]:
        """Return the values of each column. Rows of one class, the usual case, are split without a look at each row."""
        if self.shape == "value":
            return [rows]
        classes = set(map(type, rows))
        names = [c.name for c in self.columns]
        if not rows:
            return [[] for _ in names]
        if classes == {self.row_class} and self.shape == "fields":
            return [list(map(attrgetter(name), rows)) for name in names]
        if classes == {self.row_class} and self.shape == "mapping" and set(map(len, rows)) == {len(names)}:
            try:
                return [list(map(itemgetter(name), rows)) for name in names]
            except KeyError:
                pass
        elif classes == {tuple} and self.row_class in (tuple, None) and set(map(len, rows)) == {len(names)}:
            return [list(map(itemgetter(i), rows)) for i in range(len(names))]
        return [list(values) for values in zip(*(self._values(n, row) for n, row in enumerate(rows)), strict=True)]

    def _values(self, number: int, row: Any) -> tuple[Any, ...]:
        if row is None:
            return (None,) * len(self.columns)
        names = [c.name for c in self.columns]
        if self.shape == "fields" and isinstance(row, self.row_class or ()):
            return tuple(getattr(row, name) for name in names)
        if isinstance(row, tuple) and self.row_class in (tuple, None):
            if len(row) != len(names):
                raise WrongRow(number, f"which has {_values(len(row))} instead of {len(names)}")
            return row
        if isinstance(row, Mapping) and self.shape == "mapping":
            if extra := [name for name in row if name not in names]:
                raise WrongRow(number, f'which has an unexpected field "{extra[0]}"')
            return tuple(row.get(name) for name in names)
        expected = self.row_class.__name__ if self.row_class is not None else "dict or tuple"
        raise WrongRow(number, f"which is no {expected}")


def row_type(hint: Any, explicit: str | None, name: str) -> RowType:
    """Return the type of rows, from a type hint or from the DuckDB type `explicit`. The column of plain values is called `name`.

    Raises UnusableType.

    >>> row_type(tuple[int, str], None, "f").type
    'STRUCT("f0" BIGINT, "f1" VARCHAR)'
    """
    hint, _ = types.optional(hint)
    parts = _tuple_parts(hint)
    if explicit is None and parts is not None:
        explicit = f"STRUCT({', '.join(f'f{i} {types.sql_type(part)}' for i, part in enumerate(parts))})"
    sql = types.canonical(explicit or types.sql_type(hint))
    fields = types.struct_fields(sql)
    if fields is None:
        return RowType((RowColumn(name, sql, types.codec(sql, hint)),), "value")
    if parts is not None:
        if len(parts) != len(fields):
            raise types.UnusableType(f"{sql} has not as many fields as {types.describe(hint)}")
        typed = zip(fields.items(), parts, strict=True)
        return RowType(tuple(RowColumn(f, t, types.codec(t, part)) for (f, t), part in typed), "tuple", tuple)
    codec = types.codec(sql, hint)
    assert isinstance(codec, StructOf)
    codecs = dict(codec.fields)
    columns = tuple(RowColumn(field, type_, codecs[field]) for field, type_ in fields.items())
    if isinstance(codec.record_class, type):
        return RowType(columns, "fields", codec.record_class)
    return RowType(columns, "mapping", dict if typing.is_typeddict(hint) else None)


def _tuple_parts(hint: Any) -> tuple[Any, ...] | None:
    if typing.get_origin(hint) is not tuple:
        return None
    parts = typing.get_args(hint)
    if not parts or ... in parts:
        raise types.UnusableType(f"{types.describe(hint)} does not say how many values there are")
    return parts


def _values(number: int) -> str:
    return "1 value" if number == 1 else f"{number} values"
