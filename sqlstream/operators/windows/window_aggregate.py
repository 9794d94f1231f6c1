"""Aggregates per key and event-time window: partial results go in, results come out when a window closes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.operators.aggregates.calls import AggregateCall
from sqlstream.operators.aggregates.grouped import Grouped
from sqlstream.operators.windows.assigners import WindowAssigner
from sqlstream.operators.windows.late_rows import LateRows
from sqlstream.operators.windows.window_operator import WindowOperator
from sqlstream.warehouse.declarations import TableDeclaration


@dataclass(frozen=True)
class WindowedAggregate(WindowOperator):
    """The operator: what its fields are, `Grouped` says."""

    keys: tuple[tuple[Column, str], ...]
    windows: WindowAssigner
    bounds: tuple[str | None, str | None, str | None]
    calls: tuple[tuple[str, AggregateCall], ...]
    late: LateRows | None = None

    @property
    def kind(self) -> str:
        return "window_aggregate"

    @cached_property
    def _grouped(self) -> Grouped:
        return Grouped(self.keys, self.windows, self.bounds, self.calls)

    @property
    def row_tables(self) -> tuple[TableDeclaration, ...]:
        return self._grouped.tables

    @property
    def row_parts(self) -> dict[str, str]:
        return self._grouped.parts

    @property
    def outputs(self) -> tuple[Column, ...]:
        return self._grouped.outputs

    def result(self, relations: Mapping[str, str]) -> str:
        return self._grouped.result(relations)
