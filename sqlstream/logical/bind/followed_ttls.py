"""The STATE_TTL hints of a statement, and whether an operator has followed each of them."""

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
    """Gives the operators of a statement the times to live that its queries say."""

    def __init__(self) -> None:
        # Hints that no operator has followed yet.
        self._unused: dict[Span, StateTtl] = {}
        # Those that calls in the FROM of a join have taken.
        self._taken: set[StateTtl] = set()

    def clear(self) -> None:
        """Begin with another statement."""
        self._unused.clear()
        self._taken.clear()

    def left(self, ttls: Iterable[StateTtl]) -> list[StateTtl]:
        """Return those hints that no call in FROM has taken."""
        return [ttl for ttl in ttls if ttl not in self._taken]

    def taken(self, node: Node, alias: str, ttls: Collection[StateTtl]) -> Node:
        """Return a call in the FROM of a join: count windows and process functions remember as the query says that calls them."""
        made = node
        while isinstance(made, Projection):
            made = made.input
        if isinstance(made, CountWindows | Process):
            for ttl in ttls:
                if ttl.name.lower() == alias.lower():
                    self._taken.add(ttl)
                    node = with_ttl(node, made.children, ttl.ttl)
        return node

    def remembering(self, query: exp.Expr, node: Node, below: Collection[Node], source: SourceText) -> Node:
        """Return a plan whose operators above some nodes keep their keys as long as the STATE_TTL of a query says."""
        while isinstance(query, exp.SetOperation | exp.Subquery):
            query = query.this
        for ttl in state_ttls(query, source):
            if ttl not in self._taken:
                self._unused[ttl.span] = ttl
            if keeps_state(node, below):
                self._unused.pop(ttl.span, None)
                node = with_ttl(node, below, ttl.ttl)
        return node

    def check(self) -> None:
        """Raise for a hint that no operator has followed."""
        for ttl in self._unused.values():
            hint = (
                "GROUP BY, DISTINCT, ranks, set operations, OVER, regular joins and count windows do; "
                "the watermark bounds windows of time, and an aggregate of all rows has no key to forget."
            )
            raise BindError("STATE_TTL in a SELECT without state that it could bound", ttl.span, hint=hint)
