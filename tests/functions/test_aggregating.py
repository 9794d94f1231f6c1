"""The aggregate functions of states: values that wait are aggregated for many keys at once."""

from __future__ import annotations

import os

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlstream.functions import types
from sqlstream.functions.codecs import column, decoded
from sqlstream.functions.process.aggregating import UnsupportedAggregate, aggregator_of
from sqlstream.functions.process.states import AggregatingState
from tests.properties.examples import examples

FUNCTIONS = ("count", "sum", "avg", "min", "max", "stddev_samp", "var_pop", "bit_xor", "product", "skewness")
values = st.lists(st.one_of(st.none(), st.integers(-20, 20)), max_size=6)


@pytest.mark.parametrize("function", FUNCTIONS)
@examples(10)
@given(st.lists(values, min_size=1, max_size=4), st.data())
def test_any_cut_into_values_and_reads_equals_duckdb(
    function: str, parts: list[list[int | None]], data: st.DataObject
) -> None:
    state: AggregatingState[int | None, float | None] = AggregatingState(
        aggregator_of(function, int | None, float | None, os.getcwd())
    )
    everything: list[int | None] = []
    for part in parts:
        for value in part:
            state.add(value)
        everything += part
        if data.draw(st.booleans()):
            # What is stored between two batches.
            [state.current] = state.aggregate.settled([state.current])
        expected = duckdb.execute(
            f"SELECT CAST({function}(v) AS DOUBLE) FROM (SELECT unnest(?::BIGINT[]) AS v)", [everything]
        )
        [(wanted,)] = expected.fetchall()
        assert state.value == (None if wanted is None else pytest.approx(wanted, rel=1e-9, abs=1e-9, nan_ok=True))


@pytest.mark.parametrize(
    "function", ["count", "sum", "avg", "min", "max", "stddev_samp", "stddev_pop", "var_samp", "var_pop"]
)
@examples(30)
@given(st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6), st.just(float("nan"))), max_size=6))
def test_plain_python_equals_duckdb(function: str, given: list[float | None]) -> None:
    aggregate = aggregator_of(function, float | None, float | None, os.getcwd())
    accumulator = None
    for value in given:
        accumulator = aggregate.add(accumulator, value)
        # As it is stored, and read again.
        [accumulator] = decoded(
            types.codec(aggregate.type), pa.chunked_array([column(types.codec(aggregate.type), [accumulator])])
        )
    [(wanted,)] = duckdb.execute(
        f"SELECT CAST({function}(v) AS DOUBLE) FROM (SELECT unnest(?::DOUBLE[]) AS v)", [given]
    ).fetchall()
    assert aggregate.result(accumulator) == (
        None if wanted is None else pytest.approx(wanted, rel=1e-6, abs=1e-3, nan_ok=True)
    )


def test_the_accumulators_of_many_keys_are_settled_together() -> None:
    # Not one of those that are plain Python.
    mean = aggregator_of("favg", float, float, os.getcwd())
    waiting = [mean.add(None, 1.0), None, mean.add(mean.add(None, 2.0), 4.0)]
    settled = mean.settled(waiting)
    assert [mean.result(one) for one in settled] == [1.0, None, 3.0]
    assert mean.settled(settled) == settled


def test_functions_of_several_arguments() -> None:
    covariance = aggregator_of("covar_pop", tuple[float, float], float, os.getcwd())
    [found] = covariance.settled([covariance.add(covariance.add(None, (1.0, 2.0)), (3.0, 6.0))])
    assert covariance.result(found) == 2.0


@pytest.mark.parametrize("function", ["list", "median", "first", "approx_quantile", "string_agg", "mode", "nothing"])
def test_functions_that_do_not_merge_are_refused(function: str) -> None:
    with pytest.raises(UnsupportedAggregate):
        aggregator_of(function, str if function == "string_agg" else float, float, os.getcwd())
