"""`verify` of jobs with process functions: the class runs anew, and finds what a job has lost, and no more."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta

import pytest

from sqlstream import Context, ListState, Row, ValueState, process, state
from sqlstream.physical.batch.rows import CannotVerify
from sqlstream.testing import Stream
from tests.verification.test_verify import at, causes

TABLES = (
    "CREATE TABLE t (k INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '2' SECOND);"
    "CREATE TABLE r (k INT, n BIGINT);"
)
SCRIPT = TABLES + "INSERT INTO r SELECT k, value FROM {}(TABLE t PARTITION BY k {}, on_time => DESCRIPTOR(ts))"


@process
class Bursts:
    """Emits how many rows of a key came until it was silent for 10 seconds."""

    n: ValueState[int] = state()

    def process(self, ctx: Context, row: Row) -> None:
        assert ctx.event_time is not None
        self.n.value = (self.n.value or 0) + 1
        ctx.timers.at(ctx.event_time + timedelta(seconds=10), "end")

    def on_timer(self, ctx: Context) -> Iterator[int]:
        yield self.n.value or 0
        ctx.clear()


@process
class Waits:
    """Emits how many rows of a key are there 5 seconds of the clock after one."""

    rows: ListState[int] = state()

    def process(self, ctx: Context, row: Row) -> None:
        self.rows.append(1)
        ctx.timers.after(timedelta(seconds=5), "late")

    def on_timer(self, ctx: Context) -> Iterator[int]:
        yield len(self.rows)


@pytest.mark.slow
def test_a_function_in_order_is_run_over_all_rows_but_late_ones() -> None:
    with Stream(SCRIPT.format("bursts", "ORDER BY ts"), functions=[Bursts]) as stream:
        stream.batch("t", [(1, at(1)), (2, at(3)), (1, at(5)), (3, None)])
        stream.batch("t", [(1, at(30)), (2, at(2)), (2, at(31))])
        stream.restart(3)
        stream.batch("t", [(1, at(3)), (3, at(50))])
        # In order: key 1 has 1, 3 and 5, then 30; key 2 has 2 and 3, of which the first is late where the watermark was 3.
        assert sorted(stream.rows()) == [(1, 1), (1, 2), (2, 1), (2, 1)]
        report = stream.verify()
        assert report
        assert causes(report) == {"late": (2, 2), "due": (1, 0)}


@pytest.mark.parametrize("lost", [False, True])
def test_rows_that_a_job_has_lost_are_found(monkeypatch: pytest.MonkeyPatch, lost: bool) -> None:
    with Stream(SCRIPT.format("bursts", ""), functions=[Bursts]) as stream:
        stream.batch("t", [(1, at(1)), (2, at(1))])
        if lost:
            # The job goes on as if it had never had any state.
            for run in stream.runs.values():
                run.batches.manifests.clear()
        stream.batch("t", [(1, at(2)), (2, at(4)), (1, at(40))])
        stream.finish()
        report = stream.verify()
    assert bool(report) is not lost
    assert ("unexplained" in causes(report)) is lost


@pytest.mark.slow
def test_timers_of_the_clock_are_repeated_in_the_batches_of_the_job() -> None:
    script = SCRIPT.format("waits", "")
    with Stream(script, functions=[Waits]) as stream:
        stream.batch("t", [(1, at(1))])
        stream.advance(6000)
        stream.batch("t", [(1, at(2)), (2, at(2))])
        stream.advance(6000)
        rows = sorted(stream.rows())
        report = stream.verify()
    assert rows == [(1, 1), (1, 2), (2, 1)]
    assert report, report
    assert causes(report) == {"batches": (0, 3)}


@pytest.mark.slow
def test_what_a_function_emits_is_read_by_operators() -> None:
    grouped = TABLES + (
        "INSERT INTO r SELECT n, COUNT(*) FROM ("
        "SELECT value AS n FROM bursts(TABLE t PARTITION BY k {}, on_time => DESCRIPTOR(ts))) GROUP BY n"
    )
    with Stream(grouped.format("ORDER BY ts"), functions=[Bursts]) as stream:
        stream.batch("t", [(1, at(1)), (2, at(3)), (1, at(5))])
        stream.batch("t", [(1, at(40))])
        assert sorted(stream.rows()) == [(1, 1), (2, 1)]
        assert causes(stream.verify()) == {"due": (1, 1)}


def test_windows_over_a_function_that_emits_late_rows_are_refused() -> None:
    script = TABLES + (
        "CREATE VIEW b AS SELECT * FROM bursts(TABLE t PARTITION BY k, on_time => DESCRIPTOR(ts));"
        "INSERT INTO r SELECT k, COUNT(*) FROM TUMBLE(TABLE b, DESCRIPTOR(rowtime), INTERVAL '10' SECOND)"
        " GROUP BY k, window_start, window_end"
    )
    with Stream(script, functions=[Bursts]) as stream:
        stream.batch("t", [(1, at(1)), (1, at(40))])
        with pytest.raises(CannotVerify, match="without ORDER BY emits"):
            stream.verify()


@process
class Asks:
    """Emits what stands in the environment."""

    def process(self, ctx: Context, row: Row) -> Iterator[int]:
        yield int(os.environ["VERIFY_ANSWER"])


def test_code_that_fails_anew_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERIFY_ANSWER", "1")
    with Stream(SCRIPT.format("asks", ""), functions=[Asks]) as stream:
        stream.batch("t", [(1, at(1))])
        assert stream.verify()
        monkeypatch.delenv("VERIFY_ANSWER")
        with pytest.raises(CannotVerify, match='process function "asks" fails when it runs anew') as error:
            stream.verify()
    assert "KeyError" in (error.value.detail or "")
