"""How plans are cut: stages in order, who feeds whom, over which ports."""

from __future__ import annotations

import pytest

from sqlstream.errors import UnsupportedError
from sqlstream.operators.operator import Port
from sqlstream.physical.plan import PhysicalPlan
from tests.kinds import last_job

TABLES = """
CREATE TABLE a (k BIGINT, s STRING, ts TIMESTAMP, u AS upper(s), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
  WITH ('connector' = 'filesystem', 'path' = 'a', 'format' = 'json');
CREATE TABLE b (k BIGINT, "Odd Name" TIMESTAMP, WATERMARK FOR "Odd Name" AS "Odd Name")
  WITH ('connector' = 'filesystem', 'path' = 'b', 'format' = 'json');
CREATE TABLE plain (k BIGINT) WITH ('connector' = 'filesystem', 'path' = 'c', 'format' = 'json');
CREATE TABLE out (k INT NOT NULL, n BIGINT);
"""
TEN = "TUMBLE(TABLE {0}, DESCRIPTOR({1}), INTERVAL '10' SECOND)"


def plan(query: str) -> PhysicalPlan:
    return last_job(TABLES + query).physical


def test_a_stateless_query_is_one_fragment() -> None:
    found = plan("SELECT k + 1 AS k FROM a WHERE k > 1")
    [scan] = found.scans
    assert found.stages == ()
    assert scan.fragments[0].exchange is None
    assert [name for name, _ in scan.fragments[0].parts] == ["rows"]
    assert [node for node, _ in found.feeding(None)] == [scan]


def test_a_scan_computes_columns_and_watermark() -> None:
    [scan] = plan("SELECT * FROM a").scans
    assert scan.columns == 'SELECT "k", "s", "ts", UPPER("s") AS "u" FROM _input'
    assert (scan.time_column, scan.watermark) == ("ts", "\"ts\" - INTERVAL '1' SECOND")
    [other] = plan("SELECT * FROM plain").scans
    assert (other.time_column, other.watermark) == (None, None)


def test_rows_go_to_the_bucket_of_their_key_and_without_one_of_their_window() -> None:
    keyed = plan(f"SELECT k, COUNT(*) FROM {TEN.format('a', 'ts')} GROUP BY k, s, window_start, window_end")
    assert keyed.scans[0].fragments[0].exchange is not None
    keys = keyed.scans[0].fragments[0].exchange.keys
    assert [(c.name, c.type) for c in keys] == [("__sqlstream_k0", "BIGINT"), ("__sqlstream_k1", "VARCHAR")]
    whole = plan(f"SELECT COUNT(*) FROM {TEN.format('a', 'ts')} GROUP BY window_start, window_end")
    assert whole.scans[0].fragments[0].exchange is not None
    assert [c.name for c in whole.scans[0].fragments[0].exchange.keys] == ["_window_end"]


def test_every_input_of_a_union_has_ports_of_its_own() -> None:
    found = plan(
        f"""WITH low AS (SELECT window_time AS t, COUNT(*) AS n FROM {TEN.format("a", "ts")} GROUP BY window_end, window_time),
        all_of AS (SELECT t, n FROM low UNION ALL SELECT "Odd Name", k FROM b)
        SELECT COUNT(DISTINCT n), SUM(n) FROM TUMBLE(TABLE all_of, DESCRIPTOR(t), INTERVAL '1' HOUR)
        GROUP BY window_start, window_end"""
    )
    low, high = found.stages
    assert [s.name for s in found.scans] == ["a", "b"]
    assert (low.name, high.name) == ("low", "window_aggregate_1")
    # Rows of an aggregate are on time, those of a table may be late.
    assert high.ports == (
        Port("partials", True),
        Port("values_0", True),
        Port("partials", False),
        Port("values_0", False),
    )
    assert low.fragments[0].exchange is not None
    assert low.fragments[0].exchange.ports == (("partials", 0), ("values_0", 1))
    assert found.scans[1].fragments[0].exchange is not None
    assert found.scans[1].fragments[0].exchange.ports == (("partials", 2), ("values_0", 3))
    assert [n.name for n, _ in found.feeding(1)] == ["b", "low"]


