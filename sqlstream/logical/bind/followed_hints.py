"""Applies the hints STATE_TTL and UID of a statement, and reports those that no operator could follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import zip_longest

from sqlglot import exp

from sqlstream.errors import BindError, SourceText, Span
from sqlstream.logical.bind.aliases import with_name
from sqlstream.logical.bind.hints import StateTtl, keeps_state, state_ttls, uid_of, with_ttl
from sqlstream.logical.plan.count_windows import CountWindows
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.process import Process
from sqlstream.logical.plan.relational import Projection
from sqlstream.logical.plan.windows import SessionWindow
from sqlstream.sql.process_calls import ProcessCall
from sqlstream.sql.windows import WindowTVF


class FollowedHints:
    """Sets times to live and names of a statement's operators from the hints STATE_TTL and UID.

    It remembers which hints were followed.
    """

    def __init__(self) -> None:
        # Hints that no operator has followed yet.
        self._unused: dict[Span, StateTtl] = {}
        # Hints that were applied to calls in the FROM of a join.
        self._applied: set[StateTtl] = set()
        # The positions of UID, and whether an operator has got its name.
        self._named: dict[Span, bool] = {}
        # How many operators above the block with UID are not bound yet: DISTINCT, ORDER BY and set operations.
        self._above: Counter[Span] = Counter()

    def clear(self) -> None:
        """Forget all hints, before another statement is bound."""
        self._unused.clear()
        self._applied.clear()
        self._named.clear()
        self._above.clear()

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
        for ttl in state_ttls(_first_block(query), source):
            if ttl not in self._applied:
                self._unused[ttl.span] = ttl
            if keeps_state(node, below):
                self._unused.pop(ttl.span, None)
                node = with_ttl(node, below, ttl.ttl)
        return node

    def name(self, block: exp.Expr, node: Node, below: Collection[Node], source: SourceText) -> Node:
        """Return the plan of a query block with an operator named by the hint UID, by which an upgrade finds its state.

        It is the topmost operator above the nodes `below`. Without one, an operator that `expect` has announced gets the name,
        and if there is none, the topmost one in FROM. Raises BindError for a malformed hint.
        """
        if (uid := uid_of(block, source)) is None:
            return node
        named = with_name(node, uid.name, below)
        if named is node and not self._above[uid.span]:
            named = with_name(node, uid.name)
        self._named[uid.span] = named is not node
        return named

    def expect(self, query: exp.Expr, source: SourceText) -> None:
        """Announce, before the blocks of a query are bound, that `follow` will be called with the query's plan."""
        if (uid := uid_of(_first_block(query), source)) is not None:
            self._above[uid.span] += 1

    def follow(self, query: exp.Expr, node: Node, below: Collection[Node], source: SourceText) -> Node:
        """Return the plan of a DISTINCT, ORDER BY or set operation with both hints applied; `below` are the plans of its blocks.

        The hints are written in the first block. UID names an operator of that block; only if it has none, one of this plan.
        """
        node, block = self.apply(query, node, below, source), _first_block(query)
        if (uid := uid_of(block, source)) is None:
            return node
        self._above[uid.span] -= 1
        return node if self._named.get(uid.span) else self.name(block, node, below, source)

    def check(self) -> None:
        """Raise BindError for a hint that no operator has followed."""
        for ttl in self._unused.values():
            hint = (
                "GROUP BY, DISTINCT, ranks, set operations, OVER, regular joins and count windows do; "
                "the watermark bounds windows of time, and an aggregate of all rows has no key to forget."
            )
            raise BindError("STATE_TTL in a SELECT without state that it could bound", ttl.span, hint=hint)
        if (span := next((span for span, is_named in self._named.items() if not is_named), None)) is not None:
            hint = "Put it behind the SELECT that groups, joins or ranks, and leave it out in one that has a name."
            raise BindError("UID in a SELECT whose state needs no name", span, hint=hint)


def called(relation: exp.Expr | None, node: Node) -> Node:
    """Return the node of the window function or process function that an item of FROM calls, below renamed columns.

    Returns `node` itself if the item is no such call.
    """
    while isinstance(relation, ProcessCall | WindowTVF) and isinstance(node, Projection):
        node = node.input
    return node


def has_hints_of_block(node: Node) -> bool:
    """Return whether a call in FROM has state of its own, so that the hints of the query block apply to it."""
    return isinstance(node, CountWindows | Process | SessionWindow)


def nodes_below(select: exp.Select, nodes: Sequence[Node | None]) -> list[Node]:
    """Return the nodes below the operators of a query block: the relations of FROM, and what is below calls with state.

    `nodes` are the plans of the items of FROM, in their order, and of further relations; None for UNNEST and LATERAL.
    """
    items = [select.args["from_"].this, *(join.this for join in select.args.get("joins") or ())]
    below: list[Node] = []
    for node, item in zip_longest(nodes, items):
        if node is not None:
            call = called(item, node)
            below += call.children if has_hints_of_block(call) else (node,)
    return below


def _first_block(query: exp.Expr) -> exp.Expr:
    """Return the first SELECT of a set operation or of a query in parentheses, where its hints are; else the query."""
    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.this
    return query
