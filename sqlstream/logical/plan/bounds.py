"""Warnings about nodes whose state grows without a bound, with hints that bound it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlstream.errors import UnboundedState
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
