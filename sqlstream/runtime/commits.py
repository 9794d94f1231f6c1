"""Records a finished batch on the driver: results in the manifests of sinks, metrics in the job's log.

Both are written before the batch is committed, and count only then. A batch that is repeated after a crash writes them again, and
readers take the last attempt.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from sqlstream import profiling
from sqlstream.catalog import Column
from sqlstream.connectors.batch import Batch
from sqlstream.connectors.discovery import Json
from sqlstream.connectors.interface import BatchWriter, Committer, DriverSink, WorkerSink
from sqlstream.connectors.registry import sink_of
from sqlstream.connectors.warehouse.connector import WarehouseSink
from sqlstream.connectors.warehouse.publishing import Publisher
from sqlstream.connectors.worker_calls import Workers
from sqlstream.duck import databases
from sqlstream.physical.plan import SinkPlan
from sqlstream.profiling import DRIVER
from sqlstream.runtime.fragments import newest
from sqlstream.runtime.source_activity import SourceActivity
from sqlstream.runtime.tasks import ROWS, Output
from sqlstream.runtime.watermarks import Watermarks, WatermarkStatus
from sqlstream.runtime.worker import JobSpec
from sqlstream.storage.bucket import Bucket
from sqlstream.storage.joblog import JobLog, LogEntry, held_by
from sqlstream.storage.metrics import (
    BucketMetrics,
    BucketReport,
    OperatorMetrics,
    PartitionMetrics,
    Report,
    ScanReport,
    SinkMetrics,
    SourceMetrics,
    earliest,
)
from sqlstream.storage.segments import Segment
from sqlstream.storage.snapshot import named_manifest
from sqlstream.units import EPOCH, Duration, EventTime, ProcessingTime
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.jobs import TABLE
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.records import read_json
from sqlstream.zones import local_clock

_REPORTS = msgspec.json.Decoder(Report)
# Called with the index of a sink outside the warehouse, and the paths of the files that hold a batch's results for it.
Emit = Callable[[int, Sequence[str]], None]


@dataclass
class Totals:
    """The metrics of a job from its start to its last batch, `version`, which is -1 before the first.

    Keys are the names of scans in `sources`, of tables in `sinks`, of operators in `emitted` (rows) and in `buckets` (then the
    numbers of buckets), and of phases in `spent`.
    """

    version: int = -1
    watermark: EventTime | None = None
    rows_in: int = 0
    rows_out: int = 0
    sources: dict[str, SourceMetrics] = field(default_factory=dict)
    buckets: dict[str, dict[int, BucketMetrics]] = field(default_factory=dict)
    # The last descriptor that was read, and whether it was the last of all.
    sequence: int = -1
    ended: bool = False
    spent: dict[str, Duration] = field(default_factory=dict)
    sinks: dict[str, SinkMetrics] = field(default_factory=dict)
    # By operator.
    emitted: dict[str, int] = field(default_factory=dict)
    # The watermarks in the last batch of the operators that have another one than the job.
    watermarks: dict[str, EventTime | None] = field(default_factory=dict)
    # How far the clock is for the operators that go by it in a job with both times.
    clock: EventTime | None = None
    # The sources for whose watermarks each operator waits; none for an operator that does not read time.
    waits_for: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # The time zone whose local times the job's watermark is.
    zone: str = "UTC"

    def copy(self) -> Totals:
        """Return a copy that changes independently. It shares the metrics of buckets, which are many and never change."""
        sources = {name: source.copy() for name, source in self.sources.items()}
        buckets = {name: dict(by_bucket) for name, by_bucket in self.buckets.items()}
        spent, sinks, emitted = dict(self.spent), dict(self.sinks), dict(self.emitted)
        return replace(self, sources=sources, buckets=buckets, spent=spent, sinks=sinks, emitted=emitted)

    def add(self, report: Report, now: ProcessingTime) -> None:
        """Add the report of a task; `now` becomes the time of a source's last row if the report has rows."""
        match report:
            case BucketReport():
                self.buckets.setdefault(report.operator, {})[report.bucket] = report.metrics
                self.emitted[report.operator] = self.emitted.get(report.operator, 0) + report.rows_out
            case ScanReport():
                self._add_scan(report, self.sources[report.scan], now)

    def _add_scan(self, report: ScanReport, source: SourceMetrics, now: ProcessingTime) -> None:
        self.rows_in += report.rows
        source.rows += report.rows
        source.null_rows += report.null_rows
        source.malformed_rows += report.malformed_rows
        source.lost_rows += report.lost_rows
        if report.bytes is not None:
            source.bytes = (source.bytes or 0) + report.bytes
        source.max_event_time = newest(source.max_event_time, report.max_event_time)
        source.watermark = newest(source.watermark, report.watermark)
        if report.rows:
            source.last_row_at = now
        for name, read in report.partitions.items():
            partition = source.partitions.setdefault(name, PartitionMetrics())
            partition.rows += read.rows
            partition.max_event_time = newest(partition.max_event_time, read.max_event_time)
            partition.watermark = newest(partition.watermark, read.watermark)
            partition.last_row_at = now if read.rows else partition.last_row_at
        self.clock = newest(self.clock, report.clock)
        source.sequence = max(source.sequence, report.sequence)
        source.last = source.last or report.last
        self.sequence = max(self.sequence, report.sequence)
        self.ended = self.ended or report.last

    def wrote(self, table: str, rows: int, size: int | None) -> None:
        """Add rows that were written into a table, and their `size` in bytes, None if it was not measured."""
        before = self.sinks.get(table, SinkMetrics())
        total_bytes = None if size is None else (before.bytes or 0) + size
        self.sinks[table] = SinkMetrics(before.rows + rows, before.bytes if total_bytes is None else total_bytes)
        self.rows_out += rows

    def find_minimum(self, now: ProcessingTime, groups: Iterable[Collection[str]]) -> None:
        """Mark the sources that hold back a watermark, and since when. Each of `groups` has the sources of one watermark."""
        watermarks = {name: s.watermark for name, s in self.sources.items() if s.idle_timeout is not None}
        holder_names = held_by(
            watermarks, {name for name, s in self.sources.items() if s.idle_since is not None}, groups
        )
        for name, source in self.sources.items():
            source.holds_minimum = name in holder_names
            source.holding_since = (source.holding_since or now) if name in holder_names else None

    @property
    def event_timer(self) -> EventTime | None:
        """The earliest event time at which an operator has something due, such as a window to close; None if nothing waits."""
        return earliest(one.event_timer for buckets in self.buckets.values() for one in buckets.values())

    @property
    def processing_timer(self) -> ProcessingTime | None:
        """The earliest processing time at which an operator asks to be called; None if none does."""
        return earliest(one.processing_timer for buckets in self.buckets.values() for one in buckets.values())

    def operators(self) -> dict[str, OperatorMetrics]:
        """Return the metrics of each operator, summed over its buckets, by name."""
        return {name: OperatorMetrics.of(buckets, self.emitted.get(name, 0)) for name, buckets in self.buckets.items()}


