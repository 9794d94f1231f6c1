"""A job in this process, without Spark: rows go through its plan as on a cluster, one batch at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlstream.catalog import VALUES, Table
from sqlstream.compiler.compiler import Compiled, Compiler, PlannedJob
from sqlstream.connectors.discovery import Split
from sqlstream.duck import databases
from sqlstream.operators.operator import Clock
from sqlstream.physical.plan import ScanStage
from sqlstream.runtime import tasks as stages
from sqlstream.runtime.batches import Descriptor, from_lines, to_lines
from sqlstream.runtime.changelog import changelog
from sqlstream.runtime.commits import Commits
from sqlstream.runtime.feed import Feed
from sqlstream.runtime.frames import Frame
from sqlstream.runtime.idle import idle_ticks
from sqlstream.runtime.tasks import Output
from sqlstream.runtime.times import from_spark_millis, timer_millis, to_spark_micros
from sqlstream.runtime.worker import JobSpec
from sqlstream.sql.nodes import CreateTable, Drop, Insert, Statement, StatementSet
from sqlstream.state.snapshot import named_manifest
from sqlstream.warehouse.commits import committed_watermark, write_commit


class FedTables:
    """Compiles statements so that a table without a connector which nobody writes gets the options given for it."""

    def __init__(self, compiler: Compiler, options: Callable[[Table], Mapping[str, str]]):
        self._compiler, self._options = compiler, options
        # Tables that are fed, as they were declared, and those that jobs write.
        self._declared: dict[str, Table] = {}
        self._written: set[str] = set()

    def compile(self, statement: Statement) -> Compiled | None:
        match statement:
            case CreateTable() | Drop():
                self._declare_again(statement.name.text)
            case Insert():
                self._declare_again(statement.target.text)
            case StatementSet():
                for insert in statement.inserts:
                    self._declare_again(insert.target.text)
        planned = self._compiler.statement(statement)
        if isinstance(planned, PlannedJob):
            self._written |= {sink.table.name.lower() for sink in planned.physical.sinks}
        if isinstance(statement, CreateTable):
            self._feed(statement.name.text)
        return planned

    def _feed(self, name: str) -> None:
        table = self._compiler.catalog.relation(name)
        if isinstance(table, Table) and table.connector is None and name.lower() not in self._written:
            self._declared[name.lower()] = table
            self._compiler.catalog.add(replace(table, options={**table.options, **self._options(table)}))

    def _declare_again(self, name: str) -> None:
        """Make a table what its declaration says."""
        if (table := self._declared.pop(name.lower(), None)) is not None:
            self._compiler.catalog.add(table)


class LocalRun:
    """One job: what Spark would keep between batches, and one batch after another."""

    def __init__(self, job: JobSpec, now: int = 0):
        self.job = job
        self.printed: list[tuple[Any, ...]] = []
        self.commits = Commits(job, self._print, began=now)
        self.paths = self.commits.paths
        self.batch_number = self.commits.totals.version + 1
        self.sequence = self.commits.totals.sequence
        self.manifests: dict[tuple[int, int], str] = {}
        self.timers: dict[tuple[int, int], int] = {}
        self.marks: dict[int, int] = {}
        self._feeds: dict[str, Feed] = {}
        # Spark's watermark, in its own milliseconds.
        self.watermark = 0
        if self.batch_number > 0:
            self._restore()

    def follow(self, now: int) -> None:
        """Read what other jobs have committed since the last time."""
        scans = {i: replace(s, table=_followed(s.table)) for i, s in self._scans() if s.table.connector is None}
        self._read("tables", scans, now)

    def pull(self, now: int) -> None:
        """Read what sources have that feed themselves; of one without an end, a batch."""
        self._read(
            "sources", {i: s for i, s in self._scans() if s.table.connector not in (None, "filesystem", VALUES)}, now
        )

    def _scans(self) -> Iterator[tuple[int, ScanStage]]:
        yield from enumerate(self.job.plan.scans)

    def _read(self, feed: str, scans: Mapping[int, ScanStage], now: int) -> None:
        if not scans:
            return
        if feed not in self._feeds:
            self._feeds[feed] = Feed(
                self.commits.warehouse.fs,
                f"{self.paths.root}/{feed}",
                list(scans.values()),
                self.job.labels,
                project=self.job.warehouse,
                finish=False,
                warehouse=self.job.warehouse,
                paced=False,
            )
        source, numbers = self._feeds[feed], list(scans)
        while (descriptor := source.compose()) is not None:
            source.write(descriptor)
            self.batch({numbers[i]: splits for i, splits in descriptor.splits.items()}, {}, now)
            if feed == "sources" and not source.bounded:
                break

    def _restore(self) -> None:
        fs, version = self.commits.warehouse.fs, self.commits.totals.version
        self.watermark = committed_watermark(fs, self.paths, version)
        entry = self.commits.log.entry(version)
        assert entry is not None
        for number, stage in enumerate(self.job.plan.stages):
            for label, name in entry.state_manifests(stage.name).items():
                manifest = named_manifest(fs, self.paths.operator(stage.name), label, name)
                self.manifests[number, label] = manifest.to_json()
                if manifest.event_timer is not None:
                    self.timers[number, label] = manifest.event_timer
        for number, scan in enumerate(self.job.plan.scans):
            mark = self.commits.totals.sources[scan.name].watermark
            if mark is not None:
                self.marks[number] = to_spark_micros(mark) // 1000

    def batch(self, splits: Mapping[int, Sequence[Split]], ticks: Mapping[int, int], now: int) -> None:
        """Run a micro-batch, and an empty one when the watermark has moved; nothing once LIMIT was reached."""
        if self.is_full:
            return
        self.sequence += 1
        clocks = {i: now * 1000 for i, scan in enumerate(self.job.plan.scans) if scan.by_clock}
        opens = self.sequence == 0 and self.job.plan.opens
        descriptor = Descriptor(
            self.sequence, now, splits, {**clocks, **ticks}, fires_timers=self._is_called(now), opens=opens
        )
        self.run(to_lines(descriptor, self.job.labels), now)

    def run(self, lines: str, now: int) -> None:
        """Run the micro-batch that a descriptor's lines describe, and an empty one when the watermark has moved."""
        before = self.watermark
        self._run(lines, now)
        if self.watermark > before:
            self._run("", now)

    def tick_idle(self, now: int) -> None:
        """Move the watermarks of idle sources as far as those of the others allow."""
        if ticks := idle_ticks(self.commits.clocks(), now):
            self.batch({}, ticks, now)

    def fire_timers(self, now: int) -> None:
        """Run a micro-batch without rows if windows over processing time are to close, or an operator asked for it."""
        clocks = [i for i, scan in enumerate(self.job.plan.scans) if scan.by_clock]
        if self._is_called(now) or (clocks and any(due <= now * 1000 for due in self.timers.values())):
            self.batch({}, {}, now)

    def _is_called(self, now: int) -> bool:
        processing_timer = self.commits.totals.processing_timer
        return processing_timer is not None and processing_timer <= now

    def _run(self, lines: str, now: int) -> None:
        arriving: dict[int | None, list[Frame | Output]] = defaultdict(list)
        tasks: dict[tuple[int, int], list[Any]] = defaultdict(list)
        for work in from_lines(lines):
            tasks[work.scan, work.slot].append(work)
        watermark = from_spark_millis(self.watermark)
        for (scan, _), task in tasks.items():
            for mark, output in stages.run_scan(self.job, scan, task, self.batch_number, watermark):
                self.marks[scan] = max(self.marks.get(scan, 0), to_spark_micros(mark) // 1000)
                arriving[output.stage if isinstance(output, Frame) else None].append(output)
        clock = Clock(self.batch_number, watermark, now)
        for number in range(len(self.job.plan.stages)):
            frames = [f for f in arriving.pop(number, []) if isinstance(f, Frame)]
            for output in self._advance(number, frames, clock):
                arriving[output.stage if isinstance(output, Frame) else None].append(output)
        outputs = [o for o in arriving.pop(None, []) if isinstance(o, Output)]
        self.commits.commit(self.batch_number, outputs, watermark, now)
        self.watermark = max(self.watermark, self._minimum())
        write_commit(self.commits.warehouse.fs, self.paths, self.batch_number, self.watermark)
        self.batch_number += 1

    def _minimum(self) -> int:
        return min((self.marks.get(i, 0) for i in self.job.plan.watched), default=0)

    def _advance(self, stage: int, frames: Sequence[Frame], clock: Clock) -> Iterator[Frame | Output]:
        by_bucket: dict[int, list[Frame]] = defaultdict(list)
        for frame in frames:
            by_bucket[frame.bucket].append(frame)
        for (owner, bucket), due in list(self.timers.items()):
            if owner == stage and timer_millis(due) <= self.watermark:
                by_bucket.setdefault(bucket, [])
        for bucket, arrived in by_bucket.items():
            advance = stages.Advance(self.job, stage, bucket, self.manifests.get((stage, bucket)), clock)
            yield from advance.run(arrived)
            self.manifests[stage, bucket] = advance.manifest
            self.timers.pop((stage, bucket), None)
            if advance.event_timer is not None:
                self.timers[stage, bucket] = advance.event_timer

    def _print(self, sink: int, files: Sequence[str]) -> None:
        plan = self.job.plan.sinks[sink]
        for file in files:
            with databases.passing() as con:
                found = con.execute(changelog(plan, file)).fetchall()
            if plan.limit is not None:
                found = found[: plan.limit - len(self.printed)]
            self.printed += found if plan.changing else [row[1:] for row in found]

    @property
    def is_full(self) -> bool:
        """Whether a SELECT with LIMIT has its rows: then the job has ended, after the batch that brought the last of them."""
        limit = self.job.plan.sinks[0].limit
        return limit is not None and len(self.printed) >= limit


def _followed(table: Table) -> Table:
    return replace(table, options={**table.options, "source.monitor-interval": "0 s"})
