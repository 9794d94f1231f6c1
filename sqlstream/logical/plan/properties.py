"""Properties of logical nodes that planning needs, each derived from the nodes below."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice, product
from typing import TypeVar, assert_never

from sqlstream.logical.plan.expressions import Field, Item, Schema
from sqlstream.logical.plan.join_nodes import IntervalJoin, Join, Joining, LookupJoin, TemporalJoin
from sqlstream.logical.plan.nodes import (
    BOUNDS,
    WINDOW_ID,
    Aggregate,
    Changing,
    CountWindows,
    Expand,
    Filter,
    Lateral,
    Node,
    Normalize,
    Over,
    Projection,
    Rank,
    Scan,
    SessionWindow,
    SetOperation,
    Sink,
    Sort,
    Stateful,
    TimeWindows,
    Union,
    WindowAggregate,
    WindowColumns,
    WindowRank,
    children,
    walk,
)
from sqlstream.logical.plan.predicates import constants, upper_bounds
from sqlstream.logical.plan.sharing import once, rebuilt

T = TypeVar("T")
# How far window_time is before window_end, in microseconds.
_WINDOW_TIME = 1000
# More names of one key are not looked at.
_MOST_KEYS = 16


@once
def schema(node: Node) -> Schema:
    """Return the columns that a node emits."""
    match node:
        case Scan():
            return tuple(Field(c.name, c.type) for c in node.table.visible)
        case Filter() | Sort() | Normalize():
            return schema(node.input)
        case Projection():
            return tuple(Field(i.name, i.expression.type) for i in node.items)
        case Sink():
            return node.columns
        case TimeWindows() | SessionWindow():
            return (*schema(node.input), *(Field(name, "TIMESTAMP") for name in BOUNDS))
        case CountWindows():
            added = (*(Field(name, "TIMESTAMP") for name in BOUNDS), Field(WINDOW_ID, "BIGINT"))
            return (*schema(node.input), *added)
        case LookupJoin():
            return (*schema(node.input), *(f for _, f in node.columns))
        case Expand():
            return (*schema(node.input), Field(node.column, "INTEGER"))
        case Lateral():
            return (*schema(node.input), *node.columns)
        case WindowRank() | Rank():
            return (*schema(node.input), Field(node.column, "BIGINT"))
        case Over():
            return (*schema(node.input), *(Field(c.call.name, c.call.type) for c in node.calls))
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
        case Joining():
            return tuple(f for place in node.shown for f in schema(node.inputs[place]))
        case _:
            assert_never(node)


def time_attribute(node: Node) -> str | None:
    """Return the column by which rows are in event-time order up to the watermark, if there is one."""
    return next(iter(time_attributes(node)), None)


@once
def time_attributes(node: Node) -> tuple[str, ...]:
    """Return all such columns: a join of rows within an interval has those of both sides."""
    match node:
        case Scan():
            mark = node.table.watermark
            return batch_times(node) if node.by_clock else (mark.column,) if mark else ()
        case Filter() | Expand() | Lateral() | LookupJoin() | WindowRank() | Sink() | Normalize():
            return time_attributes(node.input)
        case Over() | Sort():
            # A row that waits for the rows after it leaves behind the watermark.
            waits = isinstance(node, Over) and node.waits
            return () if waits else tuple(t for t in time_attributes(node.input) if t == node.time)
        case Projection():
            below = time_attributes(node.input)
            own = processing_times(node) if _goes_by_clock(node) else ()
            return tuple(i.name for i in node.items if i.expression.column in below or i.name in own)
        case TimeWindows() | SessionWindow() | CountWindows():
            return ("window_time",)
        case WindowAggregate():
            return (node.window.time,) if node.window.time is not None else ()
        case Aggregate() | Rank() | SetOperation() | Join():
            return ()
        case IntervalJoin():
            return tuple(t for place in _certain(node) if (t := _time_of_input(node, place)) is not None)
        case TemporalJoin():
            return node.times[:1]
        case Union():
            return _in_all_inputs(node, time_attributes)
        case _:
            assert_never(node)


def _certain(node: Joining) -> tuple[int, ...]:
    """Return the inputs whose columns are in the result, and not NULL for want of a match."""
    return tuple(place for place in node.shown if place not in node.padded)


def _time_of_input(node: IntervalJoin, place: int) -> str | None:
    if not node.windowed:
        return node.times[place]
    window = window_columns(node.inputs[place])
    return window.time if window else None


@once
def delay(node: Node) -> int:
    """Return how far (microseconds) the watermark may be ahead of a row's time when it leaves this node, and is not late."""
    return behind(node) + node.delay if isinstance(node, IntervalJoin) else behind(node)


