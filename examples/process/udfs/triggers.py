from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlstream import Context, ListState, Row, ValueState, process, state


@dataclass
class Bundle:
    begin: datetime
    clicks: int


@process
class CountOrTime:
    """A window of so many clicks, or of so many minutes from its first one: whichever is first."""

    bundle: ValueState[Bundle] = state()

    def __init__(self, size: int = 5, minutes: int = 10):
        self.size, self.length = size, timedelta(minutes=minutes)

    def process(self, ctx: Context, click: Row) -> Iterator[Bundle]:
        if self.bundle.value is not None and ctx.event_time >= self.bundle.value.begin + self.length:
            yield from self.on_timer(ctx)
        before = self.bundle.value or Bundle(ctx.event_time, 0)
        self.bundle.value = Bundle(before.begin, before.clicks + 1)
        ctx.timers.at(before.begin + self.length, "time")
        if before.clicks + 1 == self.size:
            yield from self.on_timer(ctx)

    def on_timer(self, ctx: Context) -> Iterator[Bundle]:
        if self.bundle.value is not None:
            yield self.bundle.value
        ctx.clear()


@dataclass
class Reading:
    temperature: float
    ts: datetime


@dataclass
class Mean:
    readings: int
    mean: float
    at: datetime


@process
class RecentMeans:
    """A global window: every few readings it emits the mean of those that are left after old ones were evicted."""

    kept: ListState[Reading] = state(ttl="1 d")
    new: ValueState[int] = state(ttl="1 d")

    def __init__(self, every: int = 10, minutes: int = 30):
        self.every, self.age = every, timedelta(minutes=minutes)

    def process(self, ctx: Context, reading: Reading) -> Iterator[Mean]:
        self.kept.append(reading)
        self.new.value = (self.new.value or 0) + 1
        if self.new.value == self.every:
            kept = [r for r in self.kept.get() if r.ts > reading.ts - self.age]
            self.kept.set(kept)
            self.new.clear()
            yield Mean(len(kept), round(sum(r.temperature for r in kept) / len(kept), 2), reading.ts)
