"""A clock that is wrong, for tests in this process: jobs and servers read it, files have the times of the machine."""

from __future__ import annotations

import time
from typing import Final

import pytest

from sqlstream import units

HOURS: Final = 5 * 3600.0


class WrongClock:
    """The clock of `sqlstream.units`, which goes `wrong` by so many seconds; each look at it adds `step` to that."""

    def __init__(self, wrong: float = 0.0, step: float = 0.0):
        self.wrong, self.step = wrong, step

    def time(self) -> float:
        self.wrong += self.step
        return time.time() + self.wrong

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()


def set_clock(monkeypatch: pytest.MonkeyPatch, clock: WrongClock) -> WrongClock:
    """Let a clock be that of this process during a test, and return it."""
    monkeypatch.setattr(units, "time", clock)
    return clock
