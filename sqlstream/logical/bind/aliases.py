"""Names of relations and of their columns: `AS t(a, b)`, a query of WITH, a view."""

from __future__ import annotations

from collections.abc import Collection

from sqlglot import exp

from sqlstream.errors import BindError, SourceText, Span
from sqlstream.logical.bind.scope import unique
from sqlstream.logical.plan.expressions import Expression, Item
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.relational import Filter, Lateral, Projection
from sqlstream.logical.plan.stateful import StatefulNode
from sqlstream.sql.spans import span_of


def with_name(node: Node, name: str, below: Collection[Node] = ()) -> Node:
    """Name the topmost stateful operator of a relation; only filters, projections and LATERAL may be above it.

    An operator that is read through SIDE_OUTPUT or LATE_ROWS is not renamed: the query of its result names it. The nodes `below`,
    and all nodes under these, are not renamed either.
    """
    if any(node is n for n in below):
        return node
    if isinstance(node, StatefulNode):
        return node.named(name)
    if isinstance(node, Filter | Projection | Lateral):
        return node.with_children((with_name(node.input, name, below),))
    return node


def with_alias(node: Node, alias: exp.Expr | None, source: SourceText, hidden: int = 0) -> Node:
    """Return a relation with the column names of `AS t(a, b)`; `hidden` is how many of its last columns have none.

    Raises BindError for too many names.
    """
    names = [c.name for c in alias.args.get("columns") or ()] if alias is not None else []
    return with_columns(node, names, span_of(alias, source), hidden) if names and alias is not None else node


def with_columns(node: Node, names: list[str], span: Span, hidden: int = 0) -> Node:
    """Return a relation whose first columns have the names `names`, and its last ones, `hidden`, their own.

    Raises BindError for too many names.
    """
    fields = node.schema
    shown = len(fields) - hidden
    if len(names) > shown:
        columns = "1 column" if shown == 1 else f"{shown} columns"
        raise BindError(f"{len(names)} names are given for {columns}", span)
    output_names = unique([*names, *(f.name for f in fields[len(names) :])])
    columns_of = (Expression.of_column(f.name, f.type, span) for f in fields)
    return Projection(node, tuple(Item(name, column) for name, column in zip(output_names, columns_of, strict=True)))
