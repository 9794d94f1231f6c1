"""Spans, the trace that they make, and what a profile says of jobs in this process."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import duckdb
import msgspec
import pytest
from click.testing import CliRunner

from sqlstream import profiling
from sqlstream.cli.main import cli
from sqlstream.cli.profile import profiled
from sqlstream.cli.traces import Profile
from sqlstream.duck import profiled as connections
from sqlstream.errors import UsageError
from sqlstream.profiling import BATCH, DRIVER, TASKS
from sqlstream.testing import Stream
from tests.traces import Span, Trace, read_trace

WINDOWS = """
CREATE TABLE bid (auction INT, price INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts);
CREATE TABLE counts (auction INT, n BIGINT);
INSERT INTO counts SELECT auction, COUNT(*) FROM TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY auction, window_start, window_end;
"""
ROWS = [(1, 5, "2026-01-01 10:00:01"), (2, 7, "2026-01-01 10:00:02"), (1, 7, "2026-01-01 10:00:25")]


@pytest.fixture
def ran(tmp_path: Path) -> tuple[Trace, Profile]:
    """The profile of three batches of rows, and of what becomes due after them."""
    profiles: list[Profile] = []
    with profiled(str(tmp_path / "trace.json"), profiles.append), Stream(WINDOWS) as stream:
        for row in ROWS:
            stream.batch("bid", [row])
    [profile] = profiles
    return read_trace(tmp_path / "trace.json"), profile


def test_a_trace_has_what_a_job_does(ran: tuple[Trace, Profile]) -> None:
    trace, _ = ran
    trace.check_nesting()
    names = {event.name for event in trace.spans}
    assert {"batch", "scan", "bucket", "write segment", "write manifest", "write log", "write commit"} <= names
    statements = [e for e in trace.spans if e.cat == "duckdb" and e.args.get("operator") == "bid" and "sql" in e.args]
    assert statements
    assert all(e.args["job"] == "counts" and "batch" in e.args and e.args["bucket"] == 0 for e in statements)
    assert any(e.args.get("rows") == 1 for e in statements)
    assert {e.args["name"] for e in trace.names if e.name == "process_name"} == {"driver"}
    assert any(e.args["name"] == "MainThread" for e in trace.names)


def test_the_phases_of_a_batch_are_its_time(ran: tuple[Trace, Profile]) -> None:
    trace, profile = ran
    batches = {e.batch: e for e in trace.spans if e.name == BATCH and e.cat == DRIVER}
    assert len(batches) >= len(ROWS)
    for batch, whole in batches.items():
        within = [e for e in trace.spans if e.batch == batch and whole.ts <= e.ts and e.end <= whole.end]
        # Times of their own add up to the whole, but for what is cut off of microseconds.
        assert sum(e.own for e in within) == pytest.approx(whole.dur, abs=len(within))
    assert {batch: micros / 1000 for batch, micros in ((b, e.dur) for b, e in batches.items())} == profile.batches
    shares = {(p.part, p.phase): p.share for p in profile.phases}
    assert 0 < shares["duckdb", "statements"] < 1
    assert {(o.operator, o.bucket) for o in profile.operators} == {("bid", 0), ("window_aggregate_1", 0)}
    assert all(0 < o.duckdb_ms <= o.total_ms and o.statements for o in profile.operators)


def test_nothing_is_recorded_without_a_profile() -> None:
    assert not profiling.is_on()
    assert profiling.folder() == ""
    assert profiling.span("a", TASKS) is profiling.span("b", DRIVER, batch=1)
    with profiling.span("a", TASKS) as span:
        span.note(rows=1)
    profiling.interval("a", TASKS, 0.0)
    profiling.phases("track", "a", 0, 1, {})


def test_statements_of_a_run_without_a_profile_are_duckdb_s_own() -> None:
    con = duckdb.connect()
    assert connections.profiled(con) is con


def test_a_full_disk_ends_the_profile_and_no_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, text: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    profiling.start(str(tmp_path))
    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", full)
            with profiling.span("lost", TASKS):
                pass
        with profiling.span("after it", TASKS):
            pass
    finally:
        profiling.stop()
    [file] = tmp_path.iterdir()
    assert [msgspec.json.decode(line)["name"] for line in file.read_bytes().splitlines()] == ["process_name"]


def test_what_spark_says_has_a_track_of_its_own(tmp_path: Path) -> None:
    profiling.start(str(tmp_path))
    try:
        for batch in range(2):
            profiling.phases("Spark: ab", "trigger", batch * 100, 50, {"addBatch": 60, "walCommit": 10}, batch=batch)
        profiling.phases("Spark: ba", "trigger", 0, 50, {})
    finally:
        profiling.stop()
    [file] = tmp_path.iterdir()
    events = [msgspec.json.decode(line, type=Span) for line in file.read_bytes().splitlines()]
    names = [e for e in events if e.name == "thread_name"]
    assert [e.args["name"] for e in names] == ["Spark: ab", "Spark: ba"]
    # Perfetto reads numbers of threads as 32 bits; Linux's are below 2^22.
    assert all(1 << 22 < e.tid < 1 << 31 for e in names)
    assert len({e.tid for e in names}) == 2
    # What is rounded up is cut off: phases lie within their batch.
    assert [(e.name, e.ts, e.dur) for e in events if e.ph == "X" and e.args.get("batch") == 1] == [
        ("addBatch", 100, 50),
        ("walCommit", 150, 0),
        ("trigger", 100, 50),
    ]


def test_workers_follow_the_profile_of_their_job(tmp_path: Path) -> None:
    try:
        profiling.follow(str(tmp_path))
        with profiling.span("outer", TASKS, batch=1), profiling.span("inner", TASKS) as span:
            span.note(rows=2)
            span.note(rows=3)
        thread = threading.Thread(target=lambda: profiling.interval("alone", TASKS, 0.0))
        thread.start()
        thread.join()
        # A forked process leaves the file to its parent.
        if not (child := os.fork()):
            os._exit(int(profiling.is_on()))
        assert os.waitpid(child, 0)[1] == 0
        profiling.follow("")
        assert not profiling.is_on()
        # The folder of a driver on another machine.
        profiling.follow(str(tmp_path / "elsewhere"))
        assert not profiling.is_on()
    finally:
        profiling.stop()
    [file] = tmp_path.iterdir()
    events = [msgspec.json.decode(line) for line in file.read_bytes().splitlines()]
    spans = {e["name"]: e["args"] for e in events if e["ph"] == "X"}
    assert spans.keys() == {"outer", "inner", "alone"}
    assert (spans["inner"]["batch"], spans["inner"]["rows"]) == (1, 5)
    assert "rows" not in spans["outer"]
    assert len({e["tid"] for e in events if e["name"] == "thread_name"}) == 2


def test_a_trace_that_cannot_be_written_is_refused_before_jobs_start(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no JSON file"), profiled(str(tmp_path / "trace.txt")):
        pytest.fail("it has started")
    with pytest.raises(UsageError, match="cannot be written: No such file"), profiled(str(tmp_path / "no" / "t.json")):
        pytest.fail("it has started")


def test_run_shows_a_table(tmp_path: Path) -> None:
    words = ["--trace", str(tmp_path / "trace.json"), "--project", str(tmp_path), "-e"]
    script = "CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2)"
    result = CliRunner().invoke(cli, ["run", *words, script], catch_exceptions=False)
    assert result.exit_code == 0
    assert "profile: 1 batch, " in result.stderr
    assert "write segment" in result.stderr
    read_trace(tmp_path / "trace.json").check_nesting()
