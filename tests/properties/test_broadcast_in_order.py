"""Broadcast tables with ORDER BY: any split into batches and any restart gives what the class gives over all rows in order."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sqlstream import Context, ListState, MapState, ReducingState, ValueState, process, state, table
from sqlstream.functions.kinds import declare_any
from sqlstream.testing import Stream
from tests.properties.interval_model import Times, delays, feed, histories
from tests.properties.model import Bag, bag, emitted, limits
from tests.properties.strategies import Restart, Row, Step
from tests.properties.test_process_in_order import SECOND, START, Click, Note, Timers

pytestmark = pytest.mark.slow

MORE = int(os.environ.get("PROPERTY_EXAMPLES", "1"))
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@process
class Ruled:
    """Says with every row and every timer what all keys know."""

    n: ValueState[int] = state()
    last: ValueState[str] = state(broadcast=True)
    highest: ReducingState[int] = state(broadcast=True, reduce=max)
    words: ListState[str] = state(broadcast=True)
    seen: MapState[str, int] = state(broadcast=True)

    @table
    def a(self, ctx: Context, row: Click) -> Iterator[Note]:
        ctx.timers.at(ctx.event_time + (row.x or 0) * SECOND)
        yield self.note(f"a {row.x} {row.s}")

    @table(broadcast=True)
    def b(self, ctx: Context, row: Click) -> None:
        assert ctx.watermark == ctx.event_time
        self.last.value = None if row.x == 1 else row.s
        self.words.append(row.s or "-")
        if row.x is None:
            self.seen.remove(row.s or "-")
        else:
            self.seen[row.s or "-"] = row.x
            self.highest.add(row.x)
        if row.x == 3:
            self.words.set(["3"])
            self.seen.clear()
            self.highest.clear()

    def on_timer(self, ctx: Context) -> Iterator[Note]:
        yield self.note(f"timer {ctx.timer.time}")

    def note(self, what: str) -> Note:
        self.n.value = (self.n.value or 0) + 1
        one = self.seen.get("a", -9)
        shared = (
            f"{self.last.value} {self.highest.value} {self.words.get()} {self.seen.items()} {one} {'b' in self.seen}"
        )
        return Note(self.n.value, f"{what}: {shared}")


# What runs in this process is the class as workers get it: its hints can be read before that.
RULED = declare_any(Ruled)


class Plain(dict[str, int]):
    """A map of a class in plain Python."""

    def items(self) -> Any:
        return sorted(super().items())

    def remove(self, key: str) -> None:
        self.pop(key, None)


def simulated(key: int | None, rows: Mapping[str, Sequence[Row]], up_to: int | None) -> Iterator[tuple[object, ...]]:
    """Yield what the class gives for a key over its rows, and those for all keys, in the order of time, up to a watermark."""
    one, timers = Ruled(), Timers()
    one.n, one.last, one.highest, one.words = ValueState(), ValueState(), ReducingState(max), ListState()
    one.seen = Plain()  # type: ignore[assignment]
    ctx: Any = SimpleNamespace(timers=timers)
    reached = datetime.min

    def called(method: Any, time: datetime, *given: Any) -> Iterator[tuple[object, ...]]:
        nonlocal reached
        reached = ctx.event_time = max(time, reached)
        yield from ((key, *note, reached) for note in method(ctx, *given))

    def fired(before: datetime) -> Iterator[tuple[object, ...]]:
        while timer := timers.next(before):
            ctx.timer = timer
            yield from called(one.on_timer, timer.time)

    end = datetime.max if up_to is None else START + timedelta(microseconds=up_to)
    found = [
        (START + timedelta(microseconds=r[3] or 0), t, r) for t in "ab" for r in rows[t] if t == "b" or r[0] == key
    ]
    for time, name, (_, x, s, _) in sorted(found, key=_turn):
        if time >= end:
            continue
        yield from fired(time)
        if name == "b":
            ctx.watermark = ctx.event_time = time
            one.b(ctx, Click(x, s))
        else:
            yield from called(one.a, time, Click(x, s))
    yield from fired(end)


def _turn(item: tuple[datetime, str, Row]) -> tuple[object, ...]:
    """The order of the rows: time, those for all keys first, x DESC NULLS FIRST, then the values."""
    time, name, (_, x, s, _) = item
    return (time, name != "b", x is not None, -(x or 0), s is None, s or "")


def answer(rows: Mapping[str, Sequence[Row]], up_to: int | None) -> Bag:
    keys = {row[0] for row in rows["a"]}
    return bag(note for key in keys for note in simulated(key, rows, up_to))


def stream_of(delay: Mapping[str, int], parallelism: int) -> Stream:
    declared = "".join(
        f"CREATE TABLE {t} (k BIGINT, x BIGINT, s STRING, ts TIMESTAMP, "
        f"WATERMARK FOR ts AS ts - INTERVAL '{delay[t]}' MICROSECOND);"
        for t in "ab"
    )
    order = "ORDER BY ts, x DESC NULLS FIRST"
    call = f"ruled(a => TABLE a PARTITION BY k {order}, b => TABLE b {order} BROADCAST, on_time => DESCRIPTOR(ts), uid => 'r')"
    script = f"{declared} CREATE TABLE out (k BIGINT, n BIGINT, what STRING, t TIMESTAMP); INSERT INTO out SELECT * FROM {call}"
    return Stream(script, functions=[RULED], parallelism=parallelism)


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
        assert stream.query("SELECT coalesce(sum(late_rows), 0) FROM sqlstream.operators") == [(late,)]
