"""Contracts of the results of windows: what is stored, and the result that is computed from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from sqlstream.catalog import Column
from sqlstream.duck.sql import Relation, Relations, Select
from sqlstream.operators.operator import Holds
from sqlstream.warehouse.declarations import TableDeclaration


class WindowResult(Protocol):
    """What a window operator stores, and the result that it computes: see Grouped, WindowRows and WindowChanges."""

    @property
    def tables(self) -> tuple[TableDeclaration, ...]:
        """The state tables. The rows of the first one, PARTIALS, decide which windows exist."""
        ...

    @property
    def computed(self) -> Mapping[str, Select]:
        """By table, what the upstream fragment computes over `_rows`, with the declared types."""
        ...

    @property
    def outputs(self) -> tuple[Column, ...]:
        """The columns of the result."""
        ...

    @property
    def holds(self) -> Holds:
        """The state columns that store each column or call, by its name and then by table."""
        ...

    def result(self, relations: Relations) -> Select:
        """Return `outputs` over rows that are assigned to windows."""
        ...

    def present(self, partials: Relation) -> Relation:
        """Return the partials that form windows. Rows of a changelog may cancel out."""
        ...


class RowsResult(Protocol):
    """A result that is computed from all rows of windows at once."""

    @property
    def outputs(self) -> tuple[Column, ...]:
        """The columns of the result."""
        ...

    def of_rows(self, rows: Relation) -> Select:
        """Return the result; `rows` are keys, window bounds and columns, as they are stored."""
        ...