def test_stages_come_after_those_that_feed_them() -> None:
    count = "SELECT window_time AS t, COUNT(*) AS n FROM {0} GROUP BY window_start, window_end, window_time"
    low = count.format(TEN.format("a", "ts"))
    found = plan(
        f"""WITH x AS ({low}), y AS ({count.format(TEN.format("x", "t"))}),
        z AS (SELECT t, n FROM y UNION ALL SELECT t, n FROM x), w AS ({count.format(TEN.format("z", "t"))})
        SELECT n FROM w UNION ALL SELECT n FROM y"""
    )
    names = [s.name for s in found.stages]
    assert names == ["x", "y", "w"], "what is read twice is computed once"
    for place, stage in enumerate(found.stages):
        assert all(f.exchange is None or f.exchange.stage > place for f in stage.fragments)
    assert [n.name for n, _ in found.feeding(2)] == ["x", "y"]
    assert [n.name for n, _ in found.feeding(None)] == ["y", "w"]
    assert found.levels == ((0,), (1,), (2,))


def test_names_of_scans_and_operators_do_not_meet() -> None:
    found = plan(
        f"WITH a AS (SELECT COUNT(*) AS n FROM {TEN.format('a', 'ts')} GROUP BY window_start, window_end) SELECT n FROM a"
    )
    assert [s.name for s in found.scans] == ["a"]
    assert [s.name for s in found.stages] == ["a_2"]


def test_the_sink_converts_and_checks() -> None:
    found = plan("INSERT INTO out SELECT k, k FROM a")
    [(_, sql)] = found.scans[0].fragments[0].parts
    assert 'CAST("k" AS INTEGER) END AS "k"' in sql
    assert "is NOT NULL, but the query gives NULL" in sql
    assert found.sinks[0].columns == (("k", "INTEGER"), ("n", "BIGINT"))
    assert found.sinks[0].kind == "table"


def test_calls_over_the_same_rows_share_columns() -> None:
    [stage] = plan(
        f"""SELECT COUNT(*), SUM(k), AVG(k), COUNT(k), COUNT(DISTINCT s), string_agg(DISTINCT s, ','), list(s ORDER BY k)
        FROM {TEN.format("a", "ts")} GROUP BY window_start, window_end"""
    ).stages
    tables = {t.name: [c.name for c in t.columns] for t in stage.operator.tables}
    assert tables == {
        "partials": ["_window_end", "_rows", "p_0", "p_1"],
        "values_0": ["_window_end", "values_0_v0"],
        # Its own order, and the order of arrival.
        "values_1": ["_window_end", "values_1_v0", "values_1_o0", "values_1_o1"],
    }


def test_windows_of_several_sizes_keep_their_start() -> None:
    bounds = "SELECT window_start, window_end FROM {0}"
    minute = TEN.format("a", "ts").replace("'10' SECOND", "'1' MINUTE")
    [stage] = plan(
        f"""WITH x AS ({bounds.format(TEN.format("a", "ts"))} UNION ALL {bounds.format(minute)})
        SELECT window_start, window_end, COUNT(*) FROM x GROUP BY window_start, window_end"""
    ).stages
    assert [c.name for c in stage.operator.tables[0].columns] == ["_window_start", "_window_end", "_rows"]


def test_random_functions_are_refused_in_every_part_of_a_plan_with_state() -> None:
    for query in (
        "SELECT COUNT(*) FROM {0} WHERE random() < 1 GROUP BY window_start, window_end",
        "SELECT COUNT(*), random() FROM {0} GROUP BY window_start, window_end",
        "SELECT SUM(random()) FROM {0} GROUP BY window_start, window_end",
        "SELECT list(k ORDER BY random()) FROM {0} GROUP BY window_start, window_end",
        "SELECT COUNT(*) FILTER (WHERE uuid() IS NULL) FROM {0} GROUP BY window_start, window_end",
        "SELECT COUNT(*) FROM {0} GROUP BY random(), window_start, window_end",
    ):
        with pytest.raises(UnsupportedError, match="differs on replay"):
            plan(query.format(TEN.format("a", "ts")))
