"""The job log: what each version of a job read, emitted and held, one entry per version.

An entry is written as a file of its own; every 64 of them are gathered into one file of lines, so that an hour of small
batches is a few hundred files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping
from typing import ClassVar, NamedTuple

from sqlstream.errors import DamageError
from sqlstream.storage.metrics import OperatorMetrics, SinkMetrics, SourceMetrics, in_microseconds
from sqlstream.units import Duration, EventTime, ProcessingTime
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.jobs import JobRecord
from sqlstream.warehouse.records import (
    GONE,
    Record,
    UnreadableFormat,
    Upgrade,
    damage,
    read_json,
    read_sealed,
    write_sealed,
)

CHUNK = 64


class LogEntry(Record, frozen=True, omit_defaults=True, tag_field="format", tag=2):
    """The log's entry of a version: the job's metrics after its batch, per scan, operator and sink.

    `watermark` is the job's, None before the first. `watermarks` has, by name, the watermarks of operators that differ from the
    job's; earlier versions of sqlstream had one watermark for all. `clock` is the processing time that serves as watermark of the
    operators over processing time, in a job whose other operators use event time; else None.

    `results` maps each warehouse table, by its name in lower case, to the name of the manifest of the job's rows in it; metrics
    of an operator's bucket name the manifest of its state. `labels` are the labels of the buckets over which the state is spread;
    early versions of sqlstream did not write them. `spent` is how long the job's batches have taken so far, by phase. `sinks` is
    what the job has written so far, by table.
    """

    upgrades: ClassVar[Mapping[int, Upgrade]] = {1: in_microseconds}

    version: int
    committed_at: ProcessingTime
    watermark: EventTime | None
    rows_in: int = 0
    rows_out: int = 0
    sources: Mapping[str, SourceMetrics] = {}
    operators: Mapping[str, OperatorMetrics] = {}
    results: Mapping[str, str] = {}
    labels: tuple[int, ...] = ()
    spent: Mapping[str, Duration] = {}
    sinks: Mapping[str, SinkMetrics] = {}
    watermarks: Mapping[str, EventTime | None] = {}
    clock: EventTime | None = None

    @classmethod
    def from_json(cls, text: str) -> LogEntry:
        """Return the entry in a text. Raises OtherVersionError."""
        try:
            return read_json(text, cls)
        except UnreadableFormat as other:
            raise other.error("the log of the job") from other

    @property
    def sequence(self) -> int:
        """The number of the last descriptor that was read, -1 before the first."""
        return max((s.sequence for s in self.sources.values()), default=-1)

    def watermark_of(self, operator: str) -> EventTime | None:
        """Return the watermark of an operator, by its name; its state may be behind it by a delay."""
        return self.watermarks.get(operator, self.watermark)

    def state_manifests(self, operator: str) -> dict[int, str]:
        """Return the names of an operator's manifests, by bucket."""
        metrics = self.operators.get(operator, OperatorMetrics())
        return {number: bucket.manifest for number, bucket in metrics.buckets.items()}

    def table_manifests(self, table: str) -> dict[int, str]:
        """Return the name of the manifest of what the job wrote into a table, under 0, its only bucket; empty without one."""
        name = self.results.get(table.lower())
        return {} if name is None else {0: name}


def labels_of(record: JobRecord, entry: LogEntry | None) -> tuple[int, ...]:
    """Return the labels of the buckets over which a job's state is spread after the version of an entry (None: at the start)."""
    return (entry.labels if entry is not None else ()) or record.bucket_labels


def fell_idle(active_at: ProcessingTime, timeout: Duration, now: ProcessingTime) -> ProcessingTime | None:
    """Return when a source became idle: `timeout` after its last row; None before that, and for a timeout of 0."""
    since = ProcessingTime(active_at + timeout)
    return since if timeout and now >= since else None


