"""Windows in a batch query: the windows that a row is in, and the results of windows.

The formulas differ from those in `operators`: an answer to compare with must not repeat their mistakes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from sqlstream.duck.internal_columns import ARRIVED, internal
from sqlstream.duck.sql import Condition, Items, Select, quote_name
from sqlstream.logical.plan.aggregates import WindowAggregate
from sqlstream.logical.plan.count_windows import CountWindows
from sqlstream.logical.plan.expressions import Expression
from sqlstream.logical.plan.month_windows import MonthWindows
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.nodes import AnyTimeWindows
from sqlstream.logical.plan.ranks import WindowRank
from sqlstream.logical.plan.windows import RegularWindows, SessionWindow
from sqlstream.physical.batch import keyed
from sqlstream.physical.batch.calls import aggregate
from sqlstream.physical.batch.rows import BatchRows, CannotVerify, listed
from sqlstream.units import NO_TIME, Duration

if TYPE_CHECKING:
    from sqlstream.physical.batch.query import BatchQuery

# The bounds of a row's window; the time up to which sessions had closed when the row arrived. All are microseconds.
START, END, PASSED = (internal(name) for name in ("start", "end", "passed"))
_ROW, _SESSION = (internal(name) for name in ("number", "session"))


def time_of(node: Node, column: str) -> str:
    """Return the SQL of a time column of a node as a TIMESTAMP: of an instant, the local time in the session's time zone."""
    field = next(f for f in node.schema if f.name == column)
    name = quote_name(column)
    return f"CAST({name} AS TIMESTAMP)" if field.type == "TIMESTAMP WITH TIME ZONE" else name


def in_utc(column: str) -> str:
    """Return the SQL of an instant, a column, as a TIMESTAMP in UTC."""
    return f"timezone('UTC', {quote_name(column)})"


def micros_of(node: Node, column: str) -> str:
    """Return the SQL of `time_of` in microseconds, a BIGINT."""
    return f"epoch_us({time_of(node, column)})"


def bounds(start: str, end: str) -> Items:
    """Return the columns `window_start`, `window_end` and `window_time`; the arguments are SQL in microseconds."""
    last = f"{end} - CASE WHEN {end} % 1000 = 0 THEN 1000 ELSE 1 END"
    named = zip((start, end, last), ("window_start", "window_end", "window_time"), strict=True)
    return Items(", ".join(f"make_timestamp({sql}) AS {name}" for sql, name in named))


def in_time_windows(node: AnyTimeWindows, below: BatchRows) -> Select:
    """Return rows, each once for every window that contains it, with the bounds of the window."""
    match node:
        case RegularWindows():
            starts, ends = _regular_bounds(node)
        case MonthWindows():
            starts, ends = _month_bounds(node)
        case _:
            assert_never(node)
    started = f"SELECT *, {starts} AS {START} FROM {below.sql}"
    ended = f"SELECT *, {ends} AS {END} FROM ({started})"
    return Select(f"SELECT {below.listed}, {bounds(START, END)}{below.hidden} FROM ({ended})")


def _regular_bounds(node: RegularWindows) -> tuple[str, str]:
    """Return the SQL of the starts of a row's windows, and of the ends over START, in microseconds."""
    time, size, slide = micros_of(node.input, node.time_column), node.size, node.slide
    match node.kind:
        case "TUMBLE":
            starts = _floor(time, size, node.offset)
            ends = f"{START} + {size}"
        case "HOP":
            first = f"{_floor(f'({time} - {size})', slide, node.offset)} + {slide}"
            starts = f"unnest(generate_series({first}, {_floor(time, slide, node.offset)}, {slide}))"
            ends = f"{START} + {size}"
        case "CUMULATE":
            starts = _floor(time, size, node.offset)
            first = f"{START} + (({time} - {START}) // {slide} + 1) * {slide}"
            ends = f"unnest(generate_series({first}, {START} + {size}, {slide}))"
    return starts, ends


