"""Windows of rows that come and go: kept as a Z-set until the watermark closes their windows; then the result is final."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.duck.sql import names
from sqlstream.duck.types import encoded
from sqlstream.operators.aggregates.calls import AggregateCall
from sqlstream.operators.aggregates.grouped import Grouped
from sqlstream.operators.groups import stored_columns
from sqlstream.operators.windows.assigners import END, PARTIALS, WindowAssigner
from sqlstream.operators.windows.late_rows import LateRows
from sqlstream.operators.windows.window_operator import WindowOperator
from sqlstream.operators.windows.window_rows import Ranking, WindowRows
from sqlstream.state.zsets import WEIGHT, WEIGHT_COLUMN, repeated, summed
from sqlstream.warehouse.declarations import MERGED, TableDeclaration


class WindowChanges(WindowOperator):
    """An operator over windows that keeps rows with weights. A row and what takes it away may come in any order.

    What comes when its window has closed is late, whether it adds a row or takes one away.
    """

    columns: tuple[Column, ...]
    # What is late of changes is counted only.
    late: LateRows | None = None

    @abstractmethod
    def of_rows(self, rows: str) -> str:
        """Return the SELECT of the result over FROM-able SQL of rows: keys and bounds as they are stored, and columns."""

    @cached_property
    def _rows(self) -> tuple[tuple[Column, str], ...]:
        """The stored columns of the rows, with the SQL that makes them from input rows."""
        return stored_columns(self.columns)

    @cached_property
    def row_tables(self) -> tuple[TableDeclaration, ...]:
        columns = (*self.group, *(c for c, _ in self._rows))
        return (TableDeclaration(PARTIALS, (*columns, WEIGHT_COLUMN), END, summed(columns, MERGED)),)

    @cached_property
    def row_parts(self) -> dict[str, str]:
        keys = [f"{sql} AS {name}" for name, (_, sql) in zip(self.key_names, self.keys, strict=True)]
        bounds = [f"{sql} AS {c.name}" for c, sql in self.windows.value_columns]
        rows = [f"{sql} AS {c.name}" for c, sql in self._rows]
        source = self.windows.source([sql for _, sql in self.keys])
        made = f"(SELECT {', '.join([*keys, *bounds, *rows, WEIGHT])} FROM {source})"
        [table] = self.row_tables
        return {PARTIALS: encoded(table.columns, f"({summed(table.columns[:-1], made)})")}

    @cached_property
    def _placed(self) -> tuple[Column, ...]:
        """The columns of rows that are in windows."""
        bounds = (Column(name, "TIMESTAMP") for name in self.windows.bounds)
        return (*self.group[: len(self.keys)], *bounds, *(c for c, _ in self._rows))

    def result(self, relations: Mapping[str, str]) -> str:
        """Return the SELECT of the result over rows with weights that are in windows."""
        rows = repeated(self._placed, f"({summed(self._placed, relations[PARTIALS])})")
        return self.of_rows(f"({rows})")

    def open_windows(self, relations: Mapping[str, str], watermark: str) -> str:
        [table] = self.row_tables
        present = f"({summed(table.columns[:-1], relations[PARTIALS])})"
        return super().open_windows({PARTIALS: f"(SELECT * FROM {present} WHERE {WEIGHT} > 0)"}, watermark)


@dataclass(frozen=True)
class ChangingWindowRows(WindowChanges):
    """The rows of sessions, and ranks of rows in their window: the fields are those of WindowRows."""

    name: str
    keys: tuple[tuple[Column, str], ...]
    windows: WindowAssigner
    columns: tuple[Column, ...]
    bounds: tuple[str, str, str] | None = None
    ranking: Ranking | None = None

    @cached_property
    def _final(self) -> WindowRows:
        return WindowRows(self.name, self.keys, self.windows, self.columns, self.bounds, self.ranking)

    @property
    def kind(self) -> str:
        return self.name

    @property
    def outputs(self) -> tuple[Column, ...]:
        return self._final.outputs

    def of_rows(self, rows: str) -> str:
        return self._final.result({PARTIALS: rows})


@dataclass(frozen=True, slots=True)
class Placed:
    """Rows whose windows' bounds are columns."""

    bounds: tuple[str, ...]
    start: str
    mergeable: bool = True

    @property
    def columns(self) -> tuple[tuple[Column, str], ...]:
        return tuple((Column(name, "TIMESTAMP"), name) for name in self.bounds)

    @property
    def value_columns(self) -> tuple[tuple[Column, str], ...]:
        return self.columns

    @property
    def group_by(self) -> tuple[str, ...]:
        return self.bounds

    def source(self, keys: Sequence[str]) -> str:
        return "_rows"


@dataclass(frozen=True)
class ChangingWindowAggregate(WindowChanges):
    """Aggregates per key and window; the columns are those that keys and calls need."""

    keys: tuple[tuple[Column, str], ...]
    windows: WindowAssigner
    columns: tuple[Column, ...]
    bounds: tuple[str | None, str | None, str | None]
    calls: tuple[tuple[str, AggregateCall], ...]

    @cached_property
    def _grouped(self) -> Grouped:
        return Grouped(self.keys, Placed(self.windows.bounds, self.windows.start), self.bounds, self.calls)

    @property
    def kind(self) -> str:
        return "window_aggregate"

    @property
    def outputs(self) -> tuple[Column, ...]:
        return self._grouped.outputs

    def of_rows(self, rows: str) -> str:
        named = ", ".join([*self.windows.bounds, *(f"{c.name} AS {sql}" for c, sql in self._rows)])
        # The partial results of rows that are all there are whole.
        computed = {
            part: f"(WITH _rows AS (SELECT {named} FROM {rows}) {sql})" for part, sql in self._grouped.computed.items()
        }
        return f"SELECT {names(self.outputs)} FROM ({self._grouped.result(computed)})"
