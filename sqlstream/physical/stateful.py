"""The operators that stateful nodes become, what bounds their state, and the views of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import assert_never

from sqlstream.catalog import Column
from sqlstream.duck.clock import reached
from sqlstream.duck.sql import quote_name
from sqlstream.logical.plan import join_nodes as joins
from sqlstream.logical.plan import nodes
from sqlstream.logical.plan.bounds import grows_by, growth, rows_kept
from sqlstream.logical.plan.explain import duration
from sqlstream.logical.plan.expressions import quote
from sqlstream.logical.plan.nodes import Node
from sqlstream.logical.plan.properties import behind, changes, processing_times, schema, time_attribute
from sqlstream.operators.aggregates.group_aggregate import GroupAggregate
from sqlstream.operators.aggregates.linear_aggregate import LinearAggregate, is_linear
from sqlstream.operators.changelog.changes import Changes
from sqlstream.operators.changelog.normalize import Normalize
from sqlstream.operators.changelog.row_changes import ChangingAggregate, Rank, SetOperation
from sqlstream.operators.joins.interval_join import IntervalJoin
from sqlstream.operators.joins.matching import Matching
from sqlstream.operators.joins.regular_join import Join
from sqlstream.operators.joins.temporal_join import TemporalJoin
from sqlstream.operators.over.over import Over
from sqlstream.operators.windows.count_windows import RowWindows
from sqlstream.operators.windows.window_operator import WindowOperator
from sqlstream.operators.windows.window_rows import Ranking
from sqlstream.physical.windows import (
    calls_of,
    event_time,
    named_keys,
    over_calls_of,
    time_sql,
    used_columns,
    window_bound,
    window_operator,
)

Operator = WindowOperator | RowWindows | Changes | Over | IntervalJoin | TemporalJoin | Join


def operator_of(node: nodes.Stateful) -> Operator:
    """Return the operator that computes a stateful node."""
    match node:
        case nodes.SessionWindow() | nodes.WindowAggregate() | nodes.WindowRank():
            return window_operator(node)
        case nodes.Normalize():
            types = {f.name: f.type for f in schema(node)}
            keys = tuple((Column(name, types[name]), quote(name)) for name in node.keys)
            return Normalize(keys, _columns(node), time_attribute(node))
        case nodes.CountWindows():
            fields = {f.name: f for f in schema(node.input)}
            row_keys = tuple((Column(k, fields[k].type), quote(k)) for k in node.keys)
            return RowWindows(row_keys, _columns(node.input), event_time(node), node.size, node.slide, node.ttl or 0)
        case nodes.Aggregate():
            keys = named_keys(tuple(k.expression for k in node.keys), [k.name for k in node.keys])
            calls = calls_of(node.aggregates)
            lasting = tuple((*["NULL"] * (len(keys) - 1), str(n)) for n in node.empty_sets) if keys else ((),)
            if changes(node.input) and all(is_linear(call) for _, call in calls):
                return LinearAggregate(keys, calls, node.ttl or 0, lasting)
            if changes(node.input):
                return ChangingAggregate(keys, used_columns(node), calls, ttl=node.ttl or 0, lasting=lasting)
            return GroupAggregate(keys, calls, node.ttl or 0, lasting)
        case nodes.Rank():
            ranking = Ranking(node.column, node.function, tuple(o.sql for o in node.order), node.limit)
            keys = named_keys(node.keys, [f"k{i}" for i in range(len(node.keys))])
            return Rank(keys, _columns(node.input), ranking, changes(node.input), node.ttl or 0)
        case nodes.SetOperation():
            keys = tuple((Column(f.name, f.type), quote(f.name)) for f in schema(node))
            side = (Column(node.side, "INTEGER"),)
            return SetOperation(keys, side, node.function, node.distinct, changes(node.input), node.ttl or 0)
        case nodes.Over() | nodes.Sort():
            return _in_order(node)
        case joins.IntervalJoin():
            left, right = (time_sql(below, time) for below, time in zip(node.inputs, node.times, strict=True))
            return IntervalJoin(_matching(node), node.kind, (left, right), node.before, node.after)
        case joins.TemporalJoin():
            left, right = (time_sql(below, time) for below, time in zip(node.inputs, node.times, strict=True))
            return TemporalJoin(_matching(node), node.kind, (left, right), changes(node.inputs[1]))
        case joins.Join():
            changing = tuple(changes(below) for below in node.inputs)
            return Join(_matching(node), node.kind, changing, tuple(ttl or 0 for ttl in node.ttls))
        case _:
            assert_never(node)


def _matching(node: nodes.Joins) -> Matching:
    keys = tuple((pair[0].type, tuple(k.sql for k in pair)) for pair in zip(*node.keys, strict=True))
    condition = node.condition.sql if node.condition else None
    return Matching(keys, tuple(_columns(below) for below in node.inputs), condition)


def _in_order(node: nodes.InOrder) -> Over:
    time, order = time_sql(node.input, node.time), tuple(o.sql for o in node.order[1:])
    by_clock = node.time in processing_times(node.input)
    columns = _columns(node.input)
    if isinstance(node, nodes.Sort):
        return Over((), columns, time, order, by_clock=by_clock, sorts=True)
    names = [k.column or f"key_{i}" for i, k in enumerate(node.keys, 1)]
    calls = over_calls_of(node.calls)
    return Over(named_keys(node.keys, names), columns, time, order, calls, by_clock, ttl=node.ttl or 0)


def _columns(node: Node) -> tuple[Column, ...]:
    return tuple(Column(f.name, f.type) for f in schema(node))


def state_bound(node: nodes.Stateful) -> str:
    """Return what bounds the state of a node, in words."""
    match node:
        case nodes.SessionWindow() | nodes.WindowAggregate() | nodes.WindowRank():
            return window_bound(node)
        case nodes.Normalize():
            return f'the number of keys of table "{node.input.table.name}"'
        case nodes.CountWindows():
            kept = f"{node.size} rows" + (" for every key" if node.keys else "")
            forgets = (
                f", which is forgotten when no row has come for it for {duration(node.ttl * 1000)}" if node.ttl else ""
            )
            return f"its size, {kept}{forgets}, and the watermark: rows wait until it has passed them"
        case nodes.Aggregate() | nodes.Rank() | nodes.SetOperation() | nodes.Over() if node.ttl:
            return f"time to live: a key is forgotten when no row has come for it for {duration(node.ttl * 1000)}"
        case nodes.Aggregate() | nodes.Rank() | nodes.SetOperation() | nodes.Over() if (
            grows := growth(node)
        ) is not None:
            return f"nothing: {grows}"
        case nodes.Over() | nodes.Sort():
            return _bound_in_order(node)
        case joins.IntervalJoin():
            stay = duration(max(node.before + node.after, node.delay))
            until = "the end of its window" if node.windowed else f"{stay} behind its time"
            return f"watermark: a row is forgotten when the watermark is at {until}"
        case joins.TemporalJoin():
            return "watermark, and the number of keys: rows wait until it has passed them, the newest version of each key stays"
        case joins.Join():
            return _bound_of_join(node)
        case nodes.Rank():
            return f"its limit: {node.limit} rows"
        case nodes.Aggregate() if not changes(node.input) or all(is_linear(c) for _, c in calls_of(node.aggregates)):
            return "the number of groups"
        case nodes.Aggregate() | nodes.SetOperation():
            return "the number of rows of the result below"
        case _:
            assert_never(node)


def _bound_of_join(node: joins.Join) -> str:
    """Return what bounds the state of a join, input by input."""
    found = []
    for place, alias in enumerate(node.aliases):
        name = alias or f"input {place + 1}"
        if ttl := node.ttls[place]:
            found.append(
                f"{name}: time to live, a key is forgotten when no row has come for it for {duration(ttl * 1000)}"
            )
        else:
            grows = grows_by(node.inputs[place])
            found.append(
                f"{name}: {'nothing, it keeps every row' if grows else 'the number of rows of the result below'}"
            )
    return "; ".join(found)


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


def side_views(node: nodes.Joins, operator: Operator) -> Iterator[tuple[str, tuple[str, tuple[tuple[str, str], ...]]]]:
    """Yield names for the inputs of a join, and the view of what is kept of each: its SELECT, and its columns."""
    assert isinstance(operator, IntervalJoin | TemporalJoin | Join)
    relations, watermark = {t.name: quote_name(t.name) for t in operator.tables}, reached(behind(node))
    for place, alias in enumerate(node.aliases):
        columns = tuple((c.name, c.type) for c in operator.view_columns(place))
        yield alias or ("left", "right")[place], (operator.view(place, relations, watermark), columns)


def state_view(node: nodes.Stateful, operator: Operator) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the view over an operator's state, and its columns.

    They are those of the node, with their current values, and for an aggregate what the select list makes of them.
    """
    relations, watermark = {t.name: quote_name(t.name) for t in operator.tables}, reached(behind(node))
    if isinstance(operator, Over | IntervalJoin | TemporalJoin | Join):
        return operator.current(relations, watermark), tuple((c.name, c.type) for c in operator.viewed)
    columns = [(f.name, f.type, quote(f.name)) for f in schema(node)]
    names = {name.lower() for name, _, _ in columns}
    if isinstance(node, nodes.WindowAggregate | nodes.Aggregate):
        # A key or a bound under a second name would say nothing new; an aggregate may be known by either.
        group = {f.name for f in schema(replace(node, aggregates=()))}
        for item in node.shown:
            if item.name.lower() not in names and item.expression.column not in group:
                columns.append((item.name, item.expression.type, item.expression.sql))
    if isinstance(operator, Changes | RowWindows):
        columns += [(c.name, c.type, c.name) for c in operator.times if c.name not in names]
    items = ", ".join(f"CAST({sql} AS {type}) AS {quote(name)}" for name, type, sql in columns)
    return f"SELECT {items} FROM ({operator.current(relations, watermark)})", tuple((n, t) for n, t, _ in columns)
