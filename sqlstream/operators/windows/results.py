"""What windows amount to: the part of an operator over windows that says what is stored of rows, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from sqlstream.catalog import Column
from sqlstream.operators.operator import Holds
from sqlstream.operators.windows.assigners import Relations
from sqlstream.warehouse.declarations import TableDeclaration


class WindowResult(Protocol):
    """What is stored of the rows of windows, and the result that follows from it: see Grouped, WindowRows and WindowChanges.

    The first of `tables`, the partials, says by its rows which windows there are. `computed` are the SELECTs that make their rows
    from `_rows`, those of a batch: the fragment before the exchange computes them. `result` is the SELECT of the `outputs` over
    rows that are in windows. `present` are those of the partials, given as what goes behind FROM, that windows are made of.
    """

    @property
    def tables(self) -> tuple[TableDeclaration, ...]: ...

    @property
    def computed(self) -> Mapping[str, str]: ...

    @property
    def outputs(self) -> tuple[Column, ...]: ...

    @property
    def holds(self) -> Holds: ...

    def result(self, relations: Relations) -> str: ...

    def present(self, partials: str) -> str: ...


class RowsResult(Protocol):
    """A result that can be made of all rows of windows, once they are there."""

    @property
    def outputs(self) -> tuple[Column, ...]: ...

    def of_rows(self, rows: str) -> str:
        """Return the SELECT of the result over FROM-able SQL of rows: keys and bounds as they are stored, and columns."""
        ...
