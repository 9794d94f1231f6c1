"""What is derived from plans: time attributes, windows, lateness; and the rules that simplify them."""

from __future__ import annotations

import pytest

from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.logical.plan.explain import logical_text
from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.node import Node, WindowColumns, WindowSize
from sqlstream.logical.plan.relational import Filter
from sqlstream.logical.plan.rules import RULES, drop_identity_projections, flatten_unions, merge_filters, optimize
from sqlstream.logical.plan.tables import ResultSink
from sqlstream.units import Duration
from tests.kinds import last_job

TABLES = """
CREATE TABLE a (k BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts)
  WITH ('connector' = 'filesystem', 'path' = 'a', 'format' = 'json');
CREATE TABLE b (k BIGINT, t TIMESTAMP, WATERMARK FOR t AS t)
  WITH ('connector' = 'filesystem', 'path' = 'b', 'format' = 'json');
"""
WINDOWS = "TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '10' SECOND)"


def planned(query: str) -> PlannedJob:
    return last_job(TABLES + query)


def plan(query: str) -> Node:
    return planned(query).logical[0].input


@pytest.mark.parametrize(
    ("query", "attribute"),
    [
        ("SELECT * FROM a", "ts"),
        ("SELECT k, ts AS t FROM a WHERE k > 1", "t"),
        ("SELECT k FROM a", None),
        ("SELECT ts + INTERVAL '1' SECOND AS ts FROM a", None),
        ("SELECT k, ts FROM a UNION ALL SELECT k, t FROM b", "ts"),
        # The first column is one in one of them only.
        ("SELECT ts, ts AS u FROM a UNION ALL SELECT t + INTERVAL '1' SECOND, t FROM b", "u"),
        (f"SELECT * FROM {WINDOWS}", "window_time"),
        (f"SELECT k, window_time AS w FROM {WINDOWS}", "w"),
        (f"SELECT window_end, COUNT(*) FROM {WINDOWS} GROUP BY window_start, window_end", None),
        (f"SELECT window_time, COUNT(*) FROM {WINDOWS} GROUP BY window_end, window_time", "window_time"),
    ],
)
def test_a_time_attribute_survives_what_passes_it_on(query: str, attribute: str | None) -> None:
    assert plan(query).time_attribute == attribute


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("SELECT * FROM a", None),
        (f"SELECT * FROM {WINDOWS}", WindowColumns("window_start", "window_end", "window_time")),
        (f"SELECT window_end AS e, k FROM {WINDOWS}", WindowColumns(None, "e", None)),
        # Without the end nothing says when a window is over.
        (f"SELECT window_start, k FROM {WINDOWS}", None),
        (
            f"SELECT window_start, window_end FROM {WINDOWS} UNION ALL SELECT window_start, window_end FROM {WINDOWS}",
            WindowColumns("window_start", "window_end", None),
        ),
        (
            f"SELECT window_start, window_end FROM {WINDOWS} UNION ALL SELECT window_end, window_start FROM {WINDOWS}",
            None,
        ),
    ],
)
def test_window_bounds_survive_what_passes_them_on(query: str, columns: WindowColumns | None) -> None:
    assert plan(query).window_columns == columns


def test_the_size_of_windows_is_known_where_it_is_one() -> None:
    ten = f"SELECT window_start, window_end FROM {WINDOWS}"
    minute = ten.replace("'10' SECOND", "'1' MINUTE")
    size = WindowSize("10 s", Duration(10_000_000))
    assert plan(ten).window_size == size
    assert plan(f"{ten} UNION ALL {ten}").window_size == size
    assert plan(f"{ten} UNION ALL {minute}").window_size is None
    month = ten.replace("'10' SECOND", "'1' MONTH")
    assert plan(month).window_size == WindowSize("1 month", None)
    assert plan(f"{month} UNION ALL {month}").window_size == WindowSize("1 month", None)
    shifted = month.replace("MONTH", "MONTH, INTERVAL '2' DAY")
    assert plan(shifted).window_size == WindowSize("1 month", None, "2 d")
    assert plan(f"{month} UNION ALL {shifted}").window_size is None


