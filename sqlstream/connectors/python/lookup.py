"""Functions of the user's that look up rows."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from sqlstream.catalog import Table
from sqlstream.connectors.interface import LookupFunction
from sqlstream.connectors.lookup_rows import lookup_columns, typed_rows
from sqlstream.connectors.python.source import errors, function
from sqlstream.errors import DataError, missing

# Calls of an asynchronous function that wait at a time.
_AT_A_TIME = 100


class PythonFunction(LookupFunction):
    """Calls a function of the user's for every key, an asynchronous one for many at a time."""

    def __init__(self, table: Table):
        self._table = table
        self._function = function(table)

    def __call__(self, keys: pa.Table) -> pa.Table:
        wanted = keys.to_pylist()
        with errors(self._table):
            answers = self._answers(wanted)
            rows = [row for key, found in zip(wanted, answers, strict=True) for row in self._rows(key, found)]
        return typed_rows(self._table, rows)

    def _answers(self, keys: Sequence[Mapping[str, Any]]) -> list[Any]:
        function = self._function
        if not inspect.iscoroutinefunction(function) and not inspect.iscoroutinefunction(type(function).__call__):
            return [function(**key) for key in keys]

        async def ask() -> list[Any]:
            free = asyncio.Semaphore(_AT_A_TIME)

            async def one(key: Mapping[str, Any]) -> Any:
                async with free:
                    return await function(**key)

            return await asyncio.gather(*map(one, keys))

        # This thread may have a loop of its own: a notebook's has.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, ask()).result()

    def _rows(self, key: Mapping[str, Any], found: Any) -> Iterator[dict[str, Any]]:
        """Yield the rows of an answer: None, a mapping, or several; key columns that it lacks are the key's."""
        for row in () if found is None else (found,) if isinstance(found, Mapping) else found:
            if not isinstance(row, Mapping):
                raise TypeError(f"a row is a mapping, not a {type(row).__name__}")
            known = {c.name for c in lookup_columns(self._table)}
            if unknown := [name for name in row if name not in known]:
                hint = missing("column", str(unknown[0]), known)
                raise DataError(f'table "{self._table.name}" has no column "{unknown[0]}"', hint=hint)
            yield {**key, **row}
