"""Plans of aggregates, in windows and without a window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from sqlstream.duck.sql import quote_name
from sqlstream.errors import UnsupportedError
from sqlstream.logical.plan.aggregates import Aggregate, EarlyByRows, EarlyByTime, EarlyFire, WindowAggregate
from sqlstream.logical.plan.expressions import Expression, Field
from sqlstream.logical.plan.expressions import Item as SelectItem
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.relational import Expand, Filter, Projection
from sqlstream.logical.plan.state_settings import AggregateState, EarlyFiring, WindowAggregateState, WindowBounds
from sqlstream.logical.plan.windows import BOUNDS, RegularWindows, SessionWindow, bound_of_sessions
from sqlstream.operators.aggregates.group_aggregate import MergedAggregates
from sqlstream.operators.aggregates.grouped import GroupedCalls
from sqlstream.operators.aggregates.retracted_aggregates import RetractedAggregates, can_retract
from sqlstream.operators.changelog.changelog_operator import ChangelogOperator
from sqlstream.operators.changelog.kept_rows import KeptRows
from sqlstream.operators.changelog.results import ChangingResult
from sqlstream.operators.changelog.row_results import RecomputedAggregates
from sqlstream.operators.groups import Groups, stored_columns
from sqlstream.operators.keys import Keys
from sqlstream.operators.operator import Holds
from sqlstream.operators.windows.changed_sessions import ChangedSessions
from sqlstream.operators.windows.changed_windows import ChangedWindows
from sqlstream.operators.windows.corrections import Corrections
from sqlstream.operators.windows.early_results import Early, EarlyResults, EveryInterval, EveryRows
from sqlstream.operators.windows.emitted import EmittedResults
from sqlstream.operators.windows.retention import Retention
from sqlstream.operators.windows.sessions import Sessions
from sqlstream.operators.windows.slices import SlicedWindows
from sqlstream.operators.windows.triggers import AT_END
from sqlstream.operators.windows.window_changes import AggregatesOfRows, WindowChanges
from sqlstream.operators.windows.window_operator import WindowOperator
from sqlstream.physical.batch import keyed, windows
from sqlstream.physical.families.calls import calls_of, computed, named_keys, used_columns
from sqlstream.physical.families.declared import CallItem, ColumnItem, InputOrigins, Item
from sqlstream.physical.families.family import OperatorPlan
from sqlstream.physical.families.windowed import Assigner, OverWindowsPlan, sessions
from sqlstream.physical.plan import ResultWindows
from sqlstream.physical.windows import grid
from sqlstream.units import NO_TIME, Duration

if TYPE_CHECKING:
    from sqlstream.physical.batch.query import BatchQuery
    from sqlstream.physical.batch.rows import BatchRows


class WindowAggregatePlan(OverWindowsPlan[WindowAggregate]):
    """Plans WindowAggregate. Where it can, the operator makes overlapping windows from slices, and sessions, itself."""

    @cached_property
    def windows_made_here(self) -> RegularWindows | SessionWindow | None:
        """The overlapping windows or the sessions below, if no expression in between reads their bounds."""
        windows = _windows_below(self.node.input)
        if windows is None or (isinstance(windows, RegularWindows) and not grid(windows).overlaps):
            return None
        bounds = _bounds_on_the_way(self.node.input, windows)
        # A projection may rename a bound; an expression over one would need its value.
        used = [*computed(self.node), *(e for e in _passed(self.node, windows) if e.column not in bounds)]
        if not all(bounds.isdisjoint(e.reads.columns) for e in used):
            return None
        if isinstance(windows, SessionWindow):
            # A gap per row arrives as the difference of both bounds.
            knows_gap = isinstance(windows.gap, int) or self.node.window.start is not None
            return windows if knows_gap and _is_by_the_keys_of(self.node, windows) else None
        return windows

    @property
    def _has_hints(self) -> bool:
        return super()._has_hints or self.node.corrects

    @property
    def _lateness(self) -> Duration:
        return self.node.lateness

    def _operator(self) -> WindowOperator:
        node = self.node
        self._refuse_sessions_apart()
        keys = named_keys(tuple(k.expression for k in node.keys), [k.name for k in node.keys])
        groups, calls = Groups(keys, self._assigner()), calls_of(node.aggregates)
        bounds = (node.window.start, node.window.end, node.window.time)
        if self.is_changing:
            columns = used_columns(node)
            of = WindowChanges(groups, columns, AggregatesOfRows(groups, columns, bounds, calls))
            return WindowOperator("window_aggregate", groups, of)
        result = GroupedCalls(groups, bounds, calls)
        trigger = self._corrections(groups.windows, result) if node.corrects else AT_END
        return WindowOperator("window_aggregate", groups, result, trigger)

    def _assigner(self) -> Assigner:
        end, start = self.node.window.end, self.node.window.start
        assert end is not None
        match self.windows_made_here:
            case RegularWindows() as windows:
                return SlicedWindows(quote_name(end), grid(windows))
            case SessionWindow(gap=int()) as session:
                return sessions(session, quote_name(end), "")
            case SessionWindow() as session:
                assert start is not None
                return sessions(session, quote_name(start), quote_name(end))
        return super()._assigner()

    def _corrections(self, windows: Assigner, result: GroupedCalls) -> Corrections:
        """Return the trigger of results that late or early rows correct."""
        emitted, early = EmittedResults(result, Retention(self.node.lateness)), None
        if self.node.early is not None:
            early = EarlyResults(_interval(self.node.early), result.groups)
        if isinstance(windows, Sessions):
            return Corrections(emitted, ChangedSessions(emitted, early), early)
        return Corrections(emitted, ChangedWindows(windows, emitted, early), early)

    def _refuse_sessions_apart(self) -> None:
        """Refuse hints about late and early rows over sessions that are an operator of their own, which drops the late rows."""
        apart = self.windows_made_here is None and self.sessions_below is not None
        if apart and (self.node.corrects or self.has_late_rows):
            raise UnsupportedError(
                "ALLOWED_LATENESS, EARLY_FIRE or LATE_ROWS over sessions that are not partitioned by the keys of GROUP BY",
                self.node.span,
                hint="Write SESSION(TABLE t PARTITION BY the keys of GROUP BY, ..), and filter in a subquery: "
                "SESSION(TABLE (SELECT .. WHERE ..), ..).",
            )

    @property
    def sessions_below(self) -> SessionWindow | None:
        """The sessions below, if only projections, filters and grouping sets are in between."""
        below = self.node.input
        while isinstance(below, Projection | Filter | Expand):
            below = below.input
        return below if isinstance(below, SessionWindow) else None

    @property
    def _makes_sessions(self) -> bool:
        return isinstance(self.windows_made_here, SessionWindow)

    @property
    def bound(self) -> str:
        if self._makes_sessions:
            return bound_of_sessions(self.node.lateness, self.node.late_rows)
        return super().bound

    @property
    def result_windows(self) -> ResultWindows | None:
        return ResultWindows(self.node.window, self.node.lateness, self._makes_sessions)

    @property
    def time_column(self) -> str | None:
        """The node's time attribute; None if results are corrected, since any row of a window may be followed by another."""
        return None if self.node.corrects else super().time_column

    def items(self) -> Iterator[Item]:
        return kept_items(self.node, self.operator.holds)

    def settings(self, inputs: InputOrigins) -> WindowAggregateState:
        window, early = self.node.window, self.node.early
        bounds = WindowBounds(window.start, window.end, window.time)
        return WindowAggregateState(
            windows=inputs.windows(),
            bounds=bounds if bounds != WindowBounds() else None,
            lateness=self.node.lateness,
            early=EarlyFiring(*early.setting) if early is not None else None,
            late_rows=self.node.late_rows,
        )

    def _shown(self) -> Iterator[SelectItem]:
        return shown_items(self.node)

    def batch(self, query: BatchQuery) -> BatchRows:
        return windows.aggregated(query, self.node, self.sessions_below)


