"""Process functions with broadcast tables, which the golden scripts call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlstream import Context, MapState, ValueState, process, state, table


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


BROADCAST_FUNCTIONS = (ApplyLimits,)
