"""Process functions with broadcast tables, which the golden scripts call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc

from sqlstream import Context, ListState, MapState, ReducingState, Row, ValueState, process, state, table


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
        yield Excess(payment.kind, payment.amount, 0.0)

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
                return [limit]  # type: ignore[return-value]
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
    Confused,
)