class AggregatePlan(OperatorPlan[Aggregate]):
    """Plans Aggregate."""

    @cached_property
    def operator(self) -> ChangelogOperator:
        node = self.node
        key_columns = named_keys(tuple(k.expression for k in node.keys), [k.name for k in node.keys])
        lasting = tuple((*["NULL"] * (len(key_columns) - 1), str(n)) for n in node.empty_sets) if key_columns else ((),)
        keys, calls = Keys(key_columns, node.ttl or NO_TIME, lasting), calls_of(node.aggregates)
        of: ChangingResult
        if not node.input.is_changelog:
            of = MergedAggregates(keys, calls)
        elif all(can_retract(call) for _, call in calls):
            of = RetractedAggregates(keys, calls)
        else:
            of = RecomputedAggregates(KeptRows(keys, used_columns(node), changing=True), calls)
        return ChangelogOperator("aggregate", keys, of)

    @property
    def bound(self) -> str:
        """The node's answer, unless a retraction cannot update a result: then the operator stores all rows of a key."""
        node = self.node
        settled = bool(node.ttl) or node.state_growth is not None or not node.input.is_changelog
        if settled or all(can_retract(call) for _, call in calls_of(node.aggregates)):
            return super().bound
        return "the number of rows of the result below"

    def items(self) -> Iterator[Item]:
        return kept_items(self.node, self.operator.holds)

    def settings(self, inputs: InputOrigins) -> AggregateState:
        return AggregateState(ttl=self.node.ttl or NO_TIME, empty_sets=self.node.empty_sets)

    def _shown(self) -> Iterator[SelectItem]:
        return shown_items(self.node)

    def batch(self, query: BatchQuery) -> BatchRows:
        return keyed.aggregated(query, self.node)


