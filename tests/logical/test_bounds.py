"""State that grows without a bound is said out loud, and nothing else is."""

from __future__ import annotations

from functools import cache

import pytest

from sqlstream.compiler.compiler import Compiler
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import SourceText, UnsupportedError
from sqlstream.options import Options

TABLES = """
CREATE TABLE bid (item STRING, user STRING, price BIGINT, paid BOOLEAN, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'datagen');
CREATE TABLE few (item STRING, n BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '10');
CREATE TABLE orders (id BIGINT, item STRING, price BIGINT, ts TIMESTAMP(3), PRIMARY KEY (id) NOT ENFORCED, WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'format' = 'debezium-json', 'path' = 'x', 'source.monitor-interval' = '1 s');
CREATE TABLE moves (item STRING, n BIGINT) WITH (
    'connector' = 'filesystem', 'format' = 'json', 'path' = 'y', 'source.monitor-interval' = '1 s', 'changelog.op-column' = 'op'
);
"""
HOURS = "TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' HOUR)"
WINDOWS = "TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
GROWING = [
    "SELECT item, COUNT(*) FROM bid GROUP BY item",
    "SELECT item, paid, COUNT(*) FROM bid GROUP BY item, paid",
    "SELECT COUNT(DISTINCT user) FROM bid",
    "SELECT LIST(price ORDER BY ts) FROM bid",
    "SELECT DISTINCT item FROM bid",
    "SELECT paid, COUNT(DISTINCT user) FROM bid GROUP BY paid",
    f"SELECT item, COUNT(*) FROM {WINDOWS} GROUP BY item",
    f"SELECT item, SUM(n) FROM (SELECT item, COUNT(*) AS n FROM {WINDOWS} GROUP BY item, window_start, window_end) GROUP BY item",
    "SELECT item, user, COUNT(*) FROM bid GROUP BY ROLLUP (item, user)",
    "SELECT item FROM bid UNION SELECT user FROM bid",
    "SELECT item FROM bid INTERSECT SELECT user FROM bid",
    "SELECT item FROM bid EXCEPT ALL SELECT user FROM bid",
    "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY item ORDER BY price DESC) AS n FROM bid) WHERE n <= 3",
    "SELECT item FROM bid QUALIFY ROW_NUMBER() OVER (PARTITION BY item ORDER BY ts DESC) = 1",
    "SELECT *, RANK() OVER (ORDER BY price) AS n FROM bid",
    "SELECT item, SUM(price) OVER (PARTITION BY item ORDER BY ts) FROM bid",
    "SELECT item, ROW_NUMBER() OVER (PARTITION BY item ORDER BY ts) FROM bid",
    "SELECT FIRST_VALUE(price) OVER (PARTITION BY item ORDER BY ts) FROM bid",
    "SELECT LAG(price) OVER (PARTITION BY item ORDER BY ts) FROM bid",
    "SELECT LEAD(price, 3) OVER (PARTITION BY item ORDER BY ts) FROM bid",
    "SELECT AVG(price) OVER (PARTITION BY item ORDER BY ts ROWS 5 PRECEDING) FROM bid",
    "SELECT median(price) OVER (ORDER BY ts) FROM bid",
    "SELECT COUNT(DISTINCT user) OVER (ORDER BY ts) FROM bid",
    "SELECT NTH_VALUE(user, 3) OVER (ORDER BY ts) FROM bid",
    "SELECT SUM(price) OVER (ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) FROM bid",
    "SELECT item, price FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY price) AS n FROM bid) WHERE n > 3",
    "SELECT item, COUNT(*) AS n FROM bid GROUP BY item ORDER BY n DESC LIMIT 10",
    "(SELECT DISTINCT item FROM few) INTERSECT ALL SELECT item FROM bid",
    "SELECT n, COUNT(*) FROM (SELECT item, COUNT(*) AS n FROM bid GROUP BY item) GROUP BY n",
    f"SELECT /*+ LATE_ROWS('late') */ item, COUNT(*) FROM {WINDOWS} GROUP BY item, window_start, window_end",
    f"SELECT MAX(n) FROM (SELECT /*+ ALLOWED_LATENESS('1 d') */ COUNT(*) AS n FROM {WINDOWS} GROUP BY window_start, window_end)",
    "SELECT item, price, window_id FROM TUMBLE_ROWS(TABLE bid PARTITION BY item, DESCRIPTOR(ts), 100)",
    "SELECT b.item, COUNT(*) FROM (SELECT upper(item) AS item FROM bid) AS b GROUP BY b.item",
    # What is forgotten below is not taken back: it stays above.
    "SELECT n, COUNT(*) FROM (SELECT /*+ STATE_TTL('bid' = '1 d') */ item, COUNT(*) AS n FROM bid GROUP BY item) GROUP BY n",
    "SELECT /*+ STATE_TTL('bid' = '0') */ item, COUNT(*) FROM bid GROUP BY item",
    "SELECT item, MAX(price) FROM bid GROUP BY item HAVING MAX(price) > 3",
    f"SELECT window_start, item, COUNT(*) FROM {WINDOWS} GROUP BY window_start, item UNION SELECT ts, item, price FROM bid",
    "SELECT paid, MAX(n) FROM (SELECT item, paid, COUNT(*) AS n FROM bid GROUP BY item, paid) GROUP BY paid",
    "(SELECT item FROM few) EXCEPT SELECT item FROM bid",
    "SELECT item, QUANTILE_CONT(price, 0.5) FROM bid GROUP BY item",
    f"SELECT item, SUM(n) FROM (SELECT item, COUNT(*) AS n FROM {HOURS} GROUP BY item, window_start, window_end) GROUP BY item",
    "SELECT item FROM moves EXCEPT SELECT item FROM bid",
    "SELECT b.item, n FROM bid b JOIN few f ON b.item = f.item",
    "SELECT b.item, n FROM few f LEFT JOIN bid b ON b.item = f.item AND b.ts > TIMESTAMP '2026-01-01'",
    "SELECT b.item, n FROM bid b LEFT JOIN moves m ON b.item = m.item",
    "SELECT a.item FROM bid a JOIN bid b ON a.item = b.item AND a.ts > b.ts",
    "SELECT /*+ STATE_TTL('b' = '1 d') */ a.item FROM bid a JOIN bid b ON a.item = b.item",
    "SELECT a.item, n, o.id FROM bid a JOIN moves m ON a.item = m.item JOIN orders o ON o.item = a.item",
    "SELECT n, price FROM few CROSS JOIN bid",
    "SELECT item FROM bid WHERE item IN (SELECT item FROM moves)",
    "SELECT item FROM moves m WHERE NOT EXISTS (SELECT 1 FROM bid b WHERE b.item = m.item)",
    f"SELECT b.item, n FROM (SELECT item, COUNT(*) AS n FROM {WINDOWS} GROUP BY item, window_start, window_end) b "
    "JOIN orders o ON o.item = b.item",
]
BOUNDED = [
    "SELECT item, price FROM bid WHERE price > 3",
    "SELECT COUNT(*), SUM(price), MAX(ts) FROM bid",
    "SELECT paid, AVG(price) FROM bid GROUP BY paid",
    f"SELECT item, COUNT(*) FROM {WINDOWS} GROUP BY item, window_start, window_end",
    f"SELECT COUNT(DISTINCT user), LIST(item) FROM {WINDOWS} GROUP BY window_start, window_end",
    "SELECT item, user, price FROM bid ORDER BY price DESC LIMIT 10",
    "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY price) AS n FROM bid) WHERE n BETWEEN 2 AND 5",
    f"SELECT item FROM {WINDOWS} QUALIFY ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price) = 1",
    f"SELECT MAX(n) FROM (SELECT COUNT(*) AS n FROM {WINDOWS} GROUP BY window_start, window_end)",
    f"SELECT /*+ ALLOWED_LATENESS('1 d') */ item, COUNT(*) FROM {WINDOWS} GROUP BY item, window_start, window_end",
    f"SELECT /*+ EARLY_FIRE('1 s') */ COUNT(*) FROM {WINDOWS} GROUP BY window_start, window_end",
    "SELECT item, price, window_id FROM TUMBLE_ROWS(TABLE bid, DESCRIPTOR(ts), 100)",
    "SELECT paid, price, window_id FROM TUMBLE_ROWS(TABLE bid PARTITION BY paid, DESCRIPTOR(ts), 100)",
    "SELECT /*+ STATE_TTL('bid' = '1 d') */ item, window_id FROM HOP_ROWS(TABLE bid PARTITION BY item, DESCRIPTOR(ts), 10, 100)",
    "SELECT item FROM bid UNION ALL SELECT user FROM bid",
    "SELECT SUM(price) OVER (ORDER BY ts), ROW_NUMBER() OVER (ORDER BY ts), FIRST_VALUE(price) OVER (ORDER BY ts) FROM bid",
    "SELECT SUM(price) OVER (PARTITION BY paid ORDER BY ts), LAG(price, 3) OVER (PARTITION BY paid ORDER BY ts) FROM bid",
    "SELECT item, median(price) OVER (PARTITION BY item ORDER BY ts RANGE INTERVAL '1' HOUR PRECEDING) FROM bid",
    "SELECT COUNT(*) OVER (PARTITION BY item ORDER BY ts RANGE BETWEEN CURRENT ROW AND INTERVAL '1' HOUR FOLLOWING) FROM bid",
    "SELECT item, price FROM bid ORDER BY ts, price",
    "SELECT item, SUM(n) FROM few GROUP BY item",
    "SELECT DISTINCT item FROM few",
    "SELECT item FROM few EXCEPT SELECT 'x' FROM few",
    "SELECT /*+ STATE_TTL('bid' = '1 d') */ item, COUNT(*) FROM bid GROUP BY item",
    "SELECT /*+ STATE_TTL('b' = '1 d') */ DISTINCT item FROM bid AS b",
    "SELECT /*+ STATE_TTL('bid' = '1 d') */ item FROM bid UNION SELECT user FROM bid",
    "SELECT /*+ STATE_TTL('bid' = '1 d') */ item, ROW_NUMBER() OVER (PARTITION BY item ORDER BY price) AS n FROM bid",
    "SELECT /*+ STATE_TTL('x' = '1 d') */ n, COUNT(*) FROM (SELECT /*+ STATE_TTL('bid' = '1 d') */ item, COUNT(*) AS n "
    "FROM bid GROUP BY item) AS x GROUP BY n",
    "SELECT item, price FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY paid ORDER BY price) AS n FROM bid) WHERE n < 4",
    f"SELECT window_start, window_end, MAX(price) FROM {WINDOWS} GROUP BY window_start, window_end",
    "SELECT paid, MIN(price) FILTER (WHERE item = 'x'), COUNT(*) FROM bid GROUP BY ROLLUP (paid)",
    "SELECT DISTINCT paid FROM bid",
    "SELECT paid FROM bid EXCEPT ALL SELECT paid FROM bid",
    "SELECT paid FROM bid UNION SELECT paid FROM bid",
    # A table whose changes are read is as large as it is elsewhere.
    "SELECT * FROM orders",
    "SELECT item, COUNT(*), MAX(price) FROM orders GROUP BY item",
    "SELECT item, SUM(n) FROM moves GROUP BY item",
    "SELECT item FROM moves INTERSECT SELECT item FROM orders",
    "SELECT * FROM orders QUALIFY ROW_NUMBER() OVER (PARTITION BY item ORDER BY price DESC) = 1",
    f"SELECT item, COUNT(*) FROM {HOURS} GROUP BY item, window_start, window_end",
    "SELECT a.item FROM bid a JOIN bid b ON a.item = b.item AND b.ts BETWEEN a.ts - INTERVAL '1' HOUR AND a.ts",
    "SELECT a.item FROM bid a FULL JOIN bid b ON a.item = b.item AND a.ts = b.ts",
    "SELECT a.item FROM bid a WHERE EXISTS (SELECT 1 FROM bid b WHERE b.item = a.item AND b.ts > a.ts "
    "AND b.ts < a.ts + INTERVAL '1' HOUR)",
    f"SELECT a.item FROM {WINDOWS} a JOIN {WINDOWS} b ON a.item = b.item AND a.window_start = b.window_start "
    "AND a.window_end = b.window_end",
    "SELECT o.id, n FROM orders o LEFT JOIN moves m ON o.item = m.item",
    "SELECT o.item, f.n FROM few o JOIN few f ON o.n = f.n",
    "SELECT /*+ STATE_TTL('b' = '1 d', 'o' = '2 d') */ b.item FROM bid b JOIN bid o ON o.item = b.item",
    "SELECT /*+ STATE_TTL('b' = '1 d') */ b.item FROM bid b JOIN orders o ON o.item = b.item",
    "SELECT o.id FROM orders o WHERE o.item NOT IN (SELECT item FROM moves)",
]


