"""The logical plan: one frozen dataclass per relational idea, saying what to compute and nothing about how.

What planning needs to know of a node (schema, time attribute, window columns, ..) is derived from the nodes, in `properties`, and
stored nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, assert_never

from sqlstream.catalog import Table
from sqlstream.errors import Span
from sqlstream.logical.plan.expressions import AggregateItem, Expression, Item, Schema
from sqlstream.logical.plan.join_nodes import IntervalJoin, Join, Joining, LookupJoin, TemporalJoin


@dataclass(frozen=True, slots=True)
class WindowColumns:
    """Which columns of a node hold the bounds of the window that a row is in (None where projected away)."""

    start: str | None
    end: str | None
    time: str | None


@dataclass(frozen=True, slots=True)
class OverFrame:
    """The rows that a call with OVER looks at: from so many before a row to so many after it.

    In a frame of `rows` bounds are numbers of rows, and negative where they lie on the other side of the row. In one of `range`,
    they are microseconds, and rows that are equal in the order are all in it. None: from the first row of the partition.
    """

    mode: Literal["rows", "range"]
    preceding: int | None
    following: int = 0

    def __str__(self) -> str:
        first = "unbounded" if self.preceding is None else str(self.preceding)
        return f"{self.mode} {first} preceding" + (f" {self.following} following" if self.following else "")


@dataclass(frozen=True, slots=True)
class OverItem:
    """A call with OVER: the call, the rows that it looks at, and whether it passes over NULLs."""

    call: AggregateItem
    frame: OverFrame
    ignore_nulls: bool = False

    def __str__(self) -> str:
        return f"{self.call}{' ignore nulls' if self.ignore_nulls else ''} [{self.frame}]"


@dataclass(frozen=True, slots=True)
class Scan:
    """Reads a table: its columns, the computed ones among them.

    Emits every row once, in the order of the source. Rows whose time attribute is NULL, or infinite, are dropped and counted.
    Where the table has changes, they have weights. Keeps no state. `by_clock`: the batch's time is what windows go by, not the
    table's watermark.
    """

    table: Table
    alias: str
    by_clock: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Normalize:
    """Emits the rows that a table of changes with a key has now, and changes that: of each key the last row that was added.

    Changes count in the order of the source: files, then rows. Keeps the row of every key.
    """

    input: Scan
    name: str
    keys: tuple[str, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Filter:
    """Keeps the rows for which the predicate is true."""

    input: Node
    predicate: Expression


@dataclass(frozen=True, slots=True)
class Projection:
    """Computes new columns from each row. An item with UNNEST makes several rows of one, or none."""

    input: Node
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class TimeWindows:
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
class SessionWindow:
    """Emits each row with the bounds of its session, when the watermark passes the session's end.

    Rows of equal keys that follow each other within the gap (microseconds) are one session; its end is the gap after its last
    row. A gap that is an expression is each row's own: rows whose times, and gaps behind them, touch are one session. Keeps
    the rows of open sessions. A row that comes after its session has closed is dropped and counted, and kept where `late_rows`
    names a table for it.
    """

    input: Node
    name: str
    keys: tuple[str, ...]
    time_column: str
    gap: int | Expression
    late_rows: str | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CountWindows:
    """Emits each row once for every window of rows that holds it, when the watermark has passed the window's last row.

    The rows of a key are numbered by time once the watermark has passed them: those of one time in the order of all their
    columns. Every `slide` rows there is a window of the last `size`; the first ones have fewer where the size is greater. Adds
    the times of its first and its last row as `window_start` and `window_end`, `window_time` (1 ms before), and `window_id`,
    which counts the windows of a key. Keeps rows that a window may still need, up to `size` of every key; a row behind the
    watermark is dropped and counted. `ttl`: as of Aggregate, a row having come when it got its number.
    """

    input: Node
    name: str
    keys: tuple[str, ...]
    time_column: str
    size: int
    slide: int
    ttl: int | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Expand:
    """Emits each row once for every number, in a column of its own: a row per grouping set. Keeps no state."""

    input: Node
    column: str
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Lateral:
    """Emits each row once for every row that `rows`, a SELECT over its own values, gives, with the columns of both.

    A row for which there is none is left out, with `outer` emitted once with NULLs. Keeps no state. `key` are columns that tell
    the rows of one row apart: no columns where there is one at most, None where that is not known.
    """

    input: Node
    rows: Expression
    columns: Schema
    outer: bool
    key: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class WindowRank:
    """Emits each row with its rank among the rows of its window and keys, when the watermark passes the window's end.

    With a `limit` only rows up to that rank. Keeps the rows of open windows (that can still be within the limit); rows that come
    after their window has closed are dropped and counted, and kept where `late_rows` names a table for them. The SQL of an
    `order` says the direction, too. Rows that are equal in it are numbered in the order of all their columns.
    """

    input: Node
    name: str
    column: str
    function: str
    keys: tuple[Expression, ...]
    window: WindowColumns
    order: tuple[Expression, ...]
    limit: int | None = None
    late_rows: str | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class EarlyFire:
    """How often an open window's result is emitted: after so much processing or event time (microseconds), or so many rows."""

    every: int
    by: Literal["time", "event", "rows"]


