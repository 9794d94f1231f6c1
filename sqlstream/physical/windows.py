"""Windows in SQL, and the operators that logical nodes over windows become."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from sqlstream.catalog import Column
from sqlstream.errors import UnsupportedError
from sqlstream.logical import nodes
from sqlstream.logical.nodes import BOUNDS, Expand, Expression, Filter, Node, Project, Session, Windows, quote
from sqlstream.logical.properties import changes, schema, window_size
from sqlstream.operators.aggregate_table import REFUSED
from sqlstream.operators.aggregates import ALIASES, AggregateCall, is_aggregate, reason, strategy
from sqlstream.operators.grid import Grid
from sqlstream.operators.over_calls import OverCall
from sqlstream.operators.session_changes import ChangingSessions
from sqlstream.operators.sessions import Sessions
from sqlstream.operators.window_aggregate import WindowAggregate
from sqlstream.operators.window_changes import ChangingWindowAggregate, ChangingWindowRows
from sqlstream.operators.window_operator import WindowOperator
from sqlstream.operators.window_rows import Ranking, WindowRows
from sqlstream.operators.windowing import Given, Sliced, Windowing

# No name that a user would give to a column.
_END = "__window_end"


def grid(node: Windows) -> Grid:
    return Grid(node.size, node.slide, node.offset, cumulative=node.kind == "CUMULATE")


def event_time(node: Windows | Session) -> str:
    """Return the SQL of a row's event time, as a TIMESTAMP: an instant as the session's zone shows it."""
    return time_sql(node.input, node.time_column)


def time_sql(node: Node, column: str) -> str:
    """Return the SQL of a time of a node's rows as a TIMESTAMP."""
    field = next(f for f in schema(node) if f.name == column)
    return f"CAST({quote(column)} AS TIMESTAMP)" if field.type == "TIMESTAMP WITH TIME ZONE" else quote(column)


def in_windows(node: Windows, rows: str) -> str:
    """Return the SELECT of rows with the bounds of the windows that they are in."""
    at, micros = grid(node), f"epoch_us({event_time(node)})"
    if not at.overlaps:
        held = f" WHERE {condition}" if (condition := at.holds(micros)) else ""
        ends = f"SELECT *, {at.slice_end(micros)} AS {_END} FROM ({rows}){held}"
    else:
        first, last = at.first_end_sql(f"{micros} + 1"), at.last_end_sql(at.slice_end(micros))
        ends = f"SELECT *, unnest(generate_series({first}, {last}, {at.slide})) AS {_END} FROM ({rows})"
    bounds = (at.start_sql(_END), _END, f"{_END} - 1000")
    items = ", ".join(f"make_timestamp({sql}) AS {name}" for sql, name in zip(bounds, BOUNDS, strict=True))
    return f"SELECT * EXCLUDE ({_END}), {items} FROM ({ends})"


def at_their_time(node: Windows | Session, rows: str) -> str:
    """Return the SELECT of rows with their event time in the place of window bounds: the operator above makes the windows."""
    time = event_time(node)
    held = (
        f" WHERE {condition}"
        if isinstance(node, Windows) and (condition := grid(node).holds(f"epoch_us({time})"))
        else ""
    )
    return f"SELECT *, {', '.join(f'{time} AS {name}' for name in BOUNDS)} FROM ({rows}){held}"


def made_above(node: Node) -> Windows | Session | None:
    """Return the node below an aggregate whose windows the aggregate itself can make, from the event times of single rows.

    Overlapping windows are made of slices, sessions of pieces. Nothing between may look at the bounds.
    """
    if not isinstance(node, nodes.WindowAggregate):
        return None
    found = _windows_below(node.input)
    if found is None or (isinstance(found, Windows) and not grid(found).overlaps):
        return None
    if isinstance(found, Session) and changes(found.input):
        return None
    bounds = _bounds_on_the_way(node.input, found)
    # On the way a bound may get another name; what is computed of it needs its value.
    used = [e.sql for e in _computed(node)] + [e.sql for e in _passed(node, found) if e.sql not in bounds]
    if any(name in sql for sql in used for name in bounds):
        return None
    if isinstance(found, Session) and not _is_by_the_keys_of(node, found):
        return None
    return found


def _windows_below(node: Node) -> Windows | Session | None:
    match node:
        case Windows() | Session():
            return node
        case Project() | Expand():
            return _windows_below(node.input)
        case Filter():
            # Rows that are filtered out are still part of a session.
            below = _windows_below(node.input)
            return None if isinstance(below, Session) else below
        case _:
            return None


def _path(node: Node, to: Node) -> Iterator[Node]:
    while node is not to:
        yield node
        assert isinstance(node, Project | Expand | Filter)
        node = node.input


def _bounds_on_the_way(node: Node, to: Node) -> set[str]:
    """Return all names, quoted, that the window's bounds have between two nodes."""
    names = {quote(b) for b in BOUNDS}
    for step in reversed(list(_path(node, to))):
        if isinstance(step, Project):
            names |= {quote(i.name) for i in step.items if i.expression.sql in names}
    return names


def _computed(node: nodes.WindowAggregate) -> Iterator[Expression]:
    yield from (k.expression for k in node.keys)
    yield from (e for a in node.aggregates for e in a.expressions)


def _passed(node: nodes.WindowAggregate, to: Node) -> Iterator[Expression]:
    for step in _path(node.input, to):
        if isinstance(step, Project):
            yield from (i.expression for i in step.items)
        elif isinstance(step, Filter):
            yield step.predicate


