"""Which calls of aggregates are refused, and which share columns of state."""

from __future__ import annotations

import re
from typing import Any

import duckdb
import pytest

from sqlstream.duck.aggregates.aggregate_call import AggregateCall, NotIncremental
from sqlstream.duck.aggregates.calls import is_aggregate, partial, partials, reason, strategy, values
from sqlstream.duck.aggregates.functions import ALIASES, FUNCTIONS, REFUSED


def call_of(function: str, *arguments: str, type: str = "BIGINT", result: str = "BIGINT", **more: Any) -> AggregateCall:
    return AggregateCall(function, arguments, (type,) * len(arguments), result_type=result, **more)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (call_of("frobnicate", "x"), "there is no incremental form of the aggregate frobnicate"),
        (call_of("reservoir_quantile", "x", "0.5"), REFUSED["reservoir_quantile"]),
        (
            call_of("earliest_by_offset", "x", "2", order_by=("y",), order_types=("INTEGER",)),
            "earliest_by_offset takes rows in the order in which they arrive; write list(x ORDER BY y)[:n]",
        ),
        (call_of("latest_by_offset", "x", "2", distinct=True), "latest_by_offset does not take DISTINCT"),
        (call_of("max", "x", "y"), "the number of values that max returns must be a positive integer literal"),
        (call_of("bitstring_agg", "x", result="BIT"), "bitstring_agg needs its bounds; write bitstring_agg(x, min, max)"),
        (call_of("max", "x", type="VARIANT", result="VARIANT"), "VARIANT values cannot be kept in state"),
        (call_of("list", "x", type="UNION(a INTEGER)"), "UNION values cannot be kept in state"),
        (
            call_of("min", "NULL", type='"NULL"', result='"NULL"'),
            "a value that is always NULL has no type; write CAST(NULL AS INTEGER)",
        ),
        (call_of("geomean", "x", distinct=True), "geomean does not take DISTINCT"),
        (
            call_of("list", "x", distinct=True, order_by=("y",), order_types=("INTEGER",)),
            "in a DISTINCT aggregate, ORDER BY can only name its arguments",
        ),
        (
            call_of("quantile_cont", "x", "0.5", order_by=("y DESC",), order_types=("INTEGER",)),
            "quantile_cont can only be ordered by its argument",
        ),
    ],
)  # fmt: skip
def test_refuses(call: AggregateCall, why: str) -> None:
    assert strategy(call) is None
    assert reason(call) == why
    with pytest.raises(NotIncremental, match="^" + re.escape(why) + "$"):
        partial(call, "p")


def test_every_refusal_is_an_aggregate() -> None:
    for name in (*FUNCTIONS, *ALIASES, *REFUSED):
        assert is_aggregate(name.upper())
    assert not is_aggregate("abs")
    assert ALIASES.keys().isdisjoint(FUNCTIONS.keys() | REFUSED.keys())
    assert set(ALIASES.values()) <= FUNCTIONS.keys()
    for name in REFUSED:
        assert strategy(call_of(name, "x")) is None


def test_calls_share_columns() -> None:
    """A sum, a count and an average need two columns; all quantiles of x need one, and all second moments."""
    calls = [
        call_of("sum", "x", result="HUGEINT"),
        call_of("count", "x"),
        call_of("avg", "x", result="DOUBLE"),
        *(call_of("quantile_cont", "x", q, result="DOUBLE") for q in ("0.5", "0.9", "0.99")),
        call_of("median", "x", result="DOUBLE"),
        *(call_of(f, "x", result="DOUBLE") for f in ("var_pop", "stddev_samp", "sem")),
        call_of("sum", "x", result="HUGEINT", filter="y > 1"),
    ]
    made = partials(calls, "p")
    assert [[name for name, _ in one.columns] for one in made] == [
        ["p_0"], ["p_1"], ["p_0", "p_1"], ["p_2"], ["p_2"], ["p_2"], ["p_2"], ["p_3"], ["p_3"], ["p_3"], ["p_4"]
    ]  # fmt: skip


def test_calls_share_values() -> None:
    first = values(call_of("count", "x", distinct=True))
    second = values(call_of("sum", "x", distinct=True, result="HUGEINT"))
    assert (first.columns, first.collect, first.filter, first.distinct) == (
        second.columns,
        second.collect,
        second.filter,
        second.distinct,
    )
    assert first.columns == (("v0", "BIGINT"),)
    assert first.distinct


def test_types_are_never_a_template() -> None:
    """Fields of a struct may be named as a placeholder would be."""
    struct = 'STRUCT("{r}" INTEGER, "{0}" INTEGER)'
    call = AggregateCall("approx_top_k", ("s", "2"), (struct, "INTEGER"), result_type=f"{struct}[]")
    made = partial(call, "p")
    [(column, _)], [once], [merge] = made.columns, made.partial, made.merge
    with duckdb.connect() as con:
        rows = f"SELECT {once} AS {column} FROM (SELECT {{'{{r}}': 1, '{{0}}': 2}} AS s)"
        merged = con.sql(f"SELECT {made.final} FROM (SELECT {merge} AS {column} FROM ({rows}))")
        assert merged.fetchall() == [([{"{r}": 1, "{0}": 2}],)]
