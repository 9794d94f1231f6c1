"""The order of arrival in plans: rows that no other order tells apart are in the order in which they came.

The hidden column ARRIVED says when a row came. Scans of append-only tables have it if an operator above asks for it, and the
nodes between pass it on. Nobody sees it: a projection above the operator leaves it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import assert_never, cast

from sqlstream.duck.internal_columns import ARRIVED
from sqlstream.logical.plan.aggregates import Aggregate, WindowAggregate
from sqlstream.logical.plan.arrival_calls import in_order_of_arrival
from sqlstream.logical.plan.count_windows import CountWindows
from sqlstream.logical.plan.expressions import Expression, Field, Item, Schema, visible
from sqlstream.logical.plan.graph import once, rebuilt, shared, walk
from sqlstream.logical.plan.joins import TemporalJoin
from sqlstream.logical.plan.late_rows import LateRows
from sqlstream.logical.plan.lookups import LookupJoin
from sqlstream.logical.plan.node import Node, SingleInput
from sqlstream.logical.plan.nodes import as_any_node
from sqlstream.logical.plan.over import Over, Sort
from sqlstream.logical.plan.process import Process, SideOutputRead
from sqlstream.logical.plan.ranks import Rank, WindowRank
from sqlstream.logical.plan.relational import Elements, Expand, Filter, Lateral, Projection, Union
from sqlstream.logical.plan.stateful import StatefulNode
from sqlstream.logical.plan.tables import ResultSink, Scan
from sqlstream.logical.plan.windows import TimeWindows

# The type of ARRIVED where it tells the elements of a list apart, too. Parquet has it exactly, which it has no HUGEINT.
_FINER = "DECIMAL(38,0)"
# More rows than UNNEST makes of the rows of a batch.
_MANY = 1 << 32


def has_arrival(node: Node) -> bool:
    """Return whether the column ARRIVED is among the columns of a node."""
    return any(f.name == ARRIVED.name for f in node.schema)


def arrival_of(node: Node) -> Expression:
    """Return the column ARRIVED of a node that has it, with its type, which is not the same everywhere."""
    return next(Expression.of_column(f.name, f.type) for f in node.schema if f.name == ARRIVED.name)


@once
def with_arrival(node: Node) -> Node | None:
    """Return a node with ARRIVED among its columns; None if its rows have no order of arrival.

    Changes of a table have it if the table has a PRIMARY KEY: then an operator keeps the current rows.

    The elements of a list come one after the other; other rows that are made of one row, such as its copies in several windows,
    have the same place in that order. Where rows change, a row is taken back with the place that it has come with: the operators
    that keep the current rows, Normalize and Rank, keep their places.
    """
    if has_arrival(node):
        return node
    node = as_any_node(node)
    match node:
        case Scan():
            if node.is_changelog and not node.table.primary_key:
                return None
            return replace(node, table=replace(node.table, columns=(*node.table.columns, ARRIVED)))
        case Projection():
            below = with_arrival(node.input)
            if below is None:
                return None
            projected = Projection(below, (*node.items, Item(ARRIVED.name, arrival_of(below))))
            return _by_element(projected) if any(i.expression.makes_rows for i in node.items) else projected
        case Union():
            inputs = [child for child in map(with_arrival, node.inputs) if child is not None]
            if len(inputs) < len(node.inputs):
                return None
            type = max((arrival_of(child).type for child in inputs), key=lambda type: type == _FINER)
            return Union(tuple(_last(child, type) for child in inputs))
        case Lateral(rows=Elements()):
            below = with_arrival(node.input)
            return _by_element(replace(node, input=below)) if below is not None else None
        case Filter() | TimeWindows() | LookupJoin() | Expand() | Lateral():
            below = with_arrival(node.input)
            return replace(node, input=below) if below is not None else None
        case StatefulNode():
            [*_, input] = node.children
            below = with_arrival(input) if node.passes_rows_on else None
            return node.passing_arrival(below) if below is not None else None
        case SideOutputRead() | LateRows():
            return None
        case ResultSink():
            raise TypeError("a sink has no rows")
        case _:
            assert_never(node)


def _last(node: Node, type: str) -> Node:
    """Return a node with ARRIVED of a type as its last column: the inputs of a union have their columns at the same places."""
    column = arrival_of(node)
    if node.schema[-1] == Field(ARRIVED.name, type):
        return node
    column = column if column.type == type else _finer(column)
    return Projection(node, (*_passed(visible(node.schema)), Item(ARRIVED.name, column)))


def _by_element(node: Node) -> Node | None:
    """Return a node, whose rows are in the order of its input, with an ARRIVED that tells rows apart that are made of one row.

    Of lists within lists, the elements of the outer ones only, if an operator is between: its rows are not together any more.
    None over rows that change: an element is taken back in another batch, and would have another number.
    """
    if node.is_changelog:
        return None
    column = arrival_of(node)
    if column.type == _FINER and any(isinstance(n, StatefulNode) for n in walk(node)):
        return node
    items = _passed(node.schema)
    place = _finer(column, " + row_number() OVER ()")
    return Projection(node, tuple(Item(i.name, place) if i.name == ARRIVED.name else i for i in items))


def _finer(column: Expression, number: str = "") -> Expression:
    place = f"CAST({column.sql} AS HUGEINT)"
    # The numbers of elements of outer lists are in the order of those of inner ones.
    place = f"{place} // {_MANY}" if column.type == _FINER else place
    return Expression(f"CAST({place} * {_MANY}{number} AS {_FINER})", _FINER, reads=column.reads)


def _passed(schema: Schema) -> list[Item]:
    return [Item(f.name, Expression.of_column(f.name, f.type)) for f in schema]


def decided(plans: Sequence[ResultSink]) -> list[ResultSink]:
    """Return the plans of a job in which rows that are equal in an order are in the order of arrival, where they have one.

    A scan or an operator whose rows some need with ARRIVED, and others without it, runs once.
    """
    rewritten = [cast(ResultSink, rebuilt(plan, _decided)) for plan in plans]
    return shared(_read_once(shared(rewritten)))


def reads_arrival(plans: Iterable[Node]) -> bool:
    """Return whether the order of arrival decides anything in plans."""
    return any(has_arrival(node) for plan in plans for node in walk(plan))


def _decided(node: Node) -> Node:
    """Return a node that reads the order of arrival if it has ties to decide, above nodes that have been rewritten already."""
    match node:
        case Rank() | WindowRank() | Over() | Sort() if node.has_ties and (below := with_arrival(node.input)):
            item = arrival_of(below)
            item = replace(item, sql=f"{item.sql} DESC", descends=True) if _last_first(node) else item
            ordered = replace(node, input=below, order=(*node.order, item))
            return ordered if isinstance(ordered, Rank) else without_arrival(ordered)
        case CountWindows() if node.has_ties and (below := with_arrival(node.input)):
            return without_arrival(replace(node, input=below))
        case Aggregate() | WindowAggregate() if node.has_ties and (below := with_arrival(node.input)):
            times, repeats = _times(node.input), _repeats_places(node.input, windowed=isinstance(node, WindowAggregate))
            place = arrival_of(below)
            calls = tuple(in_order_of_arrival(call, place, times, repeats=repeats) for call in node.aggregates)
            return replace(node, input=below, aggregates=calls)
        case TemporalJoin() if not node.inputs[1].is_changelog and node.late_reads is None:
            rows, versions = node.inputs
            if versions.covers_key((*(k.column or "" for k in node.keys[1]), node.times[1])):
                return node
            below = with_arrival(versions)
            # Both inputs cannot have it: no two columns of a join have the same name.
            return node if below is None else without_arrival(replace(node, inputs=(without_arrival(rows), below)))
        case Process():
            # Rows of a key reach the function in the order of arrival, or are in it if the function's ORDER BY leaves them equal.
            # Changes reach it in the order of the changes.
            return replace(node, inputs=tuple(map(_arriving, node.inputs)))
        case Projection(input=Projection() as below) if below == without_arrival(below.input) is not below.input:
            # It names the columns that it reads: what leaves ARRIVED out is not needed below it.
            return replace(node, input=below.input)
        case LateRows(input=Projection() as below):
            # The operator itself is what drops the rows; its late rows are without ARRIVED.
            return replace(node, input=below.input)
        case _:
            return node


def _arriving(node: Node) -> Node:
    return node if node.is_changelog else with_arrival(node) or node


def without_arrival(node: Node) -> Node:
    """Return a node without ARRIVED, by a projection above it; the node itself if it does not have it."""
    if not has_arrival(node):
        return node
    return Projection(node, tuple(_passed(visible(node.schema))))


# -- where there are ties


def has_total_order(node: Rank | WindowRank | Over | Sort, *, windowed: bool = False) -> bool:
    """Return whether no two rows of a key, and window if it is `windowed`, are equal in an order that ends with their places."""
    return node.is_by_arrival and not _repeats_places(node.input, windowed=windowed)


def _repeats_places(node: Node, *, windowed: bool) -> bool:
    """Return whether rows of one key, and window if it is `windowed`, can have the same place: they are made of one row."""
    below = list(walk(node))
    copied = sum(n.overlap is not None and n.overlap.windows > 1 for n in below)
    # A row is once in the windows by which an aggregate groups, and ARRIVED tells the elements of one list apart.
    return (
        copied > windowed
        or (sum(map(_has_elements, below)) > 1 and any(isinstance(n, StatefulNode) for n in below))
        or any(isinstance(n, LookupJoin | Lateral) and not _has_elements(n) for n in below)
        or any(isinstance(n, Union) and _reads_twice(n) for n in below)
    )


def _reads_twice(union: Union) -> bool:
    """Return whether two inputs of a union read the same table: a row of it is then in both of them, with one place."""
    scans = [n.declared for child in union.inputs for n in walk(child) if isinstance(n, Scan)]
    return any(one.is_same(other) for one, other in combinations(scans, 2))


def _has_elements(node: Node) -> bool:
    if isinstance(node, Projection):
        return any(item.expression.makes_rows for item in node.items)
    return isinstance(node, Lateral) and isinstance(node.rows, Elements)


def _last_first(node: Rank | WindowRank | Over | Sort) -> bool:
    """Return whether the row that came last is the first of equal rows: its order asks for the latest time first."""
    times = _times(node.input)
    directions = [item.descends for item in node.order if item.column in times]
    return bool(directions) and directions[-1]


def _times(node: Node) -> frozenset[str]:
    """Return the columns that are, or below were, a time attribute or the processing time of a batch.

    In a window, the time of rows is no time attribute any more, but it still says which row is the latest one.
    """
    own = {*node.time_attributes, *node.batch_times}
    match node:
        case Scan():
            own |= {node.table.watermark.column} if node.table.watermark is not None else set()
        case Projection():
            below = _times(node.input)
            own |= {i.name for i in node.items if i.expression.column in below}
        case Union():
            places = [{place for place, f in enumerate(i.schema) if f.name in _times(i)} for i in node.inputs]
            own |= {node.schema[place].name for place in set.intersection(*places)}
        case SingleInput():
            own |= _times(node.input) & {f.name for f in node.schema}
        case StatefulNode() if node.passes_rows_on:
            [child] = node.children
            own |= _times(child) & {f.name for f in node.schema}
    return frozenset(own)


# -- scans and operators with several readers


def _read_once(plans: Sequence[ResultSink]) -> list[ResultSink]:
    """Let those that need rows without ARRIVED read the scan, or the operator, that others need with it."""
    nodes = list({id(node): node for plan in plans for node in walk(plan)}.values())
    arriving = [n for n in nodes if isinstance(n, Scan | StatefulNode) and has_arrival(n)]
    results: dict[int, Node] = {}

    def visit(node: Node) -> Node:
        if id(node) not in results:
            other = _same_with_arrival(node, arriving)
            results[id(node)] = (
                without_arrival(other)
                if other is not None
                else _decided(node.with_children(tuple(map(visit, node.children))))
                if isinstance(node, LateRows)
                else node.with_children(tuple(map(visit, node.children)))
            )
        return results[id(node)]

    return [cast(ResultSink, visit(plan)) for plan in plans] if arriving else list(plans)


def _same_with_arrival(node: Node, arriving: Sequence[Node]) -> Node | None:
    """Return which of the nodes with ARRIVED does the same as a node without it; None if none does."""
    if not isinstance(node, Scan | StatefulNode) or has_arrival(node):
        return None
    same = with_arrival(node)
    if isinstance(same, Scan):
        return same if any(isinstance(other, Scan) and same.is_same(other) for other in arriving) else None
    return next((other for other in arriving if other == same), None) if same is not None else None