@cache
def compiler(choice: str) -> Compiler:
    """Return a compiler that knows the tables; planning a query leaves it as it is."""
    made = Compiler(Options({"sqlstream.unbounded-state": choice}))
    made.scripts([SourceText("tables", TABLES)])
    return made


def planned(query: str, choice: str = "warn") -> PlannedJob:
    [job] = compiler(choice).jobs([SourceText("sql", query)])
    return job


@pytest.mark.parametrize("query", GROWING)
def test_state_that_grows_is_warned_of_where_it_is_kept(query: str) -> None:
    warnings = planned(query).warnings
    assert len(warnings) == 1
    assert warnings[0].span is not None
    assert warnings[0].render().startswith("warning: the state of ")
    assert planned(query, "allow").warnings == ()
    with pytest.raises(UnsupportedError, match="grows without a bound"):
        planned(query, "error")


@pytest.mark.parametrize("query", BOUNDED)
def test_state_that_is_bounded_is_not(query: str) -> None:
    assert planned(query, "error").warnings == ()


@pytest.mark.parametrize("condition", ["TIMESTAMPDIFF(HOUR, a.ts, b.ts) BETWEEN 0 AND 1", "a.ts >= b.ts"])
def test_a_condition_that_bounds_no_times_is_named(condition: str) -> None:
    [warning] = planned(f"SELECT a.item FROM bid a JOIN bid b ON a.item = b.item AND {condition}").warnings
    assert warning.hint is not None
    assert warning.hint.startswith(f"{condition} is not read as a bound")


def test_of_changing_rows_no_spelling_is_to_blame() -> None:
    query = (
        "SELECT b.item FROM bid b JOIN orders o ON b.item = o.item AND b.ts BETWEEN o.ts - INTERVAL '1' HOUR AND o.ts"
    )
    [warning] = planned(query).warnings
    assert warning.hint is not None
    assert "is not read as a bound" not in warning.hint
