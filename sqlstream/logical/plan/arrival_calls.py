"""Aggregate calls whose result depends on the order of rows: where their ORDER BY leaves ties, the order of arrival decides."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from sqlstream.duck.aggregates.functions import ALIASES, FUNCTIONS, Kind
from sqlstream.logical.plan.expressions import AggregateItem, Expression

# Functions whose values have an order without an ORDER BY in the call, too. The others that keep values count them, as mode does,
# or sort them, as lttb does.
_LISTS = ("list", "string_agg", "json_group_array", "json_group_object")
_CHOOSING = (Kind.PICK, Kind.PICKS, Kind.ARG)


def reads_order(call: AggregateItem) -> bool:
    """Return whether the result of an aggregate call depends on the order of rows that are equal in its ORDER BY."""
    if call.python is not None:
        # Accumulators merge in any order; values of a function that has no `merge` are kept.
        return not call.distinct and bool(call.order_by or not call.python.merges) and not _names_all_values(call)
    shape = FUNCTIONS.get(function := ALIASES.get(call.function, call.function))
    if shape is None or not shape.ordered or _names_all_values(call):
        return False
    if shape.kind in _CHOOSING:
        return shape.idempotent or not call.distinct
    return not call.distinct and shape.kind is Kind.VALUES and bool(call.order_by or function in _LISTS)


def in_order_of_arrival(
    call: AggregateItem, position: Expression, times: Collection[str], *, repeats: bool
) -> AggregateItem:
    """Return a call that orders ties by arrival: the column `position` follows its ORDER BY, if its result depends on ties.

    With `repeats` several rows may have the same position there: then their values decide.

    `times` are the time columns of the input. If the call takes the latest time first, it also takes the latest arrival first. So
    arg_max(x, ts) is the x of the row for which ROW_NUMBER() OVER (ORDER BY ts DESC) is 1.
    """
    if not reads_order(call):
        return call
    directions = [descends for expression, descends in _ordered(call) if expression.column in times]
    if directions and directions[-1]:
        position = replace(position, sql=f"{position.sql} DESC", descends=True)
    return replace(call, order_by=(*call.order_by, position, *(_values(call) if repeats else ())))


def _values(call: AggregateItem) -> Iterator[Expression]:
    """Yield the arguments of a call as items of ORDER BY, which decide between rows of one position.

    For arg_max they descend, because it takes the greatest value of rows with equal keys in older jobs, too.
    """
    function = ALIASES.get(call.function, call.function)
    if call.python is not None:
        yield from call.arguments
    elif function.startswith("arg_max"):
        value = call.arguments[0]
        yield replace(value, sql=f"{value.sql} DESC NULLS FIRST", descends=True)
    elif function.startswith("arg_min"):
        yield call.arguments[0]
    else:
        constants = FUNCTIONS[function].constants
        yield from (value for position, value in enumerate(call.arguments) if position not in constants)


def _ordered(call: AggregateItem) -> Iterator[tuple[Expression, bool]]:
    """Yield the expressions by which a call orders rows, each with whether it descends."""
    function = ALIASES.get(call.function, call.function)
    if call.python is None and FUNCTIONS[function].kind is Kind.ARG:
        yield call.arguments[1], function.startswith("arg_max")
    yield from ((item, item.descends) for item in call.order_by)


def _names_all_values(call: AggregateItem) -> bool:
    """Return whether the ORDER BY of a call names all its arguments: rows that are equal in it have the same values."""
    named = {item.column for item in call.order_by if item.column is not None}
    # A constant, such as a separator, reads no column.
    return bool(named) and all(a.column in named or not a.reads.columns for a in call.arguments)
