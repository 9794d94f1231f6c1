"""Jobs with operators of event time and of the clock, in this process: they end, go on, and need no row for the clock."""

from __future__ import annotations

from pathlib import Path

from tests.local.test_engine import put, session, start
from tests.processes import SECONDS, wait_until

TABLE = """
CREATE TABLE t (k BIGINT, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'parquet'{options});
CREATE TABLE of_event (k BIGINT, n BIGINT);
CREATE TABLE of_both (n BIGINT);
CREATE VIEW v AS SELECT k, COUNT(*) AS n, PROCTIME() AS p FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY k, window_start, window_end;
EXECUTE STATEMENT SET BEGIN
INSERT INTO of_event SELECT k, n FROM v;
INSERT INTO of_both SELECT SUM(n) FROM TUMBLE(TABLE v, DESCRIPTOR(p), INTERVAL {size}) GROUP BY window_start, window_end;
END;
"""


def test_a_bounded_job_ends_with_its_windows_of_both_times_closed(tmp_path: Path) -> None:
    put(tmp_path, "a", (1, 1), (1, 2), (2, 3))
    put(tmp_path, "b", (1, 11), (1, 25))
    with session(tmp_path) as s:
        job = start(s, TABLE.format(options=", 'source.max-files-per-batch' = '1'", size="'100000' DAY"))
        assert job.wait(SECONDS)
        assert job.status == "FINISHED"
        assert sorted(s.query("SELECT k, n FROM of_event").fetchall()) == [(1, 1), (1, 1), (1, 2), (2, 1)]
        # The window of the clock would close in the year 2243; it closes with the input.
        assert s.query("SELECT n FROM of_both").fetchall() == [(5,)]


def test_windows_of_the_clock_close_without_a_row_after_a_restart(tmp_path: Path) -> None:
    script = TABLE.format(options=", 'source.monitor-interval' = '10 ms'", size="'1' SECOND")
    put(tmp_path, "a", (1, 1), (1, 2), (2, 15))
    with session(tmp_path) as s:
        job = start(s, script)
        wait_until(lambda: s.query("SELECT k, n FROM of_event").fetchall() == [(1, 2)])
        job.stop()
    with session(tmp_path) as s:
        job = start(s, script)
        wait_until(lambda: s.query("SELECT n FROM of_both").fetchall() == [(2,)])
        job.stop()