def _month_bounds(node: MonthWindows) -> tuple[str, str]:
    """Return the SQL of the start of a row's window, and of the end over START, in microseconds."""
    months, offset = f"INTERVAL '{node.months} months'", f"to_microseconds({node.offset})"
    origin = f"TIMESTAMP '1970-01-01' + INTERVAL '{node.shift} months'"
    start = f"time_bucket({months}, {time_of(node.input, node.time_column)} - {offset}, {origin})"
    return f"epoch_us({start} + {offset})", f"epoch_us(make_timestamp({START}) - {offset} + {months} + {offset})"


def _floor(time: str, step: int, offset: int) -> str:
    """Return the SQL of the greatest time offset + n * step that is at most a time, also before 1970."""
    return f"{time} - ((({time} - {offset}) % {step} + {step}) % {step})"


def gap_end(node: SessionWindow) -> str:
    """Return the SQL of a row's time plus its gap, in microseconds: the end of the session that it would be alone."""
    time = time_of(node.input, node.time_column)
    if isinstance(node.gap, Expression):
        return f"epoch_us({time} + {node.gap.sql})"
    return f"epoch_us({time}) + {node.gap}"


def in_sessions(node: SessionWindow, below: BatchRows) -> Select:
    """Return rows with the bounds of their sessions; all rows count, none is late."""
    time = micros_of(node.input, node.time_column)
    by = _by(node.keys)
    ends = f"SELECT *, {time} AS {START}, {gap_end(node)} AS {END} FROM {below.sql}"
    order = f"ORDER BY {START}, {END}"
    before = f"max({END}) OVER ({by} {order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    begins = f"SELECT *, coalesce({START} > {before}, true) AS {_ROW} FROM ({ends})"
    # Rows of one time never begin two sessions: which of them comes first does not matter.
    number = f"sum(CAST({_ROW} AS INTEGER)) OVER ({by} {order} ROWS UNBOUNDED PRECEDING)"
    numbered = f"SELECT *, {number} AS {_SESSION} FROM ({begins})"
    whole = f"SELECT * EXCLUDE ({START}, {END}), {_edges(node.keys, START, END)} FROM ({numbered})"
    return Select(f"SELECT {below.listed}, {bounds(START, END)} FROM ({whole})")


def in_sessions_of_stream(query: BatchQuery, node: SessionWindow, lateness: Duration) -> Select:
    """Return the rows that were not late for their session, with its bounds.

    A closed session takes no more rows. A row that would be late alone is not if it joins an open session. Sessions close
    `lateness` after their end. The rows of the input have the columns READ.
    """
    below = query.rows(node.input)
    passed = f"{query.watermark(node)}{f' - {lateness}' if lateness else ''}"
    if node.input.is_changelog:
        # A change is late when the watermark has reached the time of its row; so it never touches a closed session.
        in_time = Condition(f"coalesce({micros_of(node.input, node.time_column)} > {passed}, true)")
        return in_sessions(node, query.consolidated(node.input, below, in_time))
    assert query.sessions is not None
    items = f"{micros_of(node.input, node.time_column)} AS {START}, {gap_end(node)} AS {END}, {passed} AS {PASSED}"
    bounded = query.sessions(query.with_relations(f"SELECT *, {items} FROM {below.sql}"), node.keys)
    return Select(f"SELECT {below.listed}, {bounds(START, END)} FROM {bounded}")


def in_count_windows(node: CountWindows, below: BatchRows) -> Select:
    """Return rows, each once for every complete count window that contains it, with bounds and `window_id`."""
    time = in_utc(node.time_column) if node.zone else time_of(node.input, node.time_column)
    tie_breakers = [ARRIVED.name] if ARRIVED.name in below.columns else []
    by, order = _by(node.keys), f"ORDER BY {', '.join([time, *tie_breakers, below.listed])}"
    size, slide = node.size, node.slide
    numbered = f"SELECT *, row_number() OVER ({by} {order}) AS {_ROW}, count(*) OVER ({by}) AS {END} FROM {below.sql}"
    last = f"least(({_ROW} + {size - 1}) // {slide}, {END} // {slide})"
    windows = f"unnest(generate_series(({_ROW} + {slide - 1}) // {slide}, {last})) AS {_SESSION}"
    numbered_rows = f"SELECT *, {windows} FROM ({numbered})"
    whole = f"SELECT * EXCLUDE ({END}), {_edges(node.keys, f'epoch_us({time})', f'epoch_us({time})')} FROM ({numbered_rows})"
    start, end = (
        f"epoch_us(timezone('{node.zone}', timezone('UTC', make_timestamp({edge}))))" if node.zone else edge
        for edge in (START, END)
    )
    return Select(f"SELECT {below.listed}, {bounds(start, end)}, {_SESSION} AS window_id FROM ({whole})")


