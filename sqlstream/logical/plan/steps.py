"""Operators in words, for `sqlstream explain`: what each does, by which keys, and what it emits when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

from sqlstream.duck.sql import unquoted
from sqlstream.logical.plan.aggregates import Aggregate, WindowAggregate
from sqlstream.logical.plan.batch_order import meets_timers
from sqlstream.logical.plan.expressions import AggregateItem, Expression, Item
from sqlstream.logical.plan.joins import IntervalJoin, Join, Joining, LookupJoin, TemporalJoin
from sqlstream.logical.plan.late_rows import LateRows
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.nodes import Joins, Stateful, closed
from sqlstream.logical.plan.over import Over, Sort
from sqlstream.logical.plan.process import Process, SideOutputRead
from sqlstream.logical.plan.ranks import Rank, WindowRank
from sqlstream.logical.plan.relational import Expand, Filter, Lateral, Projection, SetOperation, Union
from sqlstream.logical.plan.tables import Normalize, ResultSink, Scan
from sqlstream.logical.plan.windows import CountWindows, SessionWindow, TimeWindows
from sqlstream.units import Duration, duration

# The steps whose rows others read, with their numbers.
Leaves = Sequence[tuple[Node, int]]
# From which leaf rows come, and what is done to them on the way.
Path = tuple[int, tuple[str, ...]]
_AT_END = "when the watermark passes the window's end"
_ON_CHANGE = "updated by later rows"
_OF_INPUT = "in the windows of its input"


def title(node: Stateful) -> str:
    """Return what an operator does, in a line."""
    match node:
        case WindowAggregate():
            return f"aggregate {_windows_below(node.input)}"
        case SessionWindow():
            return f"collect {in_words(node)}"
        case CountWindows():
            every = f" every {node.slide} rows" if node.slide != node.size else ""
            return f"collect count windows of {node.size} rows{every}"
        case WindowRank():
            return f"{_ranked(node)} {_windows_below(node.input)}"
        case Normalize():
            return f"the row that each key of table {node.input.table.name} has now"
        case Aggregate():
            return "aggregate without a window" if node.aggregates else "rows without duplicates (DISTINCT)"
        case Rank():
            return f"{_ranked(node)} over all rows"
        case SetOperation():
            where = "on both sides" if node.function == "intersect" else "on the first side only"
            return f"{node.function.upper()}{'' if node.distinct else ' ALL'}: rows that are {where}"
        case Over():
            return "OVER: rows in the order of time"
        case Sort():
            return f"sort by {_list(node.order)}"
        case Process():
            names = (f"{r.alias or 'a subquery'}{' (broadcast)' if r.broadcast else ''}" for r in node.reads)
            return f"{node.label} over {' and '.join(names)}"
        case Joining():
            return _join_title(node)
        case _:
            assert_never(node)


def _ranked(node: WindowRank | Rank) -> str:
    first = f", the first {node.limit}" if node.limit is not None else ""
    return f"{node.function.upper()} by {_list(node.order)}{first}"


def _windows_below(node: Node) -> str:
    """Return which windows the rows of an input are in."""
    node = closed(node)
    match node:
        case TimeWindows() | SessionWindow() | CountWindows():
            return f"in {in_words(node)}"
        case Projection() | Filter() | Expand() | Lateral() | LookupJoin():
            return _windows_below(node.input)
        case Scan() | Normalize() | Aggregate() | Rank() | SetOperation() | Over() | Sort() | Union() | ResultSink():
            return _OF_INPUT
        case WindowAggregate() | WindowRank() | Joining() | Process() | SideOutputRead() | LateRows():
            return _OF_INPUT
        case _:
            assert_never(node)


def in_words(node: TimeWindows | SessionWindow | CountWindows) -> str:
    """Return windows in words."""
    match node:
        case TimeWindows(kind="TUMBLE"):
            return f"tumbling windows of {duration(node.size)} by {node.time_column}"
        case TimeWindows(kind="HOP"):
            every = duration(node.slide)
            return f"hopping windows of {duration(node.size)} every {every} by {node.time_column}"
        case TimeWindows():
            step = duration(node.slide)
            return f"cumulative windows of {duration(node.size)} in steps of {step} by {node.time_column}"
        case SessionWindow():
            gap = unquoted(node.gap.sql) if isinstance(node.gap, Expression) else duration(node.gap)
            return f"sessions with a gap of {gap} by {node.time_column}"
        case CountWindows():
            return f"count windows of {node.size} rows by {node.time_column}"


def _join_title(node: Joins) -> str:
    match node:
        case IntervalJoin() if node.windowed:
            return f"{node.kind} window join"
        case IntervalJoin():
            a, b = node.times
            first, last = _shifted(a, Duration(-node.before)), _shifted(a, node.after)
            return f"{node.kind} interval join: {b} from {first} to {last}"
        case TemporalJoin():
            return f"{node.kind} temporal join with the version valid at {node.times[0]}"
        case Join():
            return f"{node.kind} regular join"
        case _:
            assert_never(node)


def _shifted(column: str, by: Duration) -> str:
    return f"{column} {'-' if by < 0 else '+'} {duration(Duration(abs(by)))}" if by else column


def keys(node: Stateful) -> str:
    """Return the key by which an operator keeps its rows apart, nothing where there is none."""
    match node:
        case WindowAggregate() | Aggregate():
            return ", ".join(map(_named, node.keys))
        case SessionWindow() | CountWindows() | Normalize():
            return ", ".join(node.keys)
        case WindowRank() | Rank() | Over():
            return _list(node.keys)
        case SetOperation():
            return "the row"
        case Sort():
            return ""
        case Process():
            return ", ".join(node.key_names)
        case Joining():
            pairs = [" = ".join(unquoted(k.sql) for k in pair) for pair in zip(*node.keys, strict=True)]
            where = [unquoted(node.condition.sql)] if node.condition else []
            return " and ".join([*pairs, *where])
        case _:
            assert_never(node)


def computed(node: Stateful) -> str:
    """Return the calls that an operator computes, nothing where it has none."""
    match node:
        case WindowAggregate() | Aggregate():
            return ", ".join(_called(a) for a in node.aggregates)
        case Over():
            return ", ".join(_called(c.call) + c.manner for c in node.calls)
        case Process():
            given = zip(node.function.scalars, node.arguments, strict=True)
            calls = [", ".join(c.name for c in node.function.outputs)]
            for side in node.function.side_outputs:
                calls[0] += f"; {side.name}: {', '.join(c.name for c in side.columns)}"
            return " with ".join([*calls, *filter(None, [", ".join(f"{s.name} = {a.sql}" for s, a in given)])])
        case (
            SessionWindow() | CountWindows() | WindowRank() | Normalize() | Rank() | SetOperation() | Sort() | Joining()
        ):
            return ""
        case _:
            assert_never(node)


def kept(node: Stateful) -> str:
    """Return the states of a function of the user's with their types and times to live, nothing where an operator has none."""
    if not isinstance(node, Process):
        return ""
    found = []
    for state in node.function.states:
        ttl = node.ttl_of(state)
        type = {"value": "", "list": "list of ", "map": f"map of {state.key_type} to "}[state.kind] + state.type
        type = f"broadcast {type}" if state.broadcast else type
        found.append(f"{state.name} ({type}, {f'expires after {duration(ttl)}' if ttl else 'for ever'})")
    return ", ".join([*found, *(["timers"] if node.function.has_timers else [])])


