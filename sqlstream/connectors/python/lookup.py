"""Users' functions that look up rows."""

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
    """Looks up rows by a user's function, which is called for each key; an asynchronous one runs for many keys at a time.

    Raises UserCodeError or OutageError if the function raises, and DataError for rows that do not fit the table.
    """

    def __init__(self, table: Table):
        self._table = table
        self._function = function(table)

    def __call__(self, keys: pa.Table) -> pa.Table:
        key_rows = keys.to_pylist()
        with errors(self._table):
            answers = finished([self._function(**key) for key in key_rows])
            rows = [row for key, answer in zip(key_rows, answers, strict=True) for row in self._rows(key, answer)]
        return typed_rows(self._table, rows)

    def _rows(self, key: Mapping[str, Any], answer: Any) -> Iterator[dict[str, Any]]:
        """Yield the rows in a function's result: None, a mapping, or several. Key columns that a row lacks are added."""
        for row in () if answer is None else (answer,) if isinstance(answer, Mapping) else answer:
            if not isinstance(row, Mapping):
                raise TypeError(f"a row is a mapping, not a {type(row).__name__}")
            names = {c.name for c in lookup_columns(self._table)}
            if unknown := [name for name in row if name not in names]:
                hint = missing("column", str(unknown[0]), names)
                raise DataError(f'table "{self._table.name}" has no column "{unknown[0]}"', hint=hint)
            yield {**key, **row}
