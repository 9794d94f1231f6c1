"""Windows in SQL, and the operators that logical nodes over windows become."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeAlias, assert_never

from sqlstream.catalog import Column
from sqlstream.duck.aggregates.aggregate_call import AggregateCall
from sqlstream.duck.aggregates.calls import is_aggregate, reason, strategy
from sqlstream.duck.aggregates.functions import ALIASES, REFUSED
from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import quote_name
from sqlstream.errors import UnsupportedError
from sqlstream.logical.plan import aggregates
from sqlstream.logical.plan.aggregates import Aggregate
from sqlstream.logical.plan.expressions import AggregateItem, Expression
from sqlstream.logical.plan.late_rows import row_columns
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.nodes import Windowed
from sqlstream.logical.plan.over import OverItem
from sqlstream.logical.plan.ranks import WindowRank
from sqlstream.logical.plan.relational import Expand, Filter, Projection
from sqlstream.logical.plan.windows import BOUNDS, CountWindows, SessionWindow, TimeWindows
from sqlstream.operators.aggregates.grouped import Grouped
from sqlstream.operators.groups import Groups, Made
from sqlstream.operators.late_rows import MARK, TIME
from sqlstream.operators.over.calls import OverCall
from sqlstream.operators.windows.assigners import AssignedWindows, window_time
from sqlstream.operators.windows.changed_sessions import ChangedSessions
from sqlstream.operators.windows.changed_windows import ChangedWindows
from sqlstream.operators.windows.corrections import Corrections
from sqlstream.operators.windows.early_results import EarlyResults
from sqlstream.operators.windows.emitted import EmittedResults
from sqlstream.operators.windows.grid import Grid
from sqlstream.operators.windows.late_rows import OPERATOR, LateRowsPart
from sqlstream.operators.windows.retention import Retention
from sqlstream.operators.windows.session_pieces import ChangingPieces, Pieces
from sqlstream.operators.windows.sessions import Sessions
from sqlstream.operators.windows.slices import SlicedWindows
from sqlstream.operators.windows.triggers import AT_END, Early
from sqlstream.operators.windows.window_changes import AggregatesOfRows, WindowChanges
from sqlstream.operators.windows.window_operator import WindowOperator
from sqlstream.operators.windows.window_rows import Ranking, WindowRows
from sqlstream.units import NO_TIME

Assigner: TypeAlias = AssignedWindows | SlicedWindows | Sessions

# No names that a user would give to a column.
_END = internal("window_end")
# The event time of rows in windows, for whom it concerns.
EVENT_TIME = internal("event_time")


def grid(node: TimeWindows) -> Grid:
    return Grid(node.size, node.slide, node.offset, cumulative=node.kind == "CUMULATE")


def event_time(node: TimeWindows | SessionWindow | CountWindows) -> str:
    """Return the SQL of a row's event time, as a TIMESTAMP: an instant as the session's zone shows it."""
    return time_sql(node.input, node.time_column)


def time_sql(node: Node, column: str) -> str:
    """Return the SQL of a time of a node's rows as a TIMESTAMP."""
    field = next(f for f in node.schema if f.name == column)
    return (
        f"CAST({quote_name(column)} AS TIMESTAMP)" if field.type == "TIMESTAMP WITH TIME ZONE" else quote_name(column)
    )


def in_windows(node: TimeWindows, rows: str) -> str:
    """Return the SELECT of rows with the bounds of the windows that they are in."""
    at, micros = grid(node), f"epoch_us({event_time(node)})"
    if not at.overlaps:
        held = f" WHERE {condition}" if (condition := at.holds(micros)) else ""
        ends = f"SELECT *, {at.slice_end(micros)} AS {_END} FROM ({rows}){held}"
    else:
        first, last = at.first_end_sql(f"{micros} + 1"), at.last_end_sql(at.slice_end(micros))
        ends = f"SELECT *, unnest(generate_series({first}, {last}, {at.slide})) AS {_END} FROM ({rows})"
    start, end = (f"make_timestamp({sql})" for sql in (at.start_sql(_END), _END))
    bounds = (start, end, f"make_timestamp({_END} - 1000)" if at.in_milliseconds else window_time(end))
    items = ", ".join(f"{sql} AS {name}" for sql, name in zip(bounds, BOUNDS, strict=True))
    return f"SELECT * EXCLUDE ({_END}), {items} FROM ({ends})"


