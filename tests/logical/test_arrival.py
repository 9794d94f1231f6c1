"""The order of arrival in plans: which operators read it, in which direction, and that nobody else sees it."""

from __future__ import annotations

import re

import pytest

from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.duck.internal_columns import ARRIVED
from sqlstream.jobs.identity import planned_identity
from sqlstream.logical.plan.arrival import decided, has_arrival, has_total_order, with_arrival
from sqlstream.logical.plan.explain import logical_text
from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.node import Node
from sqlstream.logical.plan.over import Over
from sqlstream.logical.plan.ranks import Rank, WindowRank
from sqlstream.logical.plan.stateful import StatefulNode
from sqlstream.logical.plan.tables import Scan
from tests.kinds import last_job, of_type

TABLES = """
CREATE TABLE t (k BIGINT, x BIGINT, xs BIGINT[], ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'filesystem', 'path' = 't', 'format' = 'json');
CREATE TABLE u (k BIGINT, x BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'filesystem', 'path' = 'u', 'format' = 'json');
CREATE TABLE changes (op STRING, k BIGINT, x BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts, PRIMARY KEY (k) NOT ENFORCED)
  WITH ('connector' = 'filesystem', 'path' = 'c', 'format' = 'json', 'changelog.op-column' = 'op');
CREATE TABLE keyless (op STRING, k BIGINT, x BIGINT)
  WITH ('connector' = 'filesystem', 'path' = 'c', 'format' = 'json', 'changelog.op-column' = 'op');
CREATE TABLE users (k BIGINT, name STRING, PRIMARY KEY (k) NOT ENFORCED);
CREATE TABLE a (k BIGINT, n BIGINT);
CREATE TABLE b (k BIGINT, n BIGINT);
"""
FIRST_OF_X = "SELECT k, x FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY x ORDER BY p) = 1"
WINDOWS = "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"


def planned(query: str) -> PlannedJob:
    return last_job(TABLES + query)


def numbered(order: str, rows: str = "t", by: str = "k") -> str:
    return f"SELECT *, ROW_NUMBER() OVER (PARTITION BY {by} ORDER BY {order}) AS r FROM {rows}"


def ties(query: str) -> str | None:
    """Return what decides ties in the topmost operator that has any."""
    return next(
        (
            by
            for n in reversed(list(walk(planned(query).optimized[0])))
            if isinstance(n, StatefulNode) and (by := n.ties)
        ),
        None,
    )


def first(order: str, rows: str = "t", by: str = "k") -> str:
    return f"SELECT k FROM ({numbered(order, rows, by)}) WHERE r = 1"


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("t", "arrival"),
        ("(SELECT k, x + 1 AS x FROM t WHERE x > 1)", "arrival"),
        ("(SELECT k, UNNEST(xs) AS x FROM t)", "arrival"),
        ("(SELECT k, e AS x FROM t CROSS JOIN UNNEST(xs) AS l (e))", "arrival"),
        ("(SELECT k, x FROM t UNION ALL SELECT x, k FROM u)", "arrival"),
        ("(SELECT t.k, x FROM t JOIN users FOR SYSTEM_TIME AS OF t.p ON t.k = users.k)", "arrival"),
        (f"(SELECT k, x FROM {WINDOWS})", "arrival"),
        ("(SELECT k, x, SUM(x) OVER (PARTITION BY k ORDER BY ts) AS s FROM t)", "arrival"),
        ("(SELECT k % 2 AS k, x FROM changes)", "arrival"),
        ("(SELECT k % 2 AS k, x FROM keyless)", "columns"),
        ("(SELECT k % 2 AS k, UNNEST([x, k]) AS x FROM changes)", "columns"),
        (f"(SELECT k, x FROM ({FIRST_OF_X}))", "arrival"),
        ("(SELECT k % 2 AS k, COUNT(*) AS x FROM t GROUP BY k)", "columns"),
        ("(SELECT t.k, t.x FROM t JOIN u ON t.k = u.k)", "columns"),
        ("(SELECT k, x FROM t UNION ALL SELECT k, x FROM changes)", "arrival"),
        ("(SELECT k, x FROM t UNION ALL SELECT k, x FROM keyless)", "columns"),
        (f"(SELECT k, window_end, COUNT(*) AS x FROM {WINDOWS} GROUP BY k, window_start, window_end)", "columns"),
    ],
)
def test_rows_keep_their_order_through_what_passes_them_on(rows: str, expected: str) -> None:
    assert ties(f"INSERT INTO a {numbered('x', rows).replace('*, ROW', 'k, ROW')}") == expected


