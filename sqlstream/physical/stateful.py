"""The operators that stateful nodes become, what bounds their state, and the views of it."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from sqlstream.catalog import Column
from sqlstream.logical import nodes
from sqlstream.logical.bounds import growth
from sqlstream.logical.nodes import Node, quote
from sqlstream.logical.properties import changes, schema
from sqlstream.operators.changes import Changes
from sqlstream.operators.group_aggregate import GroupAggregate
from sqlstream.operators.row_changes import ChangingAggregate, Rank, SetOperation
from sqlstream.operators.row_windows import RowWindows
from sqlstream.operators.window_operator import WindowOperator
from sqlstream.operators.window_rows import Ranking
from sqlstream.physical.windows import calls_of, event_time, named_keys, window_bound, window_operator


def operator_of(node: nodes.Stateful) -> WindowOperator | RowWindows | Changes:
    """Return the operator that computes a stateful node."""
    match node:
        case nodes.Session() | nodes.WindowAggregate() | nodes.WindowRank():
            return window_operator(node)
        case nodes.RowWindows():
            fields = {f.name: f for f in schema(node.input)}
            row_keys = tuple((Column(k, fields[k].type), quote(k)) for k in node.keys)
            return RowWindows(row_keys, _columns(node.input), event_time(node), node.size, node.slide)
        case nodes.Aggregate():
            keys = named_keys(tuple(k.expression for k in node.keys), [k.name for k in node.keys])
            calls = calls_of(node.aggregates)
            if changes(node.input):
                return ChangingAggregate(keys, _used(node), calls)
            return GroupAggregate(keys, calls)
        case nodes.Rank():
            ranking = Ranking(node.column, node.function, tuple(o.sql for o in node.order), node.limit)
            keys = named_keys(node.keys, [f"k{i}" for i in range(len(node.keys))])
            return Rank(keys, _columns(node.input), ranking, changes(node.input))
        case nodes.SetOperation():
            keys = tuple((Column(f.name, f.type), quote(f.name)) for f in schema(node))
            side = (Column(node.side, "INTEGER"),)
            return SetOperation(keys, side, node.function, node.distinct, changes(node.input))
        case _:
            assert_never(node)


def _columns(node: Node) -> tuple[Column, ...]:
    return tuple(Column(f.name, f.type) for f in schema(node))


def _used(node: nodes.Aggregate) -> tuple[Column, ...]:
    """Return the columns of the input that an aggregate's keys and calls name, at least one."""
    expressions = [k.expression.sql for k in node.keys] + [e.sql for a in node.aggregates for e in a.expressions]
    columns = _columns(node.input)
    return tuple(c for c in columns if any(quote(c.name) in sql for sql in expressions)) or columns[:1]


def state_bound(node: nodes.Stateful) -> str:
    """Return what bounds the state of a node, in words."""
    match node:
        case nodes.Session() | nodes.WindowAggregate() | nodes.WindowRank():
            return window_bound(node)
        case nodes.RowWindows():
            kept = f"{node.size} rows" + (" for every key" if node.keys else "")
            return f"its size, {kept}, and the watermark: rows wait until it has passed them"
        case nodes.Aggregate() | nodes.Rank() | nodes.SetOperation() if (grows := growth(node)) is not None:
            return f"nothing: {grows}"
        case nodes.Rank():
            return f"its limit: {node.limit} rows"
        case nodes.Aggregate() | nodes.SetOperation():
            return "the number of groups" if not changes(node.input) else "the number of rows of the result below"
        case _:
            assert_never(node)


def state_view(
    node: nodes.Stateful, operator: WindowOperator | RowWindows | Changes
) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the view over an operator's state, and its columns.

    They are those of the node, with their current values, and for an aggregate what the select list makes of them.
    """
    relations = {t.name: "{" + t.name + "}" for t in operator.tables}
    columns = [(f.name, f.type, quote(f.name)) for f in schema(node)]
    names = {name.lower() for name, _, _ in columns}
    if isinstance(node, nodes.WindowAggregate | nodes.Aggregate):
        # A key or a bound under a second name would say nothing new; an aggregate may be known by either.
        group = {quote(f.name) for f in schema(replace(node, aggregates=()))}
        for item in node.shown:
            if item.name.lower() not in names and item.expression.sql not in group:
                columns.append((item.name, item.expression.type, item.expression.sql))
    items = ", ".join(f"CAST({sql} AS {type}) AS {quote(name)}" for name, type, sql in columns)
    return f"SELECT {items} FROM ({operator.current(relations)})", tuple((n, t) for n, t, _ in columns)
