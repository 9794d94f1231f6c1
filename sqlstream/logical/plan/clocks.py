"""The times of a job: whether its tables are read by processing time or by their watermarks, and which ranks keep event times.

The columns by which rows are in time are among the values that identify a job, and so is the clock of a table. So both functions
leave the plans of jobs as they have always been, unless an operator needs more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from sqlstream.logical.plan.graph import N, rebuilt, shared, walk
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.stateful import StatefulNode
from sqlstream.logical.plan.tables import Scan, by_clock


def ordering_times(node: Node) -> tuple[str, ...]:
    """Return the columns by which rows can be ordered, joined and put into windows: time attributes, and times of the clock.

    The start and the end of a window are not among them: the clock has passed both when the window's rows leave.
    """
    bounds = node.window_columns.names if node.window_columns is not None else ()
    return tuple(dict.fromkeys((*node.time_attributes, *(t for t in node.clock_times if t not in bounds))))


def with_times(plans: Sequence[N]) -> Sequence[N]:
    """Return the plans of a job in which ranks keep the times of their rows only where an operator above goes by these."""
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


def with_clock(plans: Sequence[N]) -> Sequence[N]:
    """Return the plans of a job in which what goes by processing time reads its tables by it, too, if all of the job can.

    Where an operator of the job goes by event time, or a table has a watermark, tables keep theirs.
    """
    if any(_reads_event_time(n) for plan in plans for n in walk(plan)):
        return plans
    clocked = [cast(N, rebuilt(plan, _clocked)) for plan in plans]
    return plans if has_two_clocks(clocked) else clocked


def has_two_clocks(plans: Sequence[Node]) -> bool:
    """Return whether some tables of a job are read by processing time, and others have a watermark."""
    scans = [n for plan in plans for n in walk(plan) if isinstance(n, Scan)]
    return any(s.by_clock for s in scans) and any(not s.by_clock and s.table.watermark for s in scans)


def _reads_event_time(node: Node) -> bool:
    return any(time not in node.children[place].clock_times for place, time in node.times_read)


def _clocked(node: Node) -> Node:
    by_time = isinstance(node, StatefulNode) and node.by_clock
    if by_time or any(time in node.children[place].clock_times for place, time in node.times_read):
        return node.with_children(tuple(map(by_clock, node.children)))
    return node


def _timed(plans: Sequence[Node]) -> Iterator[Node]:
    """Yield the operators whose changes reach an operator that goes by the times of their rows."""
    for node in (n for plan in plans for n in walk(plan)):
        for place, _ in node.times_read:
            yield from _origins(node.children[place])


def _origins(node: Node) -> Iterator[Node]:
    if node.changelog_origin is node:
        yield node
    elif not isinstance(node, StatefulNode) or node.leaves_at_once:
        for child in node.children:
            yield from _origins(child)
