"""The paths of rows from one step of EXPLAIN to the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlstream.logical.plan.node import Node

# The nodes that are steps, with their numbers.
Leaves = Sequence[tuple[Node, int]]
# The number of a leaf, and the effects of the stateless nodes on the way from it.
Path = tuple[int, tuple[str, ...]]
# If more paths lead to a node, they are not listed one by one.
_MOST_PATHS = 16


def paths(node: Node, leaves: Leaves) -> list[Path]:
    """Return the paths by which rows reach a node, from the leaf up.

    A CTE that is named several times is on several paths. If there are too many, each leaf is listed once, "in several ways".
    """
    results: dict[int, list[Path]] = {}

    def visit(node: Node) -> list[Path]:
        if id(node) not in results:
            node_paths = list(dict.fromkeys(below(node)))
            if len(node_paths) > _MOST_PATHS:
                node_paths = [(leaf, ("in several ways",)) for leaf in dict.fromkeys(leaf for leaf, _ in node_paths)]
            results[id(node)] = node_paths
        return results[id(node)]

    def below(node: Node) -> Iterator[Path]:
        leaf = next((number for leaf, number in leaves if leaf == node), None)
        if leaf is not None:
            yield leaf, ()
            return
        for one in node.children:
            for leaf, before in visit(one):
                yield leaf, (*before, *filter(None, [node.effect]))

    return visit(node)
