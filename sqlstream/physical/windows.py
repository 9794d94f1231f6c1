"""Windows of time in SQL: the windows that a row is in."""

from __future__ import annotations

from typing import assert_never

from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import Items, Select, quote_name
from sqlstream.logical.plan.count_windows import CountWindows
from sqlstream.logical.plan.expressions import Expression
from sqlstream.logical.plan.month_windows import MonthWindows
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.nodes import AnyTimeWindows
from sqlstream.logical.plan.windows import BOUNDS, RegularWindows, SessionWindow, TimeWindows
from sqlstream.operators.windows.assigners import window_time
from sqlstream.operators.windows.grid import Grid, remainder

_END = internal("window_end")
_MONTH = internal("window_month")
# The column of a row's event time, after a window function has put the row into windows; for operators that keep late rows.
EVENT_TIME = internal("event_time")


def grid(node: RegularWindows) -> Grid:
    """Return the windows of a TUMBLE, HOP or CUMULATE on the time axis."""
    return Grid(node.size, node.slide, node.offset, cumulative=node.kind == "CUMULATE")


def event_time(node: TimeWindows | SessionWindow | CountWindows) -> str:
    """Return the SQL of an input row's event time, a TIMESTAMP: of an instant, the local time in the session's time zone."""
    return time_sql(node.input, node.time_column)


def time_sql(node: Node, column: str) -> str:
    """Return the SQL of a time column of a node as a TIMESTAMP: of an instant, the local time in the session's time zone."""
    field = next(f for f in node.schema if f.name == column)
    return (
        f"CAST({quote_name(column)} AS TIMESTAMP)" if field.type == "TIMESTAMP WITH TIME ZONE" else quote_name(column)
    )


def order_time(node: Node, column: str, *, by_instant: bool) -> str:
    """Return the SQL of a column by which rows of `node` are ordered, a TIMESTAMP.

    It is `time_sql`; with `by_instant` the time in UTC: local times come twice when clocks are set back.
    """
    return f"make_timestamp(epoch_us({quote_name(column)}))" if by_instant else time_sql(node, column)


def in_windows(node: AnyTimeWindows, rows: Select) -> Select:
    """Return rows once for each of their windows, with the columns BOUNDS: start, end and time."""
    match node:
        case RegularWindows():
            return _in_regular_windows(node, rows)
        case MonthWindows():
            return _in_month_windows(node, rows)
        case _:
            assert_never(node)


def _in_regular_windows(node: RegularWindows, rows: Select) -> Select:
    at, micros = grid(node), f"epoch_us({event_time(node)})"
    if not at.overlaps:
        held = f" WHERE {condition}" if (condition := at.holds(micros)) else ""
        ends = f"SELECT *, {at.slice_end(micros)} AS {_END} FROM ({rows}){held}"
    else:
        first, last = at.first_end_sql(f"{micros} + 1"), at.last_end_sql(at.slice_end(micros))
        ends = f"SELECT *, unnest(generate_series({first}, {last}, {at.slide})) AS {_END} FROM ({rows})"
    start, end = (f"make_timestamp({sql})" for sql in (at.start_sql(_END), _END))
    bounds = (start, end, f"make_timestamp({_END} - 1000)" if at.in_milliseconds else window_time(end))
    return Select(f"SELECT * EXCLUDE ({_END}), {_bounds(bounds)} FROM ({ends})")


def _bounds(bounds: tuple[str, str, str]) -> Items:
    """Return the SQL of bounds as the columns BOUNDS."""
    return Items(", ".join(f"{sql} AS {name}" for sql, name in zip(bounds, BOUNDS, strict=True)))


def _in_month_windows(node: MonthWindows, rows: Select) -> Select:
    """Return rows with the bounds of their windows: months are numbered from January 1970."""
    offset = f"to_microseconds({node.offset})"
    time = f"({event_time(node)} - {offset})" if node.offset else event_time(node)
    month = f"(year({time}) - 1970) * 12 + month({time}) - 1"
    first = f"SELECT *, {month} - {remainder(f'{month} - {node.shift}', node.months)} AS {_MONTH} FROM ({rows})"

    def begin(number: str) -> str:
        midnight = f"TIMESTAMP '1970-01-01' + to_months(CAST({number} AS INTEGER))"
        return f"{midnight} + {offset}" if node.offset else midnight

    start, end = begin(_MONTH), begin(f"{_MONTH} + {node.months}")
    return Select(f"SELECT * EXCLUDE ({_MONTH}), {_bounds((start, end, window_time(end)))} FROM ({first})")


def at_their_time(node: RegularWindows | SessionWindow, rows: Select) -> Select:
    """Return rows with their event time as each of the columns BOUNDS: the operator above makes windows.

    Rows that are in no window are left out. For sessions with a gap per row, `window_end` is `own_end`.
    """
    time = event_time(node)
    if isinstance(node, SessionWindow) and not isinstance(node.gap, int):
        return Select(f"SELECT *, {_bounds((time, own_end(node), time))} FROM ({rows})")
    held = (
        f" WHERE {condition}"
        if isinstance(node, RegularWindows) and (condition := grid(node).holds(f"epoch_us({time})"))
        else ""
    )
    return Select(f"SELECT *, {_bounds((time, time, time))} FROM ({rows}){held}")


def own_end(node: SessionWindow) -> str:
    """Return the SQL of a row's event time plus its gap; a gap that is NULL or not positive is an error."""
    assert isinstance(node.gap, Expression)
    wrong = "error('the gap of a session must be positive, and not NULL')"
    time = event_time(node)
    return f"CASE WHEN {time} + {node.gap.sql} > {time} THEN {time} + {node.gap.sql} ELSE {wrong} END"
