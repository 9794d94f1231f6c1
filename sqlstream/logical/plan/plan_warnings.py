"""Warnings about plans: state without a bound, results that depend on batches, joins of sessions that seldom match."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from sqlstream.errors import Span, StatementWarning, UnboundedState
from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.growth import Ends
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.stateful import StatefulNode

_ALLOW = "To run it all the same without this warning: SET 'sqlstream.unbounded-state' = 'allow'."


def unbounded(plans: Iterable[Node], ends: Ends) -> Iterator[UnboundedState]:
    """Yield a warning for every node whose state grows without a bound; `ends` tells whether a table's input ends."""
    seen: list[Node] = []
    for node in (n for plan in plans for n in walk(plan)):
        # Two sinks may share a node.
        if not isinstance(node, StatefulNode) or node in seen:
            continue
        seen.append(node)
        if (growth := node.growth(ends)) is not None:
            message = f"the state of {growth.subject} grows without a bound: {growth.growth}"
            yield UnboundedState(message, node.span, hint=f"{growth.hint} {_ALLOW}")


def divided(plans: Iterable[Node]) -> Iterator[StatementWarning]:
    """Yield a warning for every process function whose event-time timers may fire before or after a row of the same batch."""
    seen: list[Node] = []
    for node in (n for plan in plans for n in walk(plan)):
        # Two sinks may share a node.
        if isinstance(node, StatefulNode) and node not in seen and (time := node.time_of_timers) is not None:
            seen.append(node)
            yield StatementWarning(
                f"what {node.label} emits may depend on how its rows are divided into batches",
                node.span,
                detail="In a batch, timers that are due fire before all rows of their key, and others after them.",
                hint=f"With PARTITION BY .. ORDER BY {time} rows come in the order of time, and timers fire between them.",
            )


def unaligned(plans: Iterable[Node]) -> Iterator[StatementWarning]:
    """Yield a warning for every window join of some plans whose inputs do not have the same sessions."""
    seen: set[Span | None] = set()
    for node in (n for plan in plans for n in walk(plan)):
        # Two sinks may have the same below them.
        if node.joins_windows and node.span not in seen and _differ(node):
            seen.add(node.span)
            yield StatementWarning(
                f"{node.label} of sessions: rows match only in sessions with the same start and the same end",
                node.span,
                detail="The sessions of each input are made of its own rows, so they seldom agree.",
                hint="For sessions of the rows of all inputs, mark the rows, as in SELECT 'a' AS tag, .. FROM a, put the inputs"
                " together with UNION ALL, and group that by SESSION; LIST(..) FILTER (WHERE tag = 'a') takes them apart.",
            )


def _differ(join: Node) -> bool:
    """Whether an input of a window join has sessions, and another one does not have the same."""
    sides = [_window_nodes(child) for child in join.children]
    if not any(node.has_sessions for side in sides for node in side):
        return False
    # Operators have names of their own, whatever they do.
    values = [[replace(node.values, name="") for window in side for node in walk(window)] for side in sides]
    return any(side != values[0] for side in values[1:])


def _window_nodes(node: Node) -> list[Node]:
    """Return the nodes that make the windows in which the rows of a node are."""
    pending, seen, windows = [node], set[int](), list[Node]()
    while pending:
        below = pending.pop()
        if id(below) in seen:
            continue
        seen.add(id(below))
        if below.makes_windows:
            windows.append(below)
        else:
            pending += below.children
    return windows
