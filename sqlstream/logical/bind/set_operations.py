"""UNION, INTERSECT and EXCEPT over bound inputs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Literal

from sqlglot import exp

from sqlstream.errors import BindError, Span
from sqlstream.logical.bind.assignment import assignable
from sqlstream.logical.bind.expressions.type_checker import TypeChecker
from sqlstream.logical.plan.aggregates import Aggregate
from sqlstream.logical.plan.expressions import Expression, Field, Item
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.relational import Filter, Projection, SetOperation, Union


def distinct_rows(node: Node, span: Span) -> Aggregate:
    """Return DISTINCT above a plan: an aggregate by all columns, without calls."""
    return Aggregate(
        node, "", tuple(Item(f.name, Expression.of_column(f.name, f.type)) for f in node.schema), (), span=span
    )


def of_both_sides(
    sides: Sequence[Node], function: Literal["intersect", "except"], distinct: bool, span: Span
) -> SetOperation:
    """Return INTERSECT or EXCEPT of two inputs with columns of the same types, above a union that marks the side of each row."""
    fields = sides[0].schema
    side = next(n for i in count(1) if (n := f"_side_{i}") not in {f.name for f in fields})
    marked = []
    for number, node in enumerate(sides):
        items = [Item(f.name, Expression.of_column(o.name, f.type)) for f, o in zip(fields, node.schema, strict=True)]
        marked.append(
            Projection(node, (*items, Item(side, Expression.over((), f"CAST({number} AS INTEGER)", "INTEGER"))))
        )
    return SetOperation(Union(tuple(marked)), "", function, side, distinct, span=span)


def alike(inputs: Sequence[Node], name: str, span: Span, checker: TypeChecker) -> tuple[Node, ...]:
    """Cast the columns of inputs to common types, by position.

    `name` is the name of the operation in errors. Raises BindError if the numbers of columns differ, or types have no common one.
    """
    first = inputs[0].schema
    for node in inputs[1:]:
        if len(node.schema) != len(first):
            spans = [span_of_column(node, index) for index in (0, len(node.schema) - 1)]
            at = spans[0].to(spans[1]) if spans[0] and spans[1] else span
            raise BindError(f"the inputs of {name} have {len(first)} and {len(node.schema)} columns", at)
    types = checker.union_types([n.schema for n in inputs])
    if types is None:
        raise BindError(f"the columns of {name} have types that do not fit", span)
    for index, (field, type) in enumerate(zip(first, types, strict=True)):
        column_types = list(dict.fromkeys(node.schema[index].type for node in inputs))
        if not all(assignable(t, type) for t in column_types):
            other = next(node for node in inputs if node.schema[index].type != column_types[0])
            raise BindError(
                f'column "{field.name}" of {name} is {" and ".join(column_types)}',
                span_of_column(other, index) or span,
                hint="Convert it in one of the queries, with CAST.",
            )
    fields = tuple(Field(f.name, t) for f, t in zip(first, types, strict=True))
    return tuple(_cast_to(node, fields) for node in inputs)


def span_of_column(node: Node, index: int) -> Span | None:
    """Return the position in the text of the expression of an output column, counted from 0; None if it is not known."""
    match node:
        case Projection():
            return node.items[index].expression.span
        case Filter():
            return span_of_column(node.input, index)
        case Union():
            return span_of_column(node.inputs[0], index)
        case _:
            return None


def sides_of(query: exp.Expr) -> list[exp.Expr]:
    """Return the inputs of a left-deep chain of UNION ALL, without recursion: a chain can have thousands."""
    sides: list[exp.Expr] = []
    while isinstance(query, exp.Union) and query.args.get("distinct") is False and not _has_modifiers(query):
        sides.append(query.expression)
        query = query.this
    return [query, *reversed(sides)]


def _has_modifiers(query: exp.Union) -> bool:
    return any(query.args.get(key) for key in ("order", "limit", "offset", "by_name"))


def _cast_to(node: Node, fields: tuple[Field, ...]) -> Node:
    own = node.schema
    if all(f.type == w.type for f, w in zip(own, fields, strict=True)):
        return node
    items = []
    for f, w in zip(own, fields, strict=True):
        items.append(Item(f.name, Expression.of_column(f.name, f.type).cast(w.type)))
    return Projection(node, tuple(items))
