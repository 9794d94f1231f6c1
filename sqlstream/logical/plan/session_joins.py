"""Warnings about joins of sessions: each input has sessions of its own, which seldom have the same bounds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from sqlstream.errors import Span, StatementWarning
from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.node import Node


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
