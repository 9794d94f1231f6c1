"""A rule of the optimizer that writes expressions as others that are equal: all that a plan computes gets parentheses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from sqlstream.compiler import planning
from sqlstream.logical.plan.aggregates import Aggregate, WindowAggregate
from sqlstream.logical.plan.expressions import AggregateItem, Expression, Item
from sqlstream.logical.plan.joins import IntervalJoin, Join, TemporalJoin
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.over import Over
from sqlstream.logical.plan.relational import Filter, Projection
from sqlstream.logical.plan.rules import RULES, optimize
from sqlstream.logical.plan.tables import ResultSink


def in_parentheses(node: Node) -> Node:
    """Put all that a node computes into parentheses."""
    match node:
        case Projection():
            return replace(node, items=tuple(map(_item, node.items)))
        case Filter():
            return replace(node, predicate=_expression(node.predicate))
        case Aggregate() | WindowAggregate():
            keys, calls = tuple(map(_item, node.keys)), tuple(map(_call, node.aggregates))
            return replace(node, keys=keys, aggregates=calls)
        case Over():
            calls_over = tuple(replace(one, call=_call(one.call)) for one in node.calls)
            return replace(node, keys=tuple(map(_key, node.keys)), calls=calls_over)
        case Join() | IntervalJoin() | TemporalJoin():
            by_input = tuple(tuple(map(_key, side)) for side in node.keys)
            condition = _expression(node.condition) if node.condition is not None else None
            return replace(node, keys=by_input, condition=condition)
        case _:
            return node


def _expression(expression: Expression) -> Expression:
    return replace(expression, sql=f"(({expression.sql}))")


def _key(key: Expression) -> Expression:
    """A key that is a column is kept as this column alone."""
    return key if key.column is not None else _expression(key)


def _item(item: Item) -> Item:
    return replace(item, expression=_expression(item.expression))


def _call(call: AggregateItem) -> AggregateItem:
    condition = _expression(call.filter) if call.filter is not None else None
    return replace(call, arguments=tuple(map(_expression, call.arguments)), filter=condition)


@contextmanager
def rewritten() -> Iterator[None]:
    """There is one more rule, which writes expressions otherwise."""

    def optimized(node: ResultSink) -> tuple[ResultSink, tuple[str, ...]]:
        plan, names = optimize(node, (*RULES, in_parentheses))
        assert isinstance(plan, ResultSink)
        return plan, names

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "optimize", optimized)
        yield
