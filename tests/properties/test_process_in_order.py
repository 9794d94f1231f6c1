"""Process functions with ORDER BY: any split into batches and any restart gives what the class gives over the sorted rows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sqlstream import Context, ListState, MapState, ValueState, process, state, table
from sqlstream.functions.kinds import declare_any
from sqlstream.testing import Stream
from tests.properties.interval_model import Times, delays, feed, histories
from tests.properties.model import Bag, bag, emitted, limits
from tests.properties.strategies import Restart, Row, Step

pytestmark = pytest.mark.slow

MORE = int(os.environ.get("PROPERTY_EXAMPLES", "1"))
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
SECOND = timedelta(seconds=1)
START = datetime(1970, 1, 1)


class Click(NamedTuple):
    x: int | None
    s: str | None


class Note(NamedTuple):
    n: int
    what: str


@process
class Journal:
    """Says in which order it is called, with all that it keeps; sets timers before and behind the row, and at its time."""

    n: ValueState[int] = state()
    texts: ListState[str] = state()
    seen: MapState[str, int] = state()

    @table
    def a(self, ctx: Context, row: Click) -> Iterator[Note]:
        assert ctx.event_time is not None
        assert ctx.watermark == ctx.event_time
        assert not ctx.input_ended
        self.texts.append(row.s or "-")
        match row.x:
            case None:
                ctx.timers.delete("later")
            case -1:
                ctx.timers.at(ctx.event_time - 3 * SECOND)
            case 1:
                ctx.timers.at(ctx.event_time + 2 * SECOND)
            case 2:
                ctx.timers.at(ctx.event_time + 4 * SECOND, "later")
            case _:
                ctx.timers.at(ctx.event_time)
        yield self.note(f"a {row.x} {row.s} {[t.name for t in ctx.timers.list()]}")

    @table
    def b(self, ctx: Context, row: Click) -> Iterator[Note]:
        word = row.s or "-"
        self.seen[word] = self.seen.get(word, 0) + 1
        yield self.note(f"b {row.x} {row.s} {sorted(self.seen.items())}")
        if row.x == 3:
            ctx.clear()

    def on_timer(self, ctx: Context) -> Iterator[Note]:
        yield self.note(f"{ctx.timer.name} {ctx.timer.time} {ctx.watermark == ctx.event_time} {self.texts.get()}")
        if ctx.timer.name == "later":
            ctx.timers.at(ctx.timer.time + SECOND)
            self.texts.clear()

    def note(self, what: str) -> Note:
        self.n.value = (self.n.value or 0) + 1
        return Note(self.n.value, what)


# What runs in this process is the class as workers get it: its hints can be read before that.
JOURNAL = declare_any(Journal)


class Timers:
    """The timers of a key in plain Python."""

    def __init__(self) -> None:
        self.known: dict[str | datetime, datetime] = {}

    def at(self, time: datetime, name: str = "") -> None:
        self.known[name or time] = time

    def delete(self, timer: str | datetime) -> None:
        self.known.pop(timer, None)

    def list(self) -> list[Any]:
        shown = [(due, name if isinstance(name, str) else "") for name, due in self.known.items()]
        return [SimpleNamespace(name=name, time=due) for due, name in sorted(shown)]

    def next(self, before: datetime) -> Any:
        """Take out the first timer that is due before a time, if there is one."""
        found = next((t for t in self.list() if t.time < before), None)
        if found is not None:
            del self.known[found.name or found.time]
        return found


def simulated(key: int | None, rows: Mapping[str, Sequence[Row]], up_to: int | None) -> Iterator[tuple[object, ...]]:
    """Yield what the class gives for a key over its rows in the order of time, up to a watermark."""
    one, timers = Journal(), Timers()
    one.n, one.texts, one.seen = ValueState(), ListState(), MapState()

    def clear() -> None:
        for kept in (one.n, one.texts, one.seen):
            kept.clear()
        timers.known.clear()

    ctx: Any = SimpleNamespace(timers=timers, clear=clear, input_ended=False)
    reached = datetime.min

    def called(method: Any, time: datetime, *given: Any) -> Iterator[tuple[object, ...]]:
        nonlocal reached
        reached = ctx.event_time = ctx.watermark = max(time, reached)
        yield from ((key, *note, reached) for note in method(ctx, *given))

    def fired(before: datetime) -> Iterator[tuple[object, ...]]:
        while timer := timers.next(before):
            ctx.timer = timer
            yield from called(one.on_timer, timer.time)

    end = datetime.max if up_to is None else START + timedelta(microseconds=up_to)
    found = [(START + timedelta(microseconds=r[3] or 0), t, r) for t in "ab" for r in rows[t] if r[0] == key]
    for time, name, row in sorted(found, key=_turn):
        if time < end:
            yield from fired(time)
            yield from called(one.a if name == "a" else one.b, time, Click(row[1], row[2]))
    yield from fired(end)


def _turn(item: tuple[datetime, str, Row]) -> tuple[object, ...]:
    """The order of the rows: time, table, x DESC NULLS FIRST, then the values."""
    time, name, (_, x, s, _) = item
    return (time, name, x is not None, -(x or 0), s is None, s or "")


def answer(rows: Mapping[str, Sequence[Row]], up_to: int | None) -> Bag:
    keys = {row[0] for t in "ab" for row in rows[t]}
    return bag(note for key in keys for note in simulated(key, rows, up_to))


def stream_of(delay: Mapping[str, int], parallelism: int) -> Stream:
    declared = "".join(
        f"CREATE TABLE {t} (k BIGINT, x BIGINT, s STRING, ts TIMESTAMP, "
        f"WATERMARK FOR ts AS ts - INTERVAL '{delay[t]}' MICROSECOND);"
        for t in "ab"
    )
    order = "PARTITION BY k ORDER BY ts, x DESC NULLS FIRST"
    call = f"journal(a => TABLE a {order}, b => TABLE b {order}, on_time => DESCRIPTOR(ts), uid => 'journal')"
    script = f"{declared} CREATE TABLE out (k BIGINT, n BIGINT, what STRING, t TIMESTAMP); INSERT INTO out SELECT * FROM {call}"
    return Stream(script, functions=[JOURNAL], parallelism=parallelism)


@settings(max_examples=40 * MORE, deadline=None, suppress_health_check=SLOW)
@given(histories(), delays, st.integers(1, 3), st.booleans())
def test_batches_and_restarts_make_no_difference(
    history: list[Step], delay: dict[str, int], parallelism: int, small: bool
) -> None:
    times, rows, late = Times(("a", "b"), delay), {"a": list[Row](), "b": list[Row]()}, 0
    with limits(small=small), stream_of(delay, parallelism) as stream:
        for step in history:
            feed(stream, step, "ab")
            if isinstance(step, Restart):
                continue
            for name, taken in rows.items():
                on_time = times.on_time(step, name, end=lambda ts: ts + 1)
                late += sum(row[3] is not None for row in step.of(name)) - len(on_time)
                taken += on_time
            times.batch(step)
            assert emitted(stream) == (answer(rows, times.watermark) if times.watermark is not None else Bag())
        stream.finish()
        assert emitted(stream) == answer(rows, None)
        assert stream.query("SELECT sum(late_rows) FROM sqlstream.operators") == [(late,)]
