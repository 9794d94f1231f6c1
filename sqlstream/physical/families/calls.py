"""Converts the aggregate calls and the OVER calls of the logical plan to calls of the operators."""

from __future__ import annotations

from collections.abc import Iterator

from sqlstream.catalog import Column
from sqlstream.duck.aggregates.aggregate_call import AggregateCall
from sqlstream.duck.aggregates.calls import is_aggregate, reason, strategy
from sqlstream.duck.aggregates.functions import ALIASES, REFUSED
from sqlstream.errors import UnsupportedError
from sqlstream.logical.plan.aggregates import Aggregate, WindowAggregate
from sqlstream.logical.plan.expressions import AggregateItem, Expression
from sqlstream.logical.plan.over import OverItem
from sqlstream.operators.groups import ComputedColumns
from sqlstream.operators.over.calls import OverCall


def named_keys(keys: tuple[Expression, ...], names: list[str]) -> ComputedColumns:
    """Return the key columns of an operator: each a column with the SQL of its expression."""
    return tuple((Column(name, key.type), key.sql) for key, name in zip(keys, names, strict=True))


def computed(node: Aggregate | WindowAggregate) -> Iterator[Expression]:
    """Yield the expressions that an aggregate computes for each input row: keys, arguments, orders and filters of calls."""
    yield from (k.expression for k in node.keys)
    yield from (e for a in node.aggregates for e in a.expressions)


def used_columns(node: Aggregate | WindowAggregate) -> tuple[Column, ...]:
    """Return the input columns that an aggregate's keys and calls read; the first column if they read none."""
    read = frozenset[str]().union(*(e.reads.columns for e in computed(node)))
    columns = tuple(Column(f.name, f.type) for f in node.input.schema)
    return tuple(c for c in columns if c.name in read) or columns[:1]


def calls_of(items: tuple[AggregateItem, ...]) -> tuple[tuple[str, AggregateCall], ...]:
    """Return the aggregate calls of an operator, each with the name of its result.

    Raises UnsupportedError for a call that cannot run incrementally.
    """
    return tuple((item.name, _call(item)) for item in items)


def _call(item: AggregateItem) -> AggregateCall:
    call = call_of(item)
    if strategy(call) is None:
        raise _refused(item, reason(call))
    return call


def over_calls_of(items: tuple[OverItem, ...]) -> tuple[OverCall, ...]:
    """Return the OVER calls of an operator. Raises UnsupportedError for a function that cannot run incrementally."""
    for item in items:
        if why := REFUSED.get(item.call.function):
            raise _refused(item.call, why)
    return tuple(OverCall(i.call.name, call_of(i.call), i.frame, i.ignore_nulls) for i in items)


def _refused(item: AggregateItem, why: str) -> UnsupportedError:
    return UnsupportedError(f"aggregate {item.function} cannot run incrementally", item.span, hint=_sentence(why))


def call_of(item: AggregateItem) -> AggregateCall:
    """Return the aggregate call of an item: aliases resolved, arguments of a user's function cast to its parameters."""
    arguments = [(a.sql, a.type) for a in item.arguments]
    if item.python is not None:
        typed = zip(arguments, item.python.parameters, strict=True)
        arguments = [
            (sql if type == parameter else f"CAST({sql} AS {parameter})", parameter) for (sql, type), parameter in typed
        ]
    return AggregateCall(
        function=item.function if item.python is not None else ALIASES.get(item.function, item.function),
        arguments=tuple(sql for sql, _ in arguments),
        argument_types=tuple(type for _, type in arguments),
        distinct=item.distinct,
        order_by=tuple(o.sql for o in item.order_by),
        order_types=tuple(o.type for o in item.order_by),
        filter=item.filter.sql if item.filter else None,
        result_type=item.type,
        python=item.python,
    )


def _sentence(phrase: str) -> str:
    """Return a phrase as a sentence; a function's name at its start stays as it is.

    >>> _sentence("rows of a stream have no order"), _sentence("arg_max does not take DISTINCT")
    ('Rows of a stream have no order.', 'arg_max does not take DISTINCT.')
    """
    first = phrase.partition(" ")[0]
    return f"{phrase if is_aggregate(first) else phrase[:1].upper() + phrase[1:]}."
