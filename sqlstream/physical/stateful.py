"""The operators that stateful nodes become, what bounds their state, and the views of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import assert_never

from msgspec import structs

from sqlstream.catalog import Column
from sqlstream.duck.clock import reached
from sqlstream.duck.sql import Rows, quote_name
from sqlstream.errors import UnsupportedError
from sqlstream.functions import types
from sqlstream.logical.bind.hints import can_forget
from sqlstream.logical.plan import joins, over, ranks, relational, tables
from sqlstream.logical.plan.aggregates import Aggregate, WindowAggregate
from sqlstream.logical.plan.expressions import Expression
from sqlstream.logical.plan.late_rows import Dropping
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.nodes import InOrder, Joins, Stateful
from sqlstream.logical.plan.over import Sort
from sqlstream.logical.plan.process import Process
from sqlstream.logical.plan.ranks import WindowRank
from sqlstream.logical.plan.windows import CountWindows, SessionWindow, bound_of_sessions
from sqlstream.operators.aggregates.group_aggregate import MergedAggregates
from sqlstream.operators.aggregates.retracted_aggregates import RetractedAggregates, can_retract
from sqlstream.operators.changelog.changelog_operator import ChangelogOperator
from sqlstream.operators.changelog.kept_rows import KeptRows
from sqlstream.operators.changelog.last_rows import LastRows
from sqlstream.operators.changelog.results import ChangingResult
from sqlstream.operators.changelog.row_results import RankedRows, RecomputedAggregates, SetRows
from sqlstream.operators.joins.interval_join import IntervalJoinOperator
from sqlstream.operators.joins.matching import Matching
from sqlstream.operators.joins.regular_join import RegularJoin
from sqlstream.operators.joins.temporal_join import TemporalJoinOperator
from sqlstream.operators.keys import Keys
from sqlstream.operators.operator import Operator
from sqlstream.operators.over.over import OverOperator
from sqlstream.operators.process.operator import InputPlan, ProcessOperator
from sqlstream.operators.windows.count_windows import CountWindowOperator
from sqlstream.operators.windows.window_rows import Ranking
from sqlstream.physical.row_order import Ordered, arriving
from sqlstream.physical.windows import (
    calls_of,
    event_time,
    made_above,
    named_keys,
    over_calls_of,
    time_sql,
    used_columns,
    window_operator,
)
from sqlstream.units import NO_TIME
from sqlstream.warehouse.declarations import Remembered


def operator_of(node: Stateful) -> Operator:
    """Return the operator that computes a stateful node; where late rows of it are read, it emits those, too."""
    match node:
        case SessionWindow() | WindowAggregate() | WindowRank():
            return window_operator(node)
        case tables.Normalize():
            types = {f.name: f.type for f in node.schema}
            # A table has its rows as long as the source has them.
            keys = Keys(tuple((Column(name, types[name]), quote_name(name)) for name in node.keys))
            return ChangelogOperator("normalize", keys, LastRows(keys, _columns(node), node.time_attribute))
        case CountWindows():
            fields = {f.name: f for f in node.input.schema}
            row_keys = tuple((Column(k, fields[k].type), quote_name(k)) for k in node.keys)
            return CountWindowOperator(
                row_keys,
                _columns(node.input),
                event_time(node),
                node.size,
                node.slide,
                node.ttl or NO_TIME,
                node.late_reads is not None,
            )
        case Aggregate():
            return _aggregate(node)
        case ranks.Rank():
            ranking = Ranking(node.column, node.function, tuple(o.sql for o in node.order), node.limit)
            keys = Keys(named_keys(node.keys, [f"k{i}" for i in range(len(node.keys))]), node.ttl or NO_TIME)
            rows = KeptRows(keys, _columns(node.input), node.input.is_changelog)
            return ChangelogOperator("rank", keys, RankedRows(rows, ranking))
        case relational.SetOperation():
            keys = Keys(tuple((Column(f.name, f.type), quote_name(f.name)) for f in node.schema), node.ttl or NO_TIME)
            rows = KeptRows(keys, (Column(node.side, "INTEGER"),), node.input.is_changelog)
            return ChangelogOperator(node.function, keys, SetRows(rows, node.function, node.distinct))
        case over.Over() | Sort():
            return _in_order(node)
        case joins.IntervalJoin():
            left, right = (time_sql(below, time) for below, time in zip(node.inputs, node.times, strict=True))
            return IntervalJoinOperator(
                _matching(node), node.kind, (left, right), node.before, node.after, _late_inputs(node), node.kept_back
            )
        case joins.TemporalJoin():
            left, right = (time_sql(below, time) for below, time in zip(node.inputs, node.times, strict=True))
            return TemporalJoinOperator(
                _matching(node), node.kind, (left, right), node.inputs[1].is_changelog, _late_inputs(node)
            )
        case joins.Join():
            changing = tuple(below.is_changelog for below in node.inputs)
            return RegularJoin(_matching(node), node.kind, changing, tuple(ttl or NO_TIME for ttl in node.ttls))
        case Process():
            return _process(node)
        case _:
            assert_never(node)


def _aggregate(node: Aggregate) -> ChangelogOperator:
    made = named_keys(tuple(k.expression for k in node.keys), [k.name for k in node.keys])
    lasting = tuple((*["NULL"] * (len(made) - 1), str(n)) for n in node.empty_sets) if made else ((),)
    keys, calls = Keys(made, node.ttl or NO_TIME, lasting), calls_of(node.aggregates)
    of: ChangingResult
    if not node.input.is_changelog:
        of = MergedAggregates(keys, calls)
    elif all(can_retract(call) for _, call in calls):
        of = RetractedAggregates(keys, calls)
    else:
        of = RecomputedAggregates(KeptRows(keys, used_columns(node), changing=True), calls)
    return ChangelogOperator("aggregate", keys, of)


def _process(node: Process) -> ProcessOperator:
    for read in node.reads:
        for expression in read.expressions:
            _check_python(expression, node)
    inputs = []
    for number, (below, read) in enumerate(zip(node.inputs, node.reads, strict=True)):
        inputs.append(
            InputPlan(
                f"rows_{number}",
                node.function.tables[number].name,
                tuple(k.column or "" for k in read.keys),
                tuple(k.sql for k in read.keys),
                tuple((Column(i.name, i.expression.type), i.expression.sql) for i in read.columns),
                time_sql(below, read.time) if read.time else None,
                arriving_at(node, number).columns,
                tuple(map(_sorted_by, read.order[1:])) if read.order else None,
                below.is_changelog,
                read.broadcast,
            )
        )
    keys = tuple(Column(n, k.type) for n, k in zip(node.key_names, node.keys, strict=True))
    ttls = tuple(node.ttl_of(s) for s in node.function.states)
    given = tuple(a.sql for a in node.arguments)
    late = _late_inputs(node)
    return ProcessOperator(node.function, keys, tuple(inputs), given, ttls, node.time_type, node.late_rows, late)


def _late_inputs(node: Dropping) -> tuple[int, ...]:
    """Return the places of the inputs of an operator whose late rows are read."""
    return node.late_reads.inputs if node.late_reads else ()


def _sorted_by(item: Expression) -> tuple[Column, str, str]:
    """Return a column of an order, its SQL, and its direction."""
    assert item.column is not None
    own = quote_name(item.column)
    return Column(item.column, item.type), own, item.sql.removeprefix(own)


def arriving_at(node: Process, place: int) -> Ordered:
    """Return an input of a process function with the columns of the order of its rows, where the function wants to know it."""
    below, read = node.inputs[place], node.reads[place]
    wants_order = not read.order and (node.function.vectorized != "bucket" or node.function.ordered or read.broadcast)
    return arriving(below) if wants_order and not below.is_changelog else Ordered(below, ())


def _check_python(expression: Expression, node: Process) -> None:
    """Refuse a column whose values Python does not have."""
    try:
        types.codec(expression.type)
    except types.UnusableType as error:
        raise UnsupportedError(
            f'column "{expression.column or expression.sql}" of type {expression.type} in {node.label}',
            expression.span or node.span,
            detail=f"{error}.",
            hint="Leave it out, or cast it: TABLE (SELECT CAST(x AS VARCHAR) AS x, .. FROM t).",
        ) from error


def process_views(operator: Operator) -> Iterator[tuple[str, Rows]]:
    """Yield the views of what a process function keeps beside its values (lists, maps, timers, waiting rows), by their names."""
    assert isinstance(operator, ProcessOperator)
    yield from operator.more_views(own_tables(operator))


def process_late_views(operator: Operator, name: str) -> Iterator[tuple[str, Rows]]:
    """Yield the views of the late rows that a process function of a name keeps, by the names that the query gives them."""
    assert isinstance(operator, ProcessOperator)
    yield from operator.late_views(name)


def _matching(node: Joins) -> Matching:
    keys = tuple((pair[0].type, tuple(k.sql for k in pair)) for pair in zip(*node.keys, strict=True))
    condition = node.condition.sql if node.condition else None
    return Matching(keys, tuple(_columns(below) for below in node.inputs), condition)


def _in_order(node: InOrder) -> OverOperator:
    time, order, by_clock = time_sql(node.input, node.time), tuple(o.sql for o in node.order[1:]), node.by_clock
    columns = _columns(node.input)
    if isinstance(node, Sort):
        return OverOperator((), columns, time, order, by_clock=by_clock, sorts=True)
    names = [k.column or f"key_{i}" for i, k in enumerate(node.keys, 1)]
    calls = over_calls_of(node.calls)
    keys, late = named_keys(node.keys, names), node.late_reads is not None
    return OverOperator(keys, columns, time, order, calls, by_clock, ttl=node.ttl or NO_TIME, emits_late=late)


def _columns(node: Node) -> tuple[Column, ...]:
    return tuple(Column(f.name, f.type) for f in node.schema)


def state_bound(node: Stateful) -> str:
    """Return what bounds the state of a node, in words, where planning has decided how it is kept."""
    match node:
        case WindowAggregate() if isinstance(made_above(node), SessionWindow):
            return bound_of_sessions(node.lateness, node.late_rows)
        case Aggregate() if not node.ttl and node.state_growth is None and _keeps_rows(node):
            return "the number of rows of the result below"
    return node.state_bound


def _keeps_rows(node: Aggregate) -> bool:
    """Tell whether results are made again of all rows of a key, since they do not follow from what came and went."""
    return node.input.is_changelog and not all(can_retract(call) for _, call in calls_of(node.aggregates))


def remembered(node: Stateful, operator: Operator) -> tuple[Remembered, ...]:
    """Return what a time to live forgets of the state of a node, or would; of a join by its inputs' names."""
    if isinstance(node, joins.Join):
        aliases = (alias or ("left", "right")[place] for place, alias in enumerate(node.aliases))
        return tuple(
            structs.replace(kept, name=alias) for kept, alias in zip(operator.remembered, aliases, strict=True)
        )
    return operator.remembered if can_forget(node) else ()


