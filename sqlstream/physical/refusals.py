"""What no plan can do, said before anything starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

from sqlstream.errors import UnsupportedError
from sqlstream.logical import nodes, properties
from sqlstream.logical.clock import uses_clock
from sqlstream.logical.nodes import Expand, Filter, Node, Project, Scan, Session, Sink, Stateful, Union, Windows
from sqlstream.logical.properties import changes


def refuse(sinks: Sequence[Sink]) -> None:
    """Raise UnsupportedError for what would give wrong results in a job."""
    refuse_replay_differences(sinks)
    refuse_two_clocks(sinks)
    refuse_clock_over_changes(sinks)
    refuse_windows_over_changes(sinks)
    refuse_changes(sinks)


def refuse_replay_differences(sinks: Sequence[Sink]) -> None:
    """Refuse functions such as random() in a plan that keeps state: a repeated batch would not repeat their results."""
    found = [n for sink in sinks for n in nodes.walk(sink)]
    if not any(isinstance(n, Stateful) for n in found):
        return
    for expression in (e for n in found for e in expressions(n)):
        if expression.volatile:
            raise UnsupportedError(
                "a function whose result differs on replay cannot be used in a query that keeps state",
                expression.span,
                hint="A batch that is repeated after a crash must give the same rows; use a column of the input instead.",
            )


def refuse_two_clocks(sinks: Sequence[Sink]) -> None:
    """Refuse a job with windows over processing time and a table with a watermark: a job has one watermark."""
    scans = [n for sink in sinks for n in nodes.walk(sink) if isinstance(n, Scan)]
    if any(s.clock for s in scans):
        for scan in scans:
            if scan.clock is None and scan.table.watermark is not None:
                raise UnsupportedError(
                    "windows over processing time beside a table with a watermark in one job",
                    scan.span,
                    hint="Make two jobs of it, or use the event time, or the processing time, for all of them.",
                )


def refuse_clock_over_changes(sinks: Sequence[Sink]) -> None:
    """Refuse the batch's time in what is computed from changes: a row would be taken back with another value than it had."""
    for node in (n for sink in sinks for n in nodes.walk(sink)):
        if not isinstance(node, Scan) and changes(node):
            for expression in expressions(node):
                if uses_clock(expression.sql) and any(changes(n) for n in nodes.children(node)):
                    raise UnsupportedError(
                        "the current time in a query over a result that changes",
                        expression.span,
                        hint="A row is taken back as it was emitted, with its time then; compute the time below the aggregate.",
                    )


def refuse_windows_over_changes(sinks: Sequence[Sink]) -> None:
    """Refuse windows of rows that may be taken away after their window has closed."""
    for node in (n for sink in sinks for n in nodes.walk(sink)):
        if isinstance(node, nodes.Windowed | nodes.RowWindows) and changes(node.input):
            raise UnsupportedError(
                "a window over a result that changes",
                node.span,
                hint="Windows take rows that are only added: aggregate in windows first, and their results then."
                if any(isinstance(n, nodes.Changing) for n in nodes.walk(node.input))
                else "Leave out ALLOWED_LATENESS and EARLY_FIRE below: without them a window's result is emitted once.",
            )


def refuse_changes(sinks: Sequence[Sink]) -> None:
    """Refuse to write a result that changes where rows can only be added, and to guess which row of a key counts."""
    for sink in sinks:
        table, changing = sink.table, next((n for n in nodes.walk(sink) if nodes.takes_back(n)), None)
        if changing is not None and table.connector in ("filesystem", "python"):
            raise UnsupportedError(
                f'writing a result that changes into table "{table.name}" ({table.connector}), whose rows can only be added',
                changing.span if isinstance(changing, Stateful) else None,
                hint=f"{properties.called(changing)} changes rows that it has emitted. Write into a warehouse table "
                f"(one without a connector), or {_instead(changing)}.",
            )
        if changing is None and table.primary_key:
            raise UnsupportedError(
                f'writing rows that are only added into table "{table.name}" with a PRIMARY KEY',
                next((n.span for n in nodes.walk(sink) if isinstance(n, Scan)), None),
                hint="Say which row of a key counts: "
                "ROW_NUMBER() OVER (PARTITION BY key ORDER BY ts DESC) AS n in a subquery, and WHERE n = 1.",
            )


def _instead(changing: Node) -> str:
    return "leave the hint out" if isinstance(changing, nodes.Windowed) else "aggregate in windows"


def expressions(node: Node) -> Iterator[nodes.Expression]:
    """Yield the expressions of one node."""
    match node:
        case Scan() | Windows() | nodes.RowWindows() | Expand() | nodes.SetOperation() | Union() | Sink():
            return
        case Session():
            yield from [node.gap] if isinstance(node.gap, nodes.Expression) else []
        case Filter():
            yield node.predicate
        case Project():
            yield from (i.expression for i in node.items)
        case nodes.WindowAggregate():
            yield from (k.expression for k in node.keys)
            yield from (e for a in node.aggregates for e in a.expressions)
        case nodes.Aggregate():
            yield from (k.expression for k in node.keys)
            yield from (e for a in node.aggregates for e in a.expressions)
        case nodes.WindowRank() | nodes.Rank():
            yield from (*node.keys, *node.order)
        case _:
            assert_never(node)
