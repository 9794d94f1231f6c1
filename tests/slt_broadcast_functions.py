"""Process functions with broadcast tables, which the golden scripts call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc

from sqlstream import (
    Context,
    ListState,
    MapState,
    ReducingState,
    Row,
    SideOutput,
    ValueState,
    process,
    side_output,
    state,
    table,
)


@dataclass
class Payment:
    account: str
    kind: str
    amount: float


@dataclass
class Limit:
    kind: str
    amount: float | None


@dataclass
class Excess:
    kind: str
    amount: float
    over: float


@process
class ApplyLimits:
    """Emits payments above the limit of their kind; a limit that is NULL is none."""

    limits: MapState[str, float] = state(broadcast=True)
    seen: ValueState[int] = state()

    @table
    def payments(self, ctx: Context, payment: Payment) -> Iterator[Excess]:
        self.seen.value = (self.seen.value or 0) + 1
        limit = self.limits.get(payment.kind)
        if limit is not None and payment.amount > limit:
            yield Excess(payment.kind, payment.amount, payment.amount - limit)

    @table(broadcast=True)
    def rules(self, ctx: Context, limit: Limit) -> None:
        ctx.count("rules")
        if limit.amount is None:
            self.limits.remove(limit.kind)
        else:
            self.limits[limit.kind] = limit.amount


@dataclass
class Word:
    word: str


@dataclass
class Known:
    x: int
    words: int
    last: str | None
    most: int | None


@process
class KnownWords:
    """Emits with every row what two broadcast tables have said so far, without a key."""

    words: ListState[str] = state(broadcast=True)
    last: ValueState[str] = state(broadcast=True)
    most: ReducingState[int] = state(broadcast=True, reduce=max)

    @table(broadcast=True)
    def said(self, ctx: Context, row: Word) -> None:
        if row.word == "forget":
            self.words.clear()
        else:
            self.words.append(row.word)
        self.last.value = row.word

    @table(broadcast=True)
    def counted(self, ctx: Context, row: Row) -> None:
        self.most.add(row.x)

    @table
    def rows(self, ctx: Context, row: Row) -> Iterator[Known]:
        yield Known(row.x, len(self.words), self.last.value, self.most.value)


@process
class Rates:
    """Emits prices at the rate of their time, and a second later what the rate is then."""

    rates: MapState[str, float] = state(broadcast=True)
    kind: ValueState[str] = state()

    @table
    def payments(self, ctx: Context, payment: Payment) -> Iterator[Excess]:
        self.kind.value = payment.kind
        ctx.timers.at(ctx.event_time + timedelta(seconds=1), "then")
        yield Excess(payment.kind, payment.amount, self.rates.get(payment.kind, 0.0))

    @table(broadcast=True)
    def limits(self, ctx: Context, limit: Limit) -> None:
        assert limit.amount is not None
        self.rates[limit.kind] = limit.amount

    def on_timer(self, ctx: Context) -> Iterator[Excess]:
        kind = self.kind.value or ""
        yield Excess(kind, -1, self.rates.get(kind, 0.0))


@process
class HighestLimits:
    """As ApplyLimits, with limits that an aggregate makes."""

    limits: MapState[str, float] = state(broadcast=True)

    @table
    def payments(self, ctx: Context, payment: Payment) -> Iterator[Excess]:
        if payment.amount > self.limits.get(payment.kind, 0.0):
            yield Excess(payment.kind, payment.amount, self.limits.get(payment.kind, 0.0))

    @table(broadcast=True, changes=True)
    def highest(self, ctx: Context, limit: Limit) -> None:
        assert limit.amount is not None
        if not ctx.is_retraction:
            self.limits[limit.kind] = limit.amount
        elif self.limits.get(limit.kind) == limit.amount:
            del self.limits[limit.kind]


@process
class FreshLimits:
    """As ApplyLimits, with limits that expire."""

    limits: MapState[str, float] = state(broadcast=True, ttl="1 h")

    @table
    def payments(self, ctx: Context, payment: Payment) -> Iterator[Excess]:
        yield Excess(payment.kind, payment.amount, self.limits.get(payment.kind, -1.0))

    @table(broadcast=True)
    def rules(self, ctx: Context, limit: Limit) -> None:
        assert limit.amount is not None
        self.limits[limit.kind] = limit.amount


@process(vectorized=True, emits=Excess)
class LimitsByKey:
    """As ApplyLimits, over the rows of a key as a table."""

    limits: MapState[str, float] = state(broadcast=True)
    seen: ValueState[int] = state()

    @table
    def payments(self, ctx: Context, payments: Annotated[pa.Table, Payment]) -> pa.Table:
        self.seen.value = (self.seen.value or 0) + payments.num_rows
        return _above(payments, self.limits.get_all())

    @table(broadcast=True)
    def rules(self, ctx: Context, limits: Annotated[pa.Table, Limit]) -> None:
        self.limits.update(dict(zip(limits["kind"].to_pylist(), limits["amount"].to_pylist(), strict=True)))


@process(vectorized="bucket", emits=Excess, ordered=True)
class LimitsByBucket:
    """As ApplyLimits, over the rows of all keys of a bucket as a table."""

    limits: MapState[str, float] = state(broadcast=True)
    seen: ValueState[int] = state()

    @table(broadcast=True)
    def rules(self, ctx: Context, limits: Annotated[pa.Table, Limit]) -> None:
        self.limits.update(dict(zip(limits["kind"].to_pylist(), limits["amount"].to_pylist(), strict=True)))

    @table
    def payments(
        self, ctx: Context, payments: Annotated[pa.Table, Payment], seen: pa.Table
    ) -> tuple[pa.Table, pa.Table]:
        counts = payments.group_by("account").aggregate([("kind", "count")]).rename_columns(["account", "more"])
        both = seen.join(counts, "account")
        now = pc.add(pc.fill_null(both["seen"], 0), both["more"])
        above = _above(payments, self.limits.get_all(), "account")
        return above, pa.table({"account": both["account"], "seen": now})


@dataclass
class Told:
    kind: str
    amount: float
    over: float


@process
class RenewedLimits:
    """Checks the last payment of each account anew with each limit; one that is NULL forgets the accounts of its kind."""

    limits: MapState[str, float] = state(broadcast=True)
    last: ValueState[Payment] = state()
    told: SideOutput[Told] = side_output()

    @table
    def payments(self, ctx: Context, payment: Payment) -> Iterator[Excess]:
        self.last.value = payment
        yield from self.check(payment)

    @table(broadcast=True)
    def rules(self, ctx: Context, limit: Limit) -> Iterator[Excess]:
        ctx.emit("told", Told(limit.kind, limit.amount or 0.0, len(self.limits)))
        if limit.amount is None:
            self.limits.remove(limit.kind)
            ctx.for_each_key(self.end, limit.kind)
        else:
            self.limits[limit.kind] = limit.amount
            yield Excess(limit.kind, limit.amount, 0.0)
            ctx.for_each_key(self.renew, limit.kind)

    def check(self, payment: Payment) -> Iterator[Excess]:
        limit = self.limits.get(payment.kind)
        if limit is not None and payment.amount > limit:
            yield Excess(payment.kind, payment.amount, payment.amount - limit)

    def renew(self, ctx: Context, kind: str) -> Iterator[Excess]:
        assert self.last.value is not None
        if self.last.value.kind == kind:
            ctx.count("renewed")
            yield from self.check(self.last.value)

    def end(self, ctx: Context, kind: str) -> Iterator[Told]:
        assert self.last.value is not None
        if self.last.value.kind == kind:
            yield Told(f"closed {ctx.key}", self.last.value.amount, 0.0)
            ctx.clear()


@dataclass
class Alarm:
    what: str
    at: datetime | None


@process
class Alarms:
    """Sets a timer with each payment; rows for all keys put them off, and say how much was to come."""

    sums: ListState[float] = state()
    delay: ValueState[float] = state(broadcast=True, default=0.0)

    @table
    def payments(self, ctx: Context, payment: Payment) -> Iterator[Alarm]:
        self.sums.append(payment.amount)
        ctx.timers.at(ctx.event_time + timedelta(seconds=10), "due")
        yield Alarm(f"paid {payment.amount} {self.delay.value}", ctx.event_time)

    @table(broadcast=True)
    def delays(self, ctx: Context, limit: Limit) -> Iterator[Alarm]:
        assert limit.amount is not None
        self.delay.value = limit.amount
        yield Alarm(f"delay {limit.amount}", ctx.event_time)
        ctx.for_each_key(self.put_off, timedelta(seconds=limit.amount))

    def put_off(self, ctx: Context, delay: timedelta) -> Iterator[Alarm]:
        yield Alarm(f"put off {sum(self.sums)} {self.delay.value}", ctx.event_time)
        for timer in ctx.timers.list():
            ctx.timers.at(timer.time + delay, timer.name)

    def on_timer(self, ctx: Context) -> Iterator[Alarm]:
        yield Alarm(f"{'late' if ctx.is_late else 'due'} {sum(self.sums)} {self.delay.value}", ctx.event_time)
        self.sums.clear()


@process(changelog_mode="upsert")
class CurrentLimits:
    """Has the limit of each account in its row, which changes with the limits."""

    kind: ValueState[str] = state()
    limits: MapState[str, float] = state(broadcast=True)

    @table
    def payments(self, ctx: Context, payment: Payment) -> Iterator[float]:
        self.kind.value = payment.kind
        yield self.limits.get(payment.kind, 0.0)

    @table(broadcast=True)
    def rules(self, ctx: Context, limit: Limit) -> None:
        if limit.amount is not None:
            self.limits[limit.kind] = limit.amount
        ctx.for_each_key(self.renew, limit)

    def renew(self, ctx: Context, limit: Limit) -> Iterator[float]:
        if self.kind.value != limit.kind:
            return
        if limit.amount is None:
            ctx.retract()
            ctx.clear()
        else:
            yield limit.amount


@process
class PassedLimits:
    """Emits rows for all keys alone, with the column of the key, and rows of keys as they come; it keeps nothing."""

    @table
    def payments(self, ctx: Context, payment: Payment) -> Iterator[Payment]:
        yield payment

    @table(broadcast=True)
    def rules(self, ctx: Context, limit: Limit) -> list[Payment]:
        return [Payment("all", limit.kind, limit.amount or 0.0)]


def _above(payments: pa.Table, limits: dict[str, float], *key: str) -> pa.Table:
    limit = pa.array([limits.get(kind) for kind in payments["kind"].to_pylist()], pa.float64())
    found = payments.append_column("over", pc.subtract(payments["amount"], limit))
    return found.filter(pc.greater(found["over"], 0)).select([*key, "kind", "amount", "over"])


@process
class Confused:
    """Does what it cannot: `what` says it."""

    limits: MapState[str, float] = state(broadcast=True)
    seen: MapState[str, int] = state()

    def __init__(self, what: str):
        self.what = what

    @table
    def payments(self, ctx: Context, payment: Payment) -> Iterator[Excess]:
        if self.what == "write":
            self.limits["card"] = 1.0
        if self.what == "visit elsewhere":
            ctx.for_each_key(self.visited, payment)
        self.seen[payment.kind] = 1
        yield Excess(payment.kind, payment.amount, 0.0)

    def visited(self, ctx: Context, limit: Limit) -> None:
        raise ValueError(limit.kind)

    def no_rows(self, ctx: Context) -> int:
        return 1

    @table(broadcast=True)
    def rules(self, ctx: Context, limit: Limit) -> None:
        match self.what:
            case "keyed":
                self.seen["card"] = 1
            case "timer":
                ctx.timers.at_processing_time(datetime(2026, 1, 1))
            case "key":
                print(ctx.key)
            case "clear":
                ctx.clear()
            case "emit":
                ctx.emit("other", limit)
            case "return":
                return 7  # type: ignore[return-value]
            case "visit":
                ctx.for_each_key(self.visited, limit)
            case "visit nothing":
                ctx.for_each_key("visited")  # type: ignore[arg-type]
            case "visit no rows":
                ctx.for_each_key(self.no_rows)
        # A text is no limit.
        self.limits["card"] = "two" if self.what == "type" else 2.0  # type: ignore[assignment]
        return None

    def on_timer(self, ctx: Context) -> Iterator[Excess]:
        yield Excess("timer", 0.0, 0.0)


BROADCAST_FUNCTIONS = (
    ApplyLimits,
    KnownWords,
    Rates,
    HighestLimits,
    FreshLimits,
    LimitsByKey,
    LimitsByBucket,
    RenewedLimits,
    Alarms,
    CurrentLimits,
    PassedLimits,
    Confused,
)
