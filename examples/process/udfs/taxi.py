from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlstream import Context, Row, SideOutput, ValueState, process, side_output, state, table


@dataclass
class Paid:
    taxi: str
    amount: float


@dataclass
class Unmatched:
    taxi: str | None
    amount: float | None
    problem: str


@process
class Reconcile:
    """Joins each ride with its fare; what has no partner within some minutes is in the side output `unmatched`."""

    unmatched: SideOutput[Unmatched] = side_output()
    taxi: ValueState[str] = state()
    amount: ValueState[float] = state()

    def __init__(self, minutes: int = 60):
        self.patience = timedelta(minutes=minutes)

    @table
    def rides(self, ctx: Context, ride: Row) -> Iterator[Paid]:
        self.taxi.value = ride.taxi
        yield from self.match(ctx)

    @table
    def fares(self, ctx: Context, fare: Row) -> Iterator[Paid]:
        self.amount.value = fare.amount
        yield from self.match(ctx)

    def match(self, ctx: Context) -> Iterator[Paid]:
        if self.taxi.value is not None and self.amount.value is not None:
            yield Paid(self.taxi.value, self.amount.value)
            ctx.clear()
        else:
            ctx.timers.at(ctx.event_time + self.patience, "give up")

    def on_timer(self, ctx: Context) -> None:
        problem = "ride without fare" if self.amount.value is None else "fare without ride"
        ctx.emit("unmatched", Unmatched(self.taxi.value, self.amount.value, problem))
        ctx.clear()


@dataclass
class LongRide:
    taxi: str
    begun: datetime


@process
class LongRides:
    """Emits a ride that has lasted for so many minutes, also while it lasts."""

    ride: ValueState[LongRide] = state()

    def __init__(self, minutes: int = 120):
        self.limit = timedelta(minutes=minutes)

    def process(self, ctx: Context, ride: Row) -> Iterator[LongRide]:
        if ride.event == "begin":
            self.ride.value = LongRide(ride.taxi, ctx.event_time)
            ctx.timers.at(ctx.event_time + self.limit)
        elif (begun := self.ride.value) is not None:
            # The end came before the timer: in time, or so close behind that the watermark was not there yet.
            if ctx.event_time >= begun.begun + self.limit:
                yield begun
            ctx.clear()

    def on_timer(self, ctx: Context) -> Iterator[LongRide]:
        if self.ride.value is not None:
            yield self.ride.value
        ctx.clear()


@dataclass
class TopTwo:
    first: float
    second: float | None


@process
class TopTwoFares:
    """A table aggregate: emits the two highest fares so far whenever they change."""

    top: ValueState[TopTwo] = state(ttl="1 d")

    def process(self, ctx: Context, fare: Row) -> Iterator[TopTwo]:
        before = self.top.value
        known = [before.first, before.second] if before else []
        highest = sorted([fare.amount, *(a for a in known if a is not None)], reverse=True)
        now = TopTwo(highest[0], highest[1] if len(highest) > 1 else None)
        if now != before:
            self.top.value = now
            yield now
