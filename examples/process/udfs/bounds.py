from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlstream import Context, MapState, Row, ValueState, process, state, table


@dataclass
class Change:
    temperature: float
    state: str
    bound: float | None


@process
class BoundedTemperatures:
    """Emits a reading with which a sensor leaves the bounds, or comes back; all sensors have the same bounds, which change."""

    bounds_now: MapState[str, float] = state(broadcast=True)
    last: ValueState[str] = state(ttl="1 d")

    @table
    def readings(self, ctx: Context, reading: Row) -> Iterator[Change]:
        low, high = self.bounds_now.get("low"), self.bounds_now.get("high")
        now, bound = "normal", None
        if low is not None and reading.temperature < low:
            now, bound = "low", low
        elif high is not None and reading.temperature > high:
            now, bound = "high", high
        if now != (self.last.value or "normal"):
            yield Change(reading.temperature, now, bound)
        self.last.value = now

    @table(broadcast=True)
    def bounds(self, ctx: Context, bound: Row) -> None:
        self.bounds_now[bound.name] = bound.temperature
