from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlstream import Context, Row, ValueState, process, state


@dataclass
class Seen:
    temperature: float
    at: datetime


@dataclass
class Alert:
    temperature: float
    difference: float


@process
class TemperatureAlerts:
    """Emits a reading that differs from the last one of its sensor by more than `threshold`.

    A reading is forgotten after some minutes: a timer cleans up, and every new reading puts the timer off.
    """

    last: ValueState[Seen] = state()

    def __init__(self, threshold: float = 5, minutes: int = 10):
        self.threshold, self.memory = threshold, timedelta(minutes=minutes)

    def process(self, ctx: Context, reading: Row) -> Iterator[Alert]:
        last, now = self.last.value, ctx.event_time
        self.last.value = Seen(reading.temperature, now)
        ctx.timers.at(now + self.memory, "forget")
        # The timer waits for the watermark, which may be behind: the reading is too old all the same.
        if last is not None and now < last.at + self.memory:
            difference = reading.temperature - last.temperature
            if abs(difference) > self.threshold:
                yield Alert(reading.temperature, difference)

    def on_timer(self, ctx: Context) -> None:
        ctx.clear()