@once
def behind(node: Node) -> int:
    """Return how far (microseconds) what a node computes must keep behind the watermark, for no row from below to be late."""
    below = max(map(delay, children(node)), default=0)
    if isinstance(node, IntervalJoin) and not node.windowed and any(map(_in_windows, node.inputs)):
        # A window is emitted when the watermark is at its end, which is that much beyond its time.
        return below + _WINDOW_TIME
    return below


def _in_windows(node: Node) -> bool:
    return any(isinstance(n, TimeWindows | SessionWindow | CountWindows | WindowAggregate) for n in walk(node))


@once
def processing_times(node: Node) -> tuple[str, ...]:
    """Return the columns that hold the batch's time, where rows can be in its order: windows can be made over any of them."""
    return batch_times(node) if _can_go_by_clock(node) else ()


@once
def batch_times(node: Node) -> tuple[str, ...]:
    """Return the columns that hold the time of the batch in which a row leaves a node."""
    match node:
        case Scan():
            return tuple(c.name for c in node.table.columns if c.processing_time)
        case Filter() | Expand() | Lateral() | LookupJoin() | TimeWindows():
            return batch_times(node.input)
        case Over() | Sort():
            # Over processing time, and only there, a row leaves in the batch in which it comes.
            return batch_times(node.input) if _can_go_by_clock(node) else ()
        case Projection():
            below = batch_times(node.input)
            return tuple(i.name for i in node.items if i.expression.column in below or i.expression.is_now)
        case Union():
            return _in_all_inputs(node, batch_times)
        case (
            SessionWindow()
            | CountWindows()
            | WindowAggregate()
            | WindowRank()
            | Aggregate()
            | Rank()
            | SetOperation()
            | Sink()
            | Normalize()
            | Join()
            | IntervalJoin()
            | TemporalJoin()
        ):
            return ()
        case _:
            assert_never(node)


@once
def _can_go_by_clock(node: Node) -> bool:
    match node:
        case Scan():
            return True
        case Filter() | Expand() | Lateral() | LookupJoin() | Projection():
            return _can_go_by_clock(node.input)
        case TimeWindows():
            return node.time_column in processing_times(node.input)
        case Over() | Sort():
            return node.time in processing_times(node.input) and not (isinstance(node, Over) and node.waits)
        case Union():
            return all(map(_can_go_by_clock, node.inputs))
        case _:
            return False


def by_clock(node: Node) -> Node:
    """Return a plan that has `processing_times` with its rows in their order, and not in that of an event time."""
    return rebuilt(node, lambda n: replace(n, by_clock=True) if isinstance(n, Scan) else n)


def _goes_by_clock(node: Node) -> bool:
    return all(n.by_clock for n in walk(node) if isinstance(n, Scan))


@once
def window_columns(node: Node) -> WindowColumns | None:
    """Return the window bounds that a node's rows carry: those of a window table function or of a window aggregate."""
    match node:
        case Scan() | Normalize() | Aggregate() | Rank() | SetOperation() | Join():
            return None
        case IntervalJoin():
            found = (window_columns(node.inputs[place]) for place in _certain(node))
            return next(found, None) if node.windowed else None
        case TemporalJoin():
            return window_columns(node.inputs[0])
        case Filter() | Expand() | Lateral() | LookupJoin() | WindowRank() | Sort() | Sink():
            return window_columns(node.input)
        case Over():
            return None if node.waits else window_columns(node.input)
        case Projection():
            below = window_columns(node.input)
            if below is None:
                return None
            kept = WindowColumns(*(_renamed(node.items, c) for c in (below.start, below.end, below.time)))
            return kept if kept.end is not None else None
        case TimeWindows() | SessionWindow() | CountWindows():
            return WindowColumns(*BOUNDS)
        case WindowAggregate():
            return node.window
        case Union():
            return _common(node, window_columns)
        case _:
            assert_never(node)


