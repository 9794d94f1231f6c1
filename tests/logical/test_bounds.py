"""State that grows without a bound is said out loud, and nothing else is."""

from __future__ import annotations

import pytest

from sqlstream.compiler import Compiler, PlannedJob
from sqlstream.errors import Source, UnsupportedError
from sqlstream.options import Options

TABLES = """
CREATE TABLE bid (item STRING, user STRING, price BIGINT, paid BOOLEAN, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'datagen');
CREATE TABLE few (item STRING, n BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '10');
"""
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
    "SELECT item, price FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY price) AS n FROM bid) WHERE n > 3",
    "SELECT item, COUNT(*) AS n FROM bid GROUP BY item ORDER BY n DESC LIMIT 10",
    "(SELECT DISTINCT item FROM few) INTERSECT ALL SELECT item FROM bid",
    "SELECT n, COUNT(*) FROM (SELECT item, COUNT(*) AS n FROM bid GROUP BY item) GROUP BY n",
    f"SELECT /*+ LATE_ROWS('late') */ item, COUNT(*) FROM {WINDOWS} GROUP BY item, window_start, window_end",
    f"SELECT MAX(n) FROM (SELECT /*+ ALLOWED_LATENESS('1 d') */ COUNT(*) AS n FROM {WINDOWS} GROUP BY window_start, window_end)",
    "SELECT item, price, window_id FROM TUMBLE_ROWS(TABLE bid PARTITION BY item, DESCRIPTOR(ts), 100)",
    "SELECT b.item, COUNT(*) FROM (SELECT upper(item) AS item FROM bid) AS b GROUP BY b.item",
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
    "SELECT item FROM bid UNION ALL SELECT user FROM bid",
    "SELECT item, SUM(n) FROM few GROUP BY item",
    "SELECT DISTINCT item FROM few",
    "SELECT item FROM few EXCEPT SELECT 'x' FROM few",
]


def planned(query: str, choice: str = "warn") -> PlannedJob:
    compiler = Compiler(Options({"sqlstream.unbounded-state": choice}))
    compiler.scripts([Source("tables", TABLES)])
    [job] = compiler.jobs([Source("sql", query)])
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