@pytest.mark.parametrize(
    ("query", "is_total"),
    [
        (first("ts DESC"), True),
        (numbered("p"), True),
        (numbered("x", "t", "k") + " QUALIFY r <= 3", True),
        (first("ts", "(SELECT k, x + 1 AS x, ts FROM t UNION ALL SELECT k, x, ts FROM u)"), True),
        # A row is in both inputs, or in both windows, with one place.
        (first("ts", "(SELECT k, x + 1 AS x, ts FROM t UNION ALL SELECT k, x, ts FROM t)"), False),
        (first("x", "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '2' MINUTE)"), False),
        (
            first(
                "x",
                "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '2' MINUTE)",
                "k, window_start, window_end",
            ),
            True,
        ),
        (first("x", WINDOWS, "k, window_start, window_end"), True),
        # Places tell the elements of lists apart, also of two, unless a rank between them has kept some of the rows.
        (first("ts", "(SELECT k, ts, y FROM t CROSS JOIN UNNEST(xs) AS e (y))"), True),
        (
            first("ts", "(SELECT k, ts, y, z FROM t CROSS JOIN UNNEST(xs) AS e (y) CROSS JOIN UNNEST(xs) AS f (z))"),
            True,
        ),
        # Columns decide ties, or nothing does.
        (first("ts", "(SELECT k, ts FROM changes)"), False),
        (numbered("ts").replace("ROW_NUMBER", "RANK"), False),
    ],
)
def test_places_tell_rows_apart_unless_several_are_made_of_one(query: str, is_total: bool) -> None:
    [node] = [n for n in walk(planned(query).optimized[0]) if isinstance(n, Rank | WindowRank | Over)]
    assert has_total_order(node, windowed=isinstance(node, WindowRank)) == is_total


@pytest.mark.parametrize(
    "query",
    [
        # Equal rows have equal ranks, and are peers.
        "SELECT k, RANK() OVER (PARTITION BY k ORDER BY x) FROM t",
        "SELECT k, SUM(x) OVER (PARTITION BY k ORDER BY ts) FROM t",
        "SELECT k, DENSE_RANK() OVER (PARTITION BY k ORDER BY ts) FROM t",
        # No two rows are equal in the order.
        "SELECT k, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY c, k) FROM "
        f"(SELECT k, window_start, window_end, COUNT(*) AS c FROM {WINDOWS} GROUP BY k, window_start, window_end)",
        "SELECT k, ROW_NUMBER() OVER (ORDER BY c, k) FROM (SELECT k, COUNT(*) AS c FROM t GROUP BY k)",
        "SELECT k, x FROM t WHERE x > 1",
    ],
)
def test_a_query_without_ties_does_not_ask_when_rows_came(query: str) -> None:
    job = planned(f"INSERT INTO a {query}")
    assert not any(has_arrival(n) for n in walk(job.optimized[0]))
    assert [n.ties for n in walk(job.optimized[0]) if isinstance(n, StatefulNode) and n.ties] == []
    assert decided(job.optimized) == list(job.optimized)


@pytest.mark.parametrize(
    ("order", "rows", "item"),
    [
        ("x", "t", ""),
        ("x DESC", "t", ""),
        ("x, p", "t", ""),
        ("p DESC", "t", " DESC"),
        ("ts DESC", "t", " DESC"),
        ("ts DESC, x", "t", " DESC"),
        ("x, ts DESC", "t", " DESC"),
        ("ts DESC, p", "t", ""),
        ("late DESC", "(SELECT k, ts AS late FROM t)", " DESC"),
        ("late DESC", "(SELECT k, ts AS late FROM t UNION ALL SELECT k, ts FROM u)", " DESC"),
        # It is no time attribute any more, but still a time.
        ("ts DESC", WINDOWS, " DESC"),
        ("later DESC", "(SELECT k, ts + INTERVAL '1' SECOND AS later FROM t)", ""),
    ],
)
def test_the_latest_row_is_first_where_the_latest_time_is(order: str, rows: str, item: str) -> None:
    nodes = walk(planned(f"INSERT INTO a (k) {first(order, rows)}").optimized[0])
    last = [n.order[-1].sql for n in nodes if isinstance(n, Rank)]
    assert last == [f'"{ARRIVED.name}"{item}']