def held_by(
    watermarks: Mapping[str, EventTime | None], idle: Collection[str], groups: Iterable[Collection[str]]
) -> set[str]:
    """Return the sources that hold back a watermark. Each of `groups` has the sources on which one watermark depends.

    >>> one = EventTime(1)
    >>> held_by({"a": one, "b": None, "c": None}, set(), [("a",), ("a", "b")]) == {"a", "b"}
    True
    """
    return {
        name
        for group in groups
        for name in holders({name: watermarks[name] for name in group if name in watermarks}, idle)
    }


def holders(watermarks: Mapping[str, EventTime | None], idle: Collection[str]) -> set[str]:
    """Return the sources that hold the watermark back: among those that are not idle, the ones furthest behind.

    `watermarks` are the watermarks of the sources, None before the first. When all are idle, all count.

    >>> five, nine = EventTime(5), EventTime(9)
    >>> holders({"a": five, "b": nine, "c": nine}, {"a"}) == {"b", "c"}, holders({"a": five, "b": None}, set())
    (True, {'b'})
    """
    active = {name: watermark for name, watermark in watermarks.items() if name not in idle} or watermarks
    lowest = None if None in active.values() else min((m for m in active.values() if m is not None), default=None)
    return {name for name, watermark in active.items() if watermark == lowest}