def at_their_time(node: TimeWindows | SessionWindow, rows: str) -> str:
    """Return the SELECT of rows with their event time in the place of window bounds: the operator above makes the windows."""
    time = event_time(node)
    if isinstance(node, SessionWindow) and not isinstance(node.gap, int):
        bounds = (time, own_end(node), time)
        return (
            f"SELECT *, {', '.join(f'{sql} AS {name}' for sql, name in zip(bounds, BOUNDS, strict=True))} FROM ({rows})"
        )
    held = (
        f" WHERE {condition}"
        if isinstance(node, TimeWindows) and (condition := grid(node).holds(f"epoch_us({time})"))
        else ""
    )
    return f"SELECT *, {', '.join(f'{time} AS {name}' for name in BOUNDS)} FROM ({rows}){held}"


def own_end(node: SessionWindow) -> str:
    """Return the SQL of the time until which a row waits for another one of its session."""
    assert isinstance(node.gap, Expression)
    wrong = "error('the gap of a session must be positive, and not NULL')"
    time = event_time(node)
    return f"CASE WHEN {time} + {node.gap.sql} > {time} THEN {time} + {node.gap.sql} ELSE {wrong} END"


def made_above(node: Node) -> TimeWindows | SessionWindow | None:
    """Return the node below an aggregate whose windows the aggregate itself can make, from the event times of single rows.

    Overlapping windows are made of slices, sessions of pieces. Nothing between may look at the bounds.
    """
    if not isinstance(node, aggregates.WindowAggregate):
        return None
    found = _windows_below(node.input)
    if found is None or (isinstance(found, TimeWindows) and not grid(found).overlaps):
        return None
    bounds = _bounds_on_the_way(node.input, found)
    # On the way a bound may get another name; what is computed of it needs its value.
    used = [*_computed(node), *(e for e in _passed(node, found) if e.column not in bounds)]
    if not all(bounds.isdisjoint(e.reads.columns) for e in used):
        return None
    if isinstance(found, SessionWindow) and not _is_by_the_keys_of(node, found):
        return None
    # Where a row has a gap of its own, both bounds are needed to know it.
    if isinstance(found, SessionWindow) and not isinstance(found.gap, int) and node.window.start is None:
        return None
    return found


def _windows_below(node: Node) -> TimeWindows | SessionWindow | None:
    match node:
        case TimeWindows() | SessionWindow():
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


def _computed(node: Aggregate | aggregates.WindowAggregate) -> Iterator[Expression]:
    yield from (k.expression for k in node.keys)
    yield from (e for a in node.aggregates for e in a.expressions)


def _passed(node: aggregates.WindowAggregate, to: Node) -> Iterator[Expression]:
    for step in _path(node.input, to):
        if isinstance(step, Projection):
            yield from (i.expression for i in step.items)
        elif isinstance(step, Filter):
            yield step.predicate


def _is_by_the_keys_of(node: aggregates.WindowAggregate, session: SessionWindow) -> bool:
    """Tell whether an aggregate's keys are the keys of the sessions: then each session is one group."""
    names: dict[str | None, str] = {f.name: f.name for f in session.schema}
    for step in reversed(list(_path(node.input, session))):
        if isinstance(step, Expand):
            return False
        if isinstance(step, Projection):
            names = {i.name: names[i.expression.column] for i in step.items if i.expression.column in names}
    found = {names.get(k.expression.column) for k in node.keys}
    return found == set(session.keys)


def window_operator(node: Windowed) -> WindowOperator:
    """Return the operator that computes a node over windows; its late rows may be an output, too."""
    emits_late = node.late_reads is not None
    made = made_above(node)
    changing = (made.input if made is not None else node.input).is_changelog
    has_late = emits_late or node.late_rows is not None
    if changing and (has_late or (isinstance(node, aggregates.WindowAggregate) and node.corrects)):
        raise UnsupportedError(
            "ALLOWED_LATENESS, EARLY_FIRE or LATE_ROWS over a table with changes",
            node.span,
            hint="Leave the hint out: the window's result is emitted once, when the watermark passes its end.",
        )
    match node:
        case aggregates.WindowAggregate():
            _refuse_sessions_apart(node, changes=node.corrects or has_late)
            found = _aggregate(node, changing=changing)
        case SessionWindow():
            found = _rows("session", _session(node), node, changing=changing)
        case WindowRank():
            found = _rows("window_rank", _rank(node), node, changing=changing)
        case _:
            assert_never(node)
    late = _late_rows(node, emitted=emits_late)
    return replace(found, late=late) if late else found