@dataclass(frozen=True, slots=True)
class _BatchReports:
    """The outputs of a batch's tasks: segments and writers' records by index of the sink, newest event times by scan."""

    segments: dict[int, list[Segment]]
    written: dict[int, list[Json]]
    newest_events: dict[str, EventTime]


class Commits:
    """Records the results and metrics of one job; `totals` has the metrics up to the last batch.

    The constructor restores them from the last committed batch, and opens the sinks, whose errors it raises. `began` is when
    this run of the job started, and `monotonic` the clock by which sources are idle (see SourceActivity). `workers` are processes
    of the engine for sinks that need some.
    """

    def __init__(
        self,
        job: JobSpec,
        emit: Emit | None = None,
        *,
        began: ProcessingTime = EPOCH,
        monotonic: Callable[[], ProcessingTime] | None = None,
        workers: Workers | None = None,
    ):
        self.job = job
        self.emit = emit
        self._workers = workers
        self.source_activity = SourceActivity(job, began=began, monotonic=monotonic)
        # The names of the scans that make each watermark.
        self._sources_by_watermark = [job.plan.names(indexes) for indexes in job.plan.watermark_groups]
        self._zones = {scan.name: job.zone_of(scan) for scan in job.plan.scans}
        self.warehouse = Warehouse(job.warehouse)
        self.paths = self.warehouse.job(job.name)
        self.log = JobLog(self.warehouse.fs, self.paths.log)
        self.totals = self._restore()
        for i, timeout in self.source_activity.timeouts.items():
            self.totals.sources[job.plan.scans[i].name].idle_timeout = timeout
        self._committers: dict[int, Committer] = {}
        self._writers: dict[int, BatchWriter] = {}
        self._publishers: dict[int, Publisher] = {}
        # The last version whose commit was reported to sinks.
        self._reported, self._reporting = -1, threading.Lock()
        # The time spent by phase since the last batch. Two threads add to it.
        self._spent: dict[str, Duration] = {}
        self._spending = threading.Lock()
        try:
            self._open_sinks()
            self.tell_sinks(self.totals.version)
        except BaseException:
            self.close()
            raise

    def _open_sinks(self) -> None:
        for sink, plan in enumerate(self.job.plan.sinks):
            target = sink_of(plan.table)
            context = self.job.sink_context(sink)
            context = replace(context, committed=self.totals.version, workers=self._workers)
            if isinstance(target, WorkerSink):
                self._committers[sink] = target.committer(context)
                self._committers[sink].recover()
            elif isinstance(target, DriverSink):
                self._writers[sink] = target.open(context)
                self._writers[sink].recover()
            elif isinstance(target, WarehouseSink) and (publisher := target.publisher(self.warehouse, context)):
                publisher.recover()
                self._publishers[sink] = publisher

    def notices(self) -> list[str]:
        """Return the notices of the sinks' recovery for users."""
        return [notice for end in self._ends() for notice in end.notices()]

    def _ends(self) -> list[Committer | BatchWriter | Publisher]:
        return [*self._committers.values(), *self._writers.values(), *self._publishers.values()]

    @property
    def has_unreported(self) -> bool:
        """Whether the commit of the last batch must still be reported to sinks."""
        return self._reported < self.totals.version and bool(self._ends())

    def tell_sinks(self, version: int) -> None:
        """Report to sinks that a version is committed, unless that was done. Threads may call it at the same time."""
        with self._reporting:
            if self._reported < version:
                for end in self._ends():
                    end.committed(version)
                self._reported = version

    def end_sinks(self) -> None:
        """Report to sinks that the job has ended for good."""
        for committer in self._committers.values():
            committer.ended()

    def close(self) -> None:
        """Close the writers of sinks; no batch is committed afterwards."""
        while self._writers:
            self._writers.popitem()[1].close()

    def _restore(self) -> Totals:
        fs = self.warehouse.fs
        version = last_committed(fs, self.paths)
        names = [s.name for s in self.job.plan.scans]
        waits_for = {stage.name: self.job.plan.waits_for(stage) for stage in self.job.plan.stages}
        zones = {self.job.zone_of(self.job.plan.scans[index]) for index in self.job.plan.watched}
        zone = zones.pop() if len(zones) == 1 else "UTC"
        totals = Totals(sources={name: SourceMetrics() for name in names}, waits_for=waits_for, zone=zone)
        self._manifests: dict[int, str] = {}
        self._results: dict[str, str] = {}
        if version is None:
            return totals
        entry = self.log.entry(version)
        if entry is None:
            raise self.log.missing(version)
        self._results = dict(entry.results)
        for sink, plan in enumerate(self.job.plan.sinks):
            if plan.kind == TABLE and (named := entry.table_manifests(plan.table.name)):
                paths = self.job.sink_paths(self.warehouse, sink)
                self._manifests[sink] = named_manifest(fs, paths, 0, named[0]).to_json()
        totals.version, totals.watermark = version, entry.watermark
        totals.watermarks, totals.clock = dict(entry.watermarks), entry.clock
        totals.rows_in, totals.rows_out = entry.rows_in, entry.rows_out
        totals.sources |= entry.sources
        totals.buckets = {name: dict(metrics.buckets) for name, metrics in entry.operators.items()}
        totals.emitted = {name: metrics.rows_out for name, metrics in entry.operators.items()}
        totals.spent, totals.sinks = dict(entry.spent), dict(entry.sinks)
        totals.sequence = entry.sequence
        totals.ended = any(s.last for s in totals.sources.values())
        return totals

    def watermarks(self, committed: EventTime | None) -> Watermarks:
        """Return the watermarks of the batch after the last one.

        `committed` is the job's watermark of that batch, as the last commit stores it. No watermark of the job, or of an operator
        over event time, is before it: this matters where the log has no watermark of its own for an operator.
        """
        totals, plan = self.totals, self.job.plan
        last = Watermarks.restored(plan, totals.watermark, totals.watermarks)
        return last.at_least(plan, committed).after(plan, totals.sources, totals.clock)

    def last_watermarks(self) -> Watermarks:
        """Return the watermarks of the job and of its operators in the last batch; scans have None."""
        return Watermarks.restored(self.job.plan, self.totals.watermark, self.totals.watermarks)

    def event_timers(self) -> dict[int, EventTime]:
        """Return, by the index of a scan, the earliest event time at which an operator that waits for the scan must run."""
        timers: dict[int, EventTime] = {}
        for stage in self.job.plan.stages:
            due = earliest(one.event_timer for one in self.totals.buckets.get(stage.name, {}).values())
            if due is not None:
                timers |= {index: min(due, timers.get(index, due)) for index in stage.timed_by}
        return timers

    def watermark_statuses(self) -> dict[int, WatermarkStatus]:
        """Return the watermarks of the scans that have one, and since when they are idle, by the index of the scan."""
        return self.source_activity.of_scans(self.totals.sources)

    def partition_watermarks(self, now: ProcessingTime) -> dict[int, EventTime]:
        """Return the watermarks, by scan, of the scans whose partitions have watermarks; a scan without one yet is left out."""
        return self.source_activity.partition_watermarks(self.totals.sources, now)

    def commit(
        self,
        batch: int,
        outputs: Iterable[Output],
        watermarks: Watermarks,
        at: ProcessingTime,
        now: ProcessingTime | None = None,
    ) -> None:
        """Store the outputs of a batch in sinks, and append its metrics to the log; skip a batch that `totals` include.

        `watermarks` and the processing time `at` are the batch's times. `now` is when it has finished, by default `at`. Raises
        the errors of sinks.
        """
        if batch <= self.totals.version:
            return
        with profiling.span("commit results", DRIVER):
            self._commit(batch, outputs, watermarks, at, at if now is None else now)

    def _commit(
        self, batch: int, outputs: Iterable[Output], watermarks: Watermarks, at: ProcessingTime, now: ProcessingTime
    ) -> None:
        # No batch begins before the one before it is committed.
        self.tell_sinks(self.totals.version)
        began = time.monotonic()
        # Another thread sees the totals before the batch or after it, nothing in between.
        totals = self.totals.copy()
        moment = self.source_activity.now(now)
        reports = self._received(outputs, totals, now, moment)
        for sink, records in reports.written.items():
            if records:
                self._committers[sink].commit(batch, records)
        for sink, added in reports.segments.items():
            self._store(sink, batch, added, at)
            plan = self.job.plan.sinks[sink]
            if added and not plan.malformed:
                totals.wrote(plan.table.name, sum(s.rows for s in added), sum(s.bytes for s in added))
        totals.version, totals.watermark, totals.watermarks = batch, watermarks.job, watermarks.own(self.job.plan)
        for scan, event in reports.newest_events.items():
            totals.sources[scan].latency = Duration(local_clock(now, self._zones[scan]) - event)
        self.spend("commit", began)
        self._add_spent(totals)
        self.source_activity.mark_idle(totals.sources, now, moment)
        totals.find_minimum(now, self._sources_by_watermark)
        with profiling.span("write log", DRIVER):
            self.log.append(
                LogEntry(
                    version=batch,
                    committed_at=at,
                    watermark=totals.watermark,
                    rows_in=totals.rows_in,
                    rows_out=totals.rows_out,
                    sources=totals.sources,
                    operators=totals.operators(),
                    results=self._results,
                    labels=self.job.labels,
                    spent=totals.spent,
                    sinks=totals.sinks,
                    watermarks=totals.watermarks,
                    clock=totals.clock,
                )
            )
        self.totals = totals

    def _received(
        self, outputs: Iterable[Output], totals: Totals, now: ProcessingTime, moment: ProcessingTime
    ) -> _BatchReports:
        """Sort the outputs of a batch's tasks, and add their reports to the totals."""
        sinks = range(len(self.job.plan.sinks))
        reports = _BatchReports({sink: [] for sink in sinks}, {sink: [] for sink in sinks}, {})
        for output in outputs:
            match output.kind:
                case "segment":
                    reports.segments[output.sink].append(read_json(output.body, Segment))
                case "written":
                    count, records = json.loads(output.body)
                    totals.wrote(self.job.plan.sinks[output.sink].table.name, count, None)
                    reports.written[output.sink] += records
                case "metrics":
                    report = _REPORTS.decode(output.body)
                    totals.add(report, now)
                    if not isinstance(report, ScanReport):
                        continue
                    self.source_activity.see_rows(report, moment)
                    if report.max_event_time is not None:
                        before = reports.newest_events.get(report.scan, report.max_event_time)
                        reports.newest_events[report.scan] = max(report.max_event_time, before)
        return reports

    def spend(self, phase: str, began: float) -> None:
        """Add the time since `began`, in seconds of `time.monotonic`, to a phase of the next batch that is recorded."""
        with self._spending:
            self._spent[phase] = Duration(self._spent.get(phase, 0) + int((time.monotonic() - began) * 1_000_000))

    def _add_spent(self, totals: Totals) -> None:
        with self._spending:
            spent, self._spent = self._spent, {}
        for phase, duration in spent.items():
            totals.spent[phase] = Duration(totals.spent.get(phase, 0) + duration)

    def _store(self, sink: int, batch: int, segments: list[Segment], time: ProcessingTime) -> None:
        paths, plan = self.job.sink_paths(self.warehouse, sink), self.job.plan.sinks[sink]
        if plan.kind != TABLE:
            files = [f"{paths.data(0)}/{s.name}" for s in segments]
            if files and (writer := self._writers.get(sink)) is not None:
                writer.write(self._batch(batch, plan, files))
            elif files and self.emit:
                with self.warehouse.fs.local_copies(files) as local_paths:
                    self.emit(sink, local_paths)
            self.warehouse.fs.delete_all(files)
            return
        manifest = self._manifests.get(sink)
        if not segments and manifest is not None:
            return
        declaration = replace(plan.declaration, name=ROWS)
        bucket = Bucket.open(self.warehouse.fs, paths.root, 0, [declaration], manifest, *self.job.retention)
        bucket.adopt(ROWS, segments)
        with databases.passing() as con:
            self._manifests[sink] = bucket.commit(con, batch, time, None)
        self._results[plan.table.name.lower()] = bucket.manifest_name
        if segments and (publisher := self._publishers.get(sink)) is not None:
            publisher.wrote(batch, segments)

    def _batch(self, number: int, sink: SinkPlan, files: Sequence[str]) -> Batch:
        columns = tuple(Column(name, type) for name, type in sink.columns)
        paths = tuple(self.warehouse.fs.path_for_duckdb(f) for f in files)
        return Batch(number, columns, paths, sink.changing, sink.table.primary_key, sink.order)
