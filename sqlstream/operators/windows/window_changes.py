"""Windows over a changelog: rows are a Z-set until the watermark closes their windows; the result is final."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.duck.aggregates.aggregate_call import AggregateCall
from sqlstream.duck.sql import Condition, Relation, Relations, Select, names, rows_where, subquery
from sqlstream.operators.aggregates.grouped import GroupedCalls
from sqlstream.operators.groups import ROWS_OF_BATCH, ComputedColumns, Grouping, Groups, stored_columns
from sqlstream.operators.operator import Holds
from sqlstream.operators.windows.assigners import END, PARTIALS
from sqlstream.operators.windows.results import RowsResult
from sqlstream.storage.zsets import WEIGHT, WEIGHT_COLUMN, repeated, summed
from sqlstream.warehouse.declarations import MERGED, TableDeclaration


@dataclass(frozen=True)
class WindowChanges:
    """A result of windows over a changelog: rows are stored with weights, and a row and its retraction come in any order.

    A change is late when its window has closed, whether it adds a row or retracts one.
    """

    groups: Groups[Grouping]
    columns: tuple[Column, ...]
    of: RowsResult

    @cached_property
    def _rows(self) -> ComputedColumns:
        """The stored columns of the rows, each with its SQL over input rows."""
        return stored_columns(self.columns)

    @cached_property
    def _stored(self) -> tuple[Column, ...]:
        return (*self.groups.columns, *(c for c, _ in self._rows))

    @property
    def tables(self) -> tuple[TableDeclaration, ...]:
        return (TableDeclaration(PARTIALS, (*self._stored, WEIGHT_COLUMN), END, summed(self._stored, MERGED)),)

    @property
    def holds(self) -> Holds:
        names = (c.name for c in self.columns)
        return {name: {PARTIALS: (own.name,)} for name, (own, _) in zip(names, self._rows, strict=True)}

    @property
    def computed(self) -> dict[str, Select]:
        bounds = [f"{sql} AS {c.name}" for c, sql in self.groups.windows.value_columns]
        rows = [f"{sql} AS {c.name}" for c, sql in self._rows]
        items = ", ".join([*self.groups.key_items, *bounds, *rows, WEIGHT])
        return {PARTIALS: summed(self._stored, Relation(f"(SELECT {items} FROM {self.groups.source})"))}

    @property
    def outputs(self) -> tuple[Column, ...]:
        return self.of.outputs

    def result(self, relations: Relations) -> Select:
        columns_of_rows = (*self.groups.window_keys, *(c for c, _ in self._rows))
        rows = repeated(columns_of_rows, subquery(summed(columns_of_rows, relations[PARTIALS])))
        return self.of.of_rows(subquery(rows))

    def present(self, partials: Relation) -> Relation:
        return rows_where(subquery(summed(self._stored, partials)), Condition(f"{WEIGHT} > 0"))


@dataclass(frozen=True, slots=True)
class WindowedGrouping:
    """A grouping of rows that have the bounds of their windows as columns."""

    bounds: tuple[str, ...]
    start: str
    mergeable: bool = True

    @property
    def columns(self) -> ComputedColumns:
        return tuple((Column(name, "TIMESTAMP"), name) for name in self.bounds)

    @property
    def value_columns(self) -> ComputedColumns:
        return self.columns

    @property
    def group_by(self) -> tuple[str, ...]:
        return self.bounds

    def source(self, keys: Sequence[str]) -> Relation:
        return ROWS_OF_BATCH


@dataclass(frozen=True)
class AggregatesOfRows:
    """Aggregates per key and window, computed from all rows at once; `columns` are the ones that keys and calls use."""

    groups: Groups[Grouping]
    columns: tuple[Column, ...]
    bounds: tuple[str | None, str | None, str | None]
    calls: tuple[tuple[str, AggregateCall], ...]

    @cached_property
    def _grouped(self) -> GroupedCalls:
        windows = self.groups.windows
        return GroupedCalls(
            Groups(self.groups.keys, WindowedGrouping(windows.bounds, windows.start)), self.bounds, self.calls
        )

    @property
    def outputs(self) -> tuple[Column, ...]:
        return self._grouped.outputs

    def of_rows(self, rows: Relation) -> Select:
        own = (f"{c.name} AS {sql}" for c, sql in stored_columns(self.columns))
        named = ", ".join([*self.groups.windows.bounds, *own])
        # All rows of a window are there, so their partial results are the whole result.
        with_rows = f"WITH _rows AS (SELECT {named} FROM {rows})"
        computed = {part: Relation(f"({with_rows} {sql})") for part, sql in self._grouped.computed.items()}
        return Select(f"SELECT {names(self.outputs)} FROM ({self._grouped.result(computed)})")
