"""A table that a job scans with and without the columns of its rows' order: each step of EXPLAIN names the scan that it reads."""

from __future__ import annotations

import re
from pathlib import Path

from sqlstream.session.explaining import plan_text
from tests.jobs.savepoint_jobs import open_session, planned

# The upserted table takes the last row of a key in the order of the files; the windows do not read that order.
SCRIPT = """
CREATE TABLE t (k BIGINT, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'source.monitor-interval' = '1 s');
CREATE TABLE a (k BIGINT, v INT, PRIMARY KEY (k) NOT ENFORCED)
WITH ('connector' = 'postgresql', 'url' = 'postgresql://u@h/d', 'table' = 'a');
CREATE TABLE b (k BIGINT, n BIGINT);
BEGIN STATEMENT SET;
INSERT INTO a SELECT k, v FROM t;
INSERT INTO b SELECT k, COUNT(*) AS n
FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY k, window_start, window_end;
END;
"""


def test_each_step_names_the_scan_that_it_reads(tmp_path: Path) -> None:
    with open_session(tmp_path) as session:
        job = planned(session, SCRIPT)
        text = plan_text(job)
    assert [re.sub(r" \(.*", "", line) for line in text.splitlines() if re.match(r"\d|   reads", line)] == [
        "1. read t",
        "2. read t",
        "3. aggregate in tumbling windows of 1 h by ts",
        "   reads:     2",
        "4. write a",
        "   reads:     1",
        "5. write b",
        "   reads:     3",
    ]
    ordered, plain = job.physical.scans
    assert [f.exchange is None for f in ordered.fragments] == [True]
    assert [f.exchange is None for f in plain.fragments] == [False]


def test_an_operator_waits_for_the_scan_that_it_reads(tmp_path: Path) -> None:
    with open_session(tmp_path) as session:
        job = planned(session, SCRIPT)
        text = plan_text(job)
    assert re.findall("waits for: *(.*)", text) == ["the watermark of t_2"]
    [stage] = job.physical.stages
    assert (stage.timed_by, job.physical.waits_for(stage)) == ((1,), ("t_2",))
