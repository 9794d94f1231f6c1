"""Sessions over more rows than DuckDB sorts at once: equal times and equal pieces may come in any order."""

from __future__ import annotations

import duckdb
import pytest

from sqlstream.testing import Stream

SCRIPT = """
CREATE TABLE click (k BIGINT, x BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '4' SECOND);
CREATE TABLE out (k BIGINT, window_start TIMESTAMP, window_end TIMESTAMP, n BIGINT, total BIGINT);
INSERT INTO out SELECT k, window_start, window_end, COUNT(*), SUM(x)
FROM SESSION(TABLE click PARTITION BY k, DESCRIPTOR(ts), INTERVAL '0.05' SECOND) GROUP BY k, window_start, window_end
"""
# Up to 2 s out of order, so that the rows of a session come in two batches.
CLICKS = """SELECT CAST(hash(i, 'auction') % 100 AS BIGINT) AS k, i AS x,
make_timestamp(CAST(1767225600000000 + i * 150 - hash(i, 'late') % 2000000 AS BIGINT) // {unit} * {unit}) AS ts
FROM range({first}, {last}) r(i)"""
SESSIONS = """WITH marked AS (
    SELECT *, CASE WHEN ts <= lag(ts) OVER (PARTITION BY k ORDER BY ts) + INTERVAL '0.05' SECOND THEN 0 ELSE 1 END AS begins
    FROM ({rows})
), numbered AS (SELECT *, sum(begins) OVER (PARTITION BY k ORDER BY ts) AS number FROM marked)
SELECT k::BIGINT, min(ts), max(ts) + INTERVAL '0.05' SECOND, count(*), sum(x)::BIGINT FROM numbered GROUP BY k, number"""


@pytest.mark.slow
@pytest.mark.parametrize("unit", [1, 1000], ids=["microseconds", "milliseconds"])
def test_sessions_of_many_rows_are_those_of_a_batch(unit: int) -> None:
    rows, batches = 25_000, 8
    with duckdb.connect() as con, Stream(SCRIPT) as stream:
        for number in range(batches):
            sql = CLICKS.format(unit=unit, first=number * rows, last=(number + 1) * rows)
            stream.batch("click", con.sql(sql).to_arrow_table())
        stream.finish()
        everything = CLICKS.format(unit=unit, first=0, last=rows * batches)
        assert sorted(stream.rows("out")) == sorted(con.sql(SESSIONS.format(rows=everything)).fetchall())
