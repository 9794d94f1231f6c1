"""Rows as Python objects: type hints determine the shape of the rows that methods receive, and of the rows that they emit."""

from __future__ import annotations

import collections.abc
import dataclasses
import types as python_types
import typing
from collections import namedtuple
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, Literal

import pyarrow as pa

from sqlstream.catalog import ROW, Column
from sqlstream.errors import missing
from sqlstream.functions import types
from sqlstream.functions.codecs import Codec, column, decoded, instances
from sqlstream.functions.invocation import shown
from sqlstream.functions.process.api import Row
from sqlstream.names import row_fields

_SHOWN = 200
_MANY = (
    collections.abc.Iterator,
    collections.abc.Iterable,
    collections.abc.Generator,
    collections.abc.Sequence,
    list,
    tuple,
)


@dataclass(frozen=True, slots=True)
class RowShape:
    """The rows that a method receives: instances of `row_class`, a dataclass or NamedTuple, with the hints of its fields.

    Without a class they are named tuples with all columns.
    """

    row_class: type | None = None
    hints: tuple[tuple[str, Any], ...] = ()

    def reader(self, columns: Sequence[tuple[str, str]]) -> Callable[[pa.Table], Iterable[Any]]:
        """Return a function that converts an Arrow table, whose columns are (name, DuckDB type), to its rows."""
        hints = dict(self.hints)
        codecs = [types.codec(type, hints.get(name)) for name, type in columns]
        names = [name for name, _ in columns]
        row_class: Any = self.row_class or named_row(names)

        def read(table: pa.Table) -> Iterable[Any]:
            return instances(row_class, [decoded(c, values) for c, values in zip(codecs, table.columns, strict=True)])

        return read


def named_row(names: Iterable[str]) -> Any:
    """Return the class of rows with columns of these names, a named tuple."""
    return _row_class(row_fields(names))


@cache
def _row_class(fields: tuple[str, ...]) -> Any:
    # One class for all rows of these columns: rows that a state has kept, or of another table, are instances of it, too.
    named: Any = namedtuple
    row_class = named("Row", fields, rename=True)
    row_class.__annotations__ = dict.fromkeys(fields, Any)

    def by_index(self: tuple[Any, ...], index: Any) -> Any:
        if isinstance(index, str):
            error = TypeError("the columns of a row are its attributes")
            error.add_note(
                f"Write row.{index}." if index in row_class._fields else missing("column", index, row_class._fields)
            )
            raise error
        return tuple.__getitem__(self, index)

    row_class.__getitem__ = by_index
    return row_class


@dataclass(frozen=True, slots=True)
class ResultShape:
    """The rows that methods emit. By `kind` they are objects of `row_class`, tuples, plain values in one column, or `Row`s.

    An object's class is a dataclass or a NamedTuple. A `Row` (kind "row") has no fields yet: its columns depend on the call, see
    `over`.
    """

    kind: Literal["object", "tuple", "value", "row"]
    row_class: Any
    # Column names, their DuckDB types, and their hints.
    fields: tuple[tuple[str, str, Any], ...]

    def writer(self, where: str = "") -> Callable[[list[Any]], dict[str, pa.Array]]:
        """Return a function that converts emitted rows to Arrow columns by name, or raises RowMismatch.

        `where` names the output in errors; it follows the name of a column.
        """
        codecs = [(name, type, types.codec(type, hint)) for name, type, hint in self.fields]
        classes = {self.row_class} if isinstance(self.row_class, type) else set()

        def write(rows: list[Any]) -> dict[str, pa.Array]:
            if self.kind != "value" and not classes.issuperset(map(type, rows)):
                self._check_classes(rows)
            if self.row_class is tuple:
                self._check_lengths(rows)
            match self.kind:
                case "object":
                    columns: Iterable[list[Any]] = (list(map(attrgetter(name), rows)) for name, _, _ in codecs)
                case "tuple":
                    columns = map(list, zip(*rows, strict=True)) if rows else [[] for _ in codecs]
                case _:
                    columns = [rows]
            return {
                name: encoded_values(f'"{name}"{where}', type, codec, values)
                for (name, type, codec), values in zip(codecs, columns, strict=True)
            }

        return write

    def over(self, columns: Sequence[Column]) -> ResultShape:
        """Return the shape for a call: a `Row` gets the columns of the call's output; other shapes are returned unchanged."""
        if self.kind != "row":
            return self
        fields = tuple((c.name, c.type, None) for c in columns)
        return ResultShape("tuple", named_row(c.name for c in columns), fields)

    def _check_classes(self, rows: Iterable[Any]) -> None:
        for number, row in enumerate(rows):
            if not isinstance(row, self.row_class):
                raise RowMismatch(
                    number, f"emitted {shown(row, _SHOWN)} ({type(row).__qualname__}), not a {self.row_class.__name__}"
                )

    def _check_lengths(self, rows: Iterable[Any]) -> None:
        for number, row in enumerate(rows):
            if len(row) != len(self.fields):
                what = f"emitted {shown(row, _SHOWN)}, a tuple of {len(row)} values instead of {len(self.fields)}"
                raise RowMismatch(number, what)