def _by(keys: Sequence[str]) -> str:
    return f"PARTITION BY {listed(keys)}" if keys else ""


def _edges(keys: Sequence[str], start: str, end: str) -> Items:
    """Return START and END over rows of equal keys and equal _SESSION: the least start, the greatest end."""
    of_window = _by((*keys, _SESSION))
    return Items(f"min({start}) OVER ({of_window}) AS {START}, max({end}) OVER ({of_window}) AS {END}")


def late_end(node: Node, column: str | None, lateness: Duration = NO_TIME) -> str:
    """Return the SQL of the time, in microseconds, at which a row's window takes no more rows; `column` is its window end."""
    assert column is not None
    return f"epoch_us({quote_name(column)})" + (f" + {lateness}" if lateness else "")


def sessions(query: BatchQuery, node: SessionWindow) -> BatchRows:
    """Return the rows of closed sessions, with the bounds of the session."""
    if (below := query.with_changes(node.input)) is not node.input:
        node = replace(node, input=below)
    if query.corrections.late and query.rows(node.input).is_read:
        sql = in_sessions_of_stream(query, node, query.lateness_of(node))
    else:
        sql = in_sessions(node, query.settled(node.input, gap_end(node), node))
    due = query.is_over(node, "epoch_us(window_end)")
    columns = [f.name for f in node.schema]
    return query.add(node.name or "session", f"SELECT * FROM ({sql}) WHERE {due}", columns)


def count_windows(query: BatchQuery, node: CountWindows) -> BatchRows:
    """Return the rows of complete count windows over the rows that the watermark has passed."""
    # In a zone rows are numbered as they come.
    time = None if node.zone else micros_of(node.input, node.time_column)
    below = query.settled(node.input, time, node)
    due = "true" if time is None else query.is_over(node, time)
    passed = query.add(f"{below.name}_passed", f"SELECT * FROM {below.sql} WHERE {due}", below.columns)
    return query.add(node.name or "count_windows", in_count_windows(node, passed), [f.name for f in node.schema])


def aggregated(query: BatchQuery, node: WindowAggregate, sessions_below: SessionWindow | None) -> BatchRows:
    """Return a row for each key and closed window. Sessions below, if any, take rows as long as the aggregate does.

    Raises CannotVerify for EARLY_FIRE, unless all windows have closed.
    """
    if sessions_below is not None:
        query.take_late(sessions_below, node.lateness)
    late = late_end(node, node.window.end, node.lateness)
    below = query.settled(node.input, late, node)
    due = query.is_over(node, late_end(node, node.window.end))
    if node.early is not None and due not in ("true",):
        raise CannotVerify("EARLY_FIRE: what is emitted of open windows depends on when", node.span)
    keys = [f"{k.expression.sql} AS {quote_name(k.name)}" for k in node.keys]
    bounds = [quote_name(name) for name in node.window.names]
    items = [*keys, *bounds, *(aggregate(a, runs=query.runs) for a in node.aggregates)]
    by = ", ".join(str(index) for index in range(1, len(keys) + len(bounds) + 1))
    where = "" if due == "true" else f" WHERE {due}"
    sql = f"SELECT {', '.join(items)} FROM {below.sql}{where} GROUP BY {by}"
    return query.add(node.name or "window_aggregate", sql, [f.name for f in node.schema])


def ranked(query: BatchQuery, node: WindowRank) -> BatchRows:
    """Return the rows of closed windows, with their ranks."""
    late = late_end(node, node.window.end)
    below = query.settled(node.input, late, node)
    due = query.is_over(node, late)
    return keyed.ranked(query, node, below, (node.window.end,), due)
