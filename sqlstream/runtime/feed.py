"""What the next batch reads: the driver's side of the only source that Spark has.

A descriptor is written before its batch runs and never changes its splits, so a repeated batch reads the same rows. What
was read is known from the descriptors themselves; old ones are folded into one file.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from sqlstream.connectors.discovery import DiscoveryContext, Position, Split
from sqlstream.connectors.guarantees import EXACTLY
from sqlstream.connectors.interface import TableSource
from sqlstream.connectors.registry import source_of
from sqlstream.connectors.tables import source_guarantee
from sqlstream.names import path_name
from sqlstream.physical.plan import ScanStage
from sqlstream.runtime.batches import Descriptor, Work, by_slot, from_lines, to_lines
from sqlstream.storage.descriptors import Descriptors, Fold
from sqlstream.units import END_OF_INPUT, EventTime, ProcessingTime, now, seconds
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.records import GONE, damage, read_sealed, write_sealed
from sqlstream.warehouse.status import Backlog

# Descriptors that stay as files. A restart needs those that no committed batch has read; the rest are folded in bulk.
KEPT = 128

T = TypeVar("T")


class ScanFeed:
    """What one scan reads: looked for at the start and, unless its source is bounded, at every interval."""

    def __init__(self, stage: ScanStage, source: TableSource, position: Position, context: DiscoveryContext):
        self.name = stage.name
        self.discovery = source.discovery(position, context)
        self.interval = self.discovery.interval
        self._looked_at: float | None = None

    @property
    def bounded(self) -> bool:
        return self.interval is None or self.discovery.bounded

    def waiting(self, now: float) -> int:
        """Return how much waits (files, batches, rows), looking again when that is due."""
        due = self._looked_at is None or (self.interval is not None and now - self._looked_at >= seconds(self.interval))
        if due:
            self._looked_at = now
            self.discovery.poll()
        return self.discovery.waiting

    def take(self) -> Sequence[Split]:
        """Return the splits of the next batch."""
        return self.discovery.next_batch() or ()

    @property
    def exhausted(self) -> bool:
        """Whether nothing more will ever come."""
        return self.bounded and not self.discovery.remaining


def check_input(scans: Sequence[ScanStage], project: str) -> None:
    """Raise UsageError when the folder of a bounded table does not exist."""
    for stage in scans:
        source_of(stage.table).check_input(project)


class Feed:
    """Composes and writes batch descriptors. `slots` are the labels of the source's partitions."""

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
    ):
        # `_opens`: whether the first batch has something to say without a row.
        self._fs, self._directory, self._slots, self._finish, self._opens = fs, directory, slots, finish, opens
        # Where descriptors are.
        self._kept = Descriptors(fs, directory)
        self.directory = self._kept.next
        self._reminders: dict[int, EventTime] = {}
        # The last descriptor with splits of each scan, and how far ticks have moved it.
        self._given: dict[int, int] = {}
        self._given_of: dict[tuple[int, str], int] = {}
        self.ticked: dict[int, EventTime] = {}
        # What was handed out and is not known to be committed, for those sources that want to know.
        self._uncommitted: deque[tuple[int, list[Work]]] = deque()
        self.sequence = -1
        self.ended = False
        # Whether somebody asked for the end of the input, now or in an earlier life of the job.
        self.drained = fs.exists(self._drain_mark)
        # The time of the last batch: the clock does not go back.
        self.time = ProcessingTime(0)
        # The time of the last batch that called operators: what they asked for until then is on its way.
        self._fired_at = ProcessingTime(-1)
        self._stages = scans
        self._sources = [source_of(stage.table) for stage in scans]
        seen = self._read_fold()
        positions = self._restore(project, seen)
        self.scans = []
        for i, stage in enumerate(scans):
            context = DiscoveryContext(
                project=project,
                warehouse=Warehouse(warehouse or project),
                directory=f"{directory}/received/{path_name(stage.name)}",
                parallelism=len(slots),
                finish=finish,
                remember=partial(self._remember, i),
                paced=paced,
            )
            try:
                self.scans.append(ScanFeed(stage, self._sources[i], positions[i], context))
            except BaseException:
                self.close()
                raise
        self._told = {i for i, scan in enumerate(self.scans) if scan.discovery.is_told_of_commits}
        self._committed = {i: self._sources[i].position(project, seen[i]) for i in self._told}
        if not self._told:
            self._uncommitted.clear()
        self._watched = {i for i, stage in enumerate(scans) if stage.watermark is not None}
        self._closed: set[int] = set()
        self._by_clock = {i for i, stage in enumerate(scans) if stage.by_clock}

    @property
    def bounded(self) -> bool:
        return all(s.bounded for s in self.scans)

    @property
    def has_uncommitted(self) -> bool:
        """Whether a source is to be told of a commit."""
        return bool(self._uncommitted)

    @property
    def exhausted(self) -> bool:
        """Whether nothing more will ever come."""
        return all(s.exhausted for s in self.scans)

    def _remember(self, scan: int, name: str, value: T) -> T:
        """Return what a scan first gave under a name, now or in an earlier life of the job."""
        path = f"{self._directory}/{name}-{scan}.json"
        if not self._fs.exists(path):
            write_sealed(self._fs, path, json.dumps(value), durable=True)
        kept: T = json.loads(read_sealed(self._fs, path))
        return kept

    def _read_fold(self) -> list[bytes | None]:
        """Return how far each scan had read by the file that old descriptors were folded into."""
        fold = self._kept.fold()
        if fold is None:
            return [None] * len(self._sources)
        self.sequence = fold.sequence
        return list(fold.seen)

    def _restore(self, project: str, seen: Sequence[bytes | None]) -> list[Position]:
        """Return how far each scan has read, by the descriptors and the file that old ones were folded into."""
        self._folded, positions = (
            [source.position(project, data) for source, data in zip(self._sources, seen, strict=True)] for _ in range(2)
        )
        sequences = self._kept.numbers()
        texts = self._fs.together(partial(read_sealed, self._fs), list(map(self._path, sequences)))
        for sequence, work in zip(sequences, map(from_lines, texts), strict=True):
            self.ended = self.ended or any(w.last for w in work)
            self.time = max([self.time, *(w.time for w in work)])
            self._add(positions, work)
            self._uncommitted.append((sequence, work))
            self._given |= {w.scan: sequence for w in work if w.split is not None}
            for w in work:
                if w.split is not None and self._stages[w.scan].has_partitions:
                    self._give_of(w.scan, [self._sources[w.scan].split(w.split)], sequence)
            self.sequence = max(self.sequence, sequence)
        return positions

    def _path(self, sequence: int) -> str:
        return self._kept.path(sequence)

    def backlog(self) -> dict[str, Backlog]:
        """Return how far behind each scan is what its source has, as of the last look: what no batch was given yet."""
        return {s.name: Backlog(s.discovery.backlog, s.discovery.backlog_unit) for s in self.scans}

    def under_way(self, done: int) -> set[int]:
        """Return the scans with input that waits, or that was given to batches after the descriptor `done`."""
        now = time.monotonic()
        return {i for i, scan in enumerate(self.scans) if scan.waiting(now) or self._given.get(i, -1) > done}

    def _give_of(self, scan: int, splits: Sequence[Any], sequence: int) -> None:
        self._given_of |= {(scan, split.reached[0]): sequence for split in splits}

    def partitions(self, done: int) -> dict[int, dict[str, bool]]:
        """Return the partitions of scans that have some, and whether input waits, or was given to batches after `done`."""
        return {
            i: {
                name: waits or self._given_of.get((i, name), -1) > done
                for name, waits in scan.discovery.partitions().items()
            }
            for i, scan in enumerate(self.scans)
            if self._stages[i].has_partitions
        }

    def watermarks(self) -> dict[int, Mapping[str, datetime]]:
        """Return how far the partitions of scans are whose sources know it by themselves."""
        return {i: scan.discovery.watermarks() for i, scan in enumerate(self.scans) if self._stages[i].has_watermarks}

    def compose(
        self,
        event_timer: EventTime | None = None,
        idle: Mapping[int, EventTime] | None = None,
        processing_timer: ProcessingTime | None = None,
        marks: Mapping[int, EventTime] | None = None,
    ) -> Descriptor | None:
        """Return the next batch, or None when nothing waits; the last one of a bounded job ends its input.

        Where windows go by the clock, there is one without rows when the time has come to close some. `idle` are
        ticks of idle scans, and worth a batch; so is `processing_timer`, the processing time at which an operator wants to be
        called. `marks` are ticks of scans with partitions: they are worth one when a window may close.
        """
        if self.ended:
            return None
        looked_at = time.monotonic()
        splits = {i: scan.take() for i, scan in enumerate(self.scans) if not self.drained and scan.waiting(looked_at)}
        exhausted = {i for i, scan in enumerate(self.scans) if self.drained or scan.exhausted}
        last = self.drained or (self._finish and self.exhausted)
        ending = (exhausted & self._watched) - self._closed if self._finish or self.drained else set()
        clock = max(now(), self.time)
        fires_timers = bool(self._by_clock) and event_timer is not None and self.time < event_timer <= clock
        calls = processing_timer is not None and self._fired_at < processing_timer <= clock
        opens = self._opens and self.sequence < 0
        closes = event_timer is not None and any(mark >= event_timer for mark in (marks or {}).values())
        if not any((splits, ending, last, fires_timers, idle, calls, opens, closes)):
            return None
        self._closed |= ending
        ticks = {**self._reminders, **(marks or {}), **(idle or {}), **dict.fromkeys(self._by_clock, EventTime(clock))}
        ticks |= dict.fromkeys(sorted(ending), END_OF_INPUT)
        self._reminders = {}
        if last and not splits and not ticks:
            # A descriptor without a line would be no batch.
            ticks = {0: END_OF_INPUT}
        return Descriptor(self.sequence + 1, clock, splits, ticks, last, calls, opens)

    def drain(self) -> None:
        """Let the input end here, for good: no more is read, and the next batch is the last one."""
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
        """Return what sources have to say to whoever watches the job, and nobody has taken yet."""
        taken = [warning for scan in self.scans for warning in scan.discovery.warnings]
        for scan in self.scans:
            scan.discovery.warnings.clear()
        return taken

    def notices(self) -> list[str]:
        """Return what whoever starts the job should know about its sources."""
        found = [(s.table.name, source_guarantee(s.table)) for s in self._stages]
        said = [f'table "{name}" is read {g.times}: {g.reason}' for name, g in found if g.times != EXACTLY]
        return [*said, *(notice for scan in self.scans for notice in scan.discovery.notices())]

    def close(self) -> None:
        """Let go of what sources hold open."""
        for scan in self.scans:
            scan.discovery.close()

    def write(self, descriptor: Descriptor) -> list[str]:
        """Write a batch down, and return what the task of each slot is to do."""
        text = to_lines(descriptor, self._slots)
        write_sealed(self._fs, self._path(descriptor.sequence), text)
        self.sequence, self.ended, self.time = descriptor.sequence, descriptor.last, descriptor.time
        self._fired_at = descriptor.time if descriptor.fires_timers else self._fired_at
        self.ticked |= descriptor.ticks
        self._given |= dict.fromkeys(descriptor.splits, descriptor.sequence)
        for scan, splits in descriptor.splits.items():
            if self._stages[scan].has_partitions:
                self._give_of(scan, splits, descriptor.sequence)
        if self._told:
            self._uncommitted.append((descriptor.sequence, from_lines(text)))
        return by_slot(text, self._slots)

    def commit(self, done: int) -> None:
        """Tell sources which want to know how far batches were committed: those up to the descriptor `done`."""
        told: set[int] = set()
        while self._uncommitted and self._uncommitted[0][0] <= done:
            _, work = self._uncommitted.popleft()
            for scan, position in self._committed.items():
                if splits := [
                    self._sources[scan].split(w.split) for w in work if w.scan == scan and w.split is not None
                ]:
                    position.add(splits)
                    told.add(scan)
        for scan in sorted(told):
            self.scans[scan].discovery.committed(self._committed[scan])

    def written(self, done: int, begun: int) -> list[list[str]]:
        """Return, in order, what was written after the descriptor `done`, as `write` did.

        A batch that has begun reads those up to `begun`. Raises DamageError when one of these is missing.
        """
        found = []
        for sequence in range(done + 1, max(begun, self.sequence) + 1):
            try:
                found.append(by_slot(read_sealed(self._fs, self._path(sequence)), self._slots))
            except FileNotFoundError:
                raise damage(self._path(sequence), GONE) from None
        return found

    def remind(self, done: int, watermarks: Mapping[int, EventTime]) -> None:
        """Say again how far the scans' watermarks were after the descriptor `done`.

        Spark is told only the least of them after a restart. The batch that it repeats must see what it saw before, so the
        ticks go into that batch's descriptor if it was written already.
        """
        self._reminders = {i: watermark for i, watermark in watermarks.items() if i in self._watched}
        if self._reminders and self._fs.exists(self._path(done + 1)):
            path = self._path(done + 1)
            text = read_sealed(self._fs, path)
            first = from_lines(text)[0]
            again = Descriptor(first.sequence, first.time, {}, self._reminders, first.last)
            write_sealed(self._fs, path, text + to_lines(again, self._slots))
            self._reminders = {}

    def fold(self, done: int) -> None:
        """Fold descriptors that no batch of the job will read again, so that the number of files stays small."""
        old = [s for s in self._kept.numbers() if s <= done - KEPT]
        if len(old) < KEPT:
            return
        for sequence in old:
            self._add(self._folded, from_lines(read_sealed(self._fs, self._path(sequence))))
        # After a crash the same ones may be folded again.
        self._kept.write_fold(Fold(old[-1], tuple(position.to_bytes() for position in self._folded)), old)

    def _add(self, positions: Sequence[Position], batch: Sequence[Work]) -> None:
        """Move the scans' positions past a batch."""
        for scan, (source, position) in enumerate(zip(self._sources, positions, strict=True)):
            position.add([source.split(w.split) for w in batch if w.scan == scan and w.split is not None])
