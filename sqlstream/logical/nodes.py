"""The logical plan: one frozen dataclass per relational idea, saying what to compute and nothing about how.

Properties that planning needs (schema, time attribute, window columns, state bound) are derived from the nodes and
stored nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar, assert_never

from sqlstream.catalog import Table
from sqlstream.errors import Span

# The types that a time attribute can have.
TIMES = ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE")


@dataclass(frozen=True, slots=True)
class Expression:
    """A bound scalar expression: DuckDB SQL over the columns of one node, and its DuckDB type."""

    sql: str
    type: str
    span: Span | None = field(default=None, compare=False, repr=False)
    volatile: bool = False

    def __str__(self) -> str:
        return self.sql


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a node's output."""

    name: str
    type: str

    def __str__(self) -> str:
        return f"{self.name} {self.type}"


Schema = tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Item:
    """An output column of a projection: a name and the expression that makes it."""

    name: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class WindowColumns:
    """Which columns of a node hold the bounds of the window that a row is in (None where projected away)."""

    start: str | None
    end: str | None
    time: str | None


@dataclass(frozen=True, slots=True)
class AggregateItem:
    """An aggregate call over the columns of the aggregate's input, and the name of its result.

    The SQL of an `order_by` says the direction, too.
    """

    name: str
    function: str
    arguments: tuple[Expression, ...]
    distinct: bool
    order_by: tuple[Expression, ...]
    filter: Expression | None
    type: str
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """All that is computed from a row of the input."""
        return (*self.arguments, *self.order_by, *((self.filter,) if self.filter else ()))

    def __str__(self) -> str:
        inside = ("DISTINCT " if self.distinct else "") + (", ".join(map(str, self.arguments)) or "*")
        inside += f" ORDER BY {', '.join(map(str, self.order_by))}" if self.order_by else ""
        where = f" FILTER (WHERE {self.filter})" if self.filter else ""
        return f"{self.function}({inside}){where} AS {self.name}"


@dataclass(frozen=True, slots=True)
class Scan:
    """Reads a table: its columns, the computed ones among them.

    Emits every row once, in the order of the source. Rows whose time attribute is NULL, or infinite, are dropped and counted.
    Keeps no state. With a `clock`, a column of PROCTIME(), the batch's time is what windows go by, not the table's watermark.
    """

    table: Table
    alias: str
    clock: str | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Filter:
    """Keeps the rows for which the predicate is true."""

    input: Node
    predicate: Expression


