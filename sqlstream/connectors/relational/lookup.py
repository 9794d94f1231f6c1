"""Lookups in tables of servers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from sqlstream.catalog import Column, Table
from sqlstream.connectors.interface import LookupFunction
from sqlstream.connectors.lookup_rows import lookup_columns, typed_rows


class ServerLookup(LookupFunction):
    """Asks a server; the connection stays open between questions, and is made anew where it is lost."""

    # What all errors of the server and of its library derive from.
    error: type[Exception]

    def __init__(self, table: Table):
        self.table, self.columns = table, lookup_columns(table)
        self._con: Any = None

    @abstractmethod
    def connect(self) -> Any: ...

    @abstractmethod
    def is_open(self, con: Any) -> bool: ...

    @abstractmethod
    def rows(self, con: Any, keys: pa.Table) -> Sequence[Sequence[Any]]:
        """Return the rows that have some keys, with the columns of a lookup."""

    @abstractmethod
    def failure(self, error: Exception) -> Exception:
        """Return what to raise for an error of the server or of its library."""

    def __call__(self, keys: pa.Table) -> pa.Table:
        try:
            if self._con is None or not self.is_open(self._con):
                self._con = self.connect()
            rows = self.rows(self._con, keys)
        except self.error as error:
            self._close()
            raise self.failure(error) from error
        names = [c.name for c in self.columns]
        return typed_rows(self.table, [dict(zip(names, row, strict=True)) for row in rows])

    def keys_of(self, keys: pa.Table) -> list[Column]:
        """Return the columns that are looked up, with their declared types."""
        types = {c.name: c for c in self.columns}
        return [types[name] for name in keys.column_names]

    def _close(self) -> None:
        if self._con is not None:
            with suppress(self.error):
                self._con.close()
            self._con = None
