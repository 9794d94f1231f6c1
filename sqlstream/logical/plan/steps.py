"""The ways of rows from one step of EXPLAIN to the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlstream.logical.plan.node import Node

# The steps whose rows others read, with their numbers.
Leaves = Sequence[tuple[Node, int]]
# From which leaf rows come, and what is done to them on the way.
Path = tuple[int, tuple[str, ...]]
# Beyond so many ways from the leaves to a node nobody reads them one by one.
_MOST_PATHS = 16


def paths(node: Node, leaves: Leaves) -> list[Path]:
    """Return the numbers of the leaves from which rows come to a node, each with what is done to them on the way.

    A CTE that is named several times is on several ways: where they are too many, each leaf is there once.
    """
    known: dict[int, list[Path]] = {}

    def visit(node: Node) -> list[Path]:
        if id(node) not in known:
            found = list(dict.fromkeys(below(node)))
            if len(found) > _MOST_PATHS:
                found = [(leaf, ("in several ways",)) for leaf in dict.fromkeys(leaf for leaf, _ in found)]
            known[id(node)] = found
        return known[id(node)]

    def below(node: Node) -> Iterator[Path]:
        leaf = next((number for leaf, number in leaves if leaf == node), None)
        if leaf is not None:
            yield leaf, ()
            return
        for one in node.children:
            for leaf, before in visit(one):
                yield leaf, (*before, *filter(None, [node.effect]))

    return visit(node)
