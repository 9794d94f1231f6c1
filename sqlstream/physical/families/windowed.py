"""The base classes of plans of operators over time windows: late rows, and window assigners."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

from sqlstream.catalog import Column
from sqlstream.duck.sql import TRUE, Condition, Rows, quote_name
from sqlstream.errors import UnsupportedError
from sqlstream.logical.plan.aggregates import WindowAggregate
from sqlstream.logical.plan.nodes import Windowed
from sqlstream.logical.plan.ranks import WindowRank
from sqlstream.logical.plan.relational import Expand
from sqlstream.logical.plan.windows import SessionWindow
from sqlstream.operators.late_rows import TIME, WATERMARK
from sqlstream.operators.windows.assigners import AssignedWindows
from sqlstream.operators.windows.late_rows import LATE, OPERATOR, LateRowsPart
from sqlstream.operators.windows.session_pieces import ChangingPieces, Pieces
from sqlstream.operators.windows.sessions import Sessions
from sqlstream.operators.windows.slices import SlicedWindows
from sqlstream.operators.windows.window_changes import WindowChanges
from sqlstream.operators.windows.window_operator import WindowOperator
from sqlstream.operators.windows.window_rows import WindowRows
from sqlstream.physical.branches import branches
from sqlstream.physical.families.family import FeedingPath, OperatorPlan
from sqlstream.physical.windows import EVENT_TIME
from sqlstream.units import NO_TIME, Duration

W = TypeVar("W", bound=Windowed)
G = TypeVar("G", WindowAggregate, WindowRank)
Assigner = AssignedWindows | SlicedWindows | Sessions


class WindowedPlan(OperatorPlan[W]):
    """The plan of an operator that emits final results of a window when the watermark passes its end."""

    @cached_property
    def operator(self) -> WindowOperator:
        if self.is_changing and self._has_hints:
            raise UnsupportedError(
                "ALLOWED_LATENESS, EARLY_FIRE or LATE_ROWS over a table with changes",
                self.node.span,
                hint="Leave the hint out: the window's result is emitted once, when the watermark passes its end.",
            )
        operator = self._operator()
        late = self._late_part()
        return replace(operator, late=late) if late is not None else operator

    @abstractmethod
    def _operator(self) -> WindowOperator:
        """Return the operator without a part for late rows."""

    @property
    def is_changing(self) -> bool:
        """Whether rows of its windows can be retracted."""
        windows = self.windows_made_here
        return (windows.input if windows is not None else self.node.input).is_changelog

    @property
    def _has_hints(self) -> bool:
        """Whether the query has a hint about late or early rows, or reads late rows."""
        return self.has_late_rows

    @property
    def has_late_rows(self) -> bool:
        """Whether late rows are stored (LATE_ROWS), or read by a query."""
        return self.node.late_rows is not None or self.node.late_reads is not None

    def _late_part(self) -> LateRowsPart | None:
        """Return the part for late rows, None if they are only counted."""
        if not self.has_late_rows:
            return None
        for field in self.node.input.schema:
            if field.name.lower() in (TIME.name, WATERMARK.name, OPERATOR.name):
                raise UnsupportedError(
                    f'LATE_ROWS of rows with a column "{field.name}"',
                    self.node.span,
                    hint="It adds one of that name: rename yours in a subquery.",
                )
        columns = tuple(Column(f.name, f.type) for f in self.node.late_columns(0))
        part = self._stored_late_rows(columns)
        return replace(part, in_table=self.node.late_rows is not None, emitted=self.node.late_reads is not None)

    @abstractmethod
    def _stored_late_rows(self, columns: tuple[Column, ...]) -> LateRowsPart:
        """Return the part for late rows with these columns, without its flags `in_table` and `emitted`."""

    def late_views(self, name: str) -> Iterator[tuple[str, Rows]]:
        view = self.operator.late_view(name)
        if view is not None and self.node.late_rows is not None:
            yield self.node.late_rows, view

    def _rows(self, name: str, rows: WindowRows) -> WindowOperator:
        """Return the operator that emits the rows of windows, with or without ranks."""
        of = WindowChanges(rows.groups, rows.columns, rows) if self.is_changing else rows
        return WindowOperator(name, rows.groups, of)


class OverWindowsPlan(WindowedPlan[G]):
    """The plan of an operator above windows: its rows arrive with window bounds, or it makes the windows itself."""

    @property
    def _lateness(self) -> Duration:
        """How long after its end a window still takes rows."""
        return NO_TIME

    def feeds(self) -> list[FeedingPath]:
        parts = self.operator.parts
        feeds = []
        for branch in branches(self.node.input, self.windows_made_here, timed=LATE in parts):
            # Late rows come from tables, through a window function on the path.
            can_be_late = not branch.never_late and branch.timed
            feeds.append(FeedingPath(branch, tuple(part for part in parts if part != LATE or can_be_late)))
        return feeds

    def _stored_late_rows(self, columns: tuple[Column, ...]) -> LateRowsPart:
        below, where = self.node.input, TRUE
        if isinstance(below, Expand):
            where = Condition(f"{quote_name(below.column)} = {below.numbers[0]}")
        return LateRowsPart(columns, EVENT_TIME, self._lateness, where)

    def _assigner(self) -> Assigner:
        """Return the assigner of rows that arrive with the bounds of their window."""
        end, start = self.node.window.end, self.node.window.start
        assert end is not None
        size = self.node.input.window_size
        length = size.length if size is not None else None
        if length is None and start is None:
            length = NO_TIME
        return AssignedWindows(quote_name(end), length, quote_name(start) if start else None)


def sessions(node: SessionWindow, time: str, end: str) -> Sessions:
    """Return the session assigner; `time` is the SQL of a row's event time.

    `end` is the SQL of the time plus the row's own gap, if the gap is an expression; else it is not read.
    """
    gap = node.gap if isinstance(node.gap, int) else None
    if node.input.is_changelog:
        return Sessions(ChangingPieces(time, end if gap is None else f"{time} + to_microseconds({gap})"))
    return Sessions(Pieces(time, gap, end))