def side_views(node: Joins, operator: Operator) -> Iterator[tuple[str, Rows]]:
    """Yield names for the inputs of a join, and the view of what is kept of each."""
    views = operator.side_views(own_tables(operator), reached(node.delay_below))
    for place, (alias, view) in enumerate(zip(node.aliases, views, strict=True)):
        yield alias or ("left", "right")[place], view


def own_tables(operator: Operator) -> dict[str, str]:
    """Return an operator's state tables as its views know them, FROM-able by name."""
    return {table.name: quote_name(table.name) for table in operator.tables}


def state_view(node: Stateful, operator: Operator) -> Rows:
    """Return the view over an operator's state.

    Its columns are those of the node, with their current values, and for an aggregate what the select list makes of them.
    """
    current = operator.current(own_tables(operator), reached(node.delay_below))
    if operator.viewed is not None:
        return Rows.of(current, operator.viewed)
    columns = [(f.name, f.type, quote_name(f.name)) for f in node.schema]
    names = {name.lower() for name, _, _ in columns}
    if isinstance(node, WindowAggregate | Aggregate):
        # A key or a bound under a second name would say nothing new; an aggregate may be known by either.
        group = {f.name for f in replace(node, aggregates=()).schema}
        for item in node.shown:
            if item.name.lower() not in names and item.expression.column not in group:
                columns.append((item.name, item.expression.type, item.expression.sql))
    columns += [(c.name, c.type, quote_name(c.name)) for c in operator.accumulators if c.name.lower() not in names]
    columns += [(c.name, c.type, c.name) for c in operator.key_times if c.name not in names]
    return Rows.selected(f"({current})", columns)
