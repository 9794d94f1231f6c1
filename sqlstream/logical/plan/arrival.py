"""The order of arrival in plans: rows that no other order tells apart are in the order in which they came.

The hidden column ARRIVED says when a row came. Scans of append-only tables have it if an operator above asks for it, and the
nodes between pass it on. Nobody sees it: a projection above the operator leaves it out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from sqlstream.duck.internal_columns import ARRIVED
from sqlstream.logical.plan.aggregates import Aggregate, WindowAggregate
from sqlstream.logical.plan.expressions import Expression, Field, Item
from sqlstream.logical.plan.graph import once
from sqlstream.logical.plan.joins import IntervalJoin, Join, TemporalJoin
from sqlstream.logical.plan.late_rows import LateRows
from sqlstream.logical.plan.lookups import LookupJoin
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.nodes import as_any_node
from sqlstream.logical.plan.over import Over, Sort
from sqlstream.logical.plan.process import Process, SideOutputRead
from sqlstream.logical.plan.ranks import Rank, WindowRank
from sqlstream.logical.plan.relational import Expand, Filter, Lateral, Projection, SetOperation, Union
from sqlstream.logical.plan.tables import Normalize, ResultSink, Scan
from sqlstream.logical.plan.windows import CountWindows, SessionWindow, TimeWindows

_FIELD = Field(ARRIVED.name, ARRIVED.type)
_COLUMN = Expression.of_column(ARRIVED.name, ARRIVED.type)


def has_arrival(node: Node) -> bool:
    """Return whether the column ARRIVED is among the columns of a node."""
    return _FIELD in node.schema


@once
def with_arrival(node: Node) -> Node | None:
    """Return a node with ARRIVED among its columns; None if its rows have no order of arrival.

    All rows that are made of one row, such as its copies in several windows, have the same place in that order.
    """
    if has_arrival(node):
        return node
    node = as_any_node(node)
    match node:
        case Scan():
            if node.is_changelog:
                return None
            return replace(node, table=replace(node.table, columns=(*node.table.columns, ARRIVED)))
        case Projection():
            below = with_arrival(node.input)
            return Projection(below, (*node.items, Item(ARRIVED.name, _COLUMN))) if below is not None else None
        case Union():
            inputs = [with_arrival(child) for child in node.inputs]
            return Union(tuple(_last(child) for child in inputs if child is not None)) if None not in inputs else None
        case Filter() | TimeWindows() | LookupJoin() | Expand() | Lateral():
            below = with_arrival(node.input)
            return replace(node, input=below) if below is not None else None
        case SessionWindow() | CountWindows() | WindowRank() | Over() | Sort():
            # Their rows are rows of the input.
            below = with_arrival(node.input)
            return replace(node, input=below) if below is not None else None
        case Aggregate() | WindowAggregate() | Rank() | SetOperation() | Normalize():
            return None
        case Join() | IntervalJoin() | TemporalJoin() | Process() | SideOutputRead() | LateRows():
            return None
        case ResultSink():
            raise TypeError("a sink has no rows")
        case _:
            assert_never(node)


def _last(node: Node) -> Node:
    """Return a node with ARRIVED as its last column: the inputs of a union have their columns at the same places."""
    if node.schema[-1] == _FIELD:
        return node
    others = (Item(f.name, Expression.of_column(f.name, f.type)) for f in node.schema if f != _FIELD)
    return Projection(node, (*others, Item(ARRIVED.name, _COLUMN)))
