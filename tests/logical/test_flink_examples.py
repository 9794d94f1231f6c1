"""Flink's published examples of functions: each gives Flink's result, or is in the manual's table of differences."""

from __future__ import annotations

import pytest

from tests.flink_examples import EXAMPLES, FAILS, REFUSED, Example, evaluated, fails, is_refused, literal


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.sql)
def test_it_has_the_result_that_is_said(example: Example) -> None:
    expected = example.here or example.flinks
    if expected == REFUSED:
        assert is_refused(example.sql)
    elif expected == FAILS:
        assert fails(example.sql)
    else:
        assert evaluated(example.sql) == literal(expected)


@pytest.mark.parametrize(
    "example", [e for e in EXAMPLES if e.here not in ("", REFUSED, FAILS)], ids=lambda example: example.sql
)
def test_the_results_that_are_said_to_differ_do(example: Example) -> None:
    assert literal(example.here) != literal(example.flinks)
