"""Process functions that the golden scripts call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlstream import Context, ListState, MapState, Row, ValueState, process, state, table


@dataclass
class Reading:
    sensor: str
    temperature: float


@dataclass
class Alert:
    temperature: float
    difference: float


@process
class TemperatureAlerts:
    last: ValueState[float] = state(ttl="1 h")

    def __init__(self, threshold: float = 1.7):
        self.threshold = threshold

    def process(self, ctx: Context, reading: Reading) -> Iterator[Alert]:
        before = self.last.value
        self.last.value = reading.temperature
        if before is not None and abs(reading.temperature - before) > self.threshold:
            yield Alert(reading.temperature, reading.temperature - before)


class Visit(NamedTuple):
    pages: list[str]
    opened: dict[str, int]


@process
class Visits:
    """Emits the pages of a user who has opened none for some seconds."""

    pages: ListState[str] = state()
    opened: MapState[str, int] = state()
    clicks: ValueState[int] = state()

    def __init__(self, gap: timedelta = timedelta(seconds=10)):
        self.gap = gap

    def process(self, ctx: Context, click: Row) -> None:
        assert ctx.event_time is not None
        self.pages.append(click.page)
        self.opened[click.page] = self.opened.get(click.page, 0) + 1
        self.clicks.value = (self.clicks.value or 0) + 1
        ctx.count("clicks")
        ctx.timers.at(ctx.event_time + self.gap, "end")

    def on_timer(self, ctx: Context) -> Iterator[Visit]:
        yield Visit(self.pages.get(), self.opened.get_all())
        ctx.clear()


@dataclass
class Paid:
    street: str
    amount: float


@process
class Reconcile:
    street: ValueState[str] = state(ttl="1 d")
    amount: ValueState[float] = state(ttl="1 d")

    @table
    def rides(self, ctx: Context, ride: Row) -> Iterator[Paid]:
        self.street.value = ride.street
        yield from self.both(ctx)

    @table
    def fares(self, ctx: Context, fare: Row) -> Iterator[Paid]:
        self.amount.value = fare.amount
        yield from self.both(ctx)

    def both(self, ctx: Context) -> Iterator[Paid]:
        if self.street.value is not None and self.amount.value is not None:
            yield Paid(self.street.value, self.amount.value)
            ctx.clear()


@process(name="doubled_rows")
class Doubled:
    def process(self, ctx: Context, row: Row) -> list[int]:
        return [2 * row.x] if row.x else []


@process
class Reminders:
    """Emits what time it is by the clock, some seconds after a row, unless another row comes before."""

    def process(self, ctx: Context, row: Row) -> None:
        ctx.timers.after(timedelta(seconds=5), "remind")

    def on_timer(self, ctx: Context) -> Iterator[datetime]:
        yield ctx.timer.time.replace(tzinfo=None)


@process
class Inverse:
    total: ValueState[int] = state()

    def process(self, ctx: Context, row: Row) -> Iterator[float]:
        self.total.value = (self.total.value or 0) + row.x
        yield 1 / self.total.value


class Noted(NamedTuple):
    n: int
    what: str


@process
class Notes:
    """Says in which order rows and timers come: a timer is set some seconds behind each row."""

    n: ValueState[int] = state()

    def __init__(self, gap: timedelta = timedelta(seconds=10)):
        self.gap = gap

    @table
    def clicks(self, ctx: Context, click: Row) -> Iterator[Noted]:
        assert ctx.event_time is not None
        assert ctx.watermark == ctx.event_time
        assert not ctx.input_ended
        ctx.timers.at(ctx.event_time + self.gap, "end")
        yield self.note(click.page)

    def on_timer(self, ctx: Context) -> Iterator[Noted]:
        yield self.note(f"{ctx.timer.name} {ctx.timer.time:%H:%M:%S}")

    def note(self, what: str) -> Noted:
        self.n.value = (self.n.value or 0) + 1
        return Noted(self.n.value, what)


@process
class BothNotes:
    """Says in which order the rows of two tables come."""

    n: ValueState[int] = state()

    @table
    def rides(self, ctx: Context, ride: Row) -> Iterator[Noted]:
        yield self.note(ride.street)

    @table
    def fares(self, ctx: Context, fare: Row) -> Iterator[Noted]:
        yield self.note(str(fare.amount))

    def note(self, what: str) -> Noted:
        self.n.value = (self.n.value or 0) + 1
        return Noted(self.n.value, what)


PROCESS_FUNCTIONS = (TemperatureAlerts, Visits, Reconcile, Doubled, Reminders, Inverse, Notes, BothNotes)
