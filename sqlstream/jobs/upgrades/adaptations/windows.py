"""Adapts windows to other aggregates, columns or lateness, and to windows that are sums of slices of the old ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, TypeVar

from sqlstream.duck.sql import no_rows, quote_name
from sqlstream.jobs.upgrades.adaptations import grids
from sqlstream.jobs.upgrades.adaptations.adaptation import Adaptation
from sqlstream.jobs.upgrades.adaptations.aggregates import (
    added_calls,
    check_added_columns,
    kept_columns_note,
    recomputed_notes,
    removed_notes,
)
from sqlstream.jobs.upgrades.adaptations.calls import merged_parts
from sqlstream.jobs.upgrades.adaptations.limits import limit_notes
from sqlstream.jobs.upgrades.adaptations.transfer import CannotAdapt, StateTransfer
from sqlstream.jobs.upgrades.changes import AdaptedOperator
from sqlstream.jobs.upgrades.settings_words import windows_words
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.state_settings import (
    SessionWindows,
    SessionWindowState,
    Sql,
    WindowAggregateState,
    WindowRankState,
)
from sqlstream.logical.plan.stateful import StatefulNode
from sqlstream.logical.plan.windows import TimeWindows
from sqlstream.operators.aggregates.grouped import GroupedCalls
from sqlstream.operators.windows.assigners import END, PARTIALS, START
from sqlstream.operators.windows.corrections import Corrections
from sqlstream.operators.windows.early_results import PENDING
from sqlstream.operators.windows.emitted import EMITTED
from sqlstream.operators.windows.late_rows import LATE
from sqlstream.operators.windows.retention import KEPT
from sqlstream.operators.windows.sessions import Sessions
from sqlstream.operators.windows.window_operator import WindowOperator
from sqlstream.units import NO_TIME, duration
from sqlstream.warehouse.jobs import TableRecord

W = TypeVar("W", bound=SessionWindowState | WindowAggregateState | WindowRankState)
_BOUND = re.compile(r"\bwindow_(start|end|time)\b")


class WindowsAdaptation(Adaptation[W]):
    """The state of open windows; the new windows may be sums of the old ones."""

    may_differ: ClassVar[tuple[str, ...]] = ("windows", "late_rows")

    def adapted(self) -> AdaptedOperator:
        self.check_settings()
        operator, transfer = self.stage.operator, self.transfer
        assert isinstance(operator, WindowOperator)
        notes = [*transfer.widened(), *transfer.recomputed_below(), *self.ranking_notes()]
        expressions: dict[tuple[str, str], str] = {}
        if isinstance(operator.of, GroupedCalls):
            expressions, call_notes = added_calls(transfer, dict(operator.of.calls), PARTIALS, merged_parts)
            notes += call_notes
        else:
            if self.after.changing:
                check_added_columns(transfer)
            notes += [*kept_columns_note(transfer.added), *recomputed_notes(transfer)]
        notes += removed_notes(transfer)
        times, time_notes = self._times(operator)
        self._check_trigger(operator)
        notes += [*time_notes, *self.firing_notes()]
        expressions |= {(t.name, name): sql for t in self.new.tables if t.name != LATE for name, sql in times.items()}
        if isinstance(operator.trigger, Corrections):
            expressions |= self._corrections(operator.trigger, times.get(END, END))
        tables = replace(transfer, expressions=expressions).tables()
        for table in self.new.tables:
            # Late rows are shown to people, with other columns they begin anew; what waits to be emitted early is counted again.
            if table.name in (LATE, PENDING) and not self._is_same(table):
                tables[table.name] = no_rows(table.declaration.columns)
                if table.name == LATE:
                    notes.append("the late rows that were kept have other columns, and are kept from now on")
        return self.result(notes, tables)

    # -- the answers of kinds

    def ranking_notes(self) -> list[str]:
        """Return notes about a changed n."""
        return []

    def firing_notes(self) -> Iterator[str]:
        """Yield notes about changed times of emission. Raises CannotAdapt."""
        yield from ()

    @property
    def fires_otherwise(self) -> bool:
        """Whether early results are emitted at other times."""
        return False

    # -- tables

    def _is_same(self, table: TableRecord) -> bool:
        """Tell whether a table can keep its rows."""
        there = any(t.name == table.name and t.columns == table.columns for t in self.old.tables)
        return there and not (table.name == PENDING and self.fires_otherwise)

    def _check_trigger(self, operator: WindowOperator) -> None:
        """Raise CannotAdapt if results begin or cease to be corrected."""
        corrected = any(table.name == EMITTED for table in self.old.tables)
        if corrected != operator.trigger.corrects:
            was = "were corrected" if corrected else "were final"
            raise CannotAdapt(f"results {was}, and a changed ALLOWED_LATENESS or EARLY_FIRE would make them the other")

    def _corrections(self, trigger: Corrections, end: str) -> dict[tuple[str, str], str]:
        """Return the SQL of the columns of windows whose results are corrected; `end` is the SQL of the window end."""
        until = f"{end} + to_microseconds({trigger.retention.lateness or NO_TIME})"
        tables = (t.name for t in self.new.tables if any(name == KEPT.name for name, _ in t.columns))
        return {**{(table, KEPT.name): until for table in tables}, **_emitted(self.transfer)}

    def _times(self, operator: WindowOperator) -> tuple[dict[str, str], list[str]]:
        """Return the SQL of the time columns of other windows, and notes. Raises CannotAdapt."""
        old, new = self.before.windows, self.after.windows
        if old == new:
            return {}, []
        if isinstance(operator.trigger, Corrections):
            raise CannotAdapt("results of other windows were emitted, and would have to be corrected")
        if isinstance(operator.groups.windows, Sessions) and len(old) == len(new) == 1:
            [was], [now] = old, new
            if isinstance(was, SessionWindows) and isinstance(now, SessionWindows):
                return _longer_gap(was, now)
        before, after = grids.sums_of(old, new)
        if any(name == START for table in self.new.tables for name, _ in table.columns):
            raise CannotAdapt("the bounds of the windows are columns of the rows")
        if _makes_windows(self.stage.node):
            _check_bounds(self.transfer)
        if not isinstance(operator.of, GroupedCalls) and before.overlaps:
            raise CannotAdapt("rows in overlapping windows were kept once for each of them")
        if not isinstance(operator.of, GroupedCalls) and after.overlaps:
            raise CannotAdapt("rows were kept once, and are in several windows now")
        if after.slide > after.size:
            raise CannotAdapt("not every row is in a window now")
        notes = [
            f"windows: were {windows_words(old)}, are {windows_words(new)}; each is the sum of what was kept",
            "windows that begin before the oldest one that was open have only the rows since then",
        ]
        return grids.columns(before, after), notes


class SessionWindowAdaptation(WindowsAdaptation[SessionWindowState]):
    """The rows of sessions."""


class WindowRankAdaptation(WindowsAdaptation[WindowRankState]):
    """The first rows of each window; n may change."""

    may_differ: ClassVar[tuple[str, ...]] = (*WindowsAdaptation.may_differ, "limit")

    def ranking_notes(self) -> list[str]:
        return limit_notes(self.before.limit, self.after.limit)


class WindowAggregateAdaptation(WindowsAdaptation[WindowAggregateState]):
    """Aggregates in windows; lateness and early results may change."""

    may_differ: ClassVar[tuple[str, ...]] = (*WindowsAdaptation.may_differ, "bounds", "lateness", "early")

    @property
    def fires_otherwise(self) -> bool:
        return self.before.early != self.after.early

    def firing_notes(self) -> Iterator[str]:
        if self.before.early is not None and self.after.early is None:
            raise CannotAdapt("windows that are open were emitted early, and would not be taken back at their end")
        before, after = self.before.lateness, self.after.lateness
        if before != after:
            yield f"lateness: was {duration(before)}, is {duration(after)}"
        if after > before:
            yield (
                f"windows that were forgotten are not known any more: late rows of them make results of their own until the "
                f"watermark is {duration(after)} beyond their end"
            )
        if self.fires_otherwise:
            yield "windows that are open are emitted early when the next rows come for them"


def _makes_windows(node: Node | None) -> bool:
    """Tell whether rows get their windows right below an operator. Rows of windows that have ended leave it at once."""
    children = node.children if node is not None else ()
    return any(isinstance(c, TimeWindows) or (not isinstance(c, StatefulNode) and _makes_windows(c)) for c in children)


def _check_bounds(transfer: StateTransfer) -> None:
    """Raise CannotAdapt if keys or items contain bounds of windows: the stored rows have the bounds of the old windows."""
    for item in (*transfer.new_shape.keys, *transfer.new_shape.items):
        if any(item.columns.values()) and _BOUND.search(item.value):
            raise CannotAdapt(
                f'"{item.name}" is made of the bounds of the windows, and is kept with those of the old ones'
            )
    if any(_BOUND.search(step) for path in transfer.new_shape.paths for step in path.steps):
        raise CannotAdapt("rows are filtered by the bounds of their windows, and were by those of the old ones")


def _longer_gap(before: SessionWindows, after: SessionWindows) -> tuple[dict[str, str], list[str]]:
    """Return the SQL of the ends of sessions with a longer gap, and a note. Raises CannotAdapt if the gap is shorter."""
    if isinstance(before.gap, Sql) or isinstance(after.gap, Sql) or before.zone != after.zone:
        raise CannotAdapt(f"windows: were {windows_words([before])}, are {windows_words([after])}")
    if before.time != after.time:
        raise CannotAdapt(f"sessions are by {after.time.text}, and were by {before.time.text}")
    longer = after.gap - before.gap
    if longer < 0:
        raise CannotAdapt("sessions with a shorter gap would be parts of those that are kept as one")
    note = "the gap of sessions is longer; sessions that have ended do not go on"
    return {END: f"{END} + to_microseconds({longer})"}, [note]


def _emitted(transfer: StateTransfer) -> dict[tuple[str, str], str]:
    """Return the SQL of the columns of EMITTED, by table and column: emitted results of old calls, NULL for new calls."""
    if all(table.name != EMITTED for table in transfer.old.tables):
        return {}
    before = [item for item in transfer.old_shape.items if item.kind == "aggregate"]
    pairs = {pair.new.name: pair.old for pair in transfer.items}
    expressions = {}
    for number, item in enumerate(i for i in transfer.new_shape.items if i.kind == "aggregate"):
        old = pairs.get(item.name)
        expressions[EMITTED, f"r{number}"] = quote_name(f"r{before.index(old)}") if old is not None else "NULL"
    return expressions