def _rows(name: str, rows: WindowRows, node: SessionWindow | WindowRank, *, changing: bool) -> WindowOperator:
    """Return the operator of the rows of windows, or of their ranks."""
    of = WindowChanges(rows.groups, rows.columns, rows) if changing else rows
    return WindowOperator(name, rows.groups, of)


def _session(node: SessionWindow) -> WindowRows:
    fields = {f.name: f for f in node.input.schema}
    keys = tuple((Column(k, fields[k].type), quote_name(k)) for k in node.keys)
    end = "" if isinstance(node.gap, int) else own_end(node)
    windows = _sessions(node, event_time(node), end)
    return WindowRows(Groups(keys, windows), tuple(Column(f.name, f.type) for f in fields.values()), BOUNDS)


def _rank(node: WindowRank) -> WindowRows:
    keys = named_keys(node.keys, [f"k{i}" for i in range(len(node.keys))])
    ranking = Ranking(node.column, node.function, tuple(o.sql for o in node.order), node.limit)
    columns = tuple(Column(f.name, f.type) for f in node.input.schema)
    return WindowRows(Groups(keys, _assigner(node)), columns, ranking=ranking)


def _sessions(node: SessionWindow, time: str, end: str) -> Sessions:
    """Return the sessions of rows whose time is some SQL; where each has a gap of its own, so is the end of its wait."""
    gap = node.gap if isinstance(node.gap, int) else None
    if node.input.is_changelog:
        return Sessions(ChangingPieces(time, end if gap is None else f"{time} + to_microseconds({gap})"))
    return Sessions(Pieces(time, gap, end))


def _refuse_sessions_apart(node: aggregates.WindowAggregate, *, changes: bool) -> None:
    """Refuse hints about late and early rows where those are not this operator's, but the sessions' below it."""
    below = node.input
    while isinstance(below, Projection | Filter | Expand):
        below = below.input
    if isinstance(below, SessionWindow) and made_above(node) is None and changes:
        raise UnsupportedError(
            "ALLOWED_LATENESS, EARLY_FIRE or LATE_ROWS over sessions that are not partitioned by the keys of GROUP BY",
            node.span,
            hint="Write SESSION(TABLE t PARTITION BY the keys of GROUP BY, ..), and filter in a subquery: "
            "SESSION(TABLE (SELECT .. WHERE ..), ..).",
        )


def _aggregate(node: aggregates.WindowAggregate, *, changing: bool) -> WindowOperator:
    keys = named_keys(tuple(k.expression for k in node.keys), [k.name for k in node.keys])
    groups, calls = Groups(keys, _assigner(node)), calls_of(node.aggregates)
    bounds = (node.window.start, node.window.end, node.window.time)
    if changing:
        columns = used_columns(node)
        of = WindowChanges(groups, columns, AggregatesOfRows(groups, columns, bounds, calls))
        return WindowOperator("window_aggregate", groups, of)
    result = Grouped(groups, bounds, calls)
    trigger = _corrections(node, groups.windows, result) if node.corrects else AT_END
    return WindowOperator("window_aggregate", groups, result, trigger)


def _corrections(node: aggregates.WindowAggregate, windows: Assigner, result: Grouped) -> Corrections:
    """Return the trigger of an aggregate whose results change."""
    emitted, early = EmittedResults(result, Retention(node.lateness)), None
    if node.early is not None:
        early = EarlyResults(Early(node.early.every, node.early.by), result.groups)
    if isinstance(windows, Sessions):
        return Corrections(emitted, ChangedSessions(emitted, early), early)
    return Corrections(emitted, ChangedWindows(windows, emitted, early), early)


