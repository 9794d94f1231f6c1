"""Table functions, which `@udtf` marks: any number of rows per input row.

For DuckDB a table function is a scalar function that returns the list of its rows. The lists of a chunk are one Arrow array of
all rows, and the offsets at which the rows of each input row begin.
"""

from __future__ import annotations

import collections.abc
import inspect
import typing
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from types import GeneratorType
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from sqlstream.catalog import FunctionKind
from sqlstream.errors import BindError
from sqlstream.functions import types
from sqlstream.functions.declaration import FunctionDeclaration, builtin_names, table_function_names
from sqlstream.functions.invocation import SHOWN, Call, named, shown
from sqlstream.functions.rows import RowType, WrongRow, WrongTable, row_type

_ROWS = (
    collections.abc.Iterator,
    collections.abc.Iterable,
    collections.abc.Generator,
    collections.abc.Sequence,
    collections.abc.Collection,
    list,
)
_WRITE = "Write -> Iterator[Row], where Row is a dataclass, a NamedTuple, tuple[int, str] or a plain type"


@dataclass(frozen=True, slots=True)
class TableFunctionDeclaration(FunctionDeclaration):
    """A Python function that returns rows."""

    kind: ClassVar[FunctionKind] = "table"
    null_rule: ClassVar[str] = "NULL gives no rows"

    def call(self) -> TableCall:
        name = self.name()
        hints = self.hints()
        parameters = self.parameters(hints)
        rows = self._rows(hints.get("return"), name)
        return TableCall(
            name=name,
            function=self.function,
            parameters=parameters,
            returns=types.canonical(f"{rows.type}[]"),
            rows=rows,
            generates=inspect.isgeneratorfunction(self.inner),
            root=self.root,
            location=self.location(),
            vectorized=self.options.vectorized,
            method=self.method,
        )

    def reserved_names(self) -> dict[str, str]:
        """Return the reserved names, including the names of DuckDB's table functions."""
        # A state query would call DuckDB's function.
        return {**table_function_names(), **builtin_names()}

    def _rows(self, hint: Any, name: str) -> RowType:
        """Return the type of a row, from the option `returns`, else from the type hint of the result."""
        explicit = self.options.returns
        what, span = f"what {self.called} gives", self.definition()
        spelled = f"@{self.decorator}(returns='STRUCT(word VARCHAR, length BIGINT)')"
        if explicit is None and self.options.vectorized:
            hint = f"Name them: @{self.decorator}(vectorized=True, returns=Row) with a dataclass, or {spelled}."
            raise BindError(f"the columns of vectorized {self.called} are not named", span, hint=hint)
        try:
            if isinstance(explicit, type):
                return row_type(explicit, None, name)
            if hint is None and explicit is None:
                raise BindError(f"{what} has no type hint", span, hint=f"{_WRITE}. Or name the SQL type: {spelled}.")
            row = None if self.options.vectorized or hint is None else self._row_hint(hint)
            return row_type(row, explicit, name)
        except types.UnusableType as error:
            hint = f"{_WRITE}. {types.USABLE}. Or name the SQL type: {spelled}."
            raise BindError(f"{what} has no usable type: {error}", span, hint=hint) from error

    def _row_hint(self, hint: Any) -> Any:
        """Return the type hint of a row from the type hint of the result."""
        hint, _ = types.optional(hint)
        arguments = typing.get_args(hint)
        if typing.get_origin(hint) not in _ROWS or not arguments:
            raise types.UnusableType(f"{types.describe(hint)} does not say what the rows are")
        return arguments[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCall(Call):
    """A table function: it is called per row, or once per chunk if it is vectorized, and returns a list of rows per input row.

    `generates` is True for a generator function: its result is always iterable, and needs no check.
    """

    rows: RowType
    generates: bool

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        return tuple((c.name, c.type) for c in self.rows.columns)

    def __call__(self, *columns: pa.ChunkedArray) -> pa.Array:
        if self.vectorized:
            return self._vector(columns)
        decoded = self.decoded(columns)
        called = self.called(columns)
        arguments = decoded if called is None else [list(compress(values, called)) for values in decoded]
        rows, ends = self._called(arguments, len(arguments[0]))
        arrays = self._arrays(rows, ends, arguments)
        if called is not None:
            # A skipped row ends where the row before it ends.
            before = np.cumsum(called)
            ends = np.asarray([0, *ends])[before].tolist()
        return self._lists([0, *ends], arrays)

    def constant(self) -> Any:
        rows, ends = self._called([], 1)
        return self._lists([0, *ends], self._arrays(rows, ends, [])).to_pylist()[0]

    def _called(self, arguments: list[list[Any]], calls: int) -> tuple[list[Any], list[int]]:
        """Return the rows of all calls, and for each call the number of rows up to its end."""
        rows: list[Any] = []
        ends: list[int] = []
        results = map(self.function, *arguments) if arguments else (self.function() for _ in range(calls))
        if not self.generates:
            results = map(self._checked, results)
        try:
            # As few steps per call as possible: after an early end there are fewer ends than calls.
            for result in results:
                rows.extend(result)
                ends.append(len(rows))
            if len(ends) < calls:
                raise StopIteration
        except _NoRows as error:
            what = f"returned {shown(error.value, SHOWN)} ({type(error.value).__qualname__}), which are no rows"
            raise self.failed(what, self.location, _row(arguments, len(ends))) from None
        except (Exception, SystemExit) as error:
            raise self.raised(error, _row(arguments, len(ends))) from error
        return rows, ends

    def _checked(self, result: Any) -> Iterable[Any]:
        if isinstance(result, GeneratorType | list | tuple):
            return result
        if isinstance(result, str | bytes | dict) or not isinstance(result, Iterable):
            raise _NoRows(result)
        return result

    def _arrays(self, rows: list[Any], ends: list[int], arguments: list[list[Any]]) -> list[pa.Array]:
        try:
            return self.rows.arrays(rows)
        except WrongRow as error:
            value = rows[error.row]
            what = f"yielded {shown(value, SHOWN)} ({type(value).__qualname__}), {error}"
            raise self.failed(what, self.location, _row(arguments, bisect_right(ends, error.row))) from error

    def _lists(self, offsets: Sequence[int] | np.ndarray[Any, Any], arrays: list[pa.Array]) -> pa.Array:
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), self.rows.arrow(arrays))

    # -- many rows at a time

    def _vector(self, columns: tuple[pa.ChunkedArray, ...]) -> pa.Array:
        number = len(columns[0])
        try:
            result = self.function(*(c.combine_chunks() for c in columns))
        except (Exception, SystemExit) as error:
            raise self.raised(error, ()) from error
        if (
            not isinstance(result, tuple | list)
            or len(result) != 2
            or not isinstance(result[0], pa.Table | pa.RecordBatch)
        ):
            kinds = ", ".join(type(r).__qualname__ for r in result) if isinstance(result, tuple | list) else None
            got = f"({kinds})" if kinds is not None else f"a {type(result).__qualname__}"
            raise self._wrong(f"returned {got}, not an Arrow table and the index of the input row of each of its rows")
        table, index = result[0], self._index(result[1], number)
        if len(index) != table.num_rows:
            raise self._wrong(f"returned an index of {len(index)} rows for a table of {table.num_rows}")
        try:
            arrays = self.rows.table_arrays(table)
        except WrongTable as error:
            raise self._wrong(f"returned a table {error}") from error
        if len(index) > 1 and not bool(np.all(index[1:] >= index[:-1])):
            order = np.argsort(index, kind="stable")
            index, arrays = index[order], [a.take(pa.array(order)) for a in arrays]
        return self._lists(np.searchsorted(index, np.arange(number + 1)), arrays)

    def _index(self, values: Any, number: int) -> np.ndarray[Any, Any]:
        try:
            array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else pa.array(values)
            if array.null_count or not (pa.types.is_integer(array.type) or len(array) == 0):
                raise self._wrong(f"returned an index of {array.type} with {array.null_count} NULLs, not of numbers")
            index: np.ndarray[Any, Any] = array.cast(pa.int64()).to_numpy(zero_copy_only=False)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise self._wrong(f"returned an index that is none: {named(error)}") from error
        if len(index) and (index.min() < 0 or index.max() >= number):
            wrong = int(index.min()) if index.min() < 0 else int(index.max())
            raise self._wrong(f"returned the index {wrong}, and there are {number} input rows")
        return index

    def _wrong(self, what: str) -> Exception:
        return self.failed(what, self.location)


class _NoRows(Exception):
    def __init__(self, value: Any):
        self.value = value


def _row(arguments: list[list[Any]], number: int) -> tuple[Any, ...]:
    return tuple(values[number] for values in arguments)
