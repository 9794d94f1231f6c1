"""Jobs whose operators are adapted to a changed query: what follows is DuckDB's answer over all rows, or over those since."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from tests.jobs.savepoint_jobs import INPUT, Rows, put
from tests.jobs.upgrades.upgrade_jobs import go_on, rows_of

FIRST: Rows = [(1, 1), (1, 2), (2, 3), (1, 12), (2, 13)]
THEN: Rows = [(2, 14), (3, 15), (1, 23), (3, 24), (1, 45)]
VIEW = "CREATE VIEW v AS SELECT k, CAST(epoch(ts) AS INT) AS x, ts FROM t;"

BEFORE = """
CREATE TABLE totals (k BIGINT, n BIGINT, s BIGINT, PRIMARY KEY (k) NOT ENFORCED);
CREATE TABLE windows (k BIGINT, until TIMESTAMP(3), s BIGINT);
CREATE TABLE running (k BIGINT, x INT, s BIGINT);
CREATE TABLE best (k BIGINT, x INT, r BIGINT, PRIMARY KEY (k, r) NOT ENFORCED);
CREATE TABLE pairs (k BIGINT, x INT, y INT);
EXECUTE STATEMENT SET BEGIN
INSERT INTO totals
WITH by_key AS (SELECT k, count(*) AS n, sum(x) AS s, count(x) AS c FROM v GROUP BY k) SELECT k, n, s FROM by_key;
INSERT INTO windows WITH by_window AS (
    SELECT k, window_end, sum(x) AS s FROM TUMBLE(TABLE v, DESCRIPTOR(ts), INTERVAL '5' SECOND)
    GROUP BY k, window_start, window_end
) SELECT k, window_end, s FROM by_window;
INSERT INTO running
WITH in_order AS (SELECT k, x, sum(x) OVER (PARTITION BY k ORDER BY ts) AS s FROM v) SELECT k, x, s FROM in_order;
INSERT INTO best WITH top AS (
    SELECT * FROM (SELECT k, x, row_number() OVER (PARTITION BY k ORDER BY x DESC) AS r FROM v) WHERE r <= 2
) SELECT k, x, r FROM top;
INSERT INTO pairs
WITH joined AS (SELECT l.k, l.x, r.x AS y FROM v l JOIN v r ON l.k = r.k AND l.x < r.x) SELECT k, x, y FROM joined;
END;
"""
AFTER = """
CREATE TABLE totals (k BIGINT, n BIGINT, m DOUBLE, high INT, PRIMARY KEY (k) NOT ENFORCED);
CREATE TABLE windows (k BIGINT, until TIMESTAMP(3), s BIGINT, n BIGINT);
CREATE TABLE running (k BIGINT, x INT, s BIGINT, n BIGINT);
CREATE TABLE best (k BIGINT, x INT, r BIGINT, PRIMARY KEY (k, r) NOT ENFORCED);
CREATE TABLE pairs (k BIGINT, x INT, y INT, later TIMESTAMP(3));
EXECUTE STATEMENT SET BEGIN
INSERT INTO totals
WITH by_key AS (SELECT k, count(*) AS n, avg(x) AS m, max(x) AS high FROM v GROUP BY k) SELECT k, n, m, high FROM by_key;
INSERT INTO windows WITH by_window AS (
    SELECT k, window_end, sum(x) AS s, count(*) AS n FROM TUMBLE(TABLE v, DESCRIPTOR(ts), INTERVAL '20' SECOND)
    GROUP BY k, window_start, window_end
) SELECT k, window_end, s, n FROM by_window;
INSERT INTO running WITH in_order AS (
    SELECT k, x, sum(x) OVER (PARTITION BY k ORDER BY ts) AS s, count(*) OVER (PARTITION BY k ORDER BY ts) AS n FROM v
) SELECT k, x, s, n FROM in_order;
INSERT INTO best WITH top AS (
    SELECT * FROM (SELECT k, x, row_number() OVER (PARTITION BY k ORDER BY x DESC) AS r FROM v) WHERE r <= 3
) SELECT k, x, r FROM top;
INSERT INTO pairs WITH joined AS (
    SELECT l.k, l.x, r.x AS y, r.ts AS later FROM v l JOIN v r ON l.k = r.k AND l.x < r.x
) SELECT k, x, y, later FROM joined;
END;
"""


def batch(sql: str, **tables: Rows) -> list[tuple[object, ...]]:
    """Return what DuckDB says of rows of keys and seconds, sorted."""
    with duckdb.connect() as con:
        for name, rows in tables.items():
            con.execute(f"CREATE TABLE {name} (k BIGINT, x INT)")
            con.executemany(f"INSERT INTO {name} VALUES (?, ?)", [list(row) for row in rows])
        return sorted(con.execute(sql).fetchall(), key=repr)


@pytest.mark.slow
def test_every_family_goes_on(tmp_path: Path) -> None:
    put(tmp_path, "a", FIRST)
    go_on(tmp_path, INPUT + VIEW + BEFORE, FIRST)
    put(tmp_path, "b", THEN)
    go_on(tmp_path, INPUT + VIEW + AFTER, [*FIRST, *THEN], upgrade=True)
    whole: dict[str, Rows] = {"v": [*FIRST, *THEN], "since": THEN, "before": FIRST}

    totals = "SELECT k, count(*), avg(x), (SELECT max(x) FROM since WHERE since.k = v.k) FROM v GROUP BY k"
    assert rows_of(tmp_path, "SELECT k, n, m, high FROM totals") == batch(totals, **whole)
    # Windows of 5 s that ended before stay; of the one of 20 s that was open there are the rows since the oldest open one.
    early = (
        "SELECT k, make_timestamp((x // 5 + 1) * 5000000), sum(x), NULL::BIGINT FROM before WHERE x < 10 GROUP BY ALL"
    )
    late = "SELECT k, make_timestamp((x // 20 + 1) * 20000000), sum(x), count(*) FROM v WHERE x BETWEEN 10 AND 39 GROUP BY ALL"
    assert rows_of(tmp_path, "FROM windows") == batch(f"{early} UNION ALL {late}", **whole)
    sums = "SELECT k, x, sum(x) OVER (PARTITION BY k ORDER BY x) AS s FROM v"
    # The row at the watermark, the last one, waits.
    assert rows_of(tmp_path, "SELECT k, x, s FROM running WHERE x < 45") == batch(
        f"FROM ({sums}) WHERE x < 45", **whole
    )
    pairs = "SELECT l.k, l.x, r.x FROM v l JOIN v r ON l.k = r.k AND l.x < r.x"
    assert rows_of(tmp_path, "SELECT k, x, y FROM pairs") == batch(pairs, **whole)
    # Of rows so far the best 2 were kept.
    kept = "SELECT * FROM before QUALIFY row_number() OVER (PARTITION BY k ORDER BY x DESC) <= 2 UNION ALL FROM since"
    best = f"SELECT *, row_number() OVER (PARTITION BY k ORDER BY x DESC) AS r FROM ({kept}) QUALIFY r <= 3"
    assert rows_of(tmp_path, "FROM best") == batch(best, **whole)
