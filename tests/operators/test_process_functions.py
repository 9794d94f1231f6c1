"""Process functions in queries: the order of tables and timers in a batch, and where a call can stand."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from sqlstream import Context, Row, ValueState, process, state, table
from sqlstream.errors import JobError
from sqlstream.testing import Stream

START = datetime(2026, 1, 1, 10)


@process
class Journal:
    """Emits what happens to a key, with the number of it."""

    number: ValueState[int] = state()

    @table
    def left(self, ctx: Context, row: Row) -> Iterator[str]:
        yield self.entry(f"left {row.x}")
        assert ctx.event_time is not None
        ctx.timers.at(ctx.event_time + timedelta(seconds=row.x), f"event {row.x}")
        ctx.timers.after(timedelta(seconds=row.x), f"clock {row.x}")

    @table
    def right(self, ctx: Context, row: Row) -> Iterator[str]:
        yield self.entry(f"right {row.x}")

    def on_timer(self, ctx: Context) -> Iterator[str]:
        yield self.entry(f"{ctx.timer.name}{', at the end' if ctx.input_ended else ''}")

    def entry(self, what: str) -> str:
        self.number.value = (self.number.value or 0) + 1
        return f"{self.number.value}: {what}"


TABLES = """
CREATE TABLE l (k BIGINT, x BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts);
CREATE TABLE r (k BIGINT, x BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts);
CREATE TABLE out (entry STRING);
"""
CALL = "journal(`left` => TABLE l PARTITION BY k, `right` => TABLE r PARTITION BY k, on_time => DESCRIPTOR(ts), uid => 'j')"


def entries(stream: Stream) -> list[str]:
    return [entry for (entry,) in stream.query("SELECT entry FROM out ORDER BY CAST(split_part(entry, ':', 1) AS INT)")]


def test_timers_come_before_rows_and_tables_in_their_order() -> None:
    with Stream(f"{TABLES} INSERT INTO out SELECT value FROM {CALL}", functions=[Journal]) as stream:
        stream.batches({"r": [(1, 1, START)], "l": [(1, 5, START), (1, 2, START), (1, 1, START)]})
        assert entries(stream) == ["1: left 5", "2: left 2", "3: left 1", "4: right 1"]
        stream.tick("l", "2026-01-01 10:00:03")
        stream.advance(1500)
        stream.tick("r", "2026-01-01 10:00:03")
        stream.batch("r", [(1, 2, START + timedelta(seconds=4))])
        assert entries(stream)[4:] == ["5: clock 1", "6: event 1", "7: event 2", "8: right 2"]
        stream.restart()
        stream.finish()
        assert entries(stream)[8:] == ["9: event 5, at the end"]
        timers = stream.query("SELECT kind, name FROM state.out.j_timers ORDER BY ALL")
        assert timers == [("processing time", "clock 2"), ("processing time", "clock 5")]


def test_a_timer_behind_the_watermark_fires_after_the_rows_of_its_key() -> None:
    with Stream(f"{TABLES} INSERT INTO out SELECT value FROM {CALL}", functions=[Journal]) as stream:
        stream.tick("l", "2026-01-01 11:00:00")
        stream.tick("r", "2026-01-01 11:00:00")
        stream.batches({"r": [(1, 1, START)], "l": [(1, 5, START), (1, 2, START)]})
        expected = ["1: left 5", "2: left 2", "3: right 1", "4: event 2", "5: event 5"]
        assert entries(stream) == expected


def test_a_call_stands_in_joins_queries_of_with_and_below_another_call() -> None:
    @process
    class Doubled:
        def process(self, ctx: Context, row: Row) -> Iterator[int]:
            yield 2 * row.x

    script = """
    CREATE TABLE t (k BIGINT, x BIGINT);
    CREATE TABLE out (k BIGINT, y BIGINT, x BIGINT);
    INSERT INTO out
    WITH twice AS (SELECT k, value AS x FROM doubled(TABLE t PARTITION BY k)),
        again AS (SELECT * FROM doubled(TABLE twice PARTITION BY k) AS d(key, y))
    SELECT again.key, again.y, d.value FROM again JOIN doubled(TABLE (SELECT * FROM t WHERE x > 1) PARTITION BY k) AS d
    ON again.key = d.k AND again.y = 2 * d.value;
    """
    with Stream(script, functions=[Doubled], options={"sqlstream.unbounded-state": "allow"}) as stream:
        stream.batch("t", [(1, 1), (1, 3), (2, 5)])
        assert sorted(stream.rows("out")) == [(1, 12, 6), (2, 20, 10)]


def test_an_event_time_that_python_lacks_is_refused() -> None:
    @process
    class Times:
        def process(self, ctx: Context, row: Row) -> Iterator[int]:
            yield row.x

    call = "times(TABLE l PARTITION BY k, on_time => DESCRIPTOR(ts))"
    script = f"{TABLES} INSERT INTO out SELECT CAST(value AS STRING) FROM {call}"
    rows = [(1, 1, "2026-01-01 10:00:00"), (1, 2, "12000-01-01 00:00:01")]
    with Stream(script, functions=[Times]) as stream, pytest.raises(JobError) as refused:
        stream.batch("l", rows)
    assert "cannot take a row whose event time is 12000-01-01 00:00:01" in refused.value.message
    assert "WHERE" in (refused.value.hint or "")
