"""The hints ALLOWED_LATENESS, EARLY_FIRE and LATE_ROWS after SELECT, for the windows of a query block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from sqlglot import exp

from sqlstream.errors import BindError, SourceText, Span, UnsupportedError
from sqlstream.logical.bind.side_outputs import LATE_ROWS, SIDE_OUTPUT
from sqlstream.logical.plan.aggregates import EarlyByRows, EarlyByTime, EarlyFire, WindowAggregate
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.nodes import Windowed
from sqlstream.logical.plan.process import Process
from sqlstream.logical.plan.ranks import WindowRank
from sqlstream.logical.plan.windows import SessionWindow
from sqlstream.names import check_name
from sqlstream.sql.hints import HintCall
from sqlstream.sql.process_calls import ProcessCall
from sqlstream.sql.spans import span_of
from sqlstream.units import MILLISECOND, Duration, parse_duration

_USAGE = {
    "ALLOWED_LATENESS": "Write ALLOWED_LATENESS('2 min').",
    "EARLY_FIRE": "Write EARLY_FIRE('5 s'), EARLY_FIRE('5 s', 'event') or EARLY_FIRE(1000, 'rows').",
    "LATE_ROWS": "Write LATE_ROWS('name').",
}
_IN_WINDOWS = "Put it behind the SELECT that has GROUP BY window_start, window_end over TUMBLE(..) or its kin."


def with_window_hints(select: exp.Expr, node: Node, base: Node, source: SourceText) -> Node:
    """Return the plan of a query block with its hints applied to its windows; `base` is the node of its FROM.

    Raises BindError if the block has no windows or a hint is malformed, UnsupportedError if its windows cannot follow a hint.
    """
    hint = select.args.get("hint")
    calls = [call for call in hint.expressions if call.this in _USAGE] if hint is not None else []
    if not calls:
        return node
    target = _process_below(node) if _calls_process(select) else _windowed(node, base)
    for call in calls:
        span = span_of(call, source)
        if target is None:
            raise BindError(f"{call.this} in a SELECT without windows", span, hint=_IN_WINDOWS)
        _check(call.this, target, span)
    assert target is not None
    # Later errors about the node are about the hints, so they point there.
    new = replace(target, span=span_of(calls[0], source))
    for call in calls:
        new = _with(new, call, source)
    return _replaced(node, target, new)


def _calls_process(select: exp.Expr) -> bool:
    """Return whether a block has a process function in FROM, and nothing else. Further outputs of an operator are no calls."""
    relation = select.args["from_"].this
    is_call = isinstance(relation, ProcessCall) and relation.name.upper() not in (LATE_ROWS, SIDE_OUTPUT)
    return is_call and not select.args.get("joins")


def _process_below(node: Node) -> Process:
    """Return the process function that a block has in FROM."""
    while not isinstance(node, Process):
        [node] = node.children
    return node


def _windowed(node: Node, base: Node) -> Windowed | None:
    """Return the windowed node of a block that gets late rows: the lowest, or the aggregate that makes the sessions below it."""
    above = list(_path(node, base))
    nodes = [n for n in reversed(above) if isinstance(n, Windowed)]
    if isinstance(base, SessionWindow):
        nodes.insert(0, base)
    if len(nodes) > 1 and isinstance(nodes[0], SessionWindow) and isinstance(nodes[1], WindowAggregate):
        return nodes[1]
    return nodes[0] if nodes else None


def _path(node: Node, base: Node) -> Iterator[Node]:
    while node is not base:
        yield node
        [node] = node.children


def _replaced(node: Node, old: Node, new: Node) -> Node:
    if node is old:
        return new
    [below] = node.children
    replaced = _replaced(below, old, new)
    return node.with_children((replaced,))


def _check(name: str, node: Windowed | Process, span: Span) -> None:
    if name == "LATE_ROWS" and isinstance(node, Process) and not node.in_order:
        hint = "Without it no row is dropped: late rows come to the function, too."
        raise BindError("LATE_ROWS for a process function without ORDER BY", span, hint=hint)
    if name != "LATE_ROWS" and not isinstance(node, WindowAggregate):
        what = "ranks" if isinstance(node, WindowRank) else "the rows of sessions"
        if isinstance(node, Process):
            what = "process functions"
        raise UnsupportedError(
            f"{name} for {what}",
            span,
            hint="Aggregates in windows take it. ROW_NUMBER() without a window changes with every row, and forgets by STATE_TTL.",
        )
    if name != "EARLY_FIRE" and node.goes_by_clock:
        raise UnsupportedError(f"{name} over processing time", span, hint="No row is late there: leave the hint out.")


def _with(node: Windowed | Process, call: HintCall, source: SourceText) -> Windowed | Process:
    match call.this, call.expressions:
        case "ALLOWED_LATENESS", [exp.Literal() as text] if isinstance(node, WindowAggregate):
            return replace(node, lateness=_duration(text, source))
        case "LATE_ROWS", [exp.Literal() as text] if text.is_string:
            check_name("a table of late rows", text.name, span_of(text, source))
            return replace(node, late_rows=text.name)
        case "EARLY_FIRE", [exp.Literal() as every, *by] if isinstance(node, WindowAggregate) and len(by) < 2:
            return replace(node, early=_early(call, every, by[0].name.lower() if by else "time", source))
    raise _misused(call, source)


def _early(call: HintCall, every: exp.Literal, by: str, source: SourceText) -> EarlyFire:
    if by == "rows":
        if not every.name.isdigit() or int(every.name) == 0:
            raise _misused(call, source)
        return EarlyByRows(int(every.name))
    units: dict[str, Literal["time", "event"]] = {"time": "time", "event": "event"}
    if by not in units:
        raise _misused(call, source)
    length = _duration(every, source)
    if length < MILLISECOND:
        raise BindError("EARLY_FIRE needs at least a millisecond", span_of(every, source))
    return EarlyByTime(length, units[by])


def _misused(call: HintCall, source: SourceText) -> BindError:
    return BindError(f"{call.this} does not take these arguments", span_of(call, source), hint=_USAGE[call.this])


def _duration(text: exp.Literal, source: SourceText) -> Duration:
    try:
        return parse_duration(text.name, unit=None)
    except ValueError as error:
        raise BindError(str(error), span_of(text, source)) from None
