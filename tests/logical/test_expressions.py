"""What is known of expressions once they are bound, and what planning concludes from it."""

from __future__ import annotations

import pytest

from sqlstream.logical.plan.expressions import Dependencies, Expression
from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.joins import Join
from sqlstream.logical.plan.relational import Projection
from sqlstream.logical.plan.rules import optimize
from sqlstream.logical.plan.tables import Scan
from sqlstream.operators.windows.slices import SlicedWindows
from sqlstream.operators.windows.window_operator import WindowOperator
from tests.kinds import last_job

TABLES = """
CREATE TABLE a (k BIGINT, s STRING, l BIGINT[], ts TIMESTAMP, now_ BIGINT, p AS PROCTIME(), age AS NOW() - ts,
  WATERMARK FOR ts AS ts)
  WITH ('connector' = 'filesystem', 'path' = 'a', 'format' = 'json');
CREATE TABLE b (k BIGINT, "k s" BIGINT, s STRING)
  WITH ('connector' = 'filesystem', 'path' = 'b', 'format' = 'json');
CREATE TABLE "c" (k BIGINT, "getvariable('_now')" BIGINT, w AS CURRENT_WATERMARK("t"), "t" TIMESTAMP)
  WITH ('connector' = 'filesystem', 'path' = 'c', 'format' = 'json');
"""


def bound(item: str, table: str = "a") -> Expression:
    """Return an item of a select list, bound."""
    [sink] = last_job(f"{TABLES} SELECT {item} AS it, k + 1 AS other FROM {table}").logical
    assert isinstance(sink.input, Projection)
    return sink.input.items[0].expression


@pytest.mark.parametrize(
    ("item", "columns", "clock"),
    [
        ("k + 1", {"k"}, ""),
        ("K", {"k"}, ""),
        ("'\"k\"' || s", {"s"}, ""),
        ("CASE WHEN s = 'x' THEN a.k END", {"s", "k"}, ""),
        ("list_transform(l, x -> x + k)", {"l", "k"}, ""),
        ("1", set(), ""),
        ("NOW()", set(), "time"),
        ("s || 'getvariable(''_now'')'", {"s"}, ""),
        ("ts > CURRENT_TIMESTAMP", {"ts"}, "time"),
        ("LOCALTIME", set(), "time"),
        ("ts <= CURRENT_WATERMARK(ts)", {"ts"}, "watermark"),
        ("CURRENT_WATERMARK(ts) < NOW()", set(), "time watermark"),
    ],
)
def test_what_an_expression_reads(item: str, columns: set[str], clock: str) -> None:
    reads = bound(item).reads
    # Inside a lambda its parameter is a name, too.
    assert reads.columns - {"x"} == columns
    assert (reads.time, reads.watermark) == ("time" in clock, "watermark" in clock)
    assert reads.clock == bool(clock)


def test_a_name_that_looks_like_the_clock_is_none() -> None:
    found = bound("\"getvariable('_now')\"", '"c"')
    assert (found.reads, found.column) == (Dependencies(frozenset({"getvariable('_now')"})), "getvariable('_now')")


@pytest.mark.parametrize(
    ("item", "column"), [("k", "k"), ("(k)", "k"), ("k + 0", None), ("CAST(k AS BIGINT)", None), ("'k'", None)]
)
def test_which_column_an_expression_is(item: str, column: str | None) -> None:
    assert bound(item).column == column


@pytest.mark.parametrize(("item", "is_now"), [("NOW()", True), ("PROCTIME()", True), ("CURRENT_DATE", False)])
def test_what_is_the_time_of_the_batch(item: str, is_now: bool) -> None:
    assert bound(item).is_now == is_now


@pytest.mark.parametrize(
    ("item", "makes_rows"), [("unnest(l)", True), ("UNLIST(l) + 1", True), ("'unnest(l)'", False), ("l", False)]
)
def test_what_makes_rows(item: str, makes_rows: bool) -> None:
    assert bound(item).makes_rows == makes_rows


def test_a_computed_column_says_whether_it_reads_the_clock() -> None:
    tables = {s.table.name: s.table for q in ("a", '"c"') for s in _scans(f"SELECT k FROM {q}")}
    clocks = {c.name: (c.reads_clock, c.reads_watermark) for t in tables.values() for c in t.columns if c.expression}
    assert clocks == {"p": (True, False), "age": (True, False), "w": (True, True)}


def _scans(query: str) -> list[Scan]:
    [sink] = last_job(TABLES + query).logical
    return [n for n in walk(sink) if isinstance(n, Scan)]


def test_a_join_keeps_no_column_that_only_a_text_names() -> None:
    query = """SELECT a.k, '"s" "k s"' AS it FROM a JOIN b ON a.k = b.k WHERE '"now_"' <> 'x'"""
    plan, _ = optimize(last_job(TABLES + query).logical[0])
    [join] = [n for n in walk(plan) if isinstance(n, Join)]
    assert [[f.name for f in below.schema] for below in join.inputs] == [["k"], ["k_1"]]


def test_slices_stay_where_only_a_text_names_a_bound() -> None:
    windows = "HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)"
    query = (
        f"""SELECT window_end, COUNT(*) FILTER (WHERE s <> '"window_start"') AS n FROM {windows} GROUP BY window_end"""
    )
    [stage] = last_job(TABLES + query).physical.stages
    assert isinstance(stage.operator, WindowOperator)
    assert isinstance(stage.operator.groups.windows, SlicedWindows)


@pytest.mark.parametrize(
    ("query", "asks"),
    [
        ("SELECT k FROM a WHERE s <> 'getvariable(''_watermark'')'", False),
        ("SELECT k FROM a WHERE ts > CURRENT_WATERMARK(ts)", True),
        ("SELECT k, NOW() FROM a", False),
        ('SELECT w FROM "c"', True),
    ],
)
def test_which_job_asks_for_its_watermark(query: str, asks: bool) -> None:
    assert last_job(TABLES + query).physical.asks_watermark == asks
