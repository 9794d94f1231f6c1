"""The watermarks with which a batch begins: of the job, of each scan and of each operator. Idle scans do not hold them back.

An operator's watermark is the least watermark of the scans that it waits for. The plan says which scans these are, so watermarks
need not flow through operators. The driver of either engine computes the watermarks before a batch from what all earlier batches
have read; a repeated batch has the same ones. A scan without rows for too long is idle, and so is a partition. This module has
no state that a restart could lose: the watermark of a scan and the time of its last row are in the job's log, and a tick is in
the descriptor of its batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from sqlstream.catalog import IDLE_TIMEOUT, Table
from sqlstream.physical.plan import CLOCK, PhysicalPlan
from sqlstream.runtime.fragments import newest
from sqlstream.runtime.times import in_millis, least
from sqlstream.storage.joblog import fell_idle
from sqlstream.storage.metrics import SourceMetrics
from sqlstream.units import END_OF_INPUT, Duration, EventTime, ProcessingTime, parse_duration


@dataclass(frozen=True, slots=True)
class Watermarks:
    """The watermarks before a batch; None where there is none yet. Scans and operators are in the order of the plan.

    A watermark has whole milliseconds, as Spark's has. `clock` is the watermark of operators over processing time, in a job that
    uses event time, too; else None. It is a time of the zone `JobSpec.clock_zone`.
    """

    job: EventTime | None
    scans: tuple[EventTime | None, ...]
    operators: tuple[EventTime | None, ...]
    clock: EventTime | None = None

    @classmethod
    def none(cls, plan: PhysicalPlan) -> Watermarks:
        """Return the watermarks before the first batch."""
        return cls(None, (None,) * len(plan.scans), (None,) * len(plan.stages))

    @classmethod
    def restored(
        cls, plan: PhysicalPlan, job: EventTime | None, operators: Mapping[str, EventTime | None]
    ) -> Watermarks:
        """Return the watermarks that a log has: the job's, and those of operators by name; scans have none.

        An operator that is not in `operators` has the job's watermark, or None if its watermark is the clock.
        """
        watermarks = tuple(operators.get(s.name, None if s.timed_by == (CLOCK,) else job) for s in plan.stages)
        return cls(job, (None,) * len(plan.scans), watermarks)

    def after(
        self, plan: PhysicalPlan, sources: Mapping[str, SourceMetrics], clock: EventTime | None = None
    ) -> Watermarks:
        """Return the watermarks of the next batch, none earlier than before; `sources` is what the scans have read so far.

        `clock` is the processing time that the plan's operators over processing time have reached.
        """
        scans = tuple(in_millis(sources[scan.name].watermark) for scan in plan.scans)
        clock = newest(self.clock, in_millis(clock))
        operators = []
        for stage, before in zip(plan.stages, self.operators, strict=True):
            reached = clock if stage.timed_by == (CLOCK,) else least(scans[index] for index in stage.timed_by)
            # What does not wait has no watermark of its own to keep: it shows that of its inputs.
            operators.append(newest(before, reached) if stage.reads_time else reached)
        job = newest(self.job, least(scans[index] for index in plan.watched))
        return Watermarks(job, scans, tuple(operators), clock)

    def at_least(self, plan: PhysicalPlan, watermark: EventTime | None) -> Watermarks:
        """Return these watermarks; the job's, and those of operators over event time, are raised to `watermark` if earlier."""
        pairs = zip(plan.stages, self.operators, strict=True)
        operators = tuple(own if stage.timed_by == (CLOCK,) else newest(own, watermark) for stage, own in pairs)
        return Watermarks(newest(self.job, watermark), self.scans, operators, self.clock)

    def waking(self, plan: PhysicalPlan) -> tuple[EventTime | None, ...]:
        """Return the watermarks that call for an empty batch when they advance: the job's, and those that operators wait for."""
        pairs = zip(plan.stages, self.operators, strict=True)
        return (self.job, *(watermark for stage, watermark in pairs if stage.reads_time and stage.timed_by))

    def by_clock(self, plan: PhysicalPlan) -> tuple[EventTime | None, ...]:
        """Return the watermarks of the operators whose watermark is processing time, in a job that also uses event time."""
        pairs = zip(plan.stages, self.operators, strict=True)
        return tuple(watermark for stage, watermark in pairs if stage.timed_by == (CLOCK,) and stage.reads_time)

    def own(self, plan: PhysicalPlan) -> dict[str, EventTime | None]:
        """Return, by name, the watermarks of operators that read time, if they differ from the job's or are processing time."""
        pairs = [
            (stage, watermark) for stage, watermark in zip(plan.stages, self.operators, strict=True) if stage.reads_time
        ]
        return {
            stage.name: watermark for stage, watermark in pairs if watermark != self.job or stage.timed_by == (CLOCK,)
        }

    def to_json(self) -> str:
        """Return them as JSON, for `from_json`."""
        return msgspec.json.encode((self.job, self.scans, self.operators, self.clock)).decode()

    @classmethod
    def from_json(cls, text: str) -> Watermarks:
        """Return the watermarks in a text."""
        return cls(*msgspec.json.decode(text, type=_Fields))


_Fields = tuple[EventTime | None, tuple[EventTime | None, ...], tuple[EventTime | None, ...], EventTime | None]


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """The times of a batch: its number, its processing time, and the watermarks before it."""

    batch: int
    time: ProcessingTime
    watermarks: Watermarks


