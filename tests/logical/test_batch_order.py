"""Which process functions are said to depend on how rows fall into batches."""

from __future__ import annotations

import pytest

from sqlstream.session.explaining import plan_text
from tests.kinds import last_job

TABLES = """
CREATE FUNCTION echoes AS 'tests.slt_process_functions.Echoes' LANGUAGE PYTHON;
CREATE FUNCTION latenesses AS 'tests.slt_process_functions.Latenesses' LANGUAGE PYTHON;
CREATE TABLE t (k STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'parquet', 'source.monitor-interval' = '1 s');
CREATE TABLE out (k STRING, is_late BOOLEAN);
"""


@pytest.mark.parametrize(
    ("call", "warns"),
    [
        ("echoes(TABLE t PARTITION BY k, on_time => DESCRIPTOR(ts))", True),
        ("echoes(TABLE t PARTITION BY k ORDER BY ts, on_time => DESCRIPTOR(ts))", False),
        ("echoes(TABLE t PARTITION BY k ORDER BY ts)", False),
        ("latenesses(TABLE t PARTITION BY k, on_time => DESCRIPTOR(ts))", False),
    ],
)
def test_timers_between_rows_that_are_not_in_order(call: str, warns: bool) -> None:
    job = last_job(f"{TABLES} INSERT INTO out SELECT k, is_late FROM {call}")
    shown = [warning.render() for warning in job.warnings]
    found = [text for text in shown if "divided into batches" in text]
    assert bool(found) == warns, shown
    assert ("before or after the rows of a batch" in plan_text(job)) == warns
    if warns:
        assert "ORDER BY ts" in found[0]
        assert "echoes" in found[0]