class RowMismatch(Exception):
    """An emitted row does not fit the hint of its method; `number` is its index among the rows that were written together."""

    def __init__(self, number: int, what: str):
        super().__init__(what)
        self.number, self.what = number, what


def encoded_values(what: str, type: str, codec: Codec, values: list[Any]) -> pa.Array:
    """Return values as an Arrow array. Raises RowMismatch for one of another type; `what` is the column in words."""
    try:
        return column(codec, values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        for number, value in enumerate(values):
            try:
                column(codec, [value])
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                kind = value.__class__.__qualname__
                misfit = f"put {shown(value, _SHOWN)} ({kind}) into {what}, which is {type}"
                raise RowMismatch(number, misfit) from error
        raise


def row_shape(hint: Any) -> RowShape:
    """Return the shape of the rows of a parameter with this type hint. Raises UnusableType."""
    if hint in (None, Any, Row):
        return RowShape()
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        hints = types.field_hints(hint)
        names = [f.name for f in dataclasses.fields(hint) if f.init]
        if any(f.init and f.kw_only for f in dataclasses.fields(hint)):
            raise types.UnusableType(f"{types.describe(hint)} has fields that are given by name alone")
        return RowShape(hint, tuple((name, hints[name]) for name in names))
    if is_named_tuple(hint):
        hints = types.field_hints(hint)
        return RowShape(hint, tuple((name, hints.get(name)) for name in hint._fields))
    raise types.UnusableType(f"{types.describe(hint)} is no row")


def is_row(hint: Any) -> bool:
    """Return whether a hint is Row, also Row | None."""
    return types.optional(hint)[0] is Row


def is_named_tuple(hint: Any) -> bool:
    """Return whether a hint is a class made with typing.NamedTuple."""
    return isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields")


def emitted(hint: Any) -> Any:
    """Return the hint of a row from the hint of a method's result; None if the method emits nothing. Raises UnusableType."""
    hint, _ = types.optional(hint)
    if hint is None or hint is type(None):
        return None
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in _MANY and arguments:
        return arguments[0]
    raise types.UnusableType(f"{types.describe(hint)} does not say which rows there are")


def result_shape(hint: Any, name: str) -> ResultShape:
    """Return the shape of emitted rows with this hint; the column of plain values is called `name`. Raises UnusableType."""
    if is_row(hint):
        return ResultShape("row", None, (("*", ROW, None),))
    inner, _ = types.optional(hint)
    if typing.get_origin(inner) is tuple and (parts := types.tuple_parts(inner)) is not None:
        return ResultShape("tuple", tuple, _typed((f"f{i}", part) for i, part in enumerate(parts)))
    if isinstance(inner, type) and dataclasses.is_dataclass(inner):
        hints = types.field_hints(inner)
        names = [f.name for f in dataclasses.fields(inner)]
        return ResultShape("object", inner, _typed((n, hints[n]) for n in names))
    if is_named_tuple(inner):
        hints = types.field_hints(inner)
        missing = [n for n in inner._fields if n not in hints]
        if missing:
            raise types.UnusableType(f"field {missing[0]} of {types.describe(inner)} has no type")
        return ResultShape("tuple", inner, _typed((n, hints[n]) for n in inner._fields))
    if isinstance(inner, python_types.UnionType) or typing.get_origin(inner) is typing.Union:
        raise types.UnusableType(f"{types.describe(inner)} is not one class")
    return ResultShape("value", None, _typed([(name, hint)]))


def _typed(fields: Iterable[tuple[str, Any]]) -> tuple[tuple[str, str, Any], ...]:
    return tuple((name, types.canonical(types.sql_type(hint)), hint) for name, hint in fields)