class JobLog:
    """The log in a directory. One process appends and prunes; others may read at any time.

    An entry may exist before its version is committed: readers pass the newest version that they want to see.
    """

    def __init__(self, fs: Filesystem, directory: str):
        self._fs = fs
        self._directory = directory
        # When versions were committed, None for entries that are damaged: an entry is large where there are many buckets.
        self._committed_at: dict[int, ProcessingTime | None] = {}

    def append(self, entry: LogEntry, *, durable: bool = False) -> None:
        """Write the entry of a version; it replaces the entry of an earlier attempt of the same batch.

        A `durable` entry survives a power failure.
        """
        write_sealed(self._fs, self.path(entry.version), entry.to_json(), durable=durable)
        self._committed_at[entry.version] = entry.committed_at
        # The newest version may be written again; what comes before it is committed.
        singles = [f for f in self._files() if f.single and f.first < entry.version]
        if len(singles) >= CHUNK:
            self._gather(singles)

    def path(self, version: int) -> str:
        """Return the path of an entry's own file, where it is until it is gathered with others."""
        return f"{self._directory}/{version:010d}.json"

    def _gather(self, singles: list[_File]) -> None:
        texts = {}
        for file in singles:
            # What is damaged stays where it is.
            with contextlib.suppress(DamageError):
                texts[file] = read_sealed(self._fs, f"{self._directory}/{file.name}")
        if len(texts) < CHUNK:
            return
        first, *_, last = texts
        # The chunk is written before they are deleted: a reader may see an entry twice, but never misses one.
        name = f"{first.first:010d}-{last.last:010d}.json"
        write_sealed(self._fs, f"{self._directory}/{name}", "".join(texts.values()))
        self._fs.delete_all(f"{self._directory}/{file.name}" for file in texts)

    def entries(
        self, up_to: int | None = None, since: int = 0, *, faults: list[DamageError] | None = None
    ) -> list[LogEntry]:
        """Return the entries of the versions `since` to `up_to`, both included, in order.

        Raises DamageError for a damaged file. With a list for `faults`, the error goes there, and the file is left out.
        """
        while True:
            # A file that vanishes was gathered into another one, or pruned: look again.
            with contextlib.suppress(FileNotFoundError):
                return self._entries(up_to, since, faults)

    def _entries(self, up_to: int | None, since: int, faults: list[DamageError] | None) -> list[LogEntry]:
        entries: dict[int, LogEntry] = {}
        files = [file for file in self._files() if file.last >= since and (up_to is None or file.first <= up_to)]
        for text in self._fs.together(self._read, [f"{self._directory}/{file.name}" for file in files]):
            if not isinstance(text, DamageError):
                entries |= {entry.version: entry for entry in map(LogEntry.from_json, text.splitlines())}
            elif faults is None:
                raise text
            else:
                faults.append(text)
        return [entries[v] for v in sorted(entries) if v >= since and (up_to is None or v <= up_to)]

    def _read(self, path: str) -> str | DamageError:
        try:
            return read_sealed(self._fs, path)
        except DamageError as error:
            return error

    def entry(self, version: int) -> LogEntry | None:
        """Return the entry of a version, None if there is none. Raises DamageError."""
        return next(iter(self.entries(version, version)), None)

    def oldest_retained(
        self, newest: int, now: ProcessingTime, retention: Duration, retention_batches: int = 100
    ) -> int:
        """Return the oldest version to keep: the one current `retention` ago, or `retention_batches` ago if that is older."""
        dated = self._dated_versions(newest - retention_batches)
        old = [version for version, committed_at in dated if committed_at <= now - retention]
        return old[-1] if old else dated[0][0] if dated else 0

    def _dated_versions(self, up_to: int) -> list[tuple[int, ProcessingTime]]:
        """Return the versions up to `up_to` with their commit times, in order. Each entry is read once."""
        files = [file for file in self._files() if file.first <= up_to]
        there = {version for file in files for version in range(file.first, min(file.last, up_to) + 1)}
        unknown = there - self._committed_at.keys()
        if new := [file for file in files if unknown & set(range(file.first, file.last + 1))]:
            # Together: a request for each, one after the other, would take a store minutes.
            entries = self.entries(max(f.last for f in new), min(f.first for f in new), faults=[])
            times = {e.version: e.committed_at for e in entries}
            self._committed_at |= {v: times.get(v) for file in new for v in range(file.first, file.last + 1)}
        oldest = min(there, default=0)
        # Another thread may append meanwhile.
        for version in [v for v in list(self._committed_at) if v < oldest]:
            del self._committed_at[version]
        dated = ((version, self._committed_at[version]) for version in sorted(there))
        return [(version, at) for version, at in dated if at is not None]

    def last(self) -> LogEntry | None:
        """Return the newest intact entry, also of a version that is not committed yet; None if there is none."""
        for file in sorted(self._files(), key=lambda f: f.last, reverse=True):
            if entries := self.entries(file.last, file.first, faults=[]):
                return entries[-1]
        return None

    def prune(self, oldest_version: int) -> None:
        """Delete files that have only entries of versions older than `oldest_version`."""
        for file in self._files():
            if file.last < oldest_version:
                self._fs.delete(f"{self._directory}/{file.name}")

    def missing(self, version: int) -> DamageError:
        """Return the error for a missing entry of a version."""
        return damage(self.path(version), GONE)

    def keep_from(self, version: int) -> None:
        """Delete the entries of versions older than `version`, also those that share a file with newer ones."""
        for file in self._files():
            if file.first < version:
                for entry in self.entries(file.last, version, faults=[]) if file.last >= version else ():
                    write_sealed(self._fs, self.path(entry.version), entry.to_json())
                self._fs.delete(f"{self._directory}/{file.name}")

    def forget_after(self, version: int) -> None:
        """Delete files that have only entries of versions newer than `version`: their batches will be repeated."""
        for file in self._files():
            if file.first > version:
                self._fs.delete(f"{self._directory}/{file.name}")

    def _files(self) -> list[_File]:
        """Return the files of the log: chunks, then files of single entries. An entry in both counts as in its single file."""
        files = [_File.parse(name) for name in self._fs.list(self._directory) if name[:10].isdigit()]
        return sorted(files, key=lambda f: (f.single, f.first))


class _File(NamedTuple):
    name: str
    first: int
    last: int
    single: bool

    @classmethod
    def parse(cls, name: str) -> _File:
        numbers = [int(number) for number in name.removesuffix(".json").split("-")]
        return cls(name, numbers[0], numbers[-1], len(numbers) == 1)
