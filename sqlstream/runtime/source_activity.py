"""When the sources of a running job were last active: from that follow which are idle, and watermarks from partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from sqlstream.runtime.fragments import newest
from sqlstream.runtime.times import event_time_of
from sqlstream.runtime.watermarks import WatermarkStatus, idle_timeouts, partition_watermark, watermark_statuses
from sqlstream.runtime.worker import JobSpec
from sqlstream.storage.metrics import PartitionMetrics, ScanReport, SourceMetrics
from sqlstream.units import EventTime, ProcessingTime


class SourceActivity:
    """When the scans of a job, and their partitions, were last active in this run, and which of them are idle.

    A source with an idle timeout is idle when it has had no row for so long, and so is a partition. `timeouts` has the timeout of
    each scan whose rows advance its watermark, by the scan's index; 0 means never idle. `began`, when this run of the job began,
    counts as activity of every source. Idleness is measured with the clock `monotonic`, so that a change of the machine's clock
    does not matter; without it, by the times of last rows in the metrics. Metrics are passed in by names of scans.
    """

    def __init__(
        self, job: JobSpec, *, began: ProcessingTime, monotonic: Callable[[], ProcessingTime] | None = None
    ) -> None:
        self.timeouts = idle_timeouts(job.plan, job.idle_timeout)
        self._job = job
        self._began = began
        self._monotonic = monotonic
        # When the last rows of scans, and of their partitions, came in this run, by the monotonic clock.
        self._came: dict[tuple[str, ...], ProcessingTime] = {}
        # The partitions of scans, and whether each has input that waits or is being read; when this process first saw each.
        self._partitions: Mapping[int, Mapping[str, bool]] = {}
        self._first_seen: dict[tuple[int, str], ProcessingTime] = {}
        # The watermarks of partitions that sources themselves report, and when each last advanced.
        self._source_watermarks: Mapping[tuple[int, str], tuple[EventTime, ProcessingTime]] = {}

    def now(self, machine: ProcessingTime) -> ProcessingTime:
        """Return the present time of the clock that measures idleness; `machine` is the time of the machine's clock."""
        return machine if self._monotonic is None else self._monotonic()

    def of_scans(self, sources: Mapping[str, SourceMetrics]) -> dict[int, WatermarkStatus]:
        """Return the watermarks and activity of the scans in `timeouts`, by the index of the scan."""
        statuses = watermark_statuses(
            self._job.plan, self.timeouts, sources, lambda scan, logged: self._last_active(logged, scan)
        )
        for (i, _), (_, advanced_at) in self._source_watermarks.items():
            if i in statuses:
                statuses[i] = replace(statuses[i], active_at=max(statuses[i].active_at, advanced_at))
        return statuses

    def _last_active(self, logged: ProcessingTime | None, *of: str) -> ProcessingTime:
        """Return when the last row of a scan, or of a partition of it, came, at the earliest when this run began.

        `logged` is its time in the metrics, by the machine's clock.
        """
        came = logged if self._monotonic is None else self._came.get(of)
        return max(self._began, came or self._began)

    def see_rows(self, report: ScanReport, at: ProcessingTime) -> None:
        """Record that a scan, and the partitions whose rows a task has read, were active at `at`, a time that `now` returned."""
        rows: dict[tuple[str, ...], int] = {(report.scan,): report.rows}
        rows |= {(report.scan, name): read.rows for name, read in report.partitions.items()}
        self._came |= {of: at for of, count in rows.items() if count}

    def see_partitions(
        self,
        partitions: Mapping[int, Mapping[str, bool]],
        reports: Mapping[int, Mapping[str, datetime]],
        now: ProcessingTime,
    ) -> None:
        """Store which partitions scans have, and whether each has input that waits or is being read: then it is not idle.

        `reports` has the watermarks of partitions that sources themselves report: a partition whose watermark advances is
        not idle either. Both are by scan, then by partition.
        """
        plan = self._job.plan
        watermarks = {
            (i, name): event_time_of(time, self._job.zone_of(plan.scans[i]))
            for i, times in reports.items()
            for name, time in times.items()
        }
        moved = {
            at: (watermark, now)
            for at, watermark in watermarks.items()
            if at not in self._source_watermarks or watermark > self._source_watermarks[at][0]
        }
        # Another thread may be reading.
        self._source_watermarks = {**self._source_watermarks, **moved}
        self._first_seen |= {
            (i, name): now for i, names in partitions.items() for name in names if (i, name) not in self._first_seen
        }
        self._partitions = partitions

    def partition_watermarks(self, sources: Mapping[str, SourceMetrics], now: ProcessingTime) -> dict[int, EventTime]:
        """Return the watermarks, by scan, of the scans whose partitions have watermarks; a scan without one yet is left out."""
        by_scan = {}
        for i in self._partitions.keys() & self.timeouts.keys():
            source = sources[self._job.plan.scans[i].name]
            statuses = self._of_partitions(i, source, now)
            source_watermarks = [
                watermark for (scan, _), (watermark, _) in self._source_watermarks.items() if scan == i
            ]
            if statuses:
                watermark = partition_watermark(statuses.values(), now)
            elif source_watermarks:
                # The source reports watermarks, although no partition has input to read.
                watermark = min(source_watermarks)
            else:
                # All were read to their ends.
                watermark = max(
                    (p.watermark for p in source.partitions.values() if p.watermark is not None), default=None
                )
            if watermark is not None:
                by_scan[i] = watermark
        return by_scan

    def _of_partitions(self, scan: int, source: SourceMetrics, now: ProcessingTime) -> dict[str, WatermarkStatus]:
        statuses = {}
        for name, is_under_way in self._partitions[scan].items():
            partition = source.partitions.get(name, PartitionMetrics())
            watermark, advanced_at = self._source_watermarks.get((scan, name), (None, self._began))
            last_row_at = self._last_active(partition.last_row_at, self._job.plan.scans[scan].name, name)
            active_at = max(advanced_at, self._first_seen[scan, name], last_row_at)
            watermark = newest(partition.watermark, watermark)
            statuses[name] = WatermarkStatus(watermark, now if is_under_way else active_at, self.timeouts[scan])
        return statuses

    def mark_idle(self, sources: Mapping[str, SourceMetrics], machine: ProcessingTime, now: ProcessingTime) -> None:
        """Mark in the metrics which sources and partitions are idle at `now`, and since when by the machine's clock.

        `machine` is the same moment by that clock. The metrics get the partitions that were seen, and their watermarks, too.
        """
        plan = self._job.plan

        def idle_since(status: WatermarkStatus) -> ProcessingTime | None:
            since = status.idle_since(now)
            return None if since is None else ProcessingTime(since + machine - now)

        for i, status in self.of_scans(sources).items():
            sources[plan.scans[i].name].idle_since = idle_since(status)
        for (i, _), (_, advanced_at) in self._source_watermarks.items():
            source = sources[plan.scans[i].name]
            source.said_at = max(source.said_at or advanced_at, advanced_at)
        for i in self._partitions.keys() & self.timeouts.keys():
            source = sources[plan.scans[i].name]
            for name, status in self._of_partitions(i, source, now).items():
                partition = source.partitions.setdefault(name, PartitionMetrics())
                partition.found_at = partition.found_at or self._first_seen[i, name]
                partition.idle_since = idle_since(status)
                partition.watermark = status.watermark
            for name, partition in source.partitions.items():
                partition.ended = name not in self._partitions[i]