def emits(node: Stateful) -> str:
    """Return what an operator emits, and when."""
    match node:
        case WindowAggregate() if node.corrects:
            parts = [
                *(["early results of open windows"] if node.early else []),
                f"a row per key and window {_AT_END}",
                *([f"corrections for {duration(node.lateness)} more"] if node.lateness else []),
            ]
            return ", ".join(parts)
        case WindowAggregate():
            return f"a row per key and window, {_AT_END}"
        case SessionWindow():
            return "the rows of a session, when the watermark passes its end"
        case CountWindows():
            return "the rows of a window, when the watermark has passed its last row"
        case WindowRank():
            return f"rows with their rank, {_AT_END}"
        case Normalize():
            return "the row of a key, updated by later rows"
        case Aggregate():
            return f"a row per key, {_ON_CHANGE}"
        case Rank():
            return f"rows with their rank, {_ON_CHANGE}"
        case SetOperation():
            return f"rows, {_ON_CHANGE}"
        case Over() if node.waits:
            return "each row once, when the watermark passes the later rows that it needs"
        case Over() | Sort():
            return "each row once, when the watermark passes it"
        case IntervalJoin():
            alone = (
                "; rows without a match, when the watermark passes all that could match" if node.kind != "inner" else ""
            )
            return f"matches at once{alone}"
        case TemporalJoin():
            return "each row once, when the watermark passes it"
        case Process():
            timers = ", and when its timers are due" if node.function.has_timers else ""
            timers += ", before or after the rows of a batch" if meets_timers(node) else ""
            arrival = "the watermark passes a row" if node.in_order else "a row arrives"
            return f"rows of the function, when {arrival}{timers}"
        case Join():
            return f"matches, {_ON_CHANGE}" if node.kind != "inner" else "matches at once"
        case _:
            assert_never(node)


