"""Functions over plans as graphs: a CTE that a query names twice is one node below two others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, wraps
from typing import Any, TypeVar

from sqlstream.logical.plan.node import Node

F = TypeVar("F", bound=Callable[..., Any])
N = TypeVar("N", bound=Node)


class _NodeKey:
    """A node as a cache key, compared by identity: comparing plans would be slow."""

    __slots__ = ("node",)

    def __init__(self, node: object):
        self.node = node

    def __hash__(self) -> int:
        return id(self.node)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _NodeKey) and self.node is other.node


def once(derive: F) -> F:
    """Decorate a function of nodes with a cache of its last 10,000 results; arguments are compared by identity."""

    @lru_cache(maxsize=10_000)
    def result_of(*keys: _NodeKey) -> object:
        return derive(*(key.node for key in keys))

    @wraps(derive)
    def wrapper(*arguments: object) -> object:
        return result_of(*map(_NodeKey, arguments))

    return wrapper  # type: ignore[return-value]


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all nodes below it, children first, each object once."""
    seen: set[int] = set()
    pending = [(node, False)]
    while pending:
        node, ready = pending.pop()
        if ready:
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            pending.append((node, True))
            pending += [(child, False) for child in reversed(node.children)]


def rebuilt(node: Node, change: Callable[[Node], Node], stop: Callable[[Node], bool] = lambda node: False) -> Node:
    """Return the plan with every node replaced by the result of `change`, children first.

    `change` gets a node whose children are already replaced. Nodes for which `stop` is true, and all below them, stay.
    """
    results: dict[int, Node] = {}

    def visit(node: Node) -> Node:
        if id(node) not in results:
            if stop(node):
                results[id(node)] = node
            else:
                results[id(node)] = change(node.with_children(tuple(visit(child) for child in node.children)))
        return results[id(node)]

    return visit(node)


def shared(plans: Iterable[N]) -> list[N]:
    """Return plans in which equal nodes are the same object."""
    nodes: dict[tuple[object, ...], list[Node]] = {}

    def same(node: Node) -> Node:
        alike = nodes.setdefault((type(node), *map(id, node.children)), [])
        for other in alike:
            if other == node:
                return other
        alike.append(node)
        return node

    return [rebuilt(plan, same) for plan in plans]  # type: ignore[misc]
