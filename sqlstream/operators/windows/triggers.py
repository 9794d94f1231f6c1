"""When windows emit: at their end, or again whenever their results change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import pyarrow as pa

from sqlstream.duck.clock import NEVER
from sqlstream.operators.operator import Clock
from sqlstream.operators.windows.assigners import Relations, WindowAssigner
from sqlstream.operators.windows.results import WindowResult
from sqlstream.operators.windows.retention import Retention
from sqlstream.operators.windows.window_batch import WindowBatch
from sqlstream.storage.segments import Segment
from sqlstream.units import MILLISECOND, to_millis
from sqlstream.warehouse.declarations import TableDeclaration


class Trigger(Protocol):
    """When windows emit.

    `tables` are what it remembers itself. The rows of those in `moving` are put into windows with the stored rows when windows
    close. Where `corrects`, emitted rows have weights, and `changes` is given the partials that a batch has added.
    """

    @property
    def retention(self) -> Retention: ...

    @property
    def tables(self) -> tuple[TableDeclaration, ...]: ...

    @property
    def moving(self) -> tuple[str, ...]: ...

    @property
    def corrects(self) -> bool: ...

    def closing(self, batch: WindowBatch, result: WindowResult, rows: Relations) -> str | None:
        """Return the SELECT of what leaves when windows close, given their rows, which are forgotten then."""
        ...

    def changes(self, batch: WindowBatch, added: Sequence[pa.Table | Segment]) -> str | None:
        """Return the SELECT of what a batch changes in windows that are not closed."""
        ...

    def set_timers(self, batch: WindowBatch, windows: WindowAssigner) -> None:
        """Forget what the watermark has passed, and say when the operator wants to be called again."""
        ...


@dataclass(frozen=True, slots=True)
class AtEnd:
    """A window emits once, when the watermark passes its end."""

    @property
    def retention(self) -> Retention:
        return Retention()

    @property
    def tables(self) -> tuple[TableDeclaration, ...]:
        return ()

    @property
    def moving(self) -> tuple[str, ...]:
        return ()

    @property
    def corrects(self) -> bool:
        return False

    def closing(self, batch: WindowBatch, result: WindowResult, rows: Relations) -> str:
        return result.result(rows)

    def changes(self, batch: WindowBatch, added: Sequence[pa.Table | Segment]) -> None:
        return None

    def set_timers(self, batch: WindowBatch, windows: WindowAssigner) -> None:
        watermark = batch.clock.watermark
        earliest = batch.forget(NEVER if watermark is None else watermark)
        batch.state.event_timer = windows.next_time(earliest, watermark)


AT_END = AtEnd()


@dataclass(frozen=True, slots=True)
class Early:
    """How often open windows are emitted: after so much processing or event time (a Duration), or so many rows."""

    every: int
    by: Literal["time", "event", "rows"]

    def due(self, clock: Clock) -> int:
        """Return when a row of a batch is to be seen in a result, at the latest, as the stored column has it.

        Times are multiples of the interval.
        """
        now = {"time": clock.time, "event": clock.watermark, "rows": 0}[self.by]
        if now is None:
            return NEVER
        due = (now // self.every + 1) * self.every
        # The clock goes by milliseconds: the first one from which on it is due.
        return -(-due // MILLISECOND) if self.by == "time" else due

    def reached(self, clock: Clock) -> int | None:
        """Return the time of a batch as the stored column has it."""
        return {"time": to_millis(clock.time), "event": clock.watermark, "rows": 0}[self.by]