@dataclass(frozen=True, slots=True)
class WindowAggregate:
    """Aggregates rows per key and event-time window.

    Emits one row per (key, window) when the watermark passes the window's end, then forgets the window. Keeps partial
    results of open windows; a row that comes after its window has closed is dropped and counted, and kept where `late_rows`
    names a table for it. `shown` is the select list over it: its state's view has these columns, too.

    With a `lateness` (microseconds) a window is forgotten so much later, and rows that come until then change its result.
    With `early` results of open windows are emitted, too, and changed.
    """

    input: Node
    name: str
    keys: tuple[Item, ...]
    window: WindowColumns
    aggregates: tuple[AggregateItem, ...]
    shown: tuple[Item, ...] = ()
    lateness: int = 0
    early: EarlyFire | None = None
    late_rows: str | None = None
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def corrects(self) -> bool:
        """Whether results that were emitted are taken back."""
        return self.lateness > 0 or self.early is not None


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Aggregates all rows of a key so far.

    Emits a key's result when its first row comes, and changes it with every further one; takes it back when no row is left.
    Without keys there is one result from the first batch on, whatever rows there are; so there is of each grouping set without
    keys: `empty_sets` are the numbers of those, in the last key, with NULL in the others. Keeps partial results of every key,
    and where rows can be taken away, the rows. `shown` is the select list over it. A key without a row for `ttl` milliseconds
    is forgotten (0: never; None: as long as the session says).
    """

    input: Node
    name: str
    keys: tuple[Item, ...]
    aggregates: tuple[AggregateItem, ...]
    shown: tuple[Item, ...] = ()
    ttl: int | None = None
    empty_sets: tuple[int, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Rank:
    """Emits each row with its rank among all rows so far of equal keys, and changes the ranks that further rows move.

    With a `limit` only rows up to that rank; of rows that are only added, those beyond it are not kept. The SQL of an `order`
    says the direction, too. Rows that are equal in it are numbered in the order of all their columns. `ttl`: as of Aggregate.
    """

    input: Node
    name: str
    column: str
    function: str
    keys: tuple[Expression, ...]
    order: tuple[Expression, ...]
    limit: int | None = None
    ttl: int | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SetOperation:
    """Emits the rows that are on both sides (intersect), or on the left one only (except), and changes that with every row.

    The column `side` of the input is 0 for rows of the left side and 1 for those of the right one. With `distinct` a row is there
    once, else as often as the counts on both sides say. Keeps both sides. `ttl`: as of Aggregate, a row being the key.
    """

    input: Node
    name: str
    function: Literal["intersect", "except"]
    side: str
    distinct: bool
    ttl: int | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Over:
    """Emits each row once, with what calls find in the rows around it of equal keys, when its place among them is final.

    That is when the watermark passes its time; over processing time in the batch in which it comes; for calls that look at rows
    after it, when those are final, too, or the input ends. The SQL of an `order` says the direction, and begins with the time;
    rows that are equal in it are in the order of all their columns. Keeps rows that wait, and what is still needed of those that
    were emitted: rows as far back as frames reach, for those without a bound a partial result per key. A row that comes behind
    the watermark is dropped and counted. `ttl`: as of Aggregate.
    """

    input: Node
    name: str
    keys: tuple[Expression, ...]
    time: str
    order: tuple[Expression, ...]
    calls: tuple[OverItem, ...]
    ttl: int | None = None
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def following(self) -> int:
        """How many rows after a row must be final before it is."""
        return max(0, max((c.frame.following for c in self.calls if c.frame.mode == "rows"), default=0))

    @property
    def waits(self) -> bool:
        """Whether rows leave behind the watermark, since they wait for later ones."""
        return any(c.frame.following > 0 for c in self.calls)


@dataclass(frozen=True, slots=True)
class Sort:
    """Emits rows in the order of their time, then of the rest of `order`, as the watermark passes them. Keeps those that wait."""

    input: Node
    name: str
    time: str
    order: tuple[Expression, ...]
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


# They emit what is final, once: rows that a window has collected, also where rows come and go.
Windowed = SessionWindow | WindowAggregate | WindowRank
# They emit what is so now, and change it.
Changing = Normalize | Aggregate | Rank | SetOperation
# They emit every row once, in the order of time.
InOrder = Over | Sort
# They keep what they know of a key until its time to live is over.
Remembering = CountWindows | Aggregate | Rank | SetOperation | Over
Joins = Join | IntervalJoin | TemporalJoin
Stateful = Windowed | CountWindows | Changing | InOrder | Joins
Node = Scan | Filter | Projection | TimeWindows | Expand | Lateral | LookupJoin | Stateful | Union | Sink
# What a window table function adds to its input.
BOUNDS = ("window_start", "window_end", "window_time")
# And by rows.
WINDOW_ID = "window_id"


def children(node: Node) -> tuple[Node, ...]:
    """Return the inputs of a node."""
    match node:
        case Scan():
            return ()
        case Filter() | Projection() | TimeWindows() | Expand() | Lateral() | LookupJoin() | Sink() | Normalize():
            return (node.input,)
        case (
            SessionWindow() | WindowAggregate() | WindowRank() | Aggregate() | Rank() | SetOperation() | Over() | Sort()
        ):
            return (node.input,)
        case CountWindows():
            return (node.input,)
        case Union() | Joining():
            return node.inputs
        case _:
            assert_never(node)


def with_children(node: Node, inputs: tuple[Node, ...]) -> Node:
    """Return a node with other inputs; the same one where they are the same."""
    if all(a is b for a, b in zip(children(node), inputs, strict=True)):
        return node
    match node:
        case Scan():
            return node
        case Union() | Join() | IntervalJoin() | TemporalJoin():
            return replace(node, inputs=inputs)
        case Normalize():
            [scan] = inputs
            assert isinstance(scan, Scan)
            return replace(node, input=scan)
        case _:
            [below] = inputs
            return replace(node, input=below)


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and everything below it, inputs first; what is below several nodes is yielded once."""
    seen: set[int] = set()
    pending = [(node, False)]
    while pending:
        node, ready = pending.pop()
        if ready:
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            pending.append((node, True))
            pending += [(child, False) for child in reversed(children(node))]
