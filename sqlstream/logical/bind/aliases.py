"""The names that a query gives to a relation and to its columns: `AS t(a, b)`, a query of WITH, a view."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from sqlglot import exp

from sqlstream.errors import BindError, SourceText, Span
from sqlstream.logical.bind.scope import unique
from sqlstream.logical.plan.aggregates import Aggregate, WindowAggregate
from sqlstream.logical.plan.expressions import Expression, Item
from sqlstream.logical.plan.joins import Joining, LookupJoin
from sqlstream.logical.plan.late_rows import LateRows
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.nodes import closed
from sqlstream.logical.plan.over import Over, Sort
from sqlstream.logical.plan.process import Process, SideOutputRead
from sqlstream.logical.plan.ranks import Rank, WindowRank
from sqlstream.logical.plan.relational import Expand, Filter, Lateral, Projection, SetOperation, Union
from sqlstream.logical.plan.tables import Normalize, ResultSink, Scan
from sqlstream.logical.plan.windows import CountWindows, SessionWindow, TimeWindows
from sqlstream.sql.spans import span_of


def with_name(node: Node, name: str) -> Node:
    """Give a name to the topmost stateful operator of a relation (filters and projections may lie above it).

    A table of changes, and rows that are sorted, keep the names that they have.
    """
    node = closed(node)
    match node:
        case SessionWindow() | CountWindows() | WindowAggregate() | WindowRank():
            return replace(node, name=name) if name and not node.name else node
        case Aggregate() | Rank() | SetOperation() | Over() | Joining() | Process():
            return replace(node, name=name) if name and not node.name else node
        case Filter() | Projection() | Lateral():
            return node.with_children((with_name(node.input, name),))
        case Scan() | Normalize() | TimeWindows() | Expand() | LookupJoin() | Union() | Sort() | ResultSink():
            return node
        case SideOutputRead() | LateRows():
            # The operator has the name of what emits its other rows.
            return node
        case _:
            assert_never(node)


def with_alias(node: Node, alias: exp.Expr | None, source: SourceText) -> Node:
    """Apply the column names of `AS t(a, b)`."""
    names = [c.name for c in alias.args.get("columns") or ()] if alias is not None else []
    return with_columns(node, names, span_of(alias, source)) if names and alias is not None else node


def with_columns(node: Node, names: list[str], span: Span) -> Node:
    """Return a relation whose first columns have other names."""
    fields = node.schema
    if len(names) > len(fields):
        columns = "1 column" if len(fields) == 1 else f"{len(fields)} columns"
        raise BindError(f"{len(names)} names are given for {columns}", span)
    given = unique([*names, *(f.name for f in fields[len(names) :])])
    columns_of = (Expression.of_column(f.name, f.type, span) for f in fields)
    return Projection(node, tuple(Item(name, column) for name, column in zip(given, columns_of, strict=True)))
