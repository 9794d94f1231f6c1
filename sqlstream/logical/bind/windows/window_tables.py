"""Binding of window table functions: TUMBLE, HOP, CUMULATE, SESSION and count windows over any relation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import count
from typing import Final

from sqlglot import exp

from sqlstream.duck.sql import quote_name
from sqlstream.errors import BindError, SourceText, Span, UnsupportedError, missing
from sqlstream.logical.bind.expressions.intervals import CalendarInterval, calendar_interval, constant_interval
from sqlstream.logical.bind.expressions.type_checker import TypeChecker
from sqlstream.logical.bind.over.over import WAITED, lost_in_join, waits_for_later
from sqlstream.logical.bind.rowtime import without_rowtime
from sqlstream.logical.plan.count_windows import CountWindows
from sqlstream.logical.plan.expressions import TIMES, Expression, Field, Item
from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.month_windows import MonthWindows
from sqlstream.logical.plan.node import Node, WindowColumns
from sqlstream.logical.plan.process import ROWTIME
from sqlstream.logical.plan.relational import Projection
from sqlstream.logical.plan.time_domains import ordering_times
from sqlstream.logical.plan.windows import BOUNDS, WINDOW_ID, RegularWindows, SessionWindow, TimeWindows
from sqlstream.sql.dialect import WindowTVF
from sqlstream.sql.spans import span_of
from sqlstream.units import MILLISECOND, NO_TIME, Duration


def tells_windows_apart(node: Node, window: WindowColumns, named: Collection[str]) -> bool:
    """Return whether the bounds `named`, by their SQL, identify the window of a row."""
    ends = [quote_name(c) for c in (window.end, window.time) if c is not None]
    if any(name in named for name in ends):
        return True
    # Several cumulative windows share a start.
    return window.start is not None and quote_name(window.start) in named and not _is_cumulative(node)


def _is_cumulative(node: Node) -> bool:
    pending, seen = [node], set[int]()
    while pending:
        below = pending.pop()
        if id(below) in seen:
            continue
        seen.add(id(below))
        if isinstance(below, TimeWindows) and below.kind == "CUMULATE":
            return True
        # A window function hides the windows below it.
        pending += () if below.makes_windows else below.children
    return False


DAY: Final = Duration(86_400_000_000)
# Windows of months begin on a day that every month has.
SHORTEST_MONTH: Final = Duration(28 * DAY)
_BY_ROWS: Final = ("TUMBLE_ROWS", "HOP_ROWS")


def _without_bounds(node: Node, used: Collection[str], kind: str) -> tuple[Node, dict[str, str]]:
    """Return a plan without the window columns that windows of a kind would add again, and the new names of `used` columns.

    A used window column is kept under another name. A plan without windows is returned as it is.
    """
    added = (*BOUNDS, WINDOW_ID) if kind.endswith("_ROWS") else BOUNDS
    fields = node.schema
    names = {name: name for name in used}
    # A column of a table with such a name is not a window column.
    in_windows = any(n.makes_windows for n in walk(node))
    if not in_windows or not any(f.name.lower() in added for f in fields):
        return node, names
    existing = {f.name.lower() for f in fields}
    for name in used:
        if name.lower() in added:
            names[name] = next(n for i in count(1) if (n := f"_{name}_{i}") not in existing)
    remaining = _column_items(f for f in fields if f.name.lower() not in added)
    renamed = [
        Item(names[f.name], Expression.of_column(f.name, f.type)) for f in fields if names.get(f.name, f.name) != f.name
    ]
    return Projection(node, (*remaining, *renamed)), names


def _column_items(fields: Iterable[Field]) -> tuple[Item, ...]:
    return tuple(Item(f.name, Expression.of_column(f.name, f.type)) for f in fields)


class WindowBinder:
    """Binds a window table function; `described` is the name of its input in errors.

    `of_row` binds an expression over a row of the input, the gap of sessions; without it a gap must be constant.
    """

    def __init__(
        self,
        checker: TypeChecker,
        source: SourceText,
        described: str,
        of_row: Callable[[exp.Expr], Expression] | None = None,
    ):
        self.checker, self.source, self.described, self.of_row = checker, source, described, of_row

    def bind(self, below: Node, node: WindowTVF) -> Node:
        """Return the node with the rows of a relation in windows, whose window columns hide existing ones.

        Raises BindError and UnsupportedError as `windows` does, and for a column that does not exist.
        """
        column = node.args["time_column"]
        # The hint applies to any name if a process function has no event time.
        hint = without_rowtime(below).get(ROWTIME) if below.time_attribute is None else None
        time, at = self._existing(below, column, hint), span_of(column, self.source)
        keys = [self._existing(below, key) for key in node.args.get("partition_by") or ()]
        self._check_time(below, time, at)
        renamed, names = below, {name: name for name in (time, *keys)}
        # If the gap reads a window column, the columns stay, and `windows` refuses them.
        if not any(c.name.lower() in BOUNDS for i in node.args["intervals"] for c in i.find_all(exp.Column)):
            renamed, names = _without_bounds(below, {time, *keys}, node.args["kind"])
        window_node = self.windows(
            renamed,
            kind=node.args["kind"],
            time=names[time],
            at=at,
            intervals=node.args["intervals"],
            offset=node.args.get("offset"),
            keys=[names[key] for key in keys],
            span=span_of(node, self.source),
        )
        hidden = {names[name] for name in names if names[name] != name}
        return (
            Projection(window_node, _column_items(f for f in window_node.schema if f.name not in hidden))
            if hidden
            else window_node
        )

    def windows(
        self,
        below: Node,
        *,
        kind: str,
        time: str,
        at: Span,
        intervals: Sequence[exp.Expr],
        offset: exp.Expr | None,
        keys: Sequence[str],
        span: Span,
    ) -> Node:
        """Return the node with the rows of a relation in windows of a kind over its column `time`, at position `at` in the text.

        `intervals` are the size; slide (or step) and size; or the gap; for count windows, numbers of rows. `keys` partition
        sessions and count windows. Raises BindError for a column that is not a time attribute, an interval that does not fit, or
        existing window columns; UnsupportedError for windows that cannot follow the session's time zone.
        """
        self._check_time(below, time, at)
        for added in BOUNDS:
            if any(f.name.lower() == added for f in below.schema):
                raise BindError(
                    f'{self.described} already has a column "{added}"',
                    at,
                    hint="Rename or leave out that column first.",
                )
        if kind == "SESSION" and self.of_row is not None and intervals[0].find(exp.Column) is not None:
            zone = self._zone(below, time, at, kind, [])
            gap = self._own_gap(intervals[0])
            return SessionWindow(below, "", tuple(dict.fromkeys(keys)), time, gap, zone=zone, span=span)
        if kind in _BY_ROWS:
            # When clocks are set back, local times do not order rows.
            zone = self._zone(below, time, at, kind, [MILLISECOND])
            return self._by_rows(below, time, at, [int(number.name) for number in intervals], keys, zone, span)
        if kind == "TUMBLE" and (tumble := calendar_interval(self.checker, intervals[0], self.source)).months:
            return self._by_months(below, time, at, tumble, intervals[0], offset, span)
        lengths = [self._length(interval, kind) for interval in intervals]
        shift = constant_interval(self.checker, offset, self.source) if offset is not None else NO_TIME
        zone = self._zone(below, time, at, kind, [*lengths, shift])
        match kind:
            case "TUMBLE":
                return RegularWindows(
                    below, kind, time, lengths[0], lengths[0], Duration(shift % lengths[0]), zone, span
                )
            case "HOP":
                return RegularWindows(
                    below, kind, time, lengths[1], lengths[0], Duration(shift % lengths[0]), zone, span
                )
            case "CUMULATE":
                step, size = lengths
                if size % step:
                    message = "the size of CUMULATE windows must be a multiple of their step"
                    raise BindError(message, span_of(intervals[1], self.source))
                return RegularWindows(below, kind, time, size, step, Duration(shift % size), zone, span)
            case _:
                return SessionWindow(below, "", tuple(dict.fromkeys(keys)), time, lengths[0], zone=zone, span=span)

    def _length(self, interval: exp.Expr, kind: str) -> Duration:
        months, length = calendar_interval(self.checker, interval, self.source)
        if months:
            raise UnsupportedError(
                f"{kind} by months or years",
                span_of(interval, self.source),
                hint=f"TUMBLE takes them, such as INTERVAL '1' MONTH. {kind} takes days, such as INTERVAL '30' DAY.",
            )
        if length <= 0:
            raise BindError("a window's size must be positive", span_of(interval, self.source))
        return length

    def _by_months(
        self,
        below: Node,
        time: str,
        at: Span,
        size: CalendarInterval,
        interval: exp.Expr,
        offset: exp.Expr | None,
        span: Span,
    ) -> MonthWindows:
        """Return the node for TUMBLE by months; `size` is the value of the expression `interval`."""
        if size.months < 0:
            raise BindError("a window's size must be positive", span_of(interval, self.source))
        if size.length:
            raise UnsupportedError(
                "a window's size of months with days or hours",
                span_of(interval, self.source),
                hint="Write whole months. To begin windows on another day, add an offset: "
                "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MONTH, INTERVAL '14' DAY).",
            )
        shift = CalendarInterval(0, NO_TIME)
        if offset is not None:
            shift = calendar_interval(self.checker, offset, self.source)
            if abs(shift.length) >= SHORTEST_MONTH:
                raise BindError(
                    "the days of an offset of windows of months must be less than 28",
                    span_of(offset, self.source),
                    hint="Months have at least 28 days. For a longer offset add months, as in INTERVAL '3 months 5 days'.",
                )
        zone = self._zone(below, time, at, "TUMBLE", [shift.length])
        return MonthWindows(below, time, size.months, shift.months % size.months, shift.length, zone, span)

    def _by_rows(
        self,
        below: Node,
        time: str,
        at: Span,
        numbers: Sequence[int],
        keys: Sequence[str],
        zone: str | None,
        span: Span,
    ) -> Node:
        if any(f.name.lower() == WINDOW_ID for f in below.schema):
            hint = "Rename or leave out that column first."
            raise BindError(f'{self.described} already has a column "{WINDOW_ID}"', at, hint=hint)
        return CountWindows(below, "", tuple(dict.fromkeys(keys)), time, numbers[-1], numbers[0], zone=zone, span=span)

    def _own_gap(self, node: exp.Expr) -> Expression:
        assert self.of_row is not None
        gap = self.of_row(node)
        if gap.type != "INTERVAL":
            hint = "Write INTERVAL '1' SECOND * seconds."
            raise BindError(f"the gap of a session is an INTERVAL, not a value of type {gap.type}", gap.span, hint=hint)
        return gap

    def _existing(self, below: Node, column: exp.Expr, hint: str | None = None) -> str:
        names = [f.name for f in below.schema]
        match = next((n for n in names if n.lower() == column.name.lower()), None)
        if match is None:
            message = f'column "{column.name}" does not exist in {self.described}'
            hint = hint or missing("column", column.name, names)
            raise BindError(message, span_of(column, self.source), hint=hint)
        return match

    def _check_time(self, below: Node, name: str, at: Span) -> None:
        if name not in ordering_times(below):
            hint = self._no_time_hint(below, name)
            raise BindError(f'column "{name}" of {self.described} is not a time attribute', at, hint=hint)

    def _zone(self, below: Node, name: str, at: Span, kind: str, lengths: Sequence[Duration]) -> str | None:
        """Return the time zone to whose midnight windows are aligned, None for UTC or a TIMESTAMP without a zone.

        When clocks are set back, an hour comes twice: only windows of whole days, or of months, contain both. The clock waits
        for the second one (`zones.local_clock`), so its windows may have any length. Windows of numbers of rows over
        processing time are by the instant; their bounds are local times.
        """
        zone = self.checker.zone
        if zone == "UTC" or next(f.type for f in below.schema if f.name == name) != "TIMESTAMP WITH TIME ZONE":
            return None
        if name not in below.clock_times and (kind == "SESSION" or any(length % DAY for length in lengths)):
            raise UnsupportedError(
                f"{'sessions' if kind == 'SESSION' else 'such windows'} over a TIMESTAMP_LTZ in the zone {zone}",
                at,
                hint="Windows of whole days, months or years over event times follow its midnight. For others, leave"
                " 'table.local-time-zone' at UTC, or make the time attribute a TIMESTAMP.",
            )
        return zone

    def _no_time_hint(self, below: Node, name: str) -> str:
        if attribute := below.time_attribute:
            return f'The time attribute of {self.described} is "{attribute}".'
        if below.is_table and any(f.name == name and f.type in TIMES for f in below.schema):
            return f"Declare it in CREATE TABLE: WATERMARK FOR {name} AS {name} - INTERVAL '5' SECOND."
        if below.is_table:
            return "Declare one in CREATE TABLE: a column of type TIMESTAMP, and WATERMARK FOR it; or p AS PROCTIME()."
        if (lost := without_rowtime(below).get(ROWTIME)) is not None:
            return lost
        if waits_for_later(below):
            return WAITED
        if (lost := lost_in_join(below)) is not None:
            return lost
        return "A column remains a time attribute as long as every query on the way passes it on unchanged."
