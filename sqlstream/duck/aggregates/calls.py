"""How an aggregate call runs incrementally: SQL for its partial, for merging partials, and for its result.

A call becomes a `Partial` (columns of one row per group, merged by aggregates) or `CollectedValues` (its input rows are kept).
Both give the same result for any order and any split of the input. Where SQL leaves the result open, it is fixed here:

- `list`, `string_agg`, `json_group_*` and `lttb` without ORDER BY take their values in ascending order, NULLs last;
  with ORDER BY, rows with equal keys come in ascending order of their values.
- `any_value` and `first` without ORDER BY are the least value, `last` the greatest (NULL only when all are);
  with ORDER BY, equal keys are decided by the value.
- `arg_min` and `arg_max`: among rows with equal keys the least, respectively greatest, value wins.
- `mode`: among values that are equally frequent the least wins.
- `approx_quantile` and `approx_top_k` may differ from one pass, and between two splits, within their error.

Limits: a sum of BIGINT or wider fails beyond 10^38 (DuckDB: 1.7 * 10^38), one of narrower integers beyond 2^63.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlstream.duck.aggregates.aggregate_call import AggregateCall, Refused
from sqlstream.duck.aggregates.builders import build
from sqlstream.duck.aggregates.functions import ALIASES, FUNCTIONS, REFUSED, Kind
from sqlstream.duck.aggregates.kept_values import argument_rows, key_rows
from sqlstream.duck.aggregates.partial_columns import Columns, Strategy


@dataclass(frozen=True, slots=True)
class Partial:
    """A call as columns that merge.

    `partial` makes them from input rows, `merge` makes them from rows of them (from none, and again and again), over
    columns of exactly the declared types. A merge is an expression with one or more aggregates in it, which ignore rows
    where the column is NULL. `running` is the merge with OVER behind its aggregate, over the window FRAME. `final` is a scalar
    over merged columns.
    """

    columns: tuple[tuple[str, str], ...]
    partial: tuple[str, ...]
    merge: tuple[str, ...]
    running: tuple[str, ...]
    final: str


@dataclass(frozen=True, slots=True)
class CollectedValues:
    """A call that keeps rows: those where `filter` holds, with the columns `collect`.

    `final` is an expression with an aggregate over them; they may be de-duplicated per group before, when `distinct`.
    Calls that agree in all but `final` can share their rows.
    """

    columns: tuple[tuple[str, str], ...]
    collect: tuple[str, ...]
    filter: str | None
    distinct: bool
    final: str


def is_aggregate(name: str) -> bool:
    """Return whether this is the name of an aggregate function, supported or not."""
    key = name.lower()
    return key in FUNCTIONS or key in ALIASES or key in REFUSED


def strategy(call: AggregateCall) -> Strategy | None:
    """Return how the call runs, or None when it does not: `reason` then says why."""
    try:
        return build(call, Columns("p", {}))[0]
    except Refused:
        return None


def reason(call: AggregateCall) -> str:
    """Return why the call cannot run, or an empty text."""
    try:
        build(call, Columns("p", {}))
    except Refused as refused:
        return str(refused)
    return ""


def partial(call: AggregateCall, prefix: str) -> Partial:
    """Return the columns of a PLAIN or STATE call; their names start with the prefix."""
    return partials((call,), prefix)[0]


def partials(calls: Iterable[AggregateCall], prefix: str) -> tuple[Partial, ...]:
    """Return the columns of several PLAIN or STATE calls over the same rows.

    Calls that need the same column (the sum and the average of one argument, two quantiles of it) name the same one:
    keep each name once.
    """
    known: dict[tuple[str, str, str], str] = {}
    result = []
    for call in calls:
        columns = Columns(prefix, known)
        used, final = build(call, columns)
        if used is Strategy.VALUES:
            raise ValueError(f"{call.function} keeps its values")
        result.append(
            Partial(
                columns=tuple((name, type_) for name, (type_, *_) in columns.used.items()),
                partial=tuple(made for _, made, _, _ in columns.used.values()),
                merge=tuple(merge for _, _, merge, _ in columns.used.values()),
                running=tuple(running for *_, running in columns.used.values()),
                final=f"CAST({final} AS {call.result_type})",
            )
        )
    return tuple(result)


def values(call: AggregateCall, prefix: str = "", rows: str | None = None) -> CollectedValues:
    """Return the rows that a VALUES call keeps; its columns are v0, v1, .. and o0, o1, .. after the prefix.

    `rows` is a condition on kept rows, for a caller that has others among them: the final expression is over those.
    """
    used, final = build(call, Columns(prefix, {}, rows))
    if used is not Strategy.VALUES:
        raise ValueError(f"{call.function} has a partial")
    kept = [*argument_rows(call, prefix), *key_rows(call, prefix)]
    return CollectedValues(
        columns=tuple((row.name, row.type) for row in kept),
        collect=tuple(row.expression for row in kept),
        filter=call.filter,
        distinct=call.distinct and call.shape.kind is not Kind.ARG,
        final=f"CAST({final} AS {call.result_type})",
    )
