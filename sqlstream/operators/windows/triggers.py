"""Triggers: windows emit once at their end, or again whenever their results change."""

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
    """When windows emit."""

    @property
    def retention(self) -> Retention:
        """How long rows of windows are stored."""
        ...

    @property
    def tables(self) -> tuple[TableDeclaration, ...]:
        """The state tables of the trigger itself."""
        ...

    @property
    def moving(self) -> tuple[str, ...]:
        """The trigger's tables whose rows are assigned to windows again, with the stored rows, when windows close."""
        ...

    @property
    def corrects(self) -> bool:
        """Whether results change: emitted rows have weights, and `changes` gets the partials that a batch has added."""
        ...

    def closing(self, batch: WindowBatch, result: WindowResult, rows: Relations) -> str | None:
        """Return the SELECT of what closing windows emit, None for nothing; `rows` are their rows, forgotten afterwards."""
        ...

    def changes(self, batch: WindowBatch, added: Sequence[pa.Table | Segment]) -> str | None:
        """Return the SELECT of what a batch changes in windows that are not closed, None for nothing."""
        ...

    def set_timers(self, batch: WindowBatch, windows: WindowAssigner) -> None:
        """Forget rows that the watermark has passed, and set the times at which the operator must run again."""
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
    """The interval of early results: `every` microseconds of processing ("time") or event time ("event"), or `every` rows."""

    every: int
    by: Literal["time", "event", "rows"]

    def due(self, clock: Clock) -> int:
        """Return when a result must show a row of this batch at the latest, as DUE is stored: the next multiple of the interval.

        Before the first watermark, event time gives NEVER.
        """
        now = {"time": clock.time, "event": clock.watermark, "rows": 0}[self.by]
        if now is None:
            return NEVER
        due = (now // self.every + 1) * self.every
        # The clock goes by milliseconds: the first one from which on it is due.
        return -(-due // MILLISECOND) if self.by == "time" else due

    def reached(self, clock: Clock) -> int | None:
        """Return the time of a batch as DUE is stored; None for event time before the first watermark."""
        return {"time": to_millis(clock.time), "event": clock.watermark, "rows": 0}[self.by]
