"""A profile of a job on Spark: its phases, the tasks in Python workers, and the driver."""

from __future__ import annotations

import io
from pathlib import Path

import duckdb
import pytest

from sqlstream import Session
from sqlstream.cli.profile import profiled
from sqlstream.cli.traces import AT_WORK, BETWEEN, Profile
from sqlstream.profiling import ACTION, BATCH, SPARK, TASKS, TRIGGER
from sqlstream.runtime.labels import spread_labels
from tests.kinds import job_of
from tests.traces import read_trace

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("shared_jvm")]

SCRIPT = """
SET 'parallelism.default' = '2';
CREATE TABLE bid (auction INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'parquet', 'source.max-files-per-batch' = '1');
CREATE TABLE counts (auction INT, n BIGINT);
INSERT INTO counts SELECT auction, COUNT(*) FROM TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY auction, window_start, window_end;
"""
FILES = 3


def test_the_phases_of_spark_of_workers_and_of_the_driver(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        rows = f"SELECT i::INT AS auction, TIMESTAMP '2026-01-01 10:00:00' + to_seconds(i + {10 * number}) AS ts"
        duckdb.sql(f"COPY ({rows} FROM range(10) t(i)) TO '{tmp_path}/in/{number}.parquet' (FORMAT parquet)")
    profiles: list[Profile] = []
    with (
        profiled(str(tmp_path / "trace.json"), profiles.append),
        Session(str(tmp_path), output=io.StringIO(), notice=lambda text: None) as session,
    ):
        job_of(session.sql(SCRIPT)).wait()
    trace, [profile] = read_trace(tmp_path / "trace.json"), profiles
    trace.check_nesting()
    [driver] = {e.pid for e in trace.names if e.args["name"] == "driver"}
    batches = {e.batch: e for e in trace.spans if e.name == TRIGGER}
    assert len(batches) >= FILES
    for batch, whole in batches.items():
        of_spark = [e for e in trace.spans if e.cat == SPARK and e.batch == batch and e.name != TRIGGER]
        assert {"queryPlanning", "addBatch", "walCommit"} <= {e.name for e in of_spark}
        assert sum(e.dur for e in of_spark) <= whole.dur
        [on_driver] = [e for e in trace.spans if e.name == BATCH and e.batch == batch]
        [action] = [e for e in trace.spans if e.name == ACTION and e.batch == batch]
        assert on_driver.ts <= action.ts
        assert action.end <= on_driver.end
    # Tasks run in other processes, within the call that runs them, by the same clock.
    tasks = [e for e in trace.spans if e.cat == TASKS and e.name in ("scan", "bucket")]
    actions = {e.batch: e for e in trace.spans if e.name == ACTION}
    assert tasks
    assert driver not in {e.pid for e in tasks}
    assert all(actions[e.batch].ts <= e.ts and e.end <= actions[e.batch].end for e in tasks)
    assert {e.name for e in trace.spans if e.cat == TASKS} >= {"frames in", "frames out", "write state store"}
    assert any(e.cat == "duckdb" and e.args.get("operator") == "bid" for e in trace.spans)
    phases = {p.phase: p for p in profile.phases}
    assert phases[AT_WORK].total_ms > 0
    assert phases[BETWEEN].total_ms > 0
    assert phases["state store commit (in tasks)"].batches == len(batches)
    assert {o.bucket for o in profile.operators if o.operator == "window_aggregate_1"} == {*spread_labels(2, 2)}