@dataclass(frozen=True, slots=True)
class Project:
    """Computes new columns from each row. An item with UNNEST makes several rows of one, or none."""

    input: Node
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Windows:
    """Emits each row once for every window [start, end) that holds its event time.

    TUMBLE windows follow each other; HOP windows begin every `slide`; CUMULATE windows end every `slide` after the start that
    all of one `size` share. They are aligned to the epoch plus the offset; all lengths are microseconds. Adds `window_start`,
    `window_end` and `window_time` (end - 1 ms). Keeps no state. With a `zone`, the times are instants, and windows of days begin
    at the zone's midnight.
    """

    input: Node
    kind: Literal["TUMBLE", "HOP", "CUMULATE"]
    time_column: str
    size: int
    slide: int
    offset: int = 0
    zone: str | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Session:
    """Emits each row with the bounds of its session, when the watermark passes the session's end.

    Rows of equal keys that follow each other within the gap (microseconds) are one session; its end is the gap after its last
    row. Keeps the rows of open sessions. A row that comes after its session has closed is dropped and counted.
    """

    input: Node
    name: str
    keys: tuple[str, ...]
    time_column: str
    gap: int
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Expand:
    """Emits each row once for every number, in a column of its own: a row per grouping set. Keeps no state."""

    input: Node
    column: str
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WindowRank:
    """Emits each row with its rank among the rows of its window and keys, when the watermark passes the window's end.

    With a `limit` only rows up to that rank. Keeps the rows of open windows (that can still be within the limit); rows that come
    after their window has closed are dropped and counted. The SQL of an `order` says the direction, too. Rows that are equal in
    it are numbered in the order of all their columns.
    """

    input: Node
    name: str
    column: str
    function: str
    keys: tuple[Expression, ...]
    window: WindowColumns
    order: tuple[Expression, ...]
    limit: int | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class WindowAggregate:
    """Aggregates rows per key and event-time window.

    Emits one row per (key, window) when the watermark passes the window's end, then forgets the window. Keeps partial
    results of open windows; a row that comes after its window has closed is dropped and counted. `shown` is the select
    list over it: its state's view has these columns, too.
    """

    input: Node
    name: str
    keys: tuple[Item, ...]
    window: WindowColumns
    aggregates: tuple[AggregateItem, ...]
    shown: tuple[Item, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Aggregates all rows of a key so far.

    Emits a key's result when its first row comes, and changes it with every further one; takes it back when no row is left. Keeps
    partial results of every key, and where rows can be taken away, the rows. `shown` is the select list over it.
    """

    input: Node
    name: str
    keys: tuple[Item, ...]
    aggregates: tuple[AggregateItem, ...]
    shown: tuple[Item, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Rank:
    """Emits each row with its rank among all rows so far of equal keys, and changes the ranks that further rows move.

    With a `limit` only rows up to that rank; of rows that are only added, those beyond it are not kept. The SQL of an `order`
    says the direction, too. Rows that are equal in it are numbered in the order of all their columns.
    """

    input: Node
    name: str
    column: str
    function: str
    keys: tuple[Expression, ...]
    order: tuple[Expression, ...]
    limit: int | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SetOperation:
    """Emits the rows that are on both sides (intersect), or on the left one only (except), and changes that with every row.

    The column `side` of the input is 0 for rows of the left side and 1 for those of the right one. With `distinct` a row is there
    once, else as often as the counts on both sides say. Keeps both sides.
    """

    input: Node
    name: str
    function: Literal["intersect", "except"]
    side: str
    distinct: bool
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Union:
    """Emits the rows of every input (UNION ALL). Columns go by position; the names are those of the first input."""

    inputs: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Sink:
    """Writes rows to a table: `columns` are what it stores, by position, and each value is cast as an assignment casts.

    `limit` ends the job after so many rows; only a bare SELECT has one.
    """

    input: Node
    table: Table
    columns: Schema
    limit: int | None = None


T = TypeVar("T")

# They emit what is final, once: rows that a window has collected.
Windowed = Session | WindowAggregate | WindowRank
# They emit what is so now, and change it.
Changing = Aggregate | Rank | SetOperation
Stateful = Windowed | Changing
Node = Scan | Filter | Project | Windows | Expand | Stateful | Union | Sink
# What a window table function adds to its input.
BOUNDS = ("window_start", "window_end", "window_time")


def quote(name: str) -> str:
    """Return a name as a DuckDB identifier, its own quotes doubled.

    >>> print(quote("window start"))
    "window start"
    """
    return '"' + name.replace('"', '""') + '"'


def children(node: Node) -> tuple[Node, ...]:
    """Return the inputs of a node."""
    match node:
        case Scan():
            return ()
        case Filter() | Project() | Windows() | Expand() | Sink():
            return (node.input,)
        case Session() | WindowAggregate() | WindowRank() | Aggregate() | Rank() | SetOperation():
            return (node.input,)
        case Union():
            return node.inputs
        case _:
            assert_never(node)


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and everything below it, inputs first."""
    for child in children(node):
        yield from walk(child)
    yield node


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
        case Windows() | Session():
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
        case Session() | WindowAggregate() | WindowRank() | Aggregate() | Rank() | SetOperation() | Sink():
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
        case Session() | WindowAggregate() | WindowRank() | Aggregate() | Rank() | SetOperation() | Sink():
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
        case Windows() | Session():
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
        case Scan() | Session() | Aggregate() | Rank() | SetOperation():
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
        case Session() | WindowAggregate() | WindowRank():
            return True
        case Filter() | Project() | Windows() | Expand() | Sink():
            return on_time(node.input)
        case Union():
            return all(on_time(n) for n in node.inputs)
        case _:
            assert_never(node)


def changes(node: Node) -> bool:
    """Tell whether a node takes back rows that it emitted: then its rows have weights."""
    return any(isinstance(n, Changing) for n in walk(node))


def keys(node: Node) -> frozenset[str]:
    """Return columns whose values no two rows of a node's result share at a time; none where nothing is known."""
    match node:
        case Aggregate():
            return frozenset(k.name for k in node.keys)
        case Rank():
            partition = frozenset(f.name for f in schema(node) if any(k.sql == quote(f.name) for k in node.keys))
            whole = len(partition) == len(node.keys)
            by_rank = node.function == "row_number" and whole
            return partition if by_rank and node.limit == 1 else partition | {node.column} if by_rank else frozenset()
        case SetOperation():
            return frozenset(f.name for f in schema(node)) if node.distinct else frozenset()
        case Filter() | Sink():
            return keys(node.input)
        case Project():
            below = keys(node.input)
            kept = {quote(name): _renamed(node.items, name) for name in below}
            return frozenset(n for n in kept.values() if n is not None) if None not in kept.values() else frozenset()
        case _:
            return frozenset()


def called(node: Stateful) -> str:
    """Return what people call a stateful node."""
    match node:
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
