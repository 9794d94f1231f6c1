"""Properties of logical nodes that planning needs, each derived from the nodes below."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar, assert_never

from sqlstream.logical.nodes import (
    BOUNDS,
    WINDOW_ID,
    Aggregate,
    Expand,
    Field,
    Filter,
    Item,
    Node,
    Project,
    Rank,
    RowWindows,
    Scan,
    Schema,
    Session,
    SetOperation,
    Sink,
    Union,
    WindowAggregate,
    WindowColumns,
    WindowRank,
    Windows,
    quote,
    takes_back,
    walk,
)

T = TypeVar("T")


def schema(node: Node) -> Schema:
    """Return the columns that a node emits."""
    match node:
        case Scan():
            return tuple(Field(c.name, c.type) for c in node.table.columns)
        case Filter():
            return schema(node.input)
        case Project():
            return tuple(Field(i.name, i.expression.type) for i in node.items)
        case Sink():
            return node.columns
        case Windows() | Session():
            return (*schema(node.input), *(Field(name, "TIMESTAMP") for name in BOUNDS))
        case RowWindows():
            added = (*(Field(name, "TIMESTAMP") for name in BOUNDS), Field(WINDOW_ID, "BIGINT"))
            return (*schema(node.input), *added)
        case Expand():
            return (*schema(node.input), Field(node.column, "INTEGER"))
        case WindowRank() | Rank():
            return (*schema(node.input), Field(node.column, "BIGINT"))
        case SetOperation():
            return tuple(f for f in schema(node.input) if f.name != node.side)
        case Aggregate():
            return (
                *(Field(k.name, k.expression.type) for k in node.keys),
                *(Field(a.name, a.type) for a in node.aggregates),
            )
        case WindowAggregate():
            window = node.window
            bounds = [Field(n, "TIMESTAMP") for n in (window.start, window.end, window.time) if n is not None]
            keys = [Field(k.name, k.expression.type) for k in node.keys]
            return (*keys, *bounds, *(Field(a.name, a.type) for a in node.aggregates))
        case Union():
            return schema(node.inputs[0])
        case _:
            assert_never(node)


def time_attribute(node: Node) -> str | None:
    """Return the column by which rows are in event-time order up to the watermark, if there is one."""
    match node:
        case Scan():
            return node.clock or (node.table.watermark.column if node.table.watermark else None)
        case Filter() | Expand() | WindowRank() | Sink():
            return time_attribute(node.input)
        case Project():
            return _renamed(node.items, time_attribute(node.input))
        case Windows() | Session() | RowWindows():
            return "window_time"
        case WindowAggregate():
            return node.window.time
        case Aggregate() | Rank() | SetOperation():
            return None
        case Union():
            return _common(node, time_attribute)
        case _:
            assert_never(node)


def processing_times(node: Node) -> tuple[str, ...]:
    """Return the columns that hold the batch's time: windows can be made over any of them."""
    match node:
        case Scan():
            return tuple(c.name for c in node.table.columns if c.processing_time)
        case Filter() | Expand() | Windows():
            return processing_times(node.input)
        case Project():
            below = {quote(name) for name in processing_times(node.input)}
            return tuple(i.name for i in node.items if i.expression.sql in below)
        case Union():
            found = [{_position(n, name) for name in processing_times(n)} for n in node.inputs]
            names = [f.name for f in schema(node)]
            return tuple(names[place] for place in sorted(set.intersection(*found)))
        case (
            Session() | RowWindows() | WindowAggregate() | WindowRank() | Aggregate() | Rank() | SetOperation() | Sink()
        ):
            return ()
        case _:
            assert_never(node)


def by_clock(node: Node, column: str) -> Node:
    """Return a plan whose rows are in the order of one of its processing times, and not of an event time."""
    match node:
        case Scan():
            return replace(node, clock=column)
        case Filter() | Expand() | Windows():
            return replace(node, input=by_clock(node.input, column))
        case Project():
            below = {quote(name): name for name in processing_times(node.input)}
            sql = next(i.expression.sql for i in node.items if i.name == column)
            return replace(node, input=by_clock(node.input, below[sql]))
        case Union():
            place = _position(node, column)
            return Union(tuple(by_clock(n, schema(n)[place].name) for n in node.inputs))
        case (
            Session() | RowWindows() | WindowAggregate() | WindowRank() | Aggregate() | Rank() | SetOperation() | Sink()
        ):
            raise TypeError("a stateful node passes no processing time on")
        case _:
            assert_never(node)


def _position(node: Node, column: str) -> int:
    return [f.name for f in schema(node)].index(column)


