"""What operators compute, as a job records it: by this a changed query is compared with the job."""

from __future__ import annotations

import msgspec
import pytest

from sqlstream.jobs.upgrades.shapes import shapes
from sqlstream.warehouse.jobs import OperatorShape
from tests.kinds import last_job

TABLES = """
CREATE TABLE t (k STRING, v BIGINT, w BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'parquet');
CREATE TABLE u (k STRING, x BIGINT, us TIMESTAMP(3), WATERMARK FOR us AS us)
WITH ('connector' = 'filesystem', 'path' = 'other', 'format' = 'parquet');
"""
WINDOWS = "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)"
QUERIES = {
    "Aggregate": "SELECT k, count(*) AS n, avg(v) AS a, count(DISTINCT w) AS d FROM t GROUP BY k",
    "WindowAggregate": f"SELECT k, sum(v) AS s FROM {WINDOWS} GROUP BY k, window_start, window_end",
    "SessionWindow": "SELECT * FROM SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' SECOND)",
    "Rank": "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v) AS r FROM t) WHERE r <= 3",
    "WindowRank": "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY window_start, window_end ORDER BY v) AS r"
    f" FROM {WINDOWS}) WHERE r <= 3",
    "Over": "SELECT k, sum(v) OVER (PARTITION BY k ORDER BY ts) AS s, lag(w) OVER (PARTITION BY k ORDER BY ts) AS l FROM t",
    "Join": "SELECT t.k, v, x FROM t JOIN u ON t.k = u.k",
    "IntervalJoin": "SELECT t.k, v, x FROM t JOIN u ON t.k = u.k AND us BETWEEN ts - INTERVAL '1' MINUTE AND ts",
    "SetOperation": "SELECT k FROM t INTERSECT SELECT k FROM u",
    "Sort": "SELECT * FROM t ORDER BY ts",
}


@pytest.mark.parametrize("kind", QUERIES)
def test_a_shape_says_which_columns_of_state_hold_what(kind: str) -> None:
    plan = last_job(TABLES + QUERIES[kind]).physical
    [stage], [shape] = plan.stages, shapes(plan)
    assert shape.operator == kind
    assert msgspec.json.decode(msgspec.json.encode(shape), type=OperatorShape) == shape
    tables = {table.name: {c.name for c in table.columns} for table in stage.operator.tables}
    held = [item.columns for item in (*shape.keys, *shape.items) if item.columns]
    assert held
    assert all(set(columns) <= tables[table] for item in held for table, columns in item.items())
    # What is not internal is held for something.
    named = {name for columns in tables.values() for name in columns if not name.startswith("_")}
    assert named <= {name for item in held for columns in item.values() for name in columns}


def test_names_and_columns_on_the_way_do_not_matter() -> None:
    [one] = shapes(last_job(TABLES + "SELECT k, sum(v + 1) AS s FROM t GROUP BY k").physical)
    renamed = "SELECT q, sum(z) AS s FROM (SELECT k AS q, v + 1 AS z, w FROM t WHERE w > 1) GROUP BY q"
    [other] = shapes(last_job(TABLES + renamed).physical)
    assert [k.value for k in one.keys] == [k.value for k in other.keys]
    assert [i.value for i in one.items] == [i.value for i in other.items] == ['sum("v" + 1)']