def kept_items(node: Aggregate | WindowAggregate, holds: Holds) -> Iterator[Item]:
    """Yield the items of an aggregate: its calls, and the stored input columns if results are computed anew from stored rows.

    `holds` is `Operator.holds` of its operator. A column is left out if a call has its name.
    """
    used = used_columns(node)
    stored = {source.name: (column.name,) for source, (column, _) in zip(used, stored_columns(used), strict=True)}
    # A call may have the name of a column, and hold something else.
    keeps_rows = all(stored[c.name] in holds.get(c.name, {}).values() for c in used)
    names = {c.name for c in used} if keeps_rows else set[str]()
    yield from (CallItem(call, made_anew=call.name in names) for call in node.aggregates)
    calls = {call.name for call in node.aggregates}
    yield from (ColumnItem.of(Field(c.name, c.type)) for c in used if keeps_rows and c.name not in calls)


def shown_items(node: Aggregate | WindowAggregate) -> Iterator[SelectItem]:
    """Yield the items of the select list for the state view, without those that only rename a key or a window bound."""
    group = {f.name for f in replace(node, aggregates=()).schema}
    return (item for item in node.shown if item.expression.column not in group)


def _interval(early: EarlyFire) -> Early:
    match early:
        case EarlyByTime(every, by):
            return EveryInterval(every, by)
        case EarlyByRows(rows):
            return EveryRows(rows)


def _windows_below(node: Node) -> RegularWindows | SessionWindow | None:
    match node:
        case RegularWindows() | SessionWindow():
            return node
        case Projection() | Expand():
            return _windows_below(node.input)
        case Filter():
            # Rows that are filtered out are still part of a session.
            below = _windows_below(node.input)
            return None if isinstance(below, SessionWindow) else below
        case _:
            return None


def _path(node: Node, to: Node) -> Iterator[Node]:
    while node is not to:
        yield node
        assert isinstance(node, Projection | Expand | Filter)
        node = node.input


def _bounds_on_the_way(node: Node, to: Node) -> set[str]:
    """Return all names that the window's bounds have between two nodes."""
    names = set(BOUNDS)
    for step in reversed(list(_path(node, to))):
        if isinstance(step, Projection):
            names |= {i.name for i in step.items if i.expression.column in names}
    return names


def _passed(node: WindowAggregate, to: Node) -> Iterator[Expression]:
    for step in _path(node.input, to):
        if isinstance(step, Projection):
            yield from (i.expression for i in step.items)
        elif isinstance(step, Filter):
            yield step.predicate


def _is_by_the_keys_of(node: WindowAggregate, session: SessionWindow) -> bool:
    """Return whether an aggregate has the same keys as the sessions below it: then each session is one group."""
    names: dict[str | None, str] = {f.name: f.name for f in session.schema}
    for step in reversed(list(_path(node.input, session))):
        if isinstance(step, Expand):
            return False
        if isinstance(step, Projection):
            names = {i.name: names[i.expression.column] for i in step.items if i.expression.column in names}
    keys = {names.get(k.expression.column) for k in node.keys}
    return keys == set(session.keys)
