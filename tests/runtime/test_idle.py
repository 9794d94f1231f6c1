"""Idle sources: when a scan is idle, what ticks it gets, and what a job with a silent source does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlstream.compiler.compiler import Compiler
from sqlstream.errors import BindError, SourceText
from sqlstream.runtime.watermarks import WatermarkStatus, idle_ticks, idle_timeouts
from sqlstream.testing import Stream
from sqlstream.units import END_OF_INPUT, NO_TIME, SECOND, Duration, EventTime, ProcessingTime

SILENT = ProcessingTime(60 * SECOND)


def status(mark: int | None, active_at: int = 0, timeout: int = SILENT) -> WatermarkStatus:
    return WatermarkStatus(None if mark is None else EventTime(mark), ProcessingTime(active_at), Duration(timeout))


# -- the decision


def test_an_idle_scan_follows_the_least_of_the_others() -> None:
    statuses = {0: status(5), 1: status(30, active_at=1), 2: status(20, timeout=0)}
    assert idle_ticks(statuses, ProcessingTime(SILENT - 1)) == {}
    assert idle_ticks(statuses, SILENT) == {0: 20}
    assert idle_ticks(statuses, ProcessingTime(SILENT + 1)) == {0: 20}  # now 1 is idle too, and further


def test_a_scan_without_a_row_is_moved_and_moves_nobody() -> None:
    assert idle_ticks({0: status(None), 1: status(30, timeout=0)}, SILENT) == {0: 30}
    assert idle_ticks({0: status(5), 1: status(None, timeout=0), 2: status(9, timeout=0)}, SILENT) == {}


def test_when_all_are_idle_they_follow_the_one_that_is_furthest() -> None:
    # So it makes no difference which of them fell idle first.
    assert idle_ticks({0: status(5), 1: status(30), 2: status(None)}, SILENT) == {0: 30, 2: 30}
    assert idle_ticks({0: status(5)}, SILENT) == {}
    assert idle_ticks({0: status(None), 1: status(None)}, SILENT) == {}


def test_a_scan_that_has_ended_is_nobody_to_follow() -> None:
    ended = status(END_OF_INPUT)
    assert idle_ticks({0: status(5), 1: ended}, SILENT) == {}
    assert idle_ticks({0: status(5), 1: ended, 2: status(9, timeout=0)}, SILENT) == {0: 9}
    assert idle_ticks({0: status(5), 1: ended, 2: status(9)}, SILENT) == {0: 9}


marks = st.none() | st.integers(0, 50) | st.just(END_OF_INPUT)
statuses = st.dictionaries(
    st.integers(0, 5), st.builds(status, marks, st.integers(0, 2 * SILENT), st.sampled_from((0, SILENT))), min_size=1
)


@given(statuses, st.integers(0, 3 * SILENT))
def test_ticks_move_idle_scans_forward_to_one_place_and_are_not_repeated(
    found: dict[int, WatermarkStatus], now: int
) -> None:
    ticks = idle_ticks(found, ProcessingTime(now))
    assert len(set(ticks.values())) <= 1
    for scan, tick in ticks.items():
        before = found[scan]
        assert before.idle_since(ProcessingTime(now)) is not None
        assert before.watermark is None or before.watermark < tick
        assert tick in {c.watermark for i, c in found.items() if i not in ticks}
    moved = {i: replace(c, watermark=ticks.get(i, c.watermark)) for i, c in found.items()}
    assert idle_ticks(moved, ProcessingTime(now)) == {}


# -- jobs

# In milliseconds.
MINUTE = 60_000

SCRIPT = """
CREATE TABLE a (k INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('scan.watermark.idle-timeout' = '1 min');
CREATE TABLE b (k INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts);
CREATE TABLE counts (e TIMESTAMP, n BIGINT);
INSERT INTO counts
WITH counted AS (
    SELECT window_end, COUNT(*) AS n
    FROM TUMBLE(TABLE (SELECT k, ts FROM a UNION ALL SELECT k, ts FROM b), DESCRIPTOR(ts), INTERVAL '10' SECOND)
    GROUP BY window_start, window_end
)
SELECT window_end, n FROM counted;
"""


@pytest.fixture
def stream() -> Iterator[Stream]:
    with Stream(SCRIPT) as stream:
        yield stream


def at(second: int) -> datetime:
    return datetime(2026, 1, 1, 10, 0, second)


def put(stream: Stream, table: str, *seconds: int) -> None:
    stream.batch(table, [(1, at(second)) for second in seconds])


def emitted(stream: Stream) -> list[tuple[datetime, int]]:
    return sorted(stream.rows("counts"))


def sources(stream: Stream) -> list[tuple[object, ...]]:
    return stream.query(
        "SELECT source, watermark, holds_minimum, holding_since, idle_since FROM sqlstream.watermarks ORDER BY source"
    )


def moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def test_a_silent_source_lets_windows_close_after_its_timeout(stream: Stream) -> None:
    put(stream, "a", 1)
    stream.advance(1000)
    put(stream, "b", 2, 25)
    # Before its first row it was b that held the watermark.
    assert sources(stream) == [("a", at(1), True, moment(1000), None), ("b", at(25), False, None, None)]
    stream.advance(MINUTE - 1001)
    assert emitted(stream) == []
    stream.advance(1)
    assert emitted(stream) == [(at(10), 2)]
    assert sources(stream) == [
        ("a", at(25), False, None, moment(MINUTE)),
        ("b", at(25), True, moment(MINUTE), None),
    ]
    # From now on b alone moves the watermark.
    put(stream, "b", 31)
    assert emitted(stream) == [(at(10), 2), (at(30), 1)]


def test_rows_of_a_source_that_comes_back_are_late_by_the_usual_rule(stream: Stream) -> None:
    put(stream, "b", 2, 25)
    stream.advance(MINUTE)
    assert emitted(stream) == [(at(10), 1)]
    put(stream, "a", 3, 21)
    assert stream.query("SELECT late_rows, open_windows, next_end FROM sqlstream.operators") == [(1, 1, at(30))]
    # It holds the watermark again.
    put(stream, "b", 45)
    assert emitted(stream) == [(at(10), 1)]
    [(_, mark, holds, since, idle), _] = sources(stream)
    assert (mark, holds, since, idle) == (at(25), True, moment(MINUTE), None)
    stream.advance(MINUTE)
    assert emitted(stream) == [(at(10), 1), (at(30), 2)]


def test_a_restart_starts_the_clock_again_and_keeps_the_ticks(stream: Stream) -> None:
    put(stream, "a", 1)
    put(stream, "b", 25)
    stream.advance(MINUTE - 1)
    stream.restart()
    stream.advance(MINUTE - 1)
    assert emitted(stream) == []
    stream.advance(1)
    assert emitted(stream) == [(at(10), 1)]
    stream.restart()
    assert [mark for _, mark, *_ in sources(stream)] == [at(25), at(25)]
    # The clock began anew, so a holds the watermark again: where it was left.
    put(stream, "b", 45)
    assert emitted(stream) == [(at(10), 1)]
    stream.advance(MINUTE)
    assert emitted(stream) == [(at(10), 1), (at(30), 1)]


def test_a_tick_costs_a_batch_and_is_not_sent_in_vain(stream: Stream) -> None:
    put(stream, "a", 25)
    put(stream, "b", 25)
    versions = "SELECT count(*) FROM sqlstream.snapshots"
    before = stream.query(versions)
    for _ in range(3):
        stream.advance(MINUTE)
    assert stream.query(versions) == before


def test_the_option_for_all_sources_and_its_exceptions() -> None:
    script = "SET 'table.exec.source.idle-timeout' = '2 s';" + SCRIPT.replace("1 min", "0")
    with Stream(script) as stream:
        job = stream.runs["counts"].job
        assert idle_timeouts(job.plan, job.idle_timeout) == {0: 0, 1: 2 * SECOND}
        put(stream, "a", 25)
        put(stream, "b", 2)
        stream.advance(1999)
        assert emitted(stream) == []
        stream.advance(1)
        assert emitted(stream) == [(at(10), 1)]
        # a holds the watermark for ever.
        put(stream, "b", 45)
        stream.advance(MINUTE)
        assert emitted(stream) == [(at(10), 1)]


@pytest.mark.parametrize(
    "options",
    [
        "",
        "'connector' = 'filesystem', 'path' = 'x', 'format' = 'json', ",
        "'connector' = 'datagen', 'rows-per-second' = '5', ",
        "'connector' = 'socket', 'hostname' = 'localhost', 'port' = '9', 'format' = 'json', ",
    ],
)
def test_every_table_that_can_be_read_has_the_option(options: str) -> None:
    compiler = Compiler()
    table = "CREATE TABLE t (ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ({}'scan.watermark.idle-timeout' = '{}');"
    query = (
        "SELECT COUNT(*) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end"
    )
    try:
        [job] = compiler.jobs([SourceText("test", table.format(options, "5 min") + query)])
        assert idle_timeouts(job.physical, NO_TIME) == {0: 300 * SECOND}
        with pytest.raises(BindError, match=r'option "scan\.watermark\.idle-timeout": "soon" is not a duration'):
            compiler.jobs([SourceText("test", "DROP TABLE t;" + table.format(options, "soon"))])
    finally:
        compiler.close()


def test_the_option_can_change_while_a_job_lives() -> None:
    jobs = []
    for script in (SCRIPT, SCRIPT.replace("1 min", "2 min")):
        compiler = Compiler()
        # What is not fed is read from the warehouse.
        jobs += compiler.jobs([SourceText("test", script)])
        compiler.close()
    assert jobs[0].fingerprint == jobs[1].fingerprint
