"""Rows of tables of database servers: those that have some keys, and all."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from sqlstream.catalog import Column, Table
from sqlstream.connectors.interface import LookupFunction
from sqlstream.connectors.lookup_rows import lookup_columns, typed_rows


class ServerLookup(LookupFunction):
    """Looks up rows on a server. The connection stays open between calls, and is opened again after it was lost."""

    # The base class of all errors of the server and of its library.
    error: type[Exception]

    def __init__(self, table: Table):
        self.table, self.columns = table, lookup_columns(table)
        self._con: Any = None

    @abstractmethod
    def connect(self) -> Any:
        """Open a connection to the server. Raises `error`."""

    @abstractmethod
    def is_open(self, con: Any) -> bool:
        """Whether a connection is open, as far as the client knows."""

    @abstractmethod
    def rows(self, con: Any, keys: pa.Table) -> Sequence[Sequence[Any]]:
        """Return the rows that have the keys, with values for `columns`; `keys` is a table with the key columns."""

    @abstractmethod
    def chunks(self, con: Any) -> Iterator[Sequence[Sequence[Any]]]:
        """Yield all rows of the table, of one moment, with values for `columns`; at most `rows.CHUNK` at a time."""

    @abstractmethod
    def failure(self, error: Exception) -> Exception:
        """Return the error to raise for an error of the server or of its library."""

    def __call__(self, keys: pa.Table) -> pa.Table:
        try:
            if self._con is None or not self.is_open(self._con):
                self._con = self.connect()
            rows = self.rows(self._con, keys)
        except self.error as error:
            self._close()
            raise self.failure(error) from error
        return self._typed(rows)

    def scan(self) -> Iterator[pa.Table]:
        """Yield all rows of the table, as `chunks` does, with the declared types."""
        try:
            self._con = self.connect()
            yield from map(self._typed, self.chunks(self._con))
        except self.error as error:
            raise self.failure(error) from error
        finally:
            self._close()

    def _typed(self, rows: Sequence[Sequence[Any]]) -> pa.Table:
        names = [c.name for c in self.columns]
        return typed_rows(self.table, [dict(zip(names, row, strict=True)) for row in rows])

    def keys_of(self, keys: pa.Table) -> list[Column]:
        """Return the declared columns of the keys, in the order of the keys."""
        types = {c.name: c for c in self.columns}
        return [types[name] for name in keys.column_names]

    def _close(self) -> None:
        if self._con is not None:
            with suppress(self.error):
                self._con.close()
            self._con = None
