"""The times of a job: which tables have processing time as their watermark, and which ranks pass event times on.

Time attributes, and the choice of a table's watermark, are among the values that identify a job. So `with_times` and
`with_processing_time` change a plan only where an operator needs it: all other jobs keep their identity.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from sqlstream.logical.plan.graph import N, rebuilt, shared, walk
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.stateful import StatefulNode
from sqlstream.logical.plan.tables import Scan, by_clock


def ordering_times(node: Node) -> tuple[str, ...]:
    """Return the columns by which rows can be ordered, joined and put into windows: time attributes and processing times.

    The start and the end of a window are not among them: processing time has passed both when the window's rows leave.
    """
    bounds = node.window_columns.names if node.window_columns is not None else ()
    return tuple(dict.fromkeys((*node.time_attributes, *(t for t in node.clock_times if t not in bounds))))


def with_times(plans: Sequence[N]) -> Sequence[N]:
    """Return the plans of a job in which a rank has time attributes only if an operator above uses the times of its rows."""
    if any(_timed(plans)):
        # A rank whose rows one query puts into windows, and another one does not, is one operator.
        plans = shared(plans)
    timed = {id(n) for n in _timed(plans)}
    results: dict[int, Node] = {}

    def visit(node: Node) -> Node:
        if id(node) not in results:
            new = node.with_children(tuple(map(visit, node.children)))
            if isinstance(new, StatefulNode) and ordering_times(new) and id(node) not in timed:
                new = new.without_times()
            results[id(node)] = new
        return results[id(node)]

    return [cast(N, visit(plan)) for plan in plans]


def with_processing_time(plans: Sequence[N]) -> Sequence[N]:
    """Return the plans of a job in which tables below operators over processing time have processing time as watermark.

    This holds for the whole job or not at all: if an operator uses event time, or another table has a watermark, the plans stay
    as they are.
    """
    if any(_reads_event_time(n) for plan in plans for n in walk(plan)):
        return plans
    changed = [cast(N, rebuilt(plan, _with_scans_by_clock)) for plan in plans]
    return plans if has_both_times(changed) else changed


def has_both_times(plans: Sequence[Node]) -> bool:
    """Return whether some tables of a job have processing time as watermark, and others the watermark that they declare."""
    scans = [n for plan in plans for n in walk(plan) if isinstance(n, Scan)]
    return any(s.by_clock for s in scans) and any(not s.by_clock and s.table.watermark for s in scans)


def _reads_event_time(node: Node) -> bool:
    return any(time not in node.children[index].clock_times for index, time in node.times_read)


def _with_scans_by_clock(node: Node) -> Node:
    by_time = isinstance(node, StatefulNode) and node.by_clock
    if by_time or any(time in node.children[index].clock_times for index, time in node.times_read):
        return node.with_children(tuple(map(by_clock, node.children)))
    return node


def _timed(plans: Sequence[Node]) -> Iterator[Node]:
    """Yield the operators that emit a changelog whose event times an operator above uses."""
    for node in (n for plan in plans for n in walk(plan)):
        for index, _ in node.times_read:
            yield from _origins(node.children[index])


def _origins(node: Node) -> Iterator[Node]:
    if node.changelog_origin is node:
        yield node
    elif not isinstance(node, StatefulNode) or node.leaves_at_once:
        for child in node.children:
            yield from _origins(child)
