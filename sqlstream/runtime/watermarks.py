"""The watermarks that a batch begins with: of the job, of each scan, and of each operator.

An operator's watermark is the least of those of the scans that it waits for: the plan says which, so nothing has to flow. The
drivers of both engines compute the watermarks before a batch, from what all earlier batches have read; a batch that is repeated
has the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from sqlstream.physical.plan import PhysicalPlan
from sqlstream.runtime.fragments import newest
from sqlstream.runtime.times import in_millis, least
from sqlstream.storage.metrics import SourceMetrics
from sqlstream.units import EventTime, ProcessingTime


@dataclass(frozen=True, slots=True)
class Watermarks:
    """The watermarks before a batch; None where there is none yet. Scans and operators are in the order of the plan.

    A watermark has whole milliseconds, as Spark's has.
    """

    job: EventTime | None
    scans: tuple[EventTime | None, ...]
    operators: tuple[EventTime | None, ...]

    @classmethod
    def none(cls, plan: PhysicalPlan) -> Watermarks:
        """Return the watermarks before the first batch."""
        return cls(None, (None,) * len(plan.scans), (None,) * len(plan.stages))

    @classmethod
    def restored(
        cls, plan: PhysicalPlan, job: EventTime | None, operators: Mapping[str, EventTime | None]
    ) -> Watermarks:
        """Return watermarks from a log: of the job, and of its operators by name; an operator without one has the job's."""
        marks = tuple(operators.get(stage.name, job) for stage in plan.stages)
        return cls(job, (None,) * len(plan.scans), marks)

    def after(self, plan: PhysicalPlan, sources: Mapping[str, SourceMetrics]) -> Watermarks:
        """Return the watermarks of the next batch; `sources` is what the scans have read so far. None goes back."""
        scans = tuple(in_millis(sources[scan.name].watermark) for scan in plan.scans)
        operators = []
        for stage, before in zip(plan.stages, self.operators, strict=True):
            reached = least(scans[place] for place in stage.timed_by)
            # What does not wait has no watermark of its own to keep: it shows that of its inputs.
            operators.append(newest(before, reached) if stage.reads_time else reached)
        return Watermarks(newest(self.job, least(scans[place] for place in plan.watched)), scans, tuple(operators))

    def at_least(self, watermark: EventTime | None) -> Watermarks:
        """Return the same watermarks, those of the job and of operators not before a time."""
        operators = tuple(newest(mark, watermark) for mark in self.operators)
        return Watermarks(newest(self.job, watermark), self.scans, operators)

    def waking(self, plan: PhysicalPlan) -> tuple[EventTime | None, ...]:
        """Return the watermarks whose advance lets something leave, so that an empty batch follows: operators', and the job's."""
        pairs = zip(plan.stages, self.operators, strict=True)
        return (self.job, *(mark for stage, mark in pairs if stage.reads_time and stage.timed_by))

    def own(self, plan: PhysicalPlan) -> dict[str, EventTime | None]:
        """Return the watermarks of operators that read time, by name, where they are not the job's."""
        pairs = zip(plan.stages, self.operators, strict=True)
        return {stage.name: mark for stage, mark in pairs if stage.reads_time and mark != self.job}

    def to_json(self) -> str:
        """Return them as JSON, for `from_json`."""
        return msgspec.json.encode((self.job, self.scans, self.operators)).decode()

    @classmethod
    def from_json(cls, text: str) -> Watermarks:
        """Return the watermarks in a text."""
        return cls(*msgspec.json.decode(text, type=_Fields))


_Fields = tuple[EventTime | None, tuple[EventTime | None, ...], tuple[EventTime | None, ...]]


@dataclass(frozen=True, slots=True)
class BatchClock:
    """What is fixed for a batch: its number, its processing time, and the watermarks before it."""

    batch: int
    time: ProcessingTime
    marks: Watermarks
