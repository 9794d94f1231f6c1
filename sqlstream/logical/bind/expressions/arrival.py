"""Expressions of the current time in orders and keys: a projection below computes them when a row arrives."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from sqlglot import exp

from sqlstream.errors import SourceText
from sqlstream.logical.bind.expressions.type_checker import TypeChecker
from sqlstream.logical.bind.scope import column_reference
from sqlstream.logical.plan.expressions import Dependencies, Expression, Item
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.relational import Projection
from sqlstream.sql.dialect import to_duckdb
from sqlstream.sql.spans import add_span, span_of


class ArrivalColumns:
    """Adds a column to a plan for every different expression, in orders and keys above it, that reads the clock."""

    def __init__(self, node: Node, checker: TypeChecker, source: SourceText):
        self._below, self._checker, self._source = node, checker, source
        self._items: dict[str, Item] = {}

    @property
    def node(self) -> Node:
        """The plan with a projection that adds the columns; the plan itself if there are none."""
        if not self._items:
            return self._below
        own = (Item(f.name, Expression.of_column(f.name, f.type)) for f in self._below.schema)
        return Projection(self._below, (*own, *self._items.values()))

    def of(self, parts: Sequence[exp.Expr]) -> tuple[exp.Expr, ...]:
        """Return bound expressions, or items of ORDER BY; a column replaces each expression that reads the clock."""
        return tuple(map(self._of, parts))

    def _of(self, part: exp.Expr) -> exp.Expr:
        value = part.this if isinstance(part, exp.Ordered) else part
        if not Dependencies.of(value).clock:
            return part
        sql = to_duckdb(value)
        if sql not in self._items:
            fields = self._below.schema
            names = {f.name.lower() for f in fields} | {i.name for i in self._items.values()}
            name = next(n for i in count(1) if (n := f"_time_{i}") not in names)
            type = self._checker.type(fields, value, self._source)
            self._items[sql] = Item(name, Expression.of(value, type, span_of(value, self._source)))
        column = column_reference(self._items[sql].name)
        span = span_of(value, self._source)
        add_span(column, span.start, span.end - 1)
        if not isinstance(part, exp.Ordered):
            return column
        ordered = part.copy()
        ordered.set("this", column)
        return ordered