def _late_rows(node: Windowed, *, emitted: bool) -> LateRowsPart | None:
    """Return what becomes of the late rows of a node, where they are not dropped."""
    kept = node.late_rows is not None
    if not kept and not emitted:
        return None
    for field in node.input.schema:
        if field.name.lower() in (TIME.name, MARK.name, OPERATOR.name):
            raise UnsupportedError(
                f'LATE_ROWS of rows with a column "{field.name}"',
                node.span,
                hint="It adds one of that name: rename yours in a subquery.",
            )
    columns = tuple(Column(f.name, f.type) for f in row_columns(node))
    if isinstance(node, SessionWindow):
        return LateRowsPart(columns, event_time(node), kept=kept, emitted=emitted)
    below, where = node.input, "true"
    if isinstance(below, Expand):
        where = f"{quote_name(below.column)} = {below.numbers[0]}"
    lateness = node.lateness if isinstance(node, aggregates.WindowAggregate) else NO_TIME
    return LateRowsPart(columns, EVENT_TIME, lateness, where, kept, emitted)


def named_keys(keys: tuple[Expression, ...], names: list[str]) -> Made:
    return tuple((Column(name, key.type), key.sql) for key, name in zip(keys, names, strict=True))


def _assigner(node: aggregates.WindowAggregate | WindowRank) -> Assigner:
    end, start = node.window.end, node.window.start
    assert end is not None
    match made_above(node):
        case TimeWindows() as windows:
            return SlicedWindows(quote_name(end), grid(windows))
        case SessionWindow(gap=int()) as session:
            return _sessions(session, quote_name(end), "")
        case SessionWindow() as session:
            assert start is not None
            return _sessions(session, quote_name(start), quote_name(end))
    size = node.input.window_size
    if size is None and start is None:
        size = NO_TIME
    return AssignedWindows(quote_name(end), size, quote_name(start) if start else None)


def used_columns(node: Aggregate | aggregates.WindowAggregate) -> tuple[Column, ...]:
    """Return the columns of the input that an aggregate's keys and calls name, at least one."""
    read = frozenset[str]().union(*(e.reads.columns for e in _computed(node)))
    columns = tuple(Column(f.name, f.type) for f in node.input.schema)
    return tuple(c for c in columns if c.name in read) or columns[:1]


def calls_of(items: tuple[AggregateItem, ...]) -> tuple[tuple[str, AggregateCall], ...]:
    """Return aggregate calls as operators take them, by the names of their results."""
    return tuple((item.name, _call(item)) for item in items)


def _call(item: AggregateItem) -> AggregateCall:
    call = call_of(item)
    if strategy(call) is None:
        raise _refused(item, reason(call))
    return call


def over_calls_of(items: tuple[OverItem, ...]) -> tuple[OverCall, ...]:
    """Return calls with OVER as the operator takes them."""
    for item in items:
        if why := REFUSED.get(item.call.function):
            raise _refused(item.call, why)
    return tuple(OverCall(i.call.name, call_of(i.call), i.frame, i.ignore_nulls) for i in items)


def _refused(item: AggregateItem, why: str) -> UnsupportedError:
    return UnsupportedError(f"aggregate {item.function} cannot run incrementally", item.span, hint=_sentence(why))


def call_of(item: AggregateItem) -> AggregateCall:
    arguments = [(a.sql, a.type) for a in item.arguments]
    if item.python is not None:
        typed = zip(arguments, item.python.parameters, strict=True)
        arguments = [(sql if type == wanted else f"CAST({sql} AS {wanted})", wanted) for (sql, type), wanted in typed]
    return AggregateCall(
        function=item.function if item.python is not None else ALIASES.get(item.function, item.function),
        arguments=tuple(sql for sql, _ in arguments),
        argument_types=tuple(type for _, type in arguments),
        distinct=item.distinct,
        order_by=tuple(o.sql for o in item.order_by),
        order_types=tuple(o.type for o in item.order_by),
        filter=item.filter.sql if item.filter else None,
        result_type=item.type,
        python=item.python,
    )


def _sentence(phrase: str) -> str:
    """Return a phrase as a sentence; one that begins with a function's name keeps that as it is.

    >>> _sentence("rows of a stream have no order"), _sentence("arg_max does not take DISTINCT")
    ('Rows of a stream have no order.', 'arg_max does not take DISTINCT.')
    """
    first = phrase.partition(" ")[0]
    return f"{phrase if is_aggregate(first) else phrase[:1].upper() + phrase[1:]}."