def _is_by_the_keys_of(node: nodes.WindowAggregate, session: Session) -> bool:
    """Tell whether an aggregate's keys are the keys of the sessions: then each session is one group."""
    names = {quote(f.name): f.name for f in schema(session)}
    for step in reversed(list(_path(node.input, session))):
        if isinstance(step, Expand):
            return False
        if isinstance(step, Project):
            names = {quote(i.name): names[i.expression.sql] for i in step.items if i.expression.sql in names}
    found = {names.get(k.expression.sql) for k in node.keys}
    return found == set(session.keys)


def window_operator(node: nodes.Windowed) -> WindowOperator:
    """Return the operator that computes a node over windows."""
    changing = changes(node.input)
    rows_operator = ChangingWindowRows if changing else WindowRows
    match node:
        case nodes.WindowAggregate():
            keys = named_keys(tuple(k.expression for k in node.keys), [k.name for k in node.keys])
            bounds = (node.window.start, node.window.end, node.window.time)
            calls = calls_of(node.aggregates)
            if changing:
                return ChangingWindowAggregate(keys, _windowing(node), used_columns(node), bounds, calls)
            return WindowAggregate(keys, _windowing(node), bounds, calls)
        case Session():
            fields = {f.name: f for f in schema(node.input)}
            return rows_operator(
                name="session",
                keys=tuple((Column(k, fields[k].type), quote(k)) for k in node.keys),
                windows=(ChangingSessions if changing else Sessions)(event_time(node), node.gap),
                columns=tuple(Column(f.name, f.type) for f in fields.values()),
                bounds=BOUNDS,
            )
        case nodes.WindowRank():
            order = tuple(o.sql for o in node.order)
            return rows_operator(
                name="window_rank",
                keys=named_keys(node.keys, [f"k{i}" for i in range(len(node.keys))]),
                windows=_windowing(node),
                columns=tuple(Column(f.name, f.type) for f in schema(node.input)),
                ranking=Ranking(node.column, node.function, order, node.limit),
            )
        case _:
            assert_never(node)


def named_keys(keys: tuple[Expression, ...], names: list[str]) -> tuple[tuple[Column, str], ...]:
    return tuple((Column(name, key.type), key.sql) for key, name in zip(keys, names, strict=True))


def _windowing(node: nodes.WindowAggregate | nodes.WindowRank) -> Windowing:
    end, start = node.window.end, node.window.start
    assert end is not None
    match made_above(node):
        case Windows() as windows:
            return Sliced(quote(end), grid(windows))
        case Session() as session:
            return Sessions(quote(end), session.gap)
    size = window_size(node.input)
    if size is None and start is None:
        size = 0
    return Given(quote(end), size, quote(start) if start else None)


def used_columns(node: nodes.Aggregate | nodes.WindowAggregate) -> tuple[Column, ...]:
    """Return the columns of the input that an aggregate's keys and calls name, at least one."""
    expressions = [k.expression.sql for k in node.keys] + [e.sql for a in node.aggregates for e in a.expressions]
    columns = tuple(Column(f.name, f.type) for f in schema(node.input))
    return tuple(c for c in columns if any(quote(c.name) in sql for sql in expressions)) or columns[:1]


def calls_of(items: tuple[nodes.AggregateItem, ...]) -> tuple[tuple[str, AggregateCall], ...]:
    """Return aggregate calls as operators take them, by the names of their results."""
    return tuple((item.name, _call(item)) for item in items)


def _call(item: nodes.AggregateItem) -> AggregateCall:
    call = call_of(item)
    if strategy(call) is None:
        raise _refused(item, reason(call))
    return call


def over_calls_of(items: tuple[nodes.OverItem, ...]) -> tuple[OverCall, ...]:
    """Return calls with OVER as the operator takes them."""
    for item in items:
        if why := REFUSED.get(item.call.function):
            raise _refused(item.call, why)
    return tuple(OverCall(i.call.name, call_of(i.call), i.frame, i.ignore_nulls) for i in items)


def _refused(item: nodes.AggregateItem, why: str) -> UnsupportedError:
    return UnsupportedError(f"aggregate {item.function} cannot run incrementally", item.span, hint=_sentence(why))


def call_of(item: nodes.AggregateItem) -> AggregateCall:
    return AggregateCall(
        function=ALIASES.get(item.function, item.function),
        arguments=tuple(a.sql for a in item.arguments),
        argument_types=tuple(a.type for a in item.arguments),
        distinct=item.distinct,
        order_by=tuple(o.sql for o in item.order_by),
        order_types=tuple(o.type for o in item.order_by),
        filter=item.filter.sql if item.filter else None,
        result_type=item.type,
    )


def _sentence(phrase: str) -> str:
    """Return a phrase as a sentence; one that begins with a function's name keeps that as it is.

    >>> _sentence("rows of a stream have no order"), _sentence("arg_max does not take DISTINCT")
    ('Rows of a stream have no order.', 'arg_max does not take DISTINCT.')
    """
    first = phrase.partition(" ")[0]
    return f"{phrase if is_aggregate(first) else phrase[:1].upper() + phrase[1:]}."


def window_bound(node: nodes.Windowed) -> str:
    """Return what bounds the state of a node over windows, in words."""
    if isinstance(node, Session) or isinstance(made_above(node), Session):
        return "watermark: a session is forgotten when the watermark passes its end"
    size = window_size(node.input)
    span = f" of {size / 1_000_000:g} s" if size else ""
    return f"watermark: a window{span} is forgotten when the watermark passes its end"
