"""How an aggregate call runs incrementally: SQL for its partial, for merging partials, and for its result.

A call becomes a `Partial` (columns of one row per group, merged by aggregates) or `CollectedValues` (its input rows are kept).
Both have the same result for any order and any split of the input. Where SQL leaves the result open, it is defined here:

- `list`, `string_agg`, `json_group_*` and `lttb` without ORDER BY take their values in ascending order, NULLs last;
  with ORDER BY, rows with equal keys come in ascending order of their values.
- `any_value` and `first` without ORDER BY are the least value, `last` the greatest (NULL only if all are);
  with ORDER BY, the value decides between equal keys.
- `arg_min` and `arg_max`: among rows with equal keys, the least or the greatest value wins.
- `mode`: among equally frequent values the least wins.
- `approx_quantile` and `approx_top_k` may differ from one pass, and between two splits, within their error.

Limits: a sum of BIGINT or wider fails beyond 10^38 (DuckDB: 1.7 * 10^38), one of narrower integers beyond 2^63.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlstream.duck.aggregates.aggregate_call import AggregateCall, NotIncremental
from sqlstream.duck.aggregates.builders import build
from sqlstream.duck.aggregates.functions import ALIASES, FUNCTIONS, REFUSED, Kind
from sqlstream.duck.aggregates.kept_values import argument_rows, key_rows
from sqlstream.duck.aggregates.partial_columns import Columns, Strategy


@dataclass(frozen=True, slots=True)
class Partial:
    """A call that runs by merging partial results. `columns` are the names and types of its stored columns.

    The next three tuples have one SQL expression per column, of the declared type. `partial` computes the column over input rows;
    `merge` over any number of stored rows, even none. A merge contains one or more aggregates, which ignore rows in which the
    column is NULL. `running` is the merge as a window function over the window FRAME. `final` is the SQL of the call's result, a
    scalar over merged columns.
    """

    columns: tuple[tuple[str, str], ...]
    partial: tuple[str, ...]
    merge: tuple[str, ...]
    running: tuple[str, ...]
    final: str


@dataclass(frozen=True, slots=True)
class CollectedValues:
    """A call that keeps its values: `collect` is the SQL, over input rows that meet `filter`, of each of the `columns`.

    `final` is the SQL of the result, with an aggregate over all kept rows. If `distinct`, duplicates in a group may be dropped
    before. Calls that are equal but for `final` can share their rows.
    """

    columns: tuple[tuple[str, str], ...]
    collect: tuple[str, ...]
    filter: str | None
    distinct: bool
    final: str


def is_aggregate(name: str) -> bool:
    """Return whether this is the name, in any case, of an aggregate function of DuckDB or Flink, supported or not."""
    key = name.lower()
    return key in FUNCTIONS or key in ALIASES or key in REFUSED


def strategy(call: AggregateCall) -> Strategy | None:
    """Return how a call runs, None if it cannot run: `reason` says why."""
    try:
        return build(call, Columns("p", {}))[0]
    except NotIncremental:
        return None


def reason(call: AggregateCall) -> str:
    """Return why a call cannot run, as a phrase; empty if it can."""
    try:
        build(call, Columns("p", {}))
    except NotIncremental as refused:
        return str(refused)
    return ""


def partial(call: AggregateCall, prefix: str) -> Partial:
    """Return the partial results of a PLAIN or STATE call; names of columns begin with `prefix`. Raises as `partials` does."""
    return partials((call,), prefix)[0]


def partials(calls: Iterable[AggregateCall], prefix: str) -> tuple[Partial, ...]:
    """Return the partial results of several PLAIN or STATE calls over the same rows.

    Calls that need the same column (the sum and the average of one argument, two quantiles of it) have it under the same name,
    so callers store each name once. Raises ValueError for a VALUES call, Refused for a call that cannot run.
    """
    shared_names: dict[tuple[str, str, str], str] = {}
    result = []
    for call in calls:
        columns = Columns(prefix, shared_names)
        used, final = build(call, columns)
        if used is Strategy.VALUES:
            raise ValueError(f"{call.function} keeps its values")
        result.append(
            Partial(
                columns=tuple((name, type_) for name, (type_, *_) in columns.used.items()),
                partial=tuple(sql for _, sql, _, _ in columns.used.values()),
                merge=tuple(merge for _, _, merge, _ in columns.used.values()),
                running=tuple(running for *_, running in columns.used.values()),
                final=f"CAST({final} AS {call.result_type})",
            )
        )
    return tuple(result)


def values(call: AggregateCall, prefix: str = "", rows: str | None = None) -> CollectedValues:
    """Return the values that a VALUES call keeps; the columns are v0, v1, .. and o0, o1, .. after the prefix.

    `rows` is a condition that the rows of the call meet, for a caller that stores other rows in the same table. Raises ValueError
    for any other call, Refused for a call that cannot run.
    """
    used, final = build(call, Columns(prefix, {}, rows))
    if used is not Strategy.VALUES:
        raise ValueError(f"{call.function} has a partial")
    value_columns = [*argument_rows(call, prefix), *key_rows(call, prefix)]
    return CollectedValues(
        columns=tuple((row.name, row.type) for row in value_columns),
        collect=tuple(row.expression for row in value_columns),
        filter=call.filter,
        distinct=call.distinct and call.shape.kind is not Kind.ARG,
        final=f"CAST({final} AS {call.result_type})",
    )
