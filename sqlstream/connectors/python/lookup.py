"""Functions of the user's that look up rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from sqlstream.catalog import Table
from sqlstream.connectors.interface import LookupFunction
from sqlstream.connectors.lookup_rows import lookup_columns, typed_rows
from sqlstream.connectors.python.instances import errors, finished, function
from sqlstream.errors import DataError, missing


class PythonFunction(LookupFunction):
    """Calls a function of the user's for every key, an asynchronous one for many at a time."""

    def __init__(self, table: Table):
        self._table = table
        self._function = function(table)

    def __call__(self, keys: pa.Table) -> pa.Table:
        wanted = keys.to_pylist()
        with errors(self._table):
            answers = finished([self._function(**key) for key in wanted])
            rows = [row for key, found in zip(wanted, answers, strict=True) for row in self._rows(key, found)]
        return typed_rows(self._table, rows)

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