def window_columns(node: Node) -> WindowColumns | None:
    """Return the window bounds that a node's rows carry: those of a window table function or of a window aggregate."""
    match node:
        case Scan() | Aggregate() | Rank() | SetOperation():
            return None
        case Filter() | Expand() | WindowRank() | Sink():
            return window_columns(node.input)
        case Project():
            below = window_columns(node.input)
            if below is None:
                return None
            kept = WindowColumns(*(_renamed(node.items, c) for c in (below.start, below.end, below.time)))
            return kept if kept.end is not None else None
        case Windows() | Session() | RowWindows():
            return WindowColumns(*BOUNDS)
        case WindowAggregate():
            return node.window
        case Union():
            return _common(node, window_columns)
        case _:
            assert_never(node)


def window_size(node: Node) -> int | None:
    """Return the size (microseconds) of the windows that a node's rows are in, where it is one and the same."""
    match node:
        case Scan() | Session() | RowWindows() | Aggregate() | Rank() | SetOperation():
            return None
        case Windows():
            return None if node.kind == "CUMULATE" else node.size
        case Filter() | Project() | Expand() | WindowAggregate() | WindowRank() | Sink():
            return window_size(node.input)
        case Union():
            sizes = {window_size(n) for n in node.inputs}
            return sizes.pop() if len(sizes) == 1 else None
        case _:
            assert_never(node)


def on_time(node: Node) -> bool:
    """Tell whether every row leaves this node before the watermark passes its event time: none can be late above.

    True above an operator over windows, which emits a window in the batch in which the watermark reaches its end.
    """
    match node:
        case Scan() | Aggregate() | Rank() | SetOperation():
            return False
        case WindowAggregate() if node.corrects:
            return False
        case Session() | RowWindows() | WindowAggregate() | WindowRank():
            return True
        case Filter() | Project() | Windows() | Expand() | Sink():
            return on_time(node.input)
        case Union():
            return all(on_time(n) for n in node.inputs)
        case _:
            assert_never(node)


def changes(node: Node) -> bool:
    """Tell whether a node takes back rows that it emitted: then its rows have weights."""
    return any(takes_back(n) for n in walk(node))


def keys(node: Node) -> frozenset[str]:
    """Return columns whose values no two rows of a node's result share at a time; none where nothing is known."""
    return next(iter(_keys(node)), frozenset())


def _keys(node: Node) -> list[frozenset[str]]:
    """Return all sets of such columns that are known."""
    match node:
        case Aggregate():
            return [frozenset(k.name for k in node.keys)]
        case WindowAggregate() if node.corrects:
            bounds = [b for b in (node.window.end, node.window.time, node.window.start) if b is not None]
            made = [n for n in walk(node.input) if isinstance(n, Windows | Session)]
            # Several windows of different sizes may have one of their bounds in common.
            alone = window_size(node.input) is not None or (len(made) == 1 and isinstance(made[0], Session))
            names = frozenset(k.name for k in node.keys)
            return [names | {bound} for bound in bounds] if alone else [names | {*bounds}]
        case Rank():
            partition = frozenset(f.name for f in schema(node) if any(k.sql == quote(f.name) for k in node.keys))
            whole = len(partition) == len(node.keys)
            by_rank = node.function == "row_number" and whole
            return [partition if node.limit == 1 else partition | {node.column}] if by_rank else []
        case SetOperation():
            return [frozenset(f.name for f in schema(node))] if node.distinct else []
        case Filter() | Sink():
            return _keys(node.input)
        case Project():
            kept = [[_renamed(node.items, name) for name in names] for names in _keys(node.input)]
            return [frozenset(n for n in names if n is not None) for names in kept if None not in names]
        case _:
            return []


def called(node: Node) -> str:
    """Return what people call a stateful node."""
    match node:
        case WindowAggregate() if node.lateness:
            return "ALLOWED_LATENESS"
        case WindowAggregate() if node.early:
            return "EARLY_FIRE"
        case Aggregate() if node.aggregates:
            return "GROUP BY without a window"
        case Aggregate():
            return "DISTINCT"
        case Rank():
            return f"{node.function.upper()} over rows of no window"
        case SetOperation():
            return node.function.upper()
        case _:
            return type(node).__name__


def _renamed(items: tuple[Item, ...], column: str | None) -> str | None:
    """Return the name under which a projection passes a column on unchanged."""
    if column is None:
        return None
    return next((i.name for i in items if i.expression.sql == quote(column)), None)


def _common(node: Union, prop: Callable[[Node], T]) -> T | None:
    """Return a property on which all inputs of a union agree by position."""
    first = prop(node.inputs[0])
    position = [f.name for f in schema(node.inputs[0])]
    for other in node.inputs[1:]:
        names = [f.name for f in schema(other)]
        if first is None or _positions(prop(other), names) != _positions(first, position):
            return None
    return first


def _positions(value: object, names: list[str]) -> object:
    match value:
        case None:
            return None
        case str():
            return names.index(value)
        case WindowColumns():
            return tuple(_positions(c, names) for c in (value.start, value.end, value.time))
        case _:
            raise TypeError(value)