@once
def window_size(node: Node) -> int | None:
    """Return the size (microseconds) of the windows that a node's rows are in, where it is one and the same."""
    match node:
        case Scan() | Normalize() | SessionWindow() | CountWindows() | Aggregate() | Rank() | SetOperation() | Join():
            return None
        case IntervalJoin():
            return window_size(node.inputs[0]) if node.windowed else None
        case TemporalJoin():
            return window_size(node.inputs[0])
        case TimeWindows():
            return None if node.kind == "CUMULATE" else node.size
        case Filter() | Projection() | Expand() | Lateral() | LookupJoin() | WindowAggregate() | WindowRank():
            return window_size(node.input)
        case Over() | Sort() | Sink():
            return window_size(node.input)
        case Union():
            sizes = {window_size(n) for n in node.inputs}
            return sizes.pop() if len(sizes) == 1 else None
        case _:
            assert_never(node)


@once
def on_time(node: Node) -> bool:
    """Tell whether every row leaves this node before the watermark passes its event time: none can be late above.

    True above an operator over windows, which emits a window in the batch in which the watermark reaches its end, and above one
    that emits rows in order, each in the batch in which the watermark passes its time. Above a join of rows within an interval
    it is so for a watermark that is its `delay` behind.
    """
    match node:
        case Scan() | Normalize() | Aggregate() | Rank() | SetOperation() | Join():
            return False
        case WindowAggregate() if node.corrects:
            return False
        case (
            SessionWindow()
            | CountWindows()
            | WindowAggregate()
            | WindowRank()
            | Sort()
            | IntervalJoin()
            | TemporalJoin()
        ):
            return True
        case Over():
            return not node.waits
        case Filter() | Projection() | TimeWindows() | Expand() | Lateral() | LookupJoin() | Sink():
            return on_time(node.input)
        case Union():
            return all(on_time(n) for n in node.inputs)
        case _:
            assert_never(node)


def changes(node: Node) -> bool:
    """Tell whether a node takes back rows that it emitted: then its rows have weights."""
    return changer(node) is not None


@once
def changer(node: Node) -> Scan | Changing | Join | WindowAggregate | None:
    """Return the node that makes a result change: a table of changes, or the topmost operator that changes what it emitted.

    What an operator over windows emits is final, also where its input changes, unless late or early rows correct it.
    """
    match node:
        case Scan():
            return node if node.table.has_changes else None
        case Normalize() | Aggregate() | Rank() | SetOperation():
            return node
        case Join():
            # Pairs of rows that are only added are only added, too, and so is a row that has a match once.
            below = next((found for n in node.inputs if (found := changer(n)) is not None), None)
            return below if node.kind in ("inner", "semi") else node
        case WindowAggregate() if node.corrects:
            return node
        case SessionWindow() | WindowAggregate() | WindowRank() | TemporalJoin():
            return None
        case _:
            return next((found for n in children(node) if (found := changer(n)) is not None), None)