@dataclass(frozen=True, slots=True)
class WatermarkStatus:
    """Whether a scan, or a partition, holds back a watermark: its own watermark `watermark`, and when it was last active.

    `watermark` is None before the first row. `active_at` is when the last row came, or when the job began to wait for one. After
    `timeout` without a row the scan is idle; 0 means never.
    """

    watermark: EventTime | None
    active_at: ProcessingTime
    timeout: Duration

    def idle_since(self, now: ProcessingTime) -> ProcessingTime | None:
        """Return when the scan fell idle; None if it is active at `now`, or has ended."""
        # A source that has ended holds nothing.
        return None if self.watermark == END_OF_INPUT else fell_idle(self.active_at, self.timeout, now)


def partition_watermark(statuses: Collection[WatermarkStatus], now: ProcessingTime) -> EventTime | None:
    """Return the watermark of a scan from the statuses of its partitions: the least watermark of partitions that are not idle.

    It is None as long as one of these has no watermark. If all are idle, the partitions that were active last count: if batches
    are further apart than the timeout, no batch has seen them active.

    >>> def status(watermark, active_at):
    ...     return WatermarkStatus(watermark and EventTime(watermark), ProcessingTime(active_at), Duration(1000))
    >>> statuses = [status(70, 900), status(50, 900), status(20, 0), status(None, 0)]
    >>> partition_watermark(statuses, now=ProcessingTime(1000)), partition_watermark(statuses, now=ProcessingTime(5000))
    (50, 50)
    """
    active = [status.watermark for status in statuses if status.idle_since(now) is None]
    if not active:
        last = max((status.active_at for status in statuses), default=None)
        active = [status.watermark for status in statuses if status.active_at == last]
    watermarks = [watermark for watermark in active if watermark is not None]
    return min(watermarks) if watermarks and len(watermarks) == len(active) else None


def idle_timeouts(plan: PhysicalPlan, default: Duration) -> dict[int, Duration]:
    """Return the idle timeout of each scan whose rows advance its watermark; `default` is for tables without the option."""
    # A watermark that is the clock advances without rows.
    return {i: _timeout(plan.scans[i].table, default) for i in plan.timed if not plan.scans[i].by_clock}


def _timeout(table: Table, default: Duration) -> Duration:
    text = table.options.get(IDLE_TIMEOUT)
    return default if text is None else parse_duration(text)


def watermark_statuses(
    plan: PhysicalPlan,
    timeouts: Mapping[int, Duration],
    sources: Mapping[str, SourceMetrics],
    last_active: Callable[[str, ProcessingTime | None], ProcessingTime],
) -> dict[int, WatermarkStatus]:
    """Return the watermarks and activity of the scans in `timeouts`, from the sources' metrics.

    `last_active` returns when a source was last active, by its name and the time of its last row in the metrics.
    """
    logged = {i: sources[plan.scans[i].name] for i in timeouts}
    return {
        i: WatermarkStatus(one.watermark, last_active(plan.scans[i].name, one.last_row_at), timeouts[i])
        for i, one in logged.items()
    }


def idle_ticks(
    statuses: Mapping[int, WatermarkStatus], now: ProcessingTime, sets: Iterable[Collection[int]] | None = None
) -> dict[int, EventTime]:
    """Return the ticks that advance idle scans to the least watermark of the scans that are not idle, by scan.

    Each of `sets` has the scans that one operator waits for (default: one set of all scans). If all scans of a set are idle, they
    advance to the greatest of their watermarks. As long as an active scan of a set has no watermark, the set gets no ticks. Scans
    that have ended do not count: their watermark is later than any row. A scan that has reached the time already gets no tick,
    because a tick may cost a batch. Flink's StatusWatermarkValve does the same.

    >>> def status(watermark, active_at, timeout):
    ...     return WatermarkStatus(watermark and EventTime(watermark), ProcessingTime(active_at), Duration(timeout))
    >>> statuses = {0: status(None, 0, 1000), 1: status(70, 900, 1000), 2: status(50, 0, 0)}
    >>> idle_ticks(statuses, now=ProcessingTime(1000)), idle_ticks(statuses, ProcessingTime(1000), [(0, 1), (0, 2), (2,)])
    ({0: 50}, {0: 70})
    """
    ticks: dict[int, EventTime] = {}
    for indexes in [statuses] if sets is None else sets:
        of_set = _ticks_of({i: statuses[i] for i in indexes if i in statuses}, now)
        ticks |= {i: max(to, ticks.get(i, to)) for i, to in of_set.items()}
    return dict(sorted(ticks.items()))


def _ticks_of(statuses: Mapping[int, WatermarkStatus], now: ProcessingTime) -> dict[int, EventTime]:
    waiting = {i: status for i, status in statuses.items() if status.watermark != END_OF_INPUT}
    idle = {i for i, status in waiting.items() if status.idle_since(now) is not None}
    active = [status.watermark for i, status in waiting.items() if i not in idle]
    watermarks = [watermark for watermark in active or [waiting[i].watermark for i in idle] if watermark is not None]
    if not watermarks or (active and len(watermarks) < len(active)):
        return {}
    to = min(watermarks) if active else max(watermarks)
    return {i: to for i in idle if (watermark := statuses[i].watermark) is None or watermark < to}
