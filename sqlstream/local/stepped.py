"""An engine for tests: a job runs a batch only when the test calls for it, at a processing time of the test."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import partial

from sqlstream.catalog import Table
from sqlstream.connectors.discovery import Split
from sqlstream.connectors.filesystem.connector import Files
from sqlstream.connectors.registry import source_of
from sqlstream.errors import SqlStreamError, UsageError
from sqlstream.local.batches import LocalBatches
from sqlstream.local.immediate import values_splits
from sqlstream.options import LOCAL
from sqlstream.physical.plan import CLOCK, ScanStage
from sqlstream.runtime.batch_descriptors import Descriptor, PositionAllocator, from_lines, to_lines
from sqlstream.runtime.commits import Commits, Totals
from sqlstream.runtime.engine import Layout, Pace, Receivers, Resources, hand_on, have_enough
from sqlstream.runtime.feed import Feed, check_input
from sqlstream.runtime.watermarks import idle_ticks
from sqlstream.runtime.worker import JobSpec, release
from sqlstream.storage.descriptors import Descriptors
from sqlstream.units import END_OF_INPUT, EventTime, ProcessingTime
from sqlstream.warehouse.records import read_sealed, write_sealed
from sqlstream.warehouse.status import RUNNING, STOPPED
from sqlstream.zones import local_clock


class SteppedRun:
    """A run whose batches run when its caller asks for them, in the caller's thread; `clock` returns the processing time."""

    is_waiting = True
    untold: tuple[type[SqlStreamError], ...] = ()
    engine = LOCAL

    def __init__(self, job: JobSpec, receivers: Receivers, clock: Callable[[], ProcessingTime]):
        self.job, self.receivers, self.clock = job, receivers, clock
        self.state = RUNNING
        self.error: SqlStreamError | None = None
        self.cause: BaseException | None = None
        self.commits = Commits(job, partial(hand_on, receivers, self), began=clock())
        self.batches = LocalBatches(self.commits)
        self.sequence = self.totals.sequence
        self._descriptors = Descriptors(self.commits.warehouse.fs, f"{self.commits.paths.root}/splits")
        self._positions = PositionAllocator([source_of(scan.table) for scan in job.plan.scans])
        for number in self._descriptors.numbers():
            self._positions.skip(from_lines(read_sealed(self.commits.warehouse.fs, self._descriptors.path(number))))
        # The feed of each kind of sources, and the indexes of its scans in the plan.
        self._feeds: dict[str, Feed] = {}
        self._numbers: dict[str, list[int]] = {}

    # -- the interface of an engine's run

    @property
    def totals(self) -> Totals:
        return self.commits.totals

    @property
    def is_stopping(self) -> bool:
        return self.state != RUNNING

    def start(self) -> None:
        """Run a batch with the rows in VALUES, if there are any."""
        if splits := values_splits(self.job):
            self.batch(splits)

    def request_stop(self, *, drain: bool = False) -> None:
        """Set the state to STOPPED: no further batch runs."""
        self.state = STOPPED

    def take_warnings(self) -> list[str]:
        return []

    def join(self, timeout: float | None = None) -> None:
        """Return at once: batches run only in the thread of the caller."""

    def is_alive(self) -> bool:
        return self.state == RUNNING

    # -- steps

    def batch(self, splits: Mapping[int, Sequence[Split]], ticks: Mapping[int, EventTime] | None = None) -> None:
        """Run a batch of splits and ticks, by scan, then an empty batch if the watermark has moved.

        A tick is an event time to which the watermark of its scan moves. Nothing runs after a stop, or when a receiver with a
        limit is full.
        """
        if self.is_stopping or have_enough(self.receivers):
            return
        self.sequence += 1
        now = self.clock()
        by_clock = {i: self._reached(now) for i, scan in enumerate(self.job.plan.scans) if scan.by_clock}
        opens = self.sequence == 0 and self.job.plan.opens
        watermarks = {**by_clock, **(ticks or {})}
        descriptor = Descriptor(
            self.sequence,
            now,
            splits,
            watermarks,
            fires_timers=self._is_called(),
            opens=opens,
            arrived=self._positions.give(splits),
            own_watermarks=self.job.plan.has_own_watermarks,
            clock=self._mark(now, ticks or {}),
        )
        self.run(descriptor)

    def _mark(self, now: ProcessingTime, ticks: Mapping[int, EventTime]) -> EventTime | None:
        """Return the clock as a watermark for operators that wait for it, None without any; END_OF_INPUT if all input ends."""
        if not self.job.plan.has_clock:
            return None
        ends = all(ticks.get(i) == END_OF_INPUT for i, _ in self._scans())
        return END_OF_INPUT if ends else self._reached(now)

    def _reached(self, now: ProcessingTime) -> EventTime:
        return local_clock(now, self.job.clock_zone)

    def run(self, descriptor: Descriptor) -> None:
        """Run the batch of a descriptor, then an empty batch if the watermark has moved."""
        lines = to_lines(descriptor, self.job.labels)
        # Other engines store descriptors there, too; verification reads them.
        write_sealed(self.commits.warehouse.fs, self._descriptors.path(descriptor.sequence), lines)
        self.batches.run(lines, self.clock())

    def follow(self) -> bool:
        """Read what other jobs have committed since the last call; return whether there was any."""
        scans = {i: replace(s, table=_followed(s.table)) for i, s in self._scans() if s.table.connector is None}
        return self._read("tables", scans)

    def pull(self) -> None:
        """Read sources with connectors, other than files: to their end, or one batch if one of them has no end."""
        self._read("sources", self._own())

    def read_files(self, fed: Container[str] = ()) -> None:
        """Read the files of tables, except `fed` tables, whose rows come from the caller.

        Raises UsageError for a table without files, unless it waits for files, or has the format Parquet and could be fed.
        """
        files = {i: s for i, s in self._scans() if takes_files(s.table) and s.table.name.lower() not in fed}
        if not self.commits.warehouse.fs.exists(f"{self.commits.paths.root}/files"):
            # A table that has rows has been fed.
            files = {i: s for i, s in files.items() if not self._has_read(s) and self._is_there(s)}
        self._read("files", files)

    def _is_there(self, scan: ScanStage) -> bool:
        """Return whether the input of a table exists.

        Raises UsageError if it does not, unless the caller can feed the table: its format is Parquet.
        """
        try:
            check_input([scan], self.job.project)
        except UsageError:
            if scan.table.options.get("format", "").lower() == "parquet":
                return False
            raise
        return True

    def _has_read(self, scan: ScanStage) -> bool:
        source = self.totals.sources[scan.name]
        return bool(source.rows or source.malformed_rows)

    def _own(self) -> dict[int, ScanStage]:
        """Return the scans that `pull` reads, by number: sources with connectors other than files."""
        values = values_splits(self.job)
        own = {i: s for i, s in self._scans() if i not in values and s.table.connector is not None}
        return {i: s for i, s in own.items() if not takes_files(s.table)}

    def tick_idle(self) -> None:
        """Move the watermarks of idle sources as far as the other sources allow."""
        self._tick_partitions()
        if ticks := idle_ticks(self.commits.watermark_statuses(), self.clock(), self.job.plan.watermark_groups):
            self.batch({}, ticks)

    def _tick_partitions(self) -> None:
        """Move the watermarks of sources with partitions as far as their partitions allow."""
        if (feed := self._feeds.get("sources")) is None:
            return
        numbers = list(self._own())
        partitions = {numbers[i]: names for i, names in feed.partitions(feed.sequence).items()}
        reports = {numbers[i]: times for i, times in feed.watermarks().items()}
        self.commits.source_activity.see_partitions(partitions, reports, self.clock())
        statuses = self.commits.watermark_statuses()
        reached = self.commits.partition_watermarks(self.clock())
        ticks = {
            i: watermark
            for i, watermark in reached.items()
            if (before := statuses[i].watermark) is None or watermark > before
        }
        if ticks:
            self.batch({}, ticks)

    def fire_timers(self) -> None:
        """Run a batch without rows if windows over processing time have ended, or an operator's timer is due."""
        scans_by_clock = [i for i, scan in self._scans() if scan.by_clock]
        reached = self._reached(self.clock())
        due = {stage for (stage, _), timer in self.batches.timers.items() if timer <= reached}
        by_clock = any(self.job.plan.stages[stage].timed_by == (CLOCK,) for stage in due)
        if self._is_called() or by_clock or (scans_by_clock and due):
            self.batch({})

    def _is_called(self) -> bool:
        processing_timer = self.totals.processing_timer
        return processing_timer is not None and processing_timer <= self.clock()

    def _scans(self) -> list[tuple[int, ScanStage]]:
        return list(enumerate(self.job.plan.scans))

    def _read(self, name: str, scans: Mapping[int, ScanStage]) -> bool:
        """Run batches until the scans have no more input; return whether they had any.

        `name` is the name of the feed that composes the batches, and of its folder.
        """
        if not scans:
            return False
        before = self.sequence
        if name not in self._feeds:
            self._numbers[name] = list(scans)
            self._feeds[name] = Feed(
                self.commits.warehouse.fs,
                f"{self.commits.paths.root}/{name}",
                list(scans.values()),
                self.job.labels,
                project=self.job.project,
                finish=False,
                warehouse=self.job.warehouse,
                paced=False,
            )
        feed, numbers = self._feeds[name], self._numbers[name]
        while (descriptor := feed.compose()) is not None:
            feed.write(descriptor)
            self.batch({numbers[i]: splits for i, splits in descriptor.splits.items()})
            self._tick_partitions()
            feed.commit(descriptor.sequence)
            if name == "sources" and not feed.bounded:
                break
        else:
            self._tick_partitions()
        return self.sequence > before


def takes_files(table: Table) -> bool:
    """Return whether a table reads files, so that rows can be passed to it as a file."""
    return isinstance(source_of(table), Files)


def _followed(table: Table) -> Table:
    return replace(table, options={**table.options, "source.monitor-interval": "0 s"})


class SteppedEngine:
    """Runs jobs batch by batch; `clock` returns their processing time."""

    can_run_again = False

    def __init__(self, clock: Callable[[], ProcessingTime]):
        self._clock = clock
        self._runs: list[SteppedRun] = []

    def layout(self, partitions: int) -> Layout:
        return Layout(partitions, tuple(range(partitions)))

    def prepare(self, resources: Resources) -> None:
        """Does nothing: this engine needs no other process."""

    def run(self, job: JobSpec, layout: Layout, pace: Pace, receivers: Receivers) -> SteppedRun:
        run = SteppedRun(job, receivers, self._clock)
        self._runs.append(run)
        return run

    def close(self) -> None:
        for run in self._runs:
            run.commits.close()
            release(run.job)
