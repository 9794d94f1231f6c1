"""Idle sources: a scan without rows for too long must not hold the watermark of its job, nor a partition that of its scan.

What drives a job asks here, on Spark and in process. Nothing is remembered that a restart would lose: how far a scan is and
when its last row came is in the job's log, and a tick is in the descriptor of its batch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlstream.catalog import IDLE_TIMEOUT, Table
from sqlstream.physical.plan import PhysicalPlan
from sqlstream.storage.joblog import fell_idle
from sqlstream.storage.metrics import SourceMetrics
from sqlstream.units import END_OF_INPUT, Duration, EventTime, ProcessingTime, parse_duration


@dataclass(frozen=True, slots=True)
class ScanClock:
    """A scan that has a part in the watermark: its own watermark (None before its first row), and its silence.

    `active_at` is when its last row came, or when the job began to wait for one; `timeout` is how long it may be silent,
    0 for ever.
    """

    mark: EventTime | None
    active_at: ProcessingTime
    timeout: Duration

    def idle_since(self, now: ProcessingTime) -> ProcessingTime | None:
        # A source that has ended holds nothing.
        return None if self.mark == END_OF_INPUT else fell_idle(self.active_at, self.timeout, now)


def partition_mark(clocks: Collection[ScanClock], now: ProcessingTime) -> EventTime | None:
    """Return how far a scan is whose partitions have watermarks of their own: the least of those that are not idle.

    None as long as one of them has none. When all are idle, the ones count that fell idle last, as they were just before: in
    between nobody may have looked, where batches are further apart than the timeout.

    >>> def clock(mark, active_at):
    ...     return ScanClock(mark and EventTime(mark), ProcessingTime(active_at), Duration(1000))
    >>> clocks = [clock(70, 900), clock(50, 900), clock(20, 0), clock(None, 0)]
    >>> partition_mark(clocks, now=ProcessingTime(1000)), partition_mark(clocks, now=ProcessingTime(5000))
    (50, 50)
    """
    active = [clock.mark for clock in clocks if clock.idle_since(now) is None]
    if not active:
        last = max((clock.active_at for clock in clocks), default=None)
        active = [clock.mark for clock in clocks if clock.active_at == last]
    known = [mark for mark in active if mark is not None]
    return min(known) if known and len(known) == len(active) else None


def idle_timeouts(plan: PhysicalPlan, default: Duration) -> dict[int, Duration]:
    """Return how long each scan whose rows move the watermark may be silent; `default` is for tables that do not say."""
    # A clock goes on without rows.
    return {i: _timeout(plan.scans[i].table, default) for i in plan.watched if not plan.scans[i].by_clock}


def _timeout(table: Table, default: Duration) -> Duration:
    text = table.options.get(IDLE_TIMEOUT)
    return default if text is None else parse_duration(text)


def scan_clocks(
    plan: PhysicalPlan, timeouts: Mapping[int, Duration], sources: Mapping[str, SourceMetrics], began: ProcessingTime
) -> dict[int, ScanClock]:
    """Return the clocks of the scans, as a job's log has them; `began` is when the job started or went on."""
    logged = {i: sources[plan.scans[i].name] for i in timeouts}
    return {
        i: ScanClock(logged[i].watermark, max(began, logged[i].last_row_at or began), timeout)
        for i, timeout in timeouts.items()
    }


def idle_ticks(clocks: Mapping[int, ScanClock], now: ProcessingTime) -> dict[int, EventTime]:
    """Return how far to move the watermarks of idle scans: to the least of those of the scans that are not idle.

    When all are idle it is the greatest of theirs: none of them will say more. While a scan that is not idle has no watermark,
    nothing moves. One that has ended is nobody to follow: it is further than any row. Scans that are as far are not among
    the answers, as a tick may cost a batch. Flink's StatusWatermarkValve does the same.

    >>> def clock(mark, active_at, timeout):
    ...     return ScanClock(mark and EventTime(mark), ProcessingTime(active_at), Duration(timeout))
    >>> idle_ticks({0: clock(None, 0, 1000), 1: clock(70, 900, 1000), 2: clock(50, 0, 0)}, now=ProcessingTime(1000))
    {0: 50}
    """
    waiting = {i: clock for i, clock in clocks.items() if clock.mark != END_OF_INPUT}
    idle = {i for i, clock in waiting.items() if clock.idle_since(now) is not None}
    active = [clock.mark for i, clock in waiting.items() if i not in idle]
    known = [mark for mark in active or [waiting[i].mark for i in idle] if mark is not None]
    if not known or (active and len(known) < len(active)):
        return {}
    to = min(known) if active else max(known)
    return {i: to for i in sorted(idle) if (mark := clocks[i].mark) is None or mark < to}