@once
def keys(node: Node) -> tuple[frozenset[str], ...]:
    """Return sets of columns whose values no two rows of a node's result share at a time; none where nothing is known."""
    match node:
        case Normalize():
            return (frozenset(node.keys),)
        case Aggregate():
            return (frozenset(k.name for k in node.keys),) if node.keys else ()
        case WindowAggregate():
            own = frozenset(k.name for k in node.keys)
            return tuple(own | bounds for bounds in _telling_bounds(node))
        case Rank():
            partition = frozenset(f.name for f in schema(node) if any(k.column == f.name for k in node.keys))
            if node.function != "row_number" or len(partition) < len(node.keys):
                return ()
            return (partition,) if node.limit == 1 and partition else (partition | {node.column},)
        case SetOperation():
            return (frozenset(f.name for f in schema(node)),) if node.distinct else ()
        case Over():
            partition = frozenset(f.name for f in schema(node) if any(k.column == f.name for k in node.keys))
            numbers = [c.call.name for c in node.calls if c.call.function == "row_number"]
            return tuple(partition | {n} for n in numbers) if len(partition) == len(node.keys) else ()
        case Filter():
            bounds, fixed = upper_bounds(node.predicate.sql), constants(node.predicate.sql)
            names = frozenset().union(*keys(node.input))
            alike = {n for n in names if n in fixed or (bounds.get(n) == 1 and _is_number(node.input, n))}
            return tuple(f - alike for f in keys(node.input) if f - alike)
        case Sink():
            return keys(node.input)
        case LookupJoin():
            alone = set(node.table.primary_key) <= {c for _, c in node.keys}
            return keys(node.input) if alone and node.table.primary_key else ()
        case Lateral():
            return tuple(names | node.key for names in keys(node.input)) if node.key is not None else ()
        case Joining():
            return _keys_of_join(node)
        case Projection():
            # A column may have several names.
            below = [
                [[i.name for i in node.items if i.expression.column == name] for name in sorted(found)]
                for found in keys(node.input)
            ]
            return tuple(islice((frozenset(names) for found in below for names in product(*found)), _MOST_KEYS))
        case _:
            return ()


def _keys_of_join(node: Joining) -> tuple[frozenset[str], ...]:
    """Return what tells the rows of a join apart: keys of all its inputs; one with at most one row for a key adds nothing.

    Of versions each row finds one.
    """
    if len(node.shown) == 1 or isinstance(node, TemporalJoin):
        return keys(node.inputs[0])
    if node.kind == "full":
        # A row of either side may have NULL for its key, and be without a match: then both have NULLs in all keys.
        return ()
    found = [frozenset[str]()]
    for place, (below, equal) in enumerate(zip(node.inputs, node.keys, strict=True)):
        own = {k.column for k in equal}
        alone = any(names <= own for names in keys(below))
        # The rows that have no match on the other side are told apart by their own key.
        if alone and place and node.kind in ("inner", "left"):
            continue
        found = [names | more for names in found for more in keys(below)][:_MOST_KEYS]
    return tuple(found)


def _is_number(node: Node, column: str) -> bool:
    """Tell whether a column is the number of a row among those of its key, from 1 on."""
    match node:
        case Over():
            return any(c.call.name == column and c.call.function == "row_number" for c in node.calls)
        case Filter():
            return _is_number(node.input, column)
        case Projection():
            below = [f.name for f in schema(node.input) if _renamed(node.items, f.name) == column]
            return any(_is_number(node.input, name) for name in below)
        case _:
            return False


def _telling_bounds(node: WindowAggregate) -> Iterator[frozenset[str]]:
    """Yield sets of columns that tell the windows of one key apart."""
    bounds = [b for b in (node.window.end, node.window.time, node.window.start) if b is not None]
    made = [n for n in walk(node.input) if isinstance(n, TimeWindows | SessionWindow)]
    # Several windows of different sizes may have one of their bounds in common.
    alone = window_size(node.input) is not None or (len(made) == 1 and isinstance(made[0], SessionWindow))
    yield from (frozenset({b}) for b in bounds) if alone else (frozenset(bounds),)


def called(node: Scan | Stateful) -> str:
    """Return what people call a scan or a stateful node."""
    match node:
        case Scan():
            return f'table "{node.table.name}"'
        case Normalize():
            return f'table "{node.input.table.name}"'
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
        case Over():
            return "OVER"
        case Sort():
            return "ORDER BY"
        case Join():
            return "JOIN" if node.kind == "inner" else f"{node.kind.upper()} JOIN"
        case _:
            return type(node).__name__


def _renamed(items: tuple[Item, ...], column: str | None) -> str | None:
    """Return the name under which a projection passes a column on unchanged."""
    if column is None:
        return None
    return next((i.name for i in items if i.expression.column == column), None)


def _in_all_inputs(node: Union, prop: Callable[[Node], tuple[str, ...]]) -> tuple[str, ...]:
    """Return the columns of a union that a property names in every input, by position."""
    places = []
    for below in node.inputs:
        names = [f.name for f in schema(below)]
        places.append({names.index(name) for name in prop(below)})
    shared = set.intersection(*places)
    return tuple(f.name for place, f in enumerate(schema(node)) if place in shared)


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
