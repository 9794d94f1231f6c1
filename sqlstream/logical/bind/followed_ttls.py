"""Applies the STATE_TTL hints of a statement, and reports hints that no operator could follow."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sqlglot import exp

from sqlstream.errors import BindError, SourceText, Span
from sqlstream.logical.bind.hints import StateTtl, keeps_state, state_ttls, with_ttl
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.process import Process
from sqlstream.logical.plan.relational import Projection
from sqlstream.logical.plan.windows import CountWindows


class FollowedTtls:
    """Sets the time to live of a statement's operators from STATE_TTL hints, and remembers which hints were followed."""

    def __init__(self) -> None:
        # Hints that no operator has followed yet.
        self._unused: dict[Span, StateTtl] = {}
        # Hints that were applied to calls in the FROM of a join.
        self._applied: set[StateTtl] = set()

    def clear(self) -> None:
        """Forget all hints, before another statement is bound."""
        self._unused.clear()
        self._applied.clear()

    def unapplied(self, ttls: Iterable[StateTtl]) -> list[StateTtl]:
        """Return the hints among `ttls` that were not applied to a call in the FROM of a join."""
        return [ttl for ttl in ttls if ttl not in self._applied]

    def apply_to_call(self, node: Node, alias: str, ttls: Collection[StateTtl]) -> Node:
        """Return a relation of a join, with the hint for its alias applied if it is a count window or a process function."""
        operator = node
        while isinstance(operator, Projection):
            operator = operator.input
        if isinstance(operator, CountWindows | Process):
            for ttl in ttls:
                if ttl.name.lower() == alias.lower():
                    self._applied.add(ttl)
                    node = with_ttl(node, operator.children, ttl.ttl)
        return node

    def apply(self, query: exp.Expr, node: Node, below: Collection[Node], source: SourceText) -> Node:
        """Return the plan of a query with its STATE_TTL hints applied to the operators above the nodes `below`.

        Raises BindError for a malformed hint.
        """
        while isinstance(query, exp.SetOperation | exp.Subquery):
            query = query.this
        for ttl in state_ttls(query, source):
            if ttl not in self._applied:
                self._unused[ttl.span] = ttl
            if keeps_state(node, below):
                self._unused.pop(ttl.span, None)
                node = with_ttl(node, below, ttl.ttl)
        return node

    def check(self) -> None:
        """Raise BindError for a hint that no operator has followed."""
        for ttl in self._unused.values():
            hint = (
                "GROUP BY, DISTINCT, ranks, set operations, OVER, regular joins and count windows do; "
                "the watermark bounds windows of time, and an aggregate of all rows has no key to forget."
            )
            raise BindError("STATE_TTL in a SELECT without state that it could bound", ttl.span, hint=hint)
