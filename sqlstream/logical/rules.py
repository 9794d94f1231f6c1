"""Rules that make a plan simpler before it is cut into fragments. DuckDB optimises each fragment; these shape the plan.

None moves anything across a projection: one with UNNEST has another number of rows than its input.

Each is a function from a node to a node, and returns the same object when it does not apply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import assert_never

from sqlglot import exp, parse_one

from sqlstream.logical.nodes import (
    Aggregate,
    Expand,
    Expression,
    Filter,
    Node,
    Project,
    Rank,
    RowWindows,
    Scan,
    Session,
    SetOperation,
    Sink,
    Union,
    WindowAggregate,
    WindowRank,
    Windows,
    quote,
)
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
            for column, limit in _upper_bounds(node.predicate.sql).items():
                found = _limited(node.input, column, limit)
                if found is not node.input:
                    return replace(node, input=found)
    return node


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


def _upper_bounds(condition: str) -> dict[str, int]:
    """Return the columns, as SQL, that a condition bounds from above by a number.

    >>> _upper_bounds('"rn" <= 3 AND "x" > 1'), _upper_bounds('"rn" = 1'), _upper_bounds('4 > "a" OR "b" < 2')
    ({'"rn"': 3}, {'"rn"': 1}, {})
    """
    found = {}
    whole = parse_one(condition, dialect="duckdb").unnest()
    for part in whole.flatten() if isinstance(whole, exp.And) else [whole]:
        part = part.unnest()
        match part:
            case exp.Between(this=exp.Column() as column):
                bound, less = part.args["high"], 0
            case (
                exp.LTE(this=exp.Column() as column, expression=bound)
                | exp.EQ(this=exp.Column() as column, expression=bound)
            ):
                less = 0
            case (
                exp.GTE(this=bound, expression=exp.Column() as column)
                | exp.EQ(this=bound, expression=exp.Column() as column)
            ):
                less = 0
            case (
                exp.LT(this=exp.Column() as column, expression=bound)
                | exp.GT(this=bound, expression=exp.Column() as column)
            ):
                less = 1
            case _:
                continue
        if isinstance(bound, exp.Literal) and not bound.is_string and bound.name.isdigit():
            found[column.sql(dialect="duckdb")] = int(bound.name) - less
    return found


# Projections go first: what they hid between two filters or two unions can then be merged.
# Limits go last, when the filters are whole.
RULES: tuple[Rule, ...] = (drop_identity_projections, merge_filters, flatten_unions, push_rank_limit)


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
    match node:
        case Scan():
            below: Node = node
        case Filter() | Project() | Windows() | Expand() | Sink():
            child = _everywhere(rule, node.input)
            below = node if child is node.input else replace(node, input=child)
        case Session() | RowWindows() | WindowAggregate() | WindowRank() | Aggregate() | Rank() | SetOperation():
            child = _everywhere(rule, node.input)
            below = node if child is node.input else replace(node, input=child)
        case Union():
            children = tuple(_everywhere(rule, i) for i in node.inputs)
            same = all(a is b for a, b in zip(children, node.inputs, strict=True))
            below = node if same else Union(children)
        case _:
            assert_never(node)
    return rule(below)
