"""Process functions that take changes and emit them, which the golden scripts call."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

from sqlstream import Context, ListState, Row, ValueState, process, state, table


class Seen(NamedTuple):
    n: int
    is_retraction: bool
    net: int


@process(changes=True)
class Retractions:
    """Emits each row of a table that changes, whether it is added or taken away, and how many there are."""

    net: ValueState[int] = state()

    def process(self, ctx: Context, row: Row) -> Iterator[Seen]:
        self.net.value = (self.net.value or 0) + (-1 if ctx.is_retraction else 1)
        yield Seen(row.n, ctx.is_retraction, self.net.value)


@process(changelog_mode="upsert")
class Levels:
    """Emits how high the last x is for a key: no row where it is 0."""

    def process(self, ctx: Context, row: Row) -> Iterator[str]:
        ctx.retract()
        if row.x:
            yield "high" if row.x > 5 else "low"
        if row.x == 99:
            ctx.retract()


@process(changelog_mode="retract")
class Top2:
    """Emits the two greatest x of a key, and takes those back that are it no more."""

    tops: ListState[int] = state(ttl="1 d")

    def process(self, ctx: Context, row: Row) -> Iterator[int]:
        before = self.tops.get()
        after = sorted([*before, row.x], reverse=True)[:2]
        if after == before:
            return
        self.tops.set(after)
        for x in before:
            ctx.retract(x)
        yield from after


@process(changelog_mode="upsert")
class Joined:
    """Joins a table that changes with one that does not: emits the sum of both, as long as both are there."""

    a: ValueState[int] = state()
    b: ValueState[int] = state()

    @table(changes=True)
    def counts(self, ctx: Context, row: Row) -> Iterator[int]:
        self.a.value = None if ctx.is_retraction else row.n
        yield from self.both(ctx)

    @table
    def numbers(self, ctx: Context, row: Row) -> Iterator[int]:
        self.b.value = row.x
        yield from self.both(ctx)

    def both(self, ctx: Context) -> Iterator[int]:
        if self.a.value is None or self.b.value is None:
            ctx.retract()
        else:
            yield self.a.value + self.b.value


@process(changelog_mode="upsert")
class Online:
    """Emits who has come in the last ten seconds of event time, and how often."""

    visits: ValueState[int] = state()

    def process(self, ctx: Context, row: Row) -> Iterator[int]:
        assert ctx.event_time is not None
        self.visits.value = (self.visits.value or 0) + 1
        ctx.timers.at(ctx.event_time + timedelta(seconds=10), "gone")
        yield self.visits.value

    def on_timer(self, ctx: Context) -> None:
        ctx.clear()
        ctx.retract()


@process
class TakesBack:
    def process(self, ctx: Context, row: Row) -> Iterator[int]:
        ctx.retract(row.x)
        yield row.x


CHANGING_PROCESS_FUNCTIONS = (Retractions, Levels, Top2, Joined, Online, TakesBack)
