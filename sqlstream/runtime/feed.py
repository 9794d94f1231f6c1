"""Composes the descriptors of batches, on the driver.

A descriptor is stored before its batch runs and never changes its splits, so that a repeated batch reads the same rows. The
descriptors also are the record of what was read; old ones are folded into one file.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from sqlstream.connectors.discovery import DiscoveryContext, Position, Split
from sqlstream.connectors.guarantees import EXACTLY
from sqlstream.connectors.interface import TableSource
from sqlstream.connectors.registry import source_of
from sqlstream.connectors.tables import source_guarantee
from sqlstream.names import path_name
from sqlstream.physical.plan import CLOCK, ScanStage
from sqlstream.runtime.batch_descriptors import Descriptor, PositionAllocator, Work, by_slot, from_lines, to_lines
from sqlstream.storage.descriptors import Descriptors, Fold
from sqlstream.units import END_OF_INPUT, EventTime, ProcessingTime, now, seconds
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.records import GONE, damage, read_sealed, write_sealed
from sqlstream.warehouse.status import Backlog
from sqlstream.zones import local_clock

# How many descriptors of finished batches at least stay as files; older ones are folded in bulk.
KEPT = 128

T = TypeVar("T")


class ScanFeed:
    """The input of one scan: its source is polled at the start and, if it has an interval, at every interval."""

    def __init__(self, stage: ScanStage, source: TableSource, position: Position, context: DiscoveryContext):
        self.name = stage.name
        self.discovery = source.discovery(position, context)
        self.interval = self.discovery.interval
        self._looked_at: float | None = None

    @property
    def bounded(self) -> bool:
        """Whether the input of the scan has an end."""
        return self.interval is None or self.discovery.bounded

    def waiting(self, now: float) -> int:
        """Return how much input waits, in units of the source, after a poll if one is due; `now` is `time.monotonic()`."""
        due = self._looked_at is None or (self.interval is not None and now - self._looked_at >= seconds(self.interval))
        if due:
            self._looked_at = now
            self.discovery.poll()
        return self.discovery.waiting

    def take(self) -> Sequence[Split]:
        """Return the splits of the next batch, none if no input waits."""
        return self.discovery.next_batch() or ()

    @property
    def exhausted(self) -> bool:
        """Whether all input was handed out, and no more will come."""
        return self.bounded and not self.discovery.remaining


def check_input(scans: Sequence[ScanStage], project: str) -> None:
    """Raise UsageError, before a job starts, if a source of its scans finds nothing to read, such as no folder or no server."""
    for stage in scans:
        source_of(stage.table).check_input(project)


class LastSplits:
    """For each scan, and each partition of a scan, the number of the last descriptor that has splits of it."""

    def __init__(self, stages: Sequence[ScanStage]):
        self._stages = stages
        self._of_scan: dict[int, int] = {}
        self._of_partition: dict[tuple[int, str], int] = {}

    def add(self, sequence: int, scan: int, splits: Sequence[Any]) -> None:
        """Add the splits of a scan in the descriptor `sequence`, which is later than all that were added before."""
        self._of_scan[scan] = sequence
        if self._stages[scan].has_partitions:
            self._of_partition |= {(scan, split.reached[0]): sequence for split in splits}

    def of(self, scan: int, partition: str | None = None) -> int:
        """Return the number for a scan, or for one of its partitions; -1 if there is none."""
        return self._of_scan.get(scan, -1) if partition is None else self._of_partition.get((scan, partition), -1)


class CommitReports:
    """Reports to the sources that ask for it how far a job has committed.

    `seen` has the encoded positions of all sources after the descriptors that are folded, which are committed.
    """

    def __init__(
        self, sources: Sequence[TableSource], scans: Sequence[ScanFeed], project: str, seen: Sequence[bytes | None]
    ):
        self._sources, self._scans = sources, scans
        receivers = [i for i, scan in enumerate(scans) if scan.discovery.is_told_of_commits]
        self._positions = {i: sources[i].position(project, seen[i]) for i in receivers}
        # The texts of descriptors that are not known to be committed.
        self._pending: deque[tuple[int, str]] = deque()

    @property
    def are_pending(self) -> bool:
        """Whether a commit must still be reported."""
        return bool(self._pending)

    def add(self, sequence: int, text: str) -> None:
        """Add a descriptor that is not known to be committed."""
        if self._positions:
            self._pending.append((sequence, text))

    def report(self, done: int) -> None:
        """Report that the batches up to the descriptor `done` are committed."""
        advanced: set[int] = set()
        while self._pending and self._pending[0][0] <= done:
            _, text = self._pending.popleft()
            work = from_lines(text)
            for scan, position in self._positions.items():
                if splits := [
                    self._sources[scan].split(w.split) for w in work if w.scan == scan and w.split is not None
                ]:
                    position.add(splits)
                    advanced.add(scan)
        for scan in sorted(advanced):
            self._scans[scan].discovery.committed(self._positions[scan])


class Feed:
    """Composes and stores the descriptors of batches.

    `directory` is the job's folder of positions, from which the constructor restores how far the scans have read. `slots` are the
    numbers of the tasks that read. With `finish` the job ends with its bounded input. With `opens` the first batch runs without
    input. `own_watermarks` is as in Descriptor; with `has_clock` descriptors get a `clock`. Processing time is a local time of
    `zone` where it is a watermark. For `paced` see DiscoveryContext.
    """

    def __init__(
        self,
        fs: Filesystem,
        directory: str,
        scans: Sequence[ScanStage],
        slots: Sequence[int],
        *,
        project: str,
        finish: bool,
        warehouse: str = "",
        paced: bool = True,
        opens: bool = False,
        own_watermarks: bool = False,
        has_clock: bool = False,
        zone: str = "UTC",
    ):
        # `_opens`: whether the first batch runs although no input waits.
        self._fs, self._directory, self._slots, self._finish, self._opens = fs, directory, slots, finish, opens
        # Where descriptors are.
        self._descriptors = Descriptors(fs, directory)
        self.directory = self._descriptors.next
        self._own_watermarks, self._has_clock, self._zone = own_watermarks, has_clock, zone
        self._reminders: dict[int, EventTime] = {}
        self._last_splits = LastSplits(scans)
        # The last tick of each scan.
        self.ticked: dict[int, EventTime] = {}
        self.sequence = -1
        self.ended = False
        # Whether a drain was requested, in this run of the job or an earlier one.
        self.drained = fs.exists(self._drain_mark)
        # The time of the last batch: the clock does not go back.
        self.time = ProcessingTime(0)
        # The time of the last batch that fired timers: it fires all that were due then.
        self._fired_at = ProcessingTime(-1)
        self._stages = scans
        self._sources = [source_of(stage.table) for stage in scans]
        self._positions = PositionAllocator(self._sources)
        seen = self._read_fold()
        positions, descriptors = self._restore(project, seen)
        context = partial(
            DiscoveryContext,
            project=project,
            warehouse=Warehouse(warehouse or project),
            parallelism=len(slots),
            finish=finish,
            paced=paced,
        )
        self.scans: list[ScanFeed] = []
        self._open_scans(positions, context)
        self._commits = CommitReports(self._sources, self.scans, project, seen)
        for sequence, text in descriptors.items():
            self._commits.add(sequence, text)
        self._watched = {i for i, stage in enumerate(scans) if stage.watermark is not None}
        self._closed: set[int] = set()
        self._by_clock = {i for i, stage in enumerate(scans) if stage.by_clock}

    @property
    def bounded(self) -> bool:
        """Whether the input of all scans has an end."""
        return all(s.bounded for s in self.scans)

    @property
    def has_uncommitted(self) -> bool:
        """Whether a commit must still be reported to a source."""
        return self._commits.are_pending

    @property
    def exhausted(self) -> bool:
        """Whether all input of all scans was handed out, and no more will come."""
        return all(s.exhausted for s in self.scans)

    def _remember(self, scan: int, name: str, value: T) -> T:
        """Return the value that a scan first stored under a name, now or in an earlier run; `value` if there is none yet."""
        path = f"{self._directory}/{name}-{scan}.json"
        if not self._fs.exists(path):
            write_sealed(self._fs, path, json.dumps(value), durable=True)
        first_value: T = json.loads(read_sealed(self._fs, path))
        return first_value

    def _open_scans(self, positions: Sequence[Position], context: Callable[..., DiscoveryContext]) -> None:
        """Open the scans at their positions; `context` takes the directory and the memory of a scan."""
        for i, stage in enumerate(self._stages):
            directory = f"{self._directory}/received/{path_name(stage.name)}"
            of_scan = context(directory=directory, remember=partial(self._remember, i))
            try:
                self.scans.append(ScanFeed(stage, self._sources[i], positions[i], of_scan))
            except BaseException:
                self.close()
                raise

    def _read_fold(self) -> list[bytes | None]:
        """Return the position of each scan in the file of folded descriptors, None where there is none."""
        fold = self._descriptors.fold()
        if fold is None:
            return [None] * len(self._sources)
        self.sequence, self._positions.following = fold.sequence, fold.arrived
        return list(fold.seen)

    def _restore(self, project: str, seen: Sequence[bytes | None]) -> tuple[list[Position], dict[int, str]]:
        """Return the position of each scan after all descriptors, and the texts of those that are not folded, by number.

        The other state of the feed is restored from them.
        """
        self._folded, positions = (
            [source.position(project, data) for source, data in zip(self._sources, seen, strict=True)] for _ in range(2)
        )
        sequences = self._descriptors.numbers()
        texts = self._fs.together(partial(read_sealed, self._fs), list(map(self._path, sequences)))
        for sequence, work in zip(sequences, map(from_lines, texts), strict=True):
            self.ended = self.ended or any(w.last for w in work)
            self.time = max([self.time, *(w.time for w in work)])
            self._add(positions, work)
            self._positions.skip(work)
            for w in work:
                if w.split is not None:
                    self._last_splits.add(sequence, w.scan, [self._sources[w.scan].split(w.split)])
            self.sequence = max(self.sequence, sequence)
        return positions, dict(zip(sequences, texts, strict=True))

    def _path(self, sequence: int) -> str:
        return self._descriptors.path(sequence)

    def backlog(self) -> dict[str, Backlog]:
        """Return, by name of the scan, how much of the input that existed at the last poll no batch has read yet."""
        return {s.name: Backlog(s.discovery.backlog, s.discovery.backlog_unit) for s in self.scans}

    def under_way(self, done: int) -> set[int]:
        """Return the scans with pending input: it waits, or is in descriptors after `done`, the last one of a finished batch."""
        now = time.monotonic()
        return {i for i, scan in enumerate(self.scans) if scan.waiting(now) or self._last_splits.of(i) > done}

    def partitions(self, done: int) -> dict[int, dict[str, bool]]:
        """Return, by scan, its partitions, and whether each has input that waits, or is in descriptors after `done`."""
        return {
            i: {
                name: waits or self._last_splits.of(i, name) > done
                for name, waits in scan.discovery.partitions().items()
            }
            for i, scan in enumerate(self.scans)
            if self._stages[i].has_partitions
        }

    def watermarks(self) -> dict[int, Mapping[str, datetime]]:
        """Return, by scan, the watermarks that its source reports for its partitions."""
        return {i: scan.discovery.watermarks() for i, scan in enumerate(self.scans) if self._stages[i].has_watermarks}

    def compose(
        self,
        event_timers: Mapping[int, EventTime] | None = None,
        idle: Mapping[int, EventTime] | None = None,
        processing_timer: ProcessingTime | None = None,
        watermarks: Mapping[int, EventTime] | None = None,
    ) -> Descriptor | None:
        """Return the descriptor of the next batch, None if no batch is due; the last batch of a bounded job ends its input.

        A batch is due if input waits or ends, if an idle scan has a tick (`idle`), or if a timer is due. `processing_timer` is a
        processing time at which an operator asks to be called. `event_timers` are, by scan, event times at which the next window
        of an operator that waits for the scan closes: it is due by the clock if that is the watermark of the scan, or by
        `watermarks`, the ticks of scans whose partitions have watermarks.
        """
        if self.ended:
            return None
        looked_at = time.monotonic()
        splits = {i: scan.take() for i, scan in enumerate(self.scans) if not self.drained and scan.waiting(looked_at)}
        exhausted = {i for i, scan in enumerate(self.scans) if self.drained or scan.exhausted}
        last = self.drained or (self._finish and self.exhausted)
        ending = (exhausted & self._watched) - self._closed if self._finish or self.drained else set()
        clock = max(now(), self.time)
        due_at = event_timers or {}
        by_clock = {*self._by_clock, CLOCK}
        reached_before, reached = (local_clock(at, self._zone) for at in (self.time, clock))
        fires_timers = any(reached_before < due <= reached for i, due in due_at.items() if i in by_clock)
        calls = processing_timer is not None and self._fired_at < processing_timer <= clock
        opens = self._opens and self.sequence < 0
        closes = any(i in due_at and watermark >= due_at[i] for i, watermark in (watermarks or {}).items())
        if not any((splits, ending, last, fires_timers, idle, calls, opens, closes)):
            return None
        self._closed |= ending
        ticks = {**self._reminders, **(watermarks or {}), **(idle or {}), **dict.fromkeys(self._by_clock, reached)}
        ticks |= dict.fromkeys(sorted(ending), END_OF_INPUT)
        self._reminders = {}
        watermark = (END_OF_INPUT if last else reached) if self._has_clock else None
        if last and not splits and not ticks:
            # A descriptor without a line would be no batch.
            ticks = {0: END_OF_INPUT}
        number, positions = self.sequence + 1, self._positions.give(splits)
        return Descriptor(number, clock, splits, ticks, last, calls, opens, positions, self._own_watermarks, watermark)

    def drain(self) -> None:
        """End the input for good: neither this run nor a later one reads more, and the next batch is the last one."""
        if not self.drained:
            self._fs.write_text_atomic(self._drain_mark, "")
            self.drained = True

    @property
    def _drain_mark(self) -> str:
        return f"{self._directory}/drained"

    def changed(self) -> set[str]:
        """Return the files that were rewritten after they had been read."""
        return {path for scan in self.scans for path in scan.discovery.changed}

    def take_warnings(self) -> list[str]:
        """Return the pending warnings of sources, and remove them."""
        warnings = [warning for scan in self.scans for warning in scan.discovery.warnings]
        for scan in self.scans:
            scan.discovery.warnings.clear()
        return warnings

    def notices(self) -> list[str]:
        """Return notices about the sources for the job's owner, such as that rows are not read exactly once."""
        guarantees = [(s.table.name, source_guarantee(s.table)) for s in self._stages]
        lines = [f'table "{name}" is read {g.times}: {g.reason}' for name, g in guarantees if g.times != EXACTLY]
        # Several scans of one table say the same.
        return [*dict.fromkeys(lines), *(notice for scan in self.scans for notice in scan.discovery.notices())]

    def close(self) -> None:
        """Close the discoveries of sources."""
        for scan in self.scans:
            scan.discovery.close()

    def write(self, descriptor: Descriptor) -> list[str]:
        """Store a descriptor; return its lines for each slot, as `by_slot` does."""
        text = to_lines(descriptor, self._slots)
        write_sealed(self._fs, self._path(descriptor.sequence), text)
        self.sequence, self.ended, self.time = descriptor.sequence, descriptor.last, descriptor.time
        self._fired_at = descriptor.time if descriptor.fires_timers else self._fired_at
        self.ticked |= descriptor.ticks
        for scan, splits in descriptor.splits.items():
            self._last_splits.add(descriptor.sequence, scan, splits)
        self._commits.add(descriptor.sequence, text)
        return by_slot(text, self._slots)

    def commit(self, done: int) -> None:
        """Report to the sources that ask for it that the batches up to the descriptor `done` are committed."""
        self._commits.report(done)

    def stored_descriptors(self, done: int, begun: int) -> list[list[str]]:
        """Return the stored descriptors after `done`, in order, each as its lines for each slot.

        `begun` is the last descriptor of a batch that has begun. Raises DamageError if a descriptor is missing.
        """
        descriptors = []
        for sequence in range(done + 1, max(begun, self.sequence) + 1):
            try:
                descriptors.append(by_slot(read_sealed(self._fs, self._path(sequence)), self._slots))
            except FileNotFoundError:
                raise damage(self._path(sequence), GONE) from None
        return descriptors

    def remind(self, done: int, watermarks: Mapping[int, EventTime]) -> None:
        """Repeat the watermarks of scans after the descriptor `done`, as ticks in the next descriptor.

        After a restart Spark knows only the least of them. A batch that is repeated must see the watermarks that it saw before,
        so the ticks are appended to its descriptor if that is stored already.
        """
        self._reminders = {i: watermark for i, watermark in watermarks.items() if i in self._watched}
        if self._reminders and self._fs.exists(self._path(done + 1)):
            path = self._path(done + 1)
            text = read_sealed(self._fs, path)
            first = from_lines(text)[0]
            again = Descriptor(
                first.sequence, first.time, {}, self._reminders, first.last, own_watermarks=first.own_watermarks
            )
            write_sealed(self._fs, path, text + to_lines(again, self._slots))
            self._reminders = {}

    def fold(self, done: int) -> None:
        """Fold the descriptors up to `done` - KEPT into one file, once there are KEPT; `done` is the last of a finished batch."""
        old = [s for s in self._descriptors.numbers() if s <= done - KEPT]
        if len(old) < KEPT:
            return
        for sequence in old:
            self._add(self._folded, from_lines(read_sealed(self._fs, self._path(sequence))))
        # After a crash the same ones may be folded again. The position is behind those of later descriptors, too.
        seen = tuple(position.to_bytes() for position in self._folded)
        self._descriptors.write_fold(Fold(old[-1], seen, self._positions.following), old)

    def _add(self, positions: Sequence[Position], batch: Sequence[Work]) -> None:
        """Move the scans' positions past a batch."""
        for scan, (source, position) in enumerate(zip(self._sources, positions, strict=True)):
            position.add([source.split(w.split) for w in batch if w.scan == scan and w.split is not None])
