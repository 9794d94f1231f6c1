"""Windows of time in SQL: which ones a row is in."""

from __future__ import annotations

from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import quote_name
from sqlstream.logical.plan.expressions import Expression
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.windows import BOUNDS, CountWindows, SessionWindow, TimeWindows
from sqlstream.operators.windows.assigners import window_time
from sqlstream.operators.windows.grid import Grid

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
