"""Which tables of a job are read by processing time, and which ranks keep event times: what was so stays so."""

from __future__ import annotations

import pytest

from sqlstream.logical.plan.graph import walk
from sqlstream.logical.plan.ranks import Rank
from sqlstream.logical.plan.tables import Scan
from tests.kinds import last_job

TABLES = """
CREATE TABLE a (k BIGINT, x BIGINT, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts);
CREATE TABLE b (k BIGINT, x BIGINT, p AS PROCTIME());
CREATE TABLE one (k BIGINT); CREATE TABLE other (k BIGINT);
"""
FIRST = "SELECT * FROM {0} QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY p) = 1"
LAST = "SELECT * FROM {0} QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY p DESC) = 1"
COUNTS = (
    "SELECT COUNT(*) FROM TUMBLE(TABLE ({0}), DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end"
)


def by_clock(query: str) -> set[tuple[str, bool]]:
    """Return the tables that a job reads, each with whether it reads it by processing time."""
    plans = last_job(TABLES + query).optimized
    return {(n.table.name, n.by_clock) for plan in plans for n in walk(plan) if isinstance(n, Scan)}


def times(query: str) -> list[tuple[str, ...]]:
    """Return the time attributes of the ranks of a job."""
    plans = last_job(TABLES + query).optimized
    return list({id(n): n.time_attributes for plan in plans for n in walk(plan) if isinstance(n, Rank)}.values())


@pytest.mark.parametrize("table", ["a", "b"])
@pytest.mark.parametrize(
    "query",
    [
        FIRST,
        "SELECT k, SUM(x) OVER (PARTITION BY k ORDER BY p) FROM {0}",
        "SELECT k, p FROM {0} ORDER BY p",
        "SELECT k FROM {0} QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY p) <= 3",
        f"SELECT k, COUNT(*) FROM ({FIRST}) GROUP BY k",
    ],
)
def test_a_job_without_event_time_reads_tables_by_processing_time(query: str, table: str) -> None:
    assert by_clock(query.format(table)) == {(table, True)}


def test_a_job_that_goes_by_event_time_reads_no_table_by_processing_time() -> None:
    assert by_clock(COUNTS.format(FIRST.format("a"))) == {("a", False)}
    both = f"INSERT INTO one SELECT k FROM ({FIRST.format('b')}); INSERT INTO other {COUNTS.format('SELECT * FROM a')};"
    assert by_clock(f"EXECUTE STATEMENT SET BEGIN {both} END") == {("a", False), ("b", False)}
    beside = f"INSERT INTO one SELECT k FROM ({FIRST.format('b')}); INSERT INTO other SELECT k FROM a;"
    assert by_clock(f"EXECUTE STATEMENT SET BEGIN {beside} END") == {("a", False), ("b", False)}


def test_a_rank_keeps_event_times_where_an_operator_goes_by_them() -> None:
    last = LAST.format("a")
    assert times(last) == [()]
    assert times(COUNTS.format(last)) == [("ts",)]
    assert times(f"SELECT l.k FROM ({last}) AS l JOIN b ON l.k = b.k") == [()]
    # One operator, as it would be if both read all of it.
    both = f"INSERT INTO one SELECT k FROM ({last}); INSERT INTO other {COUNTS.format(last)};"
    assert times(f"EXECUTE STATEMENT SET BEGIN {both} END") == [("ts",)]
