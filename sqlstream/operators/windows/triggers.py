"""Triggers: windows emit once at their end, or again whenever their results change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from sqlstream.duck.sql import Relations, Select
from sqlstream.duck.time_variables import NEVER
from sqlstream.operators.windows.assigners import WindowAssigner
from sqlstream.operators.windows.results import WindowResult
from sqlstream.operators.windows.retention import Retention
from sqlstream.operators.windows.window_batch import WindowBatch
from sqlstream.storage.segments import Segment
from sqlstream.warehouse.declarations import TableDeclaration


class Trigger(Protocol):
    """Decides when windows emit, and how long their rows are stored."""

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

    def closing(self, batch: WindowBatch, result: WindowResult, rows: Relations) -> Select | None:
        """Return what closing windows emit, None for nothing; `rows` are their rows, forgotten afterwards."""
        ...

    def changes(self, batch: WindowBatch, added: Sequence[pa.Table | Segment]) -> Select | None:
        """Return what a batch changes in windows that are not closed, None for nothing."""
        ...

    def set_timers(self, batch: WindowBatch, windows: WindowAssigner) -> None:
        """Forget rows that the watermark has passed, and set the times at which the operator must run again."""
        ...


@dataclass(frozen=True, slots=True)
class EventTimeTrigger:
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

    def closing(self, batch: WindowBatch, result: WindowResult, rows: Relations) -> Select:
        return result.result(rows)

    def changes(self, batch: WindowBatch, added: Sequence[pa.Table | Segment]) -> None:
        return None

    def set_timers(self, batch: WindowBatch, windows: WindowAssigner) -> None:
        watermark = batch.times.watermark
        earliest = batch.forget(NEVER if watermark is None else watermark)
        batch.state.event_timer = windows.next_time(earliest, watermark)


AT_END = EventTimeTrigger()
