"""Warnings about nodes whose results depend on how the input is divided into batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlstream.errors import StatementWarning
from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.process import Process


def divided(plans: Iterable[Node]) -> Iterator[StatementWarning]:
    """Yield a warning for every process function whose event-time timers may fire before or after a row of the same batch."""
    seen: list[Process] = []
    for node in (n for plan in plans for n in walk(plan)):
        # Two sinks may share a node.
        if isinstance(node, Process) and node not in seen and node.meets_timers:
            seen.append(node)
            time = next(read.time for read in node.reads if read.time is not None)
            yield StatementWarning(
                f"what {node.label} emits may depend on how its rows are divided into batches",
                node.span,
                detail="In a batch, timers that are due fire before all rows of their key, and others after them.",
                hint=f"With PARTITION BY .. ORDER BY {time} rows come in the order of time, and timers fire between them.",
            )