def test_rows_of_a_window_aggregate_are_never_late() -> None:
    counts = f"SELECT window_time AS ts, COUNT(*) AS n FROM {WINDOWS} GROUP BY window_end, window_time"
    raw = "SELECT ts, 1 FROM a"
    assert plan(counts).never_late
    assert not plan(raw).never_late
    assert not plan(f"{counts} UNION ALL {raw}").never_late


def test_rules_leave_alone_what_they_do_not_apply_to() -> None:
    job = planned(f"SELECT k + 1, COUNT(*) FROM {WINDOWS} WHERE k > 1 GROUP BY k, window_start, window_end")
    for rule in RULES:
        assert all(rule(node) is node for node in walk(job.logical[0]))
    assert optimize(job.logical[0]) == (job.logical[0], ())


def test_filters_merge_and_stay_volatile() -> None:
    job = planned("SELECT k FROM (SELECT * FROM a WHERE random() < 0.5) AS x WHERE k > 1")
    assert job.rules == ("drop_identity_projections", "merge_filters")
    [filter] = [node for node in walk(job.optimized[0]) if isinstance(node, Filter)]
    assert filter.predicate.volatile
    assert '("k" > 1)' in filter.predicate.sql
    assert "< 0.5" in filter.predicate.sql


def test_the_order_of_merged_conditions_is_kept() -> None:
    # The outer condition may fail where the inner one does not hold.
    job = planned("SELECT * FROM (SELECT * FROM (SELECT * FROM a WHERE k <> 0) AS x WHERE 10 / k > 1) AS y WHERE k < 5")
    [text] = [line.strip() for line in logical_text(job.optimized[0], schemas=False).splitlines() if "Filter" in line]
    assert text == 'Filter (("k" <> 0) AND (10 // "k" > 1)) AND ("k" < 5)'


def test_an_identity_projection_goes_a_renaming_one_stays() -> None:
    same = plan("SELECT * FROM a")
    renaming = plan("SELECT k AS ts, ts AS k FROM a")
    assert drop_identity_projections(same) is not same
    assert drop_identity_projections(renaming) is renaming


def test_unions_of_unions_become_one() -> None:
    job = planned("SELECT k FROM (SELECT k FROM a UNION ALL SELECT k FROM b) AS x UNION ALL SELECT k FROM a")
    assert "flatten_unions" in job.rules
    assert "Union of 3" in logical_text(job.optimized[0])
    assert "Union of 2" in logical_text(job.logical[0])


def test_unions_whose_columns_have_other_names_stay() -> None:
    job = planned("SELECT x AS k FROM (SELECT k AS x FROM a UNION ALL SELECT k FROM b) AS x UNION ALL SELECT k FROM a")
    assert merge_filters(job.logical[0]) is job.logical[0]
    assert "Union of 2" in logical_text(job.optimized[0])


def test_flattening_keeps_the_schema() -> None:
    union = plan("SELECT k FROM (SELECT k FROM a UNION ALL SELECT k FROM b) AS x UNION ALL SELECT k FROM a")
    assert flatten_unions(union).schema == union.schema


def test_the_plan_says_what_makes_a_job_another_one() -> None:
    base = f"SELECT k, COUNT(*) AS n FROM {WINDOWS} WHERE k > 1 GROUP BY k, window_start, window_end"
    assert planned(base).fingerprint == planned(base.replace("  ", " ").replace("WHERE", "\n WHERE")).fingerprint
    others = [
        base.replace("k > 1", "k > 2"),
        base.replace("'10' SECOND", "'20' SECOND"),
        base.replace("COUNT(*)", "COUNT(k)"),
        base.replace("AS n", "AS m"),
        base.replace("COUNT(*)", "COUNT(*) FILTER (WHERE k > 5)"),
        base.replace("COUNT(*)", "COUNT(DISTINCT k)"),
        base.replace("INTERVAL '10' SECOND", "INTERVAL '10' SECOND, INTERVAL '1' SECOND"),
    ]
    assert len({planned(query).fingerprint for query in [base, *others]}) == len(others) + 1


def test_a_sink_is_the_root() -> None:
    assert isinstance(planned("SELECT k FROM a").logical[0], ResultSink)
