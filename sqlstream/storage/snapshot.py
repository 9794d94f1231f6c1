"""Which version of a job a query reads, and which segments hold the rows of that version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from sqlstream.storage.filesystem import BucketedPaths, Filesystem, Warehouse
from sqlstream.storage.joblog import JobLog, LogEntry
from sqlstream.storage.jobs import JobRecord, last_committed, read_record
from sqlstream.storage.manifests import Manifest, newest_manifest
from sqlstream.storage.segments import Segment

_ANY_BATCH = 2**63 - 1


class VersionGone(Exception):
    """A version is older than what the state still holds; `oldest` is the oldest one that can be read."""

    def __init__(self, oldest: int):
        super().__init__(f"version {oldest} is the oldest")
        self.oldest = oldest


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A committed version of a job, and the watermark (microseconds) up to which that version has forgotten.

    `time` is the batch's own, in milliseconds. `newest` is the newest committed version: its manifests tell the older ones too.
    """

    version: int
    watermark: int | None
    time: int
    newest: int


class JobHistory:
    """The committed versions of one job as they were at the first look, so that all parts of a query see the same ones."""

    def __init__(self, warehouse: Warehouse, name: str):
        self.name = name
        self._fs = warehouse.fs
        self._paths = warehouse.job(name)
        self._log = JobLog(warehouse.fs, self._paths.log)

    @cached_property
    def record(self) -> JobRecord | None:
        return read_record(self._fs, self._paths)

    @cached_property
    def _committed(self) -> int | None:
        return last_committed(self._fs, self._paths)

    @cached_property
    def newest(self) -> Snapshot | None:
        """The newest version, None before the first commit."""
        return self._snapshot(self.newest_entry)

    @cached_property
    def newest_entry(self) -> LogEntry | None:
        if self._committed is None:
            return None
        return self._log.entry(self._committed) or next(reversed(self._log.entries(self._committed)), None)

    @cached_property
    def entries(self) -> list[LogEntry]:
        """The log of all versions that are kept, oldest first."""
        # Spark remembers only the last hundred commits; what comes before a commit is committed, too.
        return self._log.entries(self._committed) if self._committed is not None else []

    @property
    def oldest(self) -> int | None:
        """The oldest version that is kept."""
        return self.entries[0].version if self.entries else None

    def at_version(self, version: int) -> Snapshot | None:
        if self._committed is None or version > self._committed:
            return None
        return self._snapshot(self._log.entry(version))

    def at_time(self, time: int) -> Snapshot | None:
        """Return the newest version that was committed at a time (milliseconds) or before."""
        return self._snapshot(next((e for e in reversed(self.entries) if e.committed_at <= time), None))

    def _snapshot(self, entry: LogEntry | None) -> Snapshot | None:
        if entry is None or self._committed is None:
            return None
        return Snapshot(entry.version, entry.watermark, entry.committed_at, self._committed)


@dataclass(frozen=True, slots=True)
class VisibleSegments:
    """The segments of a table that hold rows of a version, named from the directory above the buckets.

    All rows of `whole` are seen; of `forgetting` those past the watermark; of `mixed`, which has a `_batch` column, those
    past the watermark of batches up to the version.
    """

    whole: Sequence[Segment] = ()
    forgetting: Sequence[Segment] = ()
    mixed: Sequence[Segment] = ()

    def __bool__(self) -> bool:
        return bool(self.whole or self.forgetting or self.mixed)


def visible_segments(fs: Filesystem, paths: BucketedPaths, snapshot: Snapshot) -> Mapping[str, VisibleSegments]:
    """Return what each table of an operator, or of what a job wrote into a table, holds at a version.

    Raises VersionGone, and FileNotFoundError when a manifest was replaced meanwhile: look again then.
    """
    found: dict[str, dict[str, list[Segment]]] = {}
    for bucket in fs.list(f"{paths.root}/manifests"):
        manifest = _manifest(fs, paths, int(bucket), snapshot)
        for table, segments in manifest.tables.items() if manifest else ():
            groups = found.setdefault(table, {"whole": [], "forgetting": [], "mixed": []})
            for kind, segment in _visible(segments, snapshot):
                groups[kind].append(replace(segment, name=f"{bucket}/{segment.name}"))
    return {table: VisibleSegments(**groups) for table, groups in found.items()}


def _manifest(fs: Filesystem, paths: BucketedPaths, bucket: int, snapshot: Snapshot) -> Manifest | None:
    # Rows know their batch, so even a manifest that is newer than the query tells it: those up to there may be gone by
    # now. A bucket that has only newer ones because it was empty before is empty by the same rule.
    manifest = newest_manifest(fs, paths, bucket, snapshot.newest) or newest_manifest(fs, paths, bucket, _ANY_BATCH)
    if manifest is not None and manifest.oldest > snapshot.version:
        raise VersionGone(manifest.oldest)
    return manifest


def _visible(segments: Sequence[Segment], snapshot: Snapshot) -> Iterator[tuple[str, Segment]]:
    version, watermark = snapshot.version, snapshot.watermark
    for segment in segments:
        forgets = watermark is not None and segment.low is not None and segment.low <= watermark
        if segment.first_batch > version or (segment.until is not None and segment.until <= version):
            continue
        if forgets and segment.high is not None and watermark is not None and segment.high <= watermark:
            continue
        if segment.last_batch > version:
            yield "mixed", segment
        else:
            yield "forgetting" if forgets else "whole", segment
