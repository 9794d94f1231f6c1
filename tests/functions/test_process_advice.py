"""What an error of a process function says to write instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from sqlstream import AggregatingState, Context, ListState, MapState, ReducingState, Row, ValueState, process, state
from sqlstream.errors import JobError
from sqlstream.testing import ProcessHarness

# What a method does, and what it should have done.
CALLS: dict[str, tuple[Callable[..., Any], str]] = {
    "a delay": (lambda f, ctx, row: ctx.timers.after("5 min"), "Write ctx.timers.after(timedelta(seconds=300))."),
    "a number": (lambda f, ctx, row: ctx.timers.after(5), "Write ctx.timers.after(timedelta(seconds=5))."),
    "a word": (lambda f, ctx, row: ctx.timers.after("soon"), "Write ctx.timers.after(timedelta(minutes=5))."),
    "millis": (lambda f, ctx, row: ctx.timers.at(5000), "ctx.timers.at(ctx.event_time + timedelta(minutes=5))."),
    "another name": (lambda f, ctx, row: ctx.timers.after(timedelta(1), 7), "Write str(7)."),
    "Flink's timers": (lambda f, ctx, row: ctx.timer_service(), "Write ctx.timers."),
    "Flink's key": (lambda f, ctx, row: ctx.get_current_key(), "Write ctx.key."),
    "a near name": (lambda f, ctx, row: ctx.event_tme, 'did you mean "event_time"?'),
    "update": (lambda f, ctx, row: f.last.update(3), "Write self.last.value = .."),
    "called": (lambda f, ctx, row: f.last.value(), "Write .value without (): it is an attribute."),
    "computed": (lambda f, ctx, row: f.last + 1, "Write self.last.value for what it holds."),
    "without value": (lambda f, ctx, row: 1 if f.last else 2, "Write self.last.value for what it holds."),
    "compared": (lambda f, ctx, row: f.last == 3, "Write self.last.value for what it holds."),
    "one of two": (lambda f, ctx, row: f.other.value + f.last, "Write self.last.value for what it holds."),
    "a list": (lambda f, ctx, row: f.items.add(3), "Write self.items.append(..)."),
    "an item": (lambda f, ctx, row: f.items[0], "Write self.items.get() for what it holds."),
    "a map": (lambda f, ctx, row: f.entries.contains("x"), "Write key in self.entries."),
    "reduced": (lambda f, ctx, row: f.most.get(), "Write self.most.value."),
    "aggregated": (lambda f, ctx, row: f.mean.update(1), "Write self.mean.add(..)."),
    "something else": (lambda f, ctx, row: f.last.val, 'did you mean "value"?'),
    "a column": (lambda f, ctx, row: row.cal, 'did you mean "call"?'),
    "no column": (lambda f, ctx, row: row.xyz, "existing columns: k, call"),
    "by name": (lambda f, ctx, row: row["call"], "Write row.call."),
    "emitted": (lambda f, ctx, row: ctx.emit(row), "Yield the rows of the result."),
}


@process
class Wrong:
    other: ValueState[int] = state()
    last: ValueState[int] = state()
    items: ListState[int] = state()
    entries: MapState[str, int] = state()
    most: ReducingState[int] = state(reduce=max)
    mean: AggregatingState[int, float] = state(aggregate="avg")

    def process(self, ctx: Context, row: Row) -> Iterator[int]:
        yield CALLS[row.call][0](self, ctx, row)

    def on_timer(self, ctx: Context) -> None:
        pass


@pytest.mark.slow
def test_errors_say_what_to_write() -> None:
    columns = "k BIGINT, call STRING, ts TIMESTAMP(3)"
    with ProcessHarness(Wrong, keys="k", columns=columns, on_time="ts") as harness:
        for call, (_, hint) in CALLS.items():
            with pytest.raises(JobError) as error:
                harness.rows([{"k": 1, "call": call, "ts": "2026-01-01 10:00:00"}])
            assert hint in str(error.value.hint), call
