"""The watermark of operators that go by the clock in a job of which others go by event time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sqlstream.physical.plan import CLOCK
from sqlstream.runtime.batch_descriptors import Descriptor, from_lines, to_lines
from sqlstream.runtime.watermarks import Watermarks
from sqlstream.storage.joblog import JobLog
from sqlstream.testing import Stream
from sqlstream.units import END_OF_INPUT, EventTime, from_millis
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.paths import Warehouse

TABLE = "CREATE TABLE t (k INT, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts);"
WINDOW = (
    "SELECT COUNT(*) AS n FROM TUMBLE(TABLE t, DESCRIPTOR({}), INTERVAL '10' SECOND) GROUP BY window_start, window_end"
)
BY_CLOCK = f"CREATE TABLE oc (n BIGINT); INSERT INTO oc WITH c AS ({WINDOW.format('p')}) SELECT * FROM c;"
SET = f"""{TABLE} CREATE TABLE oc (n BIGINT); CREATE TABLE oe (n BIGINT);
EXECUTE STATEMENT SET BEGIN
INSERT INTO oc WITH c AS ({WINDOW.format("p")}) SELECT * FROM c;
INSERT INTO oe WITH e AS ({WINDOW.format("ts")}) SELECT * FROM e;
END;"""
OPERATORS = "SELECT operator, epoch(watermark) % 3600, waits_for FROM sqlstream.operators ORDER BY ALL"
ROW = (1, "1970-01-01 01:00:05")


@pytest.fixture
def stream() -> Iterator[Stream]:
    with Stream(SET, parallelism=1) as one:
        yield one


def test_a_batch_moves_the_clock_and_a_restart_keeps_it(stream: Stream) -> None:
    stream.advance("3 s")
    stream.batch("t", [ROW])
    expected = [("c", 3.0, ["the clock"]), ("e", 5.0, ["t"])]
    assert stream.query(OPERATORS) == expected
    [(name, run)] = stream.runs.items()
    marks = run.batches.watermarks
    assert (marks.job, marks.clock) == (3_605_000_000, 3_000_000)
    assert Watermarks.from_json(marks.to_json()) == marks
    assert marks.own(run.job.plan) == {"c": 3_000_000}
    stream.restart(2)
    assert stream.query(OPERATORS) == expected
    assert stream.runs[name].batches.watermarks == marks


def test_windows_close_after_a_restart_between_a_batch_and_the_empty_one(stream: Stream) -> None:
    stream.batch("t", [ROW])
    [(name, run)] = stream.runs.items()
    # The process ends before the empty batch, which would close the window.
    run.batches.run = run.batches.run_alone  # type: ignore[method-assign]
    stream.advance("10 s")
    assert stream.query("SELECT n FROM oc") == []
    stream.restart()
    stream.runs[name].batches.catch_up(stream.now)
    assert stream.query("SELECT n FROM oc") == [(1,)]
    assert stream.query("SELECT n FROM oe") == []


def test_an_operator_that_a_log_does_not_know_begins_at_no_time(stream: Stream) -> None:
    """The watermark of the job is an event time, and may be ahead of the clock."""
    stream.batch("t", [ROW])
    [(_, run)] = stream.runs.items()
    plan = run.job.plan
    assert Watermarks.restored(plan, EventTime(7), {}).operators == (None, EventTime(7))
    ahead = Watermarks.restored(plan, EventTime(7), {}).at_least(plan, EventTime(9))
    assert (ahead.job, ahead.operators) == (9, (None, 9))


def test_without_operators_of_event_time_the_watermark_of_a_job_is_that_of_its_tables() -> None:
    with Stream(TABLE + BY_CLOCK, parallelism=1) as stream:
        stream.advance("3 s")
        # Alone, what goes by the clock reads its tables by it.
        assert [scan.by_clock for scan in next(iter(stream.runs.values())).job.plan.scans] == [True]
    both = f"{TABLE} CREATE TABLE rows (k INT); CREATE TABLE u (p AS PROCTIME(), k INT); CREATE TABLE oc (n BIGINT);"
    script = f"""{both} EXECUTE STATEMENT SET BEGIN
    INSERT INTO rows SELECT k FROM t;
    INSERT INTO oc {WINDOW.replace("TABLE t", "TABLE u").format("p")};
    END"""
    with Stream(script, parallelism=1) as stream:
        [run] = stream.runs.values()
        assert (run.job.plan.watermark_groups, run.job.plan.has_clock) == (((CLOCK,),), True)
        stream.batch("t", [ROW])
        assert stream.query("SELECT epoch(watermark) FROM sqlstream.jobs") == [(3605.0,)]


def test_the_log_has_the_clock_until_the_input_ends(stream: Stream) -> None:
    stream.advance("3 s")
    stream.batch("t", [ROW])
    [name] = stream.runs
    warehouse = Warehouse(stream.warehouse)
    paths = warehouse.job(name)

    def clock() -> EventTime | None:
        entry = JobLog(warehouse.fs, paths.log).entry(last_committed(warehouse.fs, paths) or 0)
        assert entry is not None
        return entry.clock

    assert clock() == 3_000_000
    stream.finish()
    assert clock() == END_OF_INPUT
    assert stream.query("SELECT n FROM oc") == stream.query("SELECT n FROM oe") == [(1,)]


def test_a_descriptor_that_only_moves_the_clock_is_a_batch() -> None:
    [work] = from_lines(to_lines(Descriptor(7, from_millis(5), {}, {}, clock=EventTime(5000)), (3, 0)))
    assert (work.slot, work.clock, work.split, work.tick) == (3, 5000, None, None)