@pytest.mark.parametrize(
    "query",
    [
        first("p DESC"),
        "SELECT * FROM (SELECT k, LAG(x) OVER (PARTITION BY k ORDER BY ts) FROM t)",
        f"SELECT k, ROW_NUMBER() OVER (PARTITION BY k, window_start, window_end ORDER BY x) FROM {WINDOWS}",
        "SELECT k, x FROM t ORDER BY ts",
        "SELECT k, COUNT(*) FROM TUMBLE_ROWS(TABLE t PARTITION BY k, DESCRIPTOR(ts), 3) "
        "GROUP BY k, window_id, window_start, window_end",
    ],
)
def test_nobody_sees_the_column(query: str) -> None:
    job = planned(f"INSERT INTO a {query.replace('SELECT k FROM', 'SELECT k, r FROM')}")
    assert any(has_arrival(n) for n in walk(job.optimized[0]))
    assert not has_arrival(job.optimized[0].input)
    [stage] = [s for s in job.physical.stages if s.node is not None and s.node.ties]
    assert ARRIVED.name not in {name for name, *_ in stage.view.columns}


def test_rows_that_differ_only_in_their_arrival_are_no_change() -> None:
    job = planned(f"INSERT INTO a (k) {first('p DESC')}")
    [stage] = job.physical.stages
    assert ARRIVED.name not in {c.name for c in stage.operator.outputs}


def test_a_scan_and_an_operator_run_once_for_those_who_need_the_order_and_those_who_do_not() -> None:
    running = "SELECT k, x, ts, SUM(x) OVER (PARTITION BY k ORDER BY ts) AS s FROM t"
    job = planned(
        f"CREATE VIEW v AS {running};"
        "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT k, s FROM v;"
        f"INSERT INTO b SELECT k, r FROM ({numbered('x DESC', 'v', 'k')}) WHERE r <= 3; END"
    )
    assert len(job.physical.scans) == 1
    assert [s.operator.kind for s in job.physical.stages] == ["over", "rank"]
    assert not any(has_arrival(sink.input) for sink in job.optimized)


def test_late_rows_do_not_have_the_column() -> None:
    lagging = "WITH v AS (SELECT k, x, LAG(x) OVER (PARTITION BY k ORDER BY ts) AS b FROM t)"
    job = planned(
        "EXECUTE STATEMENT SET BEGIN"
        f" INSERT INTO a {lagging} SELECT k, b FROM v;"
        f" INSERT INTO b {lagging} SELECT k, x FROM LATE_ROWS(TABLE v); END"
    )
    assert len(job.physical.stages) == 1
    assert not any(has_arrival(sink.input) for sink in job.optimized)


def test_unions_have_the_column_at_one_place() -> None:
    rows = f"(SELECT k, ts, x, window_end FROM {WINDOWS} UNION ALL SELECT k, ts, x, ts FROM u)"
    job = planned(f"INSERT INTO a {numbered('x', rows).replace('*, ROW', 'k, ROW')}")
    [union] = [n for n in walk(job.optimized[0]) if n.label == "UNION ALL"]
    assert {[f.name for f in n.schema].index(ARRIVED.name) for n in union.children} == {4}


def test_the_plan_of_a_job_by_the_old_rule_has_the_values_that_it_had() -> None:
    script = TABLES + f"INSERT INTO a (k) {first('p DESC')}"
    new = last_job(script)
    old = new.decided_by("columns")
    assert (old.ties, new.ties) == ("columns", "arrival")
    assert not any(has_arrival(n) for n in walk(old.optimized[0]))
    assert ARRIVED.name not in logical_text(old.optimized[0])
    assert planned_identity(old).digests != planned_identity(new).digests


def test_a_node_that_is_asked_twice_stays_one_node() -> None:
    def scan(node: Node) -> Node:
        return next(n for n in walk(node) if isinstance(n, Scan))

    below = planned("INSERT INTO a SELECT k, x FROM t WHERE x > 1").logical[0].input
    assert with_arrival(below) is with_arrival(below)
    assert re.search(ARRIVED.name, logical_text(of_type(Node, with_arrival(below))))  # type: ignore[type-abstract]
    assert has_arrival(scan(of_type(Node, with_arrival(below))))  # type: ignore[type-abstract]
