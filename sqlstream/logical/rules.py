"""Rules that make a plan simpler before it is cut into fragments. DuckDB optimises each fragment; these shape the plan.

None moves anything across a projection: one with UNNEST has another number of rows than its input.

Each is a function from a node to a node, and returns the same object when it does not apply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlstream.logical.nodes import (
    Expression,
    Filter,
    Node,
    Over,
    Project,
    Rank,
    Union,
    WindowRank,
    children,
    quote,
    with_children,
)
from sqlstream.logical.predicates import upper_bounds
from sqlstream.logical.properties import schema

Rule = Callable[[Node], Node]


def merge_filters(node: Node) -> Node:
    """Make one filter of two that follow each other."""
    match node:
        case Filter(input=Filter() as below):
            both = f"({below.predicate.sql}) AND ({node.predicate.sql})"
            volatile = node.predicate.volatile or below.predicate.volatile
            return Filter(below.input, Expression(both, "BOOLEAN", node.predicate.span, volatile))
        case _:
            return node


def drop_identity_projections(node: Node) -> Node:
    """Leave out a projection that passes every column on under its own name, in the same order."""
    match node:
        case Project(input=below) if [(i.name, i.expression.sql) for i in node.items] == [
            (f.name, quote(f.name)) for f in schema(below)
        ]:
            return below
        case _:
            return node


def flatten_unions(node: Node) -> Node:
    """Make one union of a union of unions whose columns have the same names."""
    match node:
        case Union() if any(isinstance(i, Union) and schema(i) == schema(node) for i in node.inputs):
            inputs: list[Node] = []
            for child in node.inputs:
                inputs += child.inputs if isinstance(child, Union) and schema(child) == schema(node) else (child,)
            return Union(tuple(inputs))
        case _:
            return node


def push_rank_limit(node: Node) -> Node:
    """Tell a rank how far it counts, where a filter above keeps only rows up to there: the rest need not be stored."""
    match node:
        case Filter():
            for column, limit in upper_bounds(node.predicate.sql).items():
                found = _limited(node.input, column, limit)
                if found is not node.input:
                    return replace(node, input=found)
    return node


def merge_overs(node: Node) -> Node:
    """Make one of two nodes of calls over the same partitions: each row waits once."""
    match node:
        case Over(input=Over() as below) if (
            (node.keys, node.time, node.order) == (below.keys, below.time, below.order)
            # Calls that wait for later rows keep nothing but rows.
            and not node.waits
            and not below.waits
            and not any(quote(c.call.name) in e.sql for c in below.calls for e in over_expressions(node))
        ):
            return replace(below, name=node.name or below.name, calls=(*below.calls, *node.calls))
        case _:
            return node


def over_expressions(node: Over) -> tuple[Expression, ...]:
    """Return all that is computed from the rows of a node's input."""
    return (*node.keys, *node.order, *(e for c in node.calls for e in c.call.expressions))


def _limited(node: Node, column: str, limit: int) -> Node:
    """Return a plan in which the rank that a column of its result shows has a limit."""
    match node:
        case Project():
            below = next((i.expression.sql for i in node.items if quote(i.name) == column), "")
            found = _limited(node.input, below, limit)
            return node if found is node.input else replace(node, input=found)
        case Filter():
            found = _limited(node.input, column, limit)
            return node if found is node.input else replace(node, input=found)
        case WindowRank() | Rank() if quote(node.column) == column and (node.limit is None or node.limit > limit):
            return replace(node, limit=limit)
        case _:
            return node


# Projections go first: what they hid between two filters or two unions can then be merged.
# Limits go last, when the filters are whole.
RULES: tuple[Rule, ...] = (drop_identity_projections, merge_filters, flatten_unions, merge_overs, push_rank_limit)


def optimize(node: Node, rules: Sequence[Rule] = RULES) -> tuple[Node, tuple[str, ...]]:
    """Return the plan after all rules, bottom up, and the names of those that changed it."""
    changed = []
    for rule in rules:
        after = _everywhere(rule, node)
        if after is not node:
            changed.append(rule.__name__)
            node = after
    return node, tuple(changed)


def _everywhere(rule: Rule, node: Node) -> Node:
    return rule(with_children(node, tuple(_everywhere(rule, child) for child in children(node))))
