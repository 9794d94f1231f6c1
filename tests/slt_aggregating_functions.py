"""Process functions that the golden scripts call: states that aggregate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sqlstream import AggregatingState, Context, Row, process, state
from tests.slt_aggregate_functions import PathOf, WeightedMean


@dataclass
class Summary:
    mean: float | None
    total: int | None
    n: int
    largest: int | None
    deviation: float | None
    weighted: float | None
    path: str


@process
class Summaries:
    """Shows what the rows of a key amount to when a row says so, and forgets it when one says that."""

    mean: AggregatingState[float | None, float | None] = state(aggregate="avg")
    total: AggregatingState[int, int | None] = state(aggregate="sum")
    n: AggregatingState[int, int] = state(aggregate="count")
    largest: AggregatingState[int, int | None] = state(aggregate="max")
    deviation: AggregatingState[float | None, float | None] = state(aggregate="stddev_pop")
    weighted: AggregatingState[tuple[float, int], float | None] = state(aggregate=WeightedMean)
    path: AggregatingState[str | None, str] = state(aggregate=PathOf)

    def process(self, ctx: Context, row: Row) -> Iterator[Summary]:
        if row.op == "add":
            for one in (self.mean, self.deviation):
                one.add(None if row.x is None else float(row.x))
            for other in (self.total, self.n, self.largest):
                other.add(row.x)
            self.weighted.add((row.x, row.k))
            self.path.add(row.op if row.x is None else f"x{row.x}")
        if row.op == "clear":
            ctx.clear()
        if row.op == "show":
            yield Summary(
                self.mean.value,
                self.total.value,
                self.n.value,
                self.largest.value,
                self.deviation.value,
                self.weighted.value,
                self.path.value,
            )


@process
class Expiring:
    """Means that expire, from the last write and from the last read."""

    written: AggregatingState[float, float | None] = state(aggregate="avg", ttl="1 min")
    read: AggregatingState[float, float | None] = state(aggregate=WeightedMean, ttl="1 min", refresh="read")

    def process(self, ctx: Context, row: Row) -> Iterator[str]:
        if row.op == "add":
            self.written.add(float(row.x))
            self.read.add(float(row.x))
        else:
            yield f"{self.written.value} {self.read.value}"


AGGREGATING_FUNCTIONS: tuple[Callable[..., Any], ...] = (Summaries, Expiring)
