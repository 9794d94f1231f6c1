"""Builds the SQL of aggregate calls: one builder per kind of function.

A builder adds columns to `Columns`, and returns the SQL of the result over them. Calls that keep their values add no columns.
A merge ignores rows in which its column is NULL.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from sqlstream.duck.aggregates.aggregate_call import AggregateCall, NotIncremental, row_of
from sqlstream.duck.aggregates.exported_states import exported, quantile
from sqlstream.duck.aggregates.functions import Kind
from sqlstream.duck.aggregates.kept_values import collected
from sqlstream.duck.aggregates.partial_columns import Built, Columns, Strategy


def build(call: AggregateCall, columns: Columns) -> Built:
    """Add the columns of a call; return its strategy and the SQL of its result. Raises NotIncremental."""
    if call.distinct and call.shape.idempotent and not call.limited:
        call = replace(call, distinct=False)
    return collected(call, columns) if call.distinct else _BUILDERS[call.shape.kind](call, columns)


# -- counts and sums


def _count(call: AggregateCall, columns: Columns) -> Built:
    column = _sum_up(columns, "BIGINT", f"count({', '.join(call.arguments) or '*'}){call.where()}")
    return Strategy.PLAIN, f"coalesce({column}, 0)"


def _count_if(call: AggregateCall, columns: Columns) -> Built:
    return Strategy.PLAIN, _sum_up(columns, "BIGINT", f"CAST(count_if({call.arguments[0]}){call.where()} AS BIGINT)")


def _sum(call: AggregateCall, columns: Columns) -> Built:
    return Strategy.PLAIN, _sum_column(call, columns, call.arguments[0], call.argument_types[0])


def _avg(call: AggregateCall, columns: Columns) -> Built:
    if call.result_type != "DOUBLE":  # of dates, times and intervals
        return exported(call, columns)
    return Strategy.PLAIN, _average(call, columns, call.arguments[0], call.argument_types[0])


def _geomean(call: AggregateCall, columns: Columns) -> Built:
    logarithm = f"ln(CAST({call.arguments[0]} AS DOUBLE))"
    return Strategy.PLAIN, f"exp({_average(call, columns, logarithm, 'DOUBLE')})"


def _weighted(call: AggregateCall, columns: Columns) -> Built:
    value, weight = (f"CAST({a} AS DOUBLE)" for a in call.arguments)
    weighted = _sum_column(call, columns, f"{value} * {weight}", "DOUBLE")
    weights = _sum_column(call, columns, f"CASE WHEN {value} IS NOT NULL THEN {weight} ELSE 0 END", "DOUBLE")
    return Strategy.PLAIN, f"{weighted} / {weights}"


def _sum_up(columns: Columns, type_: str, partial: str) -> str:
    return columns.add(type_, partial, lambda c, over: f"CAST(sum({c}){over} AS {type_})")


_NARROW = {"BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT", "UINTEGER", '"NULL"'}


def _sum_column(call: AggregateCall, columns: Columns, argument: str, type_: str) -> str:
    if type_ in _NARROW:
        sum_type = "BIGINT"  # is written twice as fast as HUGEINT, and holds 2^31 rows of the greatest INTEGER
    elif type_ in {"BIGINT", "UBIGINT", "HUGEINT"}:
        sum_type = "DECIMAL(38,0)"  # what a HUGEINT is on disk: no cast when it is read
    elif scale := re.fullmatch(r"DECIMAL\(\d+,\s?(\d+)\)", type_):
        sum_type = f"DECIMAL(38,{scale[1]})"
    elif type_ == "BIGNUM" and call.function == "sum":
        sum_type = type_
    else:
        sum_type = "DOUBLE"
        argument = argument if type_ == "DOUBLE" else f"CAST({argument} AS DOUBLE)"
    return _sum_up(columns, sum_type, f"CAST(sum({argument}){call.where()} AS {sum_type})")


def _average(call: AggregateCall, columns: Columns, argument: str, type_: str) -> str:
    total = _sum_column(call, columns, argument, type_)
    count = _sum_up(columns, "BIGINT", f"count({argument}){call.where()}")
    return f"CAST({total} AS DOUBLE) / {count}"


# -- functions that merge with themselves, and rows that win


def _fold(call: AggregateCall, columns: Columns) -> Built:
    if call.limited:
        least = call.function == "min"
        return Strategy.PLAIN, _extremes_column(call, columns, call.arguments[0], call.argument_types[0], least=least)
    return Strategy.PLAIN, _fold_column(columns, call.function, call.arguments[0], call.result_type, call.where())


def _fold_column(columns: Columns, function: str, argument: str, type_: str, where: str) -> str:
    return columns.add(type_, f"{function}({argument}){where}", lambda c, over: f"{function}({c}){over}")


def _extremes_column(
    call: AggregateCall, columns: Columns, argument: str, type_: str, *conditions: str, least: bool
) -> str:
    """Add a column with the sorted list of the n least or greatest values of the rows that meet the conditions."""
    n = call.arguments[-1].strip()
    if not re.fullmatch(r"0*[1-9]\d*", n):
        raise NotIncremental(f"the number of values that {call.function} returns must be a positive integer literal")
    way, order = ("min", "'ASC'") if least else ("max", "'DESC'")
    return columns.add(
        f"{type_}[]",
        f"{way}({argument}, {n}){call.where(*conditions)}",
        lambda c, over: f"list_sort(flatten(list({c}) FILTER (WHERE {c} IS NOT NULL){over}), {order})[:{n}]",
    )


def _bitstring(call: AggregateCall, columns: Columns) -> Built:
    if len(call.arguments) != 3:
        raise NotIncremental("bitstring_agg needs its bounds; write bitstring_agg(x, min, max)")
    partial = f"bitstring_agg({', '.join(call.arguments)}){call.where()}"
    return Strategy.PLAIN, columns.add("BIT", partial, lambda c, over: f"bit_or({c}){over}")


def _arg(call: AggregateCall, columns: Columns) -> Built:
    """Add a column with the key and the value as a struct, which is ordered by the key, then by arrival or by the value.

    Two to three times slower than DuckDB's own state, whose result depends on which of equal keys arrives first.
    """
    if call.order_by and not call.by_arrival_and_value:
        return collected(call, columns)
    (value, key), (value_type, key_type) = call.arguments[:2], call.argument_types[:2]
    _, way, *suffix = call.function.split("_")
    row, type_ = f"v := {value}", f"v {value_type}"
    if call.order_by:
        # Of the rows with the extreme key the first one in the order is chosen: the first to arrive, or the last.
        sign = "" if call.latest_first == (way == "max") else "-"
        position = call.keys[0]
        row, type_ = f"o := {sign}{position.expression}, {row}", f"o {position.type}, {type_}"
    row, type_ = f"k := {key}, {row}", f"k {key_type}, {type_}"
    conditions = [f"({key}) IS NOT NULL"] + ([] if suffix else [f"({value}) IS NOT NULL"])
    if suffix == ["nulls", "last"]:
        # NULL sorts as the greatest key, but must be chosen last: the field `n` is compared before the key.
        row, type_ = f"n := ({key}) IS {'NOT ' if way == 'max' else ''}NULL, {row}", f"n BOOLEAN, {type_}"
        conditions = []
    row, type_ = f"struct_pack({row})", f"STRUCT({type_})"
    if call.limited:
        rows = _extremes_column(call, columns, row, type_, *conditions, least=way == "min")
        return Strategy.PLAIN, f"list_transform({rows}, lambda r: r.v)"
    return Strategy.PLAIN, f"struct_extract({_fold_column(columns, way, row, type_, call.where(*conditions))}, 'v')"


def _pick(call: AggregateCall, columns: Columns) -> Built:
    """Add a column with the first or last row and its keys; without ORDER BY, with the least or greatest value."""
    function = "last" if call.function.startswith("last") else "first"
    value, type_ = call.arguments[0], call.argument_types[0]
    if not call.order_by:
        way = "max" if function == "last" else "min"
        return Strategy.PLAIN, _fold_column(columns, way, value, type_, call.where())
    if call.by_arrival:
        return Strategy.PLAIN, _arrived_column(call, columns, least=(function == "first") != call.latest_first)
    keys = call.keys
    fields = [f"o{i} := {key.expression}" for i, key in enumerate(keys)]
    types = [f"o{i} {key.type}" for i, key in enumerate(keys)]
    order = [f"{key.expression} {key.direction}" for key in keys]
    where = call.where(f"({value}) IS NOT NULL" if call.function == "any_value" else "")

    def merge(column: str, over: str) -> str:
        again = [f"struct_extract({column}, 'o{i}') {key.direction}" for i, key in enumerate(keys)]
        last = f"struct_extract({column}, 'v') ASC NULLS LAST"
        return f"{function}({column} ORDER BY {', '.join([*again, last])}) FILTER (WHERE {column} IS NOT NULL){over}"

    row = f"struct_pack({', '.join((*fields, f'v := {value}'))})"
    partial = f"{function}({row} ORDER BY {', '.join(order)}, {value} ASC NULLS LAST){where}"
    column = columns.add(f"STRUCT({', '.join((*types, f'v {type_}'))})", partial, merge)
    return Strategy.PLAIN, f"struct_extract({column}, 'v')"


def _arrived_column(call: AggregateCall, columns: Columns, *, least: bool) -> str:
    """Add a column with the value of the row that arrived first (`least`) or last.

    The row's position in the order of arrival is a column of its own, which calls over the same rows share. With DuckDB's arg_min
    this is as fast as its min, and three times as fast as a struct of both.
    """
    [value], [type_], [key] = call.arguments, call.argument_types, call.keys
    way = "min" if least else "max"
    where = call.where(f"({value}) IS NOT NULL" if call.function == "any_value" else "")
    position = _fold_column(columns, way, key.expression, key.type, where)
    return columns.add(
        type_,
        f"arg_{way}_null({value}, {key.expression}){where}",
        lambda c, over: f"arg_{way}_null({c}, {position}){over}",
    )


def _picks(call: AggregateCall, columns: Columns) -> Built:
    """Add a column with the first or last n rows in the order of arrival; if the call has no such order, by their values."""
    value, type_ = call.arguments[0], call.argument_types[0]
    first = call.function == "earliest_by_offset"
    if call.order_by and (not call.by_arrival_and_value or call.latest_first):
        raise NotIncremental(
            f"{call.function} takes rows in the order in which they arrive; write list(x ORDER BY y)[:n]"
        )
    if call.order_by:
        position = call.keys[0]
        row, row_type = (
            f"struct_pack(o := {position.expression}, v := {value})",
            f"STRUCT(o {position.type}, v {type_})",
        )
        rows = f"list_transform({_extremes_column(call, columns, row, row_type, least=first)}, lambda r: r.v)"
    else:
        rows = _extremes_column(call, columns, value, type_, least=first)
    return Strategy.PLAIN, rows if first else f"list_reverse({rows})"


def _python(call: AggregateCall, columns: Columns) -> Built:
    """Add a column with the accumulator of a user's class."""
    if call.order_by:
        return collected(call, columns)
    assert call.python is not None
    column = columns.add(
        call.python.accumulator,
        call.step("accumulate", f"list({row_of(call.arguments)}){call.where()}"),
        lambda c, over: call.step("merge", f"list({c}) FILTER (WHERE {c} IS NOT NULL){over}"),
    )
    return Strategy.PLAIN, call.step("finish", column)


_BUILDERS: dict[Kind, Callable[[AggregateCall, Columns], Built]] = {
    Kind.COUNT: _count,
    Kind.COUNT_IF: _count_if,
    Kind.SUM: _sum,
    Kind.AVG: _avg,
    Kind.GEOMEAN: _geomean,
    Kind.WEIGHTED: _weighted,
    Kind.FOLD: _fold,
    Kind.PICK: _pick,
    Kind.PICKS: _picks,
    Kind.ARG: _arg,
    Kind.BITSTRING: _bitstring,
    Kind.STATE: exported,
    Kind.QUANTILE: quantile,
    Kind.PYTHON: _python,
    Kind.VALUES: collected,
}