# Beyond so many ways from the leaves to a node nobody reads them one by one.
_MOST_PATHS = 16


def paths(node: Node, leaves: Leaves) -> list[Path]:
    """Return the numbers of the leaves from which rows come to a node, each with what is done to them on the way.

    A CTE that is named several times is on several ways: where they are too many, each leaf is there once.
    """
    known: dict[int, list[Path]] = {}

    def visit(node: Node) -> list[Path]:
        if id(node) not in known:
            found = list(dict.fromkeys(below(node)))
            if len(found) > _MOST_PATHS:
                found = [(leaf, ("in several ways",)) for leaf in dict.fromkeys(leaf for leaf, _ in found)]
            known[id(node)] = found
        return known[id(node)]

    def below(node: Node) -> Iterator[Path]:
        leaf = next((number for leaf, number in leaves if leaf == node), None)
        if leaf is not None:
            yield leaf, ()
            return
        for one in node.children:
            for leaf, before in visit(one):
                yield leaf, (*before, *_done(node))

    return visit(node)


def _done(node: Node) -> tuple[str, ...]:
    """Return what a stateless node does to rows, as far as a reader of a plan wants to know."""
    node = closed(node)
    if isinstance(node, Stateful):
        # A step of its own.
        return ()
    match node:
        case Filter():
            return (f"where {unquoted(node.predicate.sql)}",)
        case LookupJoin():
            by = ", ".join(f"{column} = {unquoted(key.sql)}" for key, column in node.keys)
            return (f"{node.kind} lookup join with table {node.table.name}, by {by}",)
        case SideOutputRead() | LateRows():
            return (node.label,)
        case Lateral():
            return (f"for each row, the rows of {unquoted(node.rows.sql)}",)
        case Scan() | Projection() | TimeWindows() | Expand() | Union() | ResultSink():
            return ()
        case _:
            assert_never(node)


def _called(call: AggregateItem) -> str:
    """Return a call with its name, if that says more."""
    text = unquoted(call.sql)
    return text if text == call.name else f"{text} AS {call.name}"


def _list(parts: tuple[Expression, ...]) -> str:
    return ", ".join(unquoted(p.sql) for p in parts)


def _named(item: Item) -> str:
    return item.name if item.expression.column == item.name else f"{unquoted(item.expression.sql)} AS {item.name}"
