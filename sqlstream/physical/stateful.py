"""The operators that stateful nodes become, what bounds their state, and the views of it."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from sqlstream.catalog import Column
from sqlstream.logical import nodes
from sqlstream.logical.bounds import growth, rows_kept
from sqlstream.logical.nodes import Node, quote
from sqlstream.logical.properties import changes, processing_times, schema
from sqlstream.operators.changes import Changes
from sqlstream.operators.group_aggregate import GroupAggregate
from sqlstream.operators.over import Over
from sqlstream.operators.row_changes import ChangingAggregate, Rank, SetOperation
from sqlstream.operators.window_operator import WindowOperator
from sqlstream.operators.window_rows import Ranking
from sqlstream.physical.windows import calls_of, named_keys, over_calls_of, time_sql, window_bound, window_operator


def operator_of(node: nodes.Stateful) -> WindowOperator | Changes | Over:
    """Return the operator that computes a stateful node."""
    match node:
        case nodes.Session() | nodes.WindowAggregate() | nodes.WindowRank():
            return window_operator(node)
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
        case nodes.Over() | nodes.Sort():
            return _in_order(node)
        case _:
            assert_never(node)


def _in_order(node: nodes.InOrder) -> Over:
    time, order = time_sql(node.input, node.time), tuple(o.sql for o in node.order[1:])
    by_clock = node.time in processing_times(node.input)
    columns = _columns(node.input)
    if isinstance(node, nodes.Sort):
        return Over((), columns, time, order, by_clock=by_clock, sorts=True)
    own = {quote(c.name): c.name for c in columns}
    names = [own.get(k.sql, f"key_{i}") for i, k in enumerate(node.keys, 1)]
    return Over(named_keys(node.keys, names), columns, time, order, over_calls_of(node.calls), by_clock)


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
        case nodes.Aggregate() | nodes.Rank() | nodes.SetOperation() | nodes.Over() if (
            grows := growth(node)
        ) is not None:
            return f"nothing: {grows}"
        case nodes.Over() | nodes.Sort():
            return _bound_in_order(node)
        case nodes.Rank():
            return f"its limit: {node.limit} rows"
        case nodes.Aggregate() | nodes.SetOperation():
            return "the number of groups" if not changes(node.input) else "the number of rows of the result below"
        case _:
            assert_never(node)


def _bound_in_order(node: nodes.InOrder) -> str:
    """Return what bounds the state of a node whose state does not grow with its input."""
    frames = [c.frame for c in node.calls] if isinstance(node, nodes.Over) else []
    span = max((f.preceding or 0 for f in frames if f.mode == "range"), default=0)
    by_clock = node.time in processing_times(node.input)
    waits = "the batch: a row leaves at once" if by_clock else "watermark: a row leaves when the watermark passes it"
    later = max((f.following for f in frames if f.mode == "range"), default=0)
    if later:
        waits = f"watermark: a row leaves when the watermark is {later / 1_000_000:g} s beyond it"
    kept = [f"rows stay for {(span + later) / 1_000_000:g} s"] if span else []
    if isinstance(node, nodes.Over) and (rows := rows_kept(node)):
        kept.append(f"{rows} row{'' if rows == 1 else 's'} of each key stay{'s' if rows == 1 else ''}")
    return ", ".join([waits, *kept])


def state_view(
    node: nodes.Stateful, operator: WindowOperator | Changes | Over
) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the view over an operator's state, and its columns.

    They are those of the node, with their current values, and for an aggregate what the select list makes of them.
    """
    relations = {t.name: "{" + t.name + "}" for t in operator.tables}
    if isinstance(operator, Over):
        return operator.current(relations), tuple((c.name, c.type) for c in operator.viewed)
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
