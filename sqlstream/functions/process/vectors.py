"""Vectorized process functions: the hints of Arrow tables, and checks of the tables that a function returns."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import pyarrow as pa

from sqlstream.catalog import Column
from sqlstream.functions import types
from sqlstream.functions.invocation import named, shown
from sqlstream.functions.process.shapes import RowMismatch, is_named_tuple

_SHOWN = 200


def hinted_row(hint: Any) -> Any:
    """Return the class of rows that a hint such as `Annotated[pa.Table, Trip]` names; None without one. Raises UnusableType.

    >>> hinted_row(pa.Table)
    """
    if hint in (None, Any):
        return None
    parts = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
    if parts[0] is not pa.Table:
        raise types.UnusableType(f"{types.describe(hint)} is no Arrow table")
    return next((p for p in parts[1:] if dataclasses.is_dataclass(p) or is_named_tuple(p)), None)


@dataclass(frozen=True, slots=True)
class TableShape:
    """The columns of an Arrow table that a function returns. The `optional` column may be missing, and is then NULL."""

    columns: tuple[Column, ...]
    optional: Column | None = None

    @property
    def _all(self) -> tuple[Column, ...]:
        return (*self.columns, *((self.optional,) if self.optional else ()))

    @property
    def empty(self) -> pa.Table:
        """A table of these columns without rows."""
        return pa.table([pa.array([], _arrow(c)) for c in self._all], [c.name for c in self._all])

    def fitted(self, tables: Sequence[Any], what: str) -> pa.Table:
        """Return the rows of all tables as one, with `columns` in order and type.

        Raises RowMismatch for the first table that does not fit, with its index; the text begins with `what`.
        """
        for index, one in enumerate(tables):
            if not isinstance(one, pa.Table | pa.RecordBatch):
                raise RowMismatch(
                    index, f"{what} {shown(one, _SHOWN)} ({type(one).__qualname__}), which is no Arrow table"
                )
        if not tables:
            return self.empty
        alike = [_table(t) for t in tables]
        # Usually they have one schema, and fit: then they are checked together.
        if all(t.schema == alike[0].schema for t in alike[1:]):
            with contextlib.suppress(RowMismatch):
                return self._fitted(pa.concat_tables(alike), what, 0)
        return pa.concat_tables([self._fitted(t, what, index) for index, t in enumerate(alike)])

    def _fitted(self, table: pa.Table, what: str, index: int) -> pa.Table:
        names = table.column_names
        for name in (c.name for c in self.columns):
            if names.count(name) != 1:
                raise RowMismatch(
                    index, f'{what} a table {"with two columns" if name in names else "without the column"} "{name}"'
                )
        expected = {c.name for c in self._all}
        if extra := [name for name in names if name not in expected]:
            raise RowMismatch(index, f'{what} a table with an unexpected column "{extra[0]}"')
        arrays = [
            _cast(table.column(c.name), c, what, index) if c.name in names else pa.nulls(table.num_rows, _arrow(c))
            for c in self._all
        ]
        return pa.table(arrays, [c.name for c in self._all])


def listing(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method: a table that it returns becomes a list with this table."""

    @functools.wraps(method)
    def call(*arguments: Any) -> Iterable[Any] | None:
        result = method(*arguments)
        # A table is no sequence of its rows.
        return [result] if isinstance(result, pa.Table | pa.RecordBatch) else result

    return call


def _table(rows: pa.Table | pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows


def _arrow(column: Column) -> pa.DataType:
    return types.codec(column.type).arrow


def _cast(values: pa.ChunkedArray, column: Column, what: str, index: int) -> pa.ChunkedArray:
    arrow = _arrow(column)
    if values.type == arrow:
        return values
    try:
        return values.cast(arrow)
    except pa.ArrowException as error:
        message = f'{what} a table whose column "{column.name}" is an array of {values.type}, which is no {column.type}'
        raise RowMismatch(index, f"{message}: {named(error)}") from error
