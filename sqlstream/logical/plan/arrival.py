"""The order of arrival in plans: it decides which row comes first if rows are equal in an ORDER BY (*ties*).

The hidden column ARRIVED has the position of a row in the order of arrival. A scan has the column if an operator above needs it
to decide ties, and the nodes in between pass it on. Users never see it: a projection above the operator leaves it out.
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

# The type of ARRIVED where the elements of a list have positions of their own. Unlike HUGEINT, Parquet stores it exactly.
_FINER = "DECIMAL(38,0)"
# More rows than UNNEST makes of the rows of a batch.
_MANY = 1 << 32


def has_arrival(node: Node) -> bool:
    """Return whether the column ARRIVED is among the columns of a node."""
    return any(f.name == ARRIVED.name for f in node.schema)


def arrival_of(node: Node) -> Expression:
    """Return the column ARRIVED of a node that has it. Its type depends on the node: BIGINT, or _FINER above lists."""
    return next(Expression.of_column(f.name, f.type) for f in node.schema if f.name == ARRIVED.name)


@once
def with_arrival(node: Node) -> Node | None:
    """Return a node with ARRIVED among its columns; None if its rows have no order of arrival.

    A table of changes has an order of arrival only if it has a PRIMARY KEY. The elements of a list get consecutive positions.
    Other rows that are made from one row, such as its copies in several windows, share its position. A retraction has the
    position of the row that it retracts: Normalize and Rank, which store the current rows, store their positions, too.
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
    """Return a node whose last column is ARRIVED with this type, because a union matches columns by position."""
    column = arrival_of(node)
    if node.schema[-1] == Field(ARRIVED.name, type):
        return node
    column = column if column.type == type else _finer(column)
    return Projection(node, (*_passed(visible(node.schema)), Item(ARRIVED.name, column)))


def _by_element(node: Node) -> Node | None:
    """Return a node that makes rows from lists, with a position in ARRIVED for each element; None over a changelog.

    If an operator lies between two nodes that make rows from lists, only the elements of the lower one have own positions: the
    operator does not keep rows of one list together. Over a changelog, an element that is retracted in a later batch would get
    another position than it had.
    """
    if node.is_changelog:
        return None
    column = arrival_of(node)
    if column.type == _FINER and any(isinstance(n, StatefulNode) for n in walk(node)):
        return node
    items = _passed(node.schema)
    position = _finer(column, " + row_number() OVER ()")
    return Projection(node, tuple(Item(i.name, position) if i.name == ARRIVED.name else i for i in items))


def _finer(column: Expression, number: str = "") -> Expression:
    position = f"CAST({column.sql} AS HUGEINT)"
    # row_number() also keeps the order of elements of a list below, so the number that told those apart is dropped.
    position = f"{position} // {_MANY}" if column.type == _FINER else position
    return Expression(f"CAST({position} * {_MANY}{number} AS {_FINER})", _FINER, reads=column.reads)


def _passed(schema: Schema) -> list[Item]:
    return [Item(f.name, Expression.of_column(f.name, f.type)) for f in schema]


def decided(plans: Sequence[ResultSink]) -> list[ResultSink]:
    """Return the plans of a job in which the order of arrival decides ties, wherever rows have such an order.

    If some nodes read a scan or an operator with ARRIVED, and others without, it runs once, with ARRIVED.
    """
    rewritten = [cast(ResultSink, rebuilt(plan, _decided)) for plan in plans]
    return shared(_read_once(shared(rewritten)))


def reads_arrival(plans: Iterable[Node]) -> bool:
    """Return whether a node of the plans reads the order of arrival."""
    return any(has_arrival(node) for plan in plans for node in walk(plan))


def _decided(node: Node) -> Node:
    """Return a node that reads the order of arrival if it has ties to decide; its children must be rewritten already."""
    match node:
        case Rank() | WindowRank() | Over() | Sort() if node.has_ties and (below := with_arrival(node.input)):
            item = arrival_of(below)
            item = replace(item, sql=f"{item.sql} DESC", descends=True) if _last_first(node) else item
            ordered = replace(node, input=below, order=(*node.order, item))
            return ordered if isinstance(ordered, Rank) else without_arrival(ordered)
        case CountWindows() if node.has_ties and (below := with_arrival(node.input)):
            return without_arrival(replace(node, input=below))
        case Aggregate() | WindowAggregate() if node.has_ties and (below := with_arrival(node.input)):
            times, repeats = (
                _times(node.input),
                _repeats_positions(node.input, windowed=isinstance(node, WindowAggregate)),
            )
            position = arrival_of(below)
            calls = tuple(in_order_of_arrival(call, position, times, repeats=repeats) for call in node.aggregates)
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
            # A projection names the columns that it reads, so the one below, which only leaves ARRIVED out, is not needed.
            return replace(node, input=below.input)
        case LateRows(input=Projection() as below):
            # LateRows must be right above the operator that drops the rows; late rows do not have ARRIVED.
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
    """Return whether the order of a node ends with the order of arrival, and no two rows share a position there.

    Only rows of one key are compared and, with `windowed`, of one window.
    """
    return node.is_by_arrival and not _repeats_positions(node.input, windowed=windowed)


def _repeats_positions(node: Node, *, windowed: bool) -> bool:
    """Return whether rows of one key (with `windowed`, of one key and window) can share a position: they come from one row."""
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
    """Return whether two inputs of a union read the same table: then a row of the table is in both, with the same position."""
    scans = [n.declared for child in union.inputs for n in walk(child) if isinstance(n, Scan)]
    return any(one.is_same(other) for one, other in combinations(scans, 2))


def _has_elements(node: Node) -> bool:
    if isinstance(node, Projection):
        return any(item.expression.makes_rows for item in node.items)
    return isinstance(node, Lateral) and isinstance(node.rows, Elements)


def _last_first(node: Rank | WindowRank | Over | Sort) -> bool:
    """Return whether the latest arrival comes first among ties, because the order descends by a time column."""
    times = _times(node.input)
    directions = [item.descends for item in node.order if item.column in times]
    return bool(directions) and directions[-1]


def _times(node: Node) -> frozenset[str]:
    """Return the columns that are a time attribute or a processing time here, or were one at a node below.

    Above a window, for instance, the time of a row is no time attribute any more, but still says which row is the latest.
    """
    own = {*node.time_attributes, *node.batch_times}
    match node:
        case Scan():
            own |= {node.table.watermark.column} if node.table.watermark is not None else set()
        case Projection():
            below = _times(node.input)
            own |= {i.name for i in node.items if i.expression.column in below}
        case Union():
            positions = [{position for position, f in enumerate(i.schema) if f.name in _times(i)} for i in node.inputs]
            own |= {node.schema[position].name for position in set.intersection(*positions)}
        case SingleInput():
            own |= _times(node.input) & {f.name for f in node.schema}
        case StatefulNode() if node.passes_rows_on:
            [child] = node.children
            own |= _times(child) & {f.name for f in node.schema}
    return frozenset(own)


# -- scans and operators with several readers


def _read_once(plans: Sequence[ResultSink]) -> list[ResultSink]:
    """Replace scans and operators without ARRIVED by equal ones with ARRIVED, if the plans have such, so that each runs once."""
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
    """Return the node among `arriving`, which have ARRIVED, that equals a scan or an operator without it; None if none does."""
    if not isinstance(node, Scan | StatefulNode) or has_arrival(node):
        return None
    same = with_arrival(node)
    if isinstance(same, Scan):
        return same if any(isinstance(other, Scan) and same.is_same(other) for other in arriving) else None
    return next((other for other in arriving if other == same), None) if same is not None else None
