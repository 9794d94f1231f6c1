"""Plans of windows that are operators of their own: sessions and count windows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from sqlstream.catalog import Column
from sqlstream.logical.plan.count_windows import CountWindows
from sqlstream.logical.plan.state_settings import CountWindowsState, SessionWindowState
from sqlstream.logical.plan.windows import BOUNDS, SessionWindow
from sqlstream.operators.groups import Groups
from sqlstream.operators.windows.count_windows import CountWindowOperator
from sqlstream.operators.windows.late_rows import LATE, LateRowsPart
from sqlstream.operators.windows.window_operator import WindowOperator
from sqlstream.operators.windows.window_rows import WindowRows
from sqlstream.physical.batch import windows as in_batch
from sqlstream.physical.branches import branches
from sqlstream.physical.families.declared import InputOrigins, Item, windows_of
from sqlstream.physical.families.family import FeedingPath, OperatorPlan, columns_of, kept_rows, key_columns
from sqlstream.physical.families.windowed import WindowedPlan, sessions
from sqlstream.physical.plan import ResultWindows
from sqlstream.physical.windows import event_time, order_time, own_end
from sqlstream.units import NO_TIME

if TYPE_CHECKING:
    from sqlstream.physical.batch.query import BatchQuery
    from sqlstream.physical.batch.rows import BatchRows


class SessionWindowPlan(WindowedPlan[SessionWindow]):
    """Plans SessionWindow."""

    def _operator(self) -> WindowOperator:
        node = self.node
        end = "" if isinstance(node.gap, int) else own_end(node)
        groups = Groups(key_columns(node.input, node.keys), sessions(node, event_time(node), end))
        return self._rows("session", WindowRows(groups, columns_of(node.input), BOUNDS))

    def _stored_late_rows(self, columns: tuple[Column, ...]) -> LateRowsPart:
        return LateRowsPart(columns, event_time(self.node))

    def feeds(self) -> list[FeedingPath]:
        parts = self.operator.parts
        return [
            # Rows that operators emit are on time.
            FeedingPath(branch, tuple(part for part in parts if part != LATE or not branch.never_late))
            for branch in branches(self.node.input)
        ]

    @property
    def result_windows(self) -> ResultWindows | None:
        window = self.node.window_columns
        return ResultWindows(window, grow=True) if window is not None else None

    def items(self) -> Iterator[Item]:
        return kept_rows(self.node.input)

    def settings(self, inputs: InputOrigins) -> SessionWindowState:
        return SessionWindowState(windows=windows_of(self.node), late_rows=self.node.late_rows)

    def batch(self, query: BatchQuery) -> BatchRows:
        return in_batch.sessions(query, self.node)


class CountWindowsPlan(OperatorPlan[CountWindows]):
    """Plans CountWindows."""

    @cached_property
    def operator(self) -> CountWindowOperator:
        node = self.node
        return CountWindowOperator(
            key_columns(node.input, node.keys),
            columns_of(node.input),
            order_time(node.input, node.time_column, by_instant=bool(node.zone)),
            node.size,
            node.slide,
            node.ttl or NO_TIME,
            node.late_reads is not None,
            by_instant=bool(node.zone),
        )

    def items(self) -> Iterator[Item]:
        return kept_rows(self.node.input)

    def settings(self, inputs: InputOrigins) -> CountWindowsState:
        node = self.node
        return CountWindowsState(windows=windows_of(node), time=inputs.time(node.time_column), ttl=node.ttl or NO_TIME)

    def batch(self, query: BatchQuery) -> BatchRows:
        return in_batch.count_windows(query, self.node)
