"""The order of a query's rows, by which a table with a PRIMARY KEY decides which row of a key is the last one.

The order travels with the rows, as further columns, up to the table, which stores it: so the last row does not depend on the
batches or tasks that rows go through.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from sqlstream.catalog import Column
from sqlstream.connectors.registry import sink_of, source_of
from sqlstream.duck.internal_columns import ARRIVED, internal
from sqlstream.logical.plan.arrival import with_arrival
from sqlstream.logical.plan.expressions import Expression, Item
from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.late_rows import LateRows
from sqlstream.logical.plan.lookups import LookupJoin
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.nodes import as_any_node
from sqlstream.logical.plan.process import SideOutputRead
from sqlstream.logical.plan.relational import Expand, Filter, Lateral, Projection, Union
from sqlstream.logical.plan.stateful import StatefulNode
from sqlstream.logical.plan.tables import ResultSink, Scan
from sqlstream.logical.plan.windows import TimeWindows

# The time by which rows leave an operator.
_AT = internal("at")
# The number of the path on which a row reached a table. It orders copies of one row, which arrived at the same time.
COPY = Column(internal("copy"), "BIGINT")


@dataclass(frozen=True, slots=True)
class OrderedPlan:
    """A plan with further columns: of two of its rows with equal keys, the one that is greater in them came later."""

    node: Node
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class UnknownOrder:
    """Why the order of a plan's rows is unknown, as a phrase for an error."""

    why: str


def needs_order(sink: ResultSink) -> bool:
    """Return whether a sink writes append-only rows into a table with a PRIMARY KEY that several of them may share."""
    if not sink.table.primary_key or sink.changelog_origin is not None:
        return False
    return not one_row_a_key(sink)


def one_row_a_key(sink: ResultSink) -> bool:
    """Return whether it is known that no two rows of a result share the PRIMARY KEY of the sink's table."""
    return any(_among_key(sink, names) for names in sink.input.unique_keys)


def keeps_last(sink: ResultSink) -> bool:
    """Return whether a sink's table is upserted and shows the last of several append-only rows of a key."""
    return sink_of(sink.table).replaces and needs_order(sink)


def in_order(sink: ResultSink, *, several: bool) -> OrderedPlan | UnknownOrder:
    """Return the plan below a sink with the columns of its order, or why rows of one PRIMARY KEY have no order.

    With `several`, other queries of the job write the table, too. The columns may include COPY, which is not in the plan yet: the
    caller numbers the paths of all these queries by it.
    """
    if several:
        return _by_arrival(sink.input) or UnknownOrder("several queries write it")
    ordered = _with_order(sink.input)
    if isinstance(ordered, UnknownOrder):
        return _by_arrival(sink.input) or ordered
    if ordered.columns[0].name != _AT:
        return ordered
    # Rows of one time have no order among each other.
    if any(_among_key(sink, names - {_AT}) for names in ordered.node.unique_keys):
        return ordered
    return UnknownOrder("rows of one time have no order")


def arriving(node: Node) -> OrderedPlan:
    """Return a plan with the columns of its order; the plan as it is, and no columns, if the order is unknown."""
    ordered = _with_order(node)
    return ordered if isinstance(ordered, OrderedPlan) else OrderedPlan(node, ())


def _among_key(sink: ResultSink, names: frozenset[str]) -> bool:
    """Return whether columns of a query are all stored in columns of the PRIMARY KEY."""
    pairs = zip(sink.input.schema, sink.columns, strict=True)
    stored = {own.name: target.name for own, target in pairs}
    return {stored.get(name) for name in names} <= set(sink.table.primary_key)


def _with_order(node: Node) -> OrderedPlan | UnknownOrder:
    node = as_any_node(node)
    if isinstance(node, StatefulNode):
        return _by_time(node, node.leaving_time)
    match node:
        case Scan():
            if order := source_of(node.table).order:
                return OrderedPlan(
                    replace(node, table=replace(node.table, columns=(*node.table.columns, *order))), order
                )
            return UnknownOrder(f"the rows of a batch of {node.label} have no order")
        case Filter():
            return _above(node, node.input)
        case TimeWindows() if not _makes_several(node):
            return _above(node, node.input)
        case LookupJoin() if not _makes_several(node):
            return _above(node, node.input)
        case Projection() if not _makes_several(node):
            ordered = _with_order(node.input)
            if isinstance(ordered, UnknownOrder):
                return ordered
            passed = (Item(c.name, Expression.of_column(c.name, c.type)) for c in ordered.columns)
            return OrderedPlan(Projection(ordered.node, (*node.items, *passed)), ordered.columns)
        case SideOutputRead() | LateRows():
            return UnknownOrder(f"rows leave {node.label} in no order")
        case Union():
            return UnknownOrder("UNION ALL brings the rows of its inputs in no order")
        case TimeWindows() | LookupJoin() | Projection() | Expand() | Lateral():
            return UnknownOrder("several rows that are made of one have no order")
        case ResultSink():
            raise TypeError("a sink is not below another one")
        case _:
            assert_never(node)


def _by_arrival(node: Node) -> OrderedPlan | None:
    """Return a plan with the order of arrival; None if its rows have none, or an operator would have to keep it in state.

    Of the rows that inputs of UNION ALL make of one row, the one of the last input comes last: COPY numbers them.
    """
    if any(isinstance(below, StatefulNode) or _makes_several(below) for below in walk(node)):
        return None
    ordered = with_arrival(node)
    return OrderedPlan(ordered, (ARRIVED, COPY)) if ordered is not None else None


def _makes_several(node: Node) -> bool:
    """Return whether a node may make several rows of one, which have no order."""
    match node:
        case TimeWindows():
            return node.kind != "TUMBLE"
        case LookupJoin():
            return not node.by_primary_key
        case Projection():
            return any(i.expression.makes_rows for i in node.items)
        case _:
            return isinstance(node, Expand | Lateral)


def _above(node: Filter | TimeWindows | LookupJoin, below: Node) -> OrderedPlan | UnknownOrder:
    ordered = _with_order(below)
    return (
        ordered
        if isinstance(ordered, UnknownOrder)
        else OrderedPlan(replace(node, input=ordered.node), ordered.columns)
    )


def _by_time(node: StatefulNode, time: str | None) -> OrderedPlan | UnknownOrder:
    """Return the plan of an operator with its time as column of the order, or why its rows have no order."""
    own = {f.name: f.type for f in node.schema}
    if time is None or time not in own:
        return UnknownOrder(f"rows leave {node.label} in no order")
    # It comes first, so that unique keys with the time have it under this name in the nodes above.
    items = [Item(_AT, Expression.of_column(time, own[time]))]
    items += [Item(name, Expression.of_column(name, type)) for name, type in own.items()]
    return OrderedPlan(Projection(node, tuple(items)), (Column(_AT, own[time]),))
