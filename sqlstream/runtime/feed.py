"""Which files the next batch reads: the driver's side of the only source that Spark sees.

A descriptor is written before its batch runs and never changes its splits, so a repeated batch reads the same rows. What
was read is known from the descriptors themselves; old ones are folded into one file.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Mapping, Sequence

from sqlstream.catalog import VALUES
from sqlstream.physical.plan import ScanStage
from sqlstream.runtime.batches import Descriptor, from_lines, to_lines
from sqlstream.runtime.times import END_OF_INPUT
from sqlstream.storage.files import FileDiscovery, Seen, Split
from sqlstream.storage.filesystem import Filesystem
from sqlstream.storage.units import parse_duration
from sqlstream.storage.values import ValuesDiscovery

# Descriptors that stay as files; Spark may ask for the last ones again.
KEPT = 128
# Spark takes files in the order of their modification times: one second per descriptor, from a day in 2001 on.
_FIRST_MTIME = 1_000_000_000
_FOLD = "seen-"


class ScanFeed:
    """The files of one scan: discovered at the start, and, when the table is monitored, at every interval."""

    def __init__(self, stage: ScanStage, seen: Seen, *, project: str, parallelism: int):
        options = stage.table.options
        self.name = stage.name
        self.interval = None
        if "source.monitor-interval" in options:
            self.interval = parse_duration(options["source.monitor-interval"]).total_seconds()
        self.discovery: FileDiscovery | ValuesDiscovery
        if stage.table.connector == VALUES:
            self.discovery = ValuesDiscovery(seen)
        else:
            self.discovery = FileDiscovery.of(stage.table, project=project, parallelism=parallelism, seen=seen)
        self._listed_at: float | None = None

    @property
    def bounded(self) -> bool:
        return self.interval is None

    def waiting(self, now: float) -> int:
        """Return how many files wait, listing again when that is due."""
        due = self._listed_at is None or (self.interval is not None and now - self._listed_at >= self.interval)
        if due:
            self._listed_at = now
            self.discovery.poll()
        return self.discovery.waiting

    def take(self) -> Sequence[Split]:
        """Return the splits of the next batch."""
        return self.discovery.next_batch() or ()


def check_input(scans: Sequence[ScanStage], project: str) -> None:
    """Raise UsageError when the folder of a bounded table does not exist."""
    for stage in scans:
        if stage.table.connector == "filesystem":
            FileDiscovery.of(stage.table, project=project, parallelism=1).poll()


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
    ):
        self._fs, self._directory, self._slots, self._finish = fs, directory, slots, finish
        # Where Spark looks for descriptors.
        self.directory = f"{directory}/next"
        self._reminders: dict[int, int] = {}
        # The last descriptor with splits of each scan, and how far ticks have moved it.
        self._given: dict[int, int] = {}
        self.ticked: dict[int, int] = {}
        self.sequence = -1
        self.ended = False
        # The time (ms) of the last batch: the clock does not go back.
        self.time = 0
        seen = self._restore(len(scans))
        self.scans = [
            ScanFeed(stage, seen[i], project=project, parallelism=len(slots)) for i, stage in enumerate(scans)
        ]
        self._watched = {i for i, stage in enumerate(scans) if stage.watermark is not None}
        self._closed: set[int] = set()
        self._by_clock = {i for i, stage in enumerate(scans) if stage.by_clock}

    @property
    def bounded(self) -> bool:
        return all(s.bounded for s in self.scans)

    def _restore(self, count: int) -> list[Seen]:
        """Return what each scan has read so far, by the descriptors and the file that old ones were folded into."""
        self._folded = [Seen() for _ in range(count)]
        folds = sorted(n for n in self._fs.list(self._directory) if n.startswith(_FOLD))
        if folds:
            value = json.loads(self._fs.read_text(f"{self._directory}/{folds[-1]}"))
            self.sequence = value["sequence"]
            self._folded = [Seen.from_bytes(base64.b64decode(text)) for text in value["seen"]]
        seen = [Seen.from_bytes(s.to_bytes()) for s in self._folded]
        for sequence in self._descriptors():
            for work in from_lines(self._fs.read_text(self._path(sequence))):
                self.ended = self.ended or work.last
                self.time = max(self.time, work.time)
                if work.split is not None:
                    seen[work.scan].add([work.split])
                    self._given[work.scan] = max(sequence, self._given.get(work.scan, -1))
            self.sequence = max(self.sequence, sequence)
        return seen

    def _descriptors(self) -> list[int]:
        return [int(name.removesuffix(".json")) for name in self._fs.list(self.directory)]

    def _path(self, sequence: int) -> str:
        return f"{self.directory}/{sequence:010d}.json"

    def under_way(self, done: int) -> set[int]:
        """Return the scans with input that waits, or that was given to batches after the descriptor `done`."""
        now = time.monotonic()
        return {i for i, scan in enumerate(self.scans) if scan.waiting(now) or self._given.get(i, -1) > done}

    def compose(self, wake_at: int | None = None, idle: Mapping[int, int] | None = None) -> Descriptor | None:
        """Return the next batch, or None when nothing waits; the last one of a bounded job ends its input.

        Where windows go by the clock, there is one without rows when the time (microseconds) has come to close some. `idle` are
        ticks of idle scans, and worth a batch.
        """
        if self.ended:
            return None
        now = time.monotonic()
        splits = {i: scan.take() for i, scan in enumerate(self.scans) if scan.waiting(now)}
        exhausted = {i for i, scan in enumerate(self.scans) if scan.bounded and not scan.waiting(now)}
        last = self._finish and len(exhausted) == len(self.scans)
        ending = (exhausted & self._watched) - self._closed if self._finish else set()
        clock = max(int(time.time() * 1000), self.time)
        rings = bool(self._by_clock) and wake_at is not None and self.time * 1000 < wake_at <= clock * 1000
        if not splits and not ending and not last and not rings and not idle:
            return None
        self._closed |= ending
        ticks = {**self._reminders, **(idle or {}), **dict.fromkeys(self._by_clock, clock * 1000)}
        ticks |= dict.fromkeys(sorted(ending), END_OF_INPUT)
        self._reminders = {}
        if last and not splits and not ticks:
            # A descriptor without a line would be no batch.
            ticks = {0: END_OF_INPUT}
        return Descriptor(self.sequence + 1, clock, splits, ticks, last)

    def changed(self) -> set[str]:
        """Return the files that were rewritten after they had been read."""
        return {path for scan in self.scans for path in scan.discovery.changed}

    def write(self, descriptor: Descriptor) -> None:
        """Hand a batch to Spark."""
        self._put(descriptor.sequence, to_lines(descriptor, self._slots))
        self.sequence, self.ended, self.time = descriptor.sequence, descriptor.last, descriptor.time
        self.ticked |= descriptor.ticks
        self._given |= dict.fromkeys(descriptor.splits, descriptor.sequence)

    def _put(self, sequence: int, text: str) -> None:
        with self._fs.create(self._path(sequence)) as file:
            file.write(text.encode())
            if self._fs.local:
                file.flush()
                mtime = _FIRST_MTIME + sequence
                os.utime(file.fileno(), (mtime, mtime))

    def remind(self, done: int, watermarks: Mapping[int, int]) -> None:
        """Say again how far the scans' watermarks were after the descriptor `done`.

        Spark keeps only the least of them over a restart. The batch that it repeats must see what it saw before, so the
        ticks go into that batch's descriptor if it was written already.
        """
        self._reminders = {i: watermark for i, watermark in watermarks.items() if i in self._watched}
        if self._reminders and self._fs.exists(self._path(done + 1)):
            path = self._path(done + 1)
            text = self._fs.read_text(path)
            first = from_lines(text)[0]
            again = Descriptor(first.sequence, first.time, {}, self._reminders, first.last)
            self._put(done + 1, text + to_lines(again, self._slots))
            self._reminders = {}

    def fold(self, done: int) -> None:
        """Fold descriptors that Spark will not ask for again into one file, so that their number stays small."""
        old = [s for s in self._descriptors() if s <= done - KEPT]
        if len(old) < KEPT:
            return
        for sequence in old:
            for work in from_lines(self._fs.read_text(self._path(sequence))):
                if work.split is not None:
                    self._folded[work.scan].add([work.split])
        seen = [base64.b64encode(s.to_bytes()).decode() for s in self._folded]
        # After a crash the same ones may be folded again, into a file of the same name.
        name = f"{_FOLD}{old[-1]:010d}.json"
        before = [n for n in self._fs.list(self._directory) if n.startswith(_FOLD) and n != name]
        self._fs.write_text_atomic(f"{self._directory}/{name}", json.dumps({"sequence": old[-1], "seen": seen}))
        for name in before:
            self._fs.delete(f"{self._directory}/{name}")
        for sequence in old:
            self._fs.delete(self._path(sequence))
