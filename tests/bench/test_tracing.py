"""Pairs of batches with and without a profile."""

from __future__ import annotations

from collections import Counter

import pytest

from sqlstream.configuration import check_variables
from tests.bench.child import TRACES
from tests.bench.tracing import PLAIN, TRACED, Comparison, turns


def test_the_median_of_ratios_and_its_interval() -> None:
    ratios = [1.3, 1.0, 1.8, 1.1, 1.2, 1.4, 1.7, 1.5, 1.6]
    found = Comparison.of([2.0] * 9, [2.0 * ratio for ratio in ratios])
    # With nine pairs, a median outside of the second smallest and the second largest has a probability of 4 %.
    assert [found.low, found.ratio, found.high] == pytest.approx([1.1, 1.4, 1.7])
    assert found.pairs == 9


def test_each_pair_has_both_in_any_order() -> None:
    orders = Counter(turns(100))
    assert orders.keys() == {(PLAIN, TRACED), (TRACED, PLAIN)}
    assert min(orders.values()) > 30


def test_the_folder_for_traces_is_no_setting_of_sqlstream() -> None:
    """The engine that is measured refuses variables that look like its settings."""
    check_variables({TRACES: "traces"})
