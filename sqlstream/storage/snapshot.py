"""The versions of a job for queries, and the segments that hold the rows of a version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from msgspec import structs

from sqlstream.errors import DamageError, OtherVersionError
from sqlstream.storage.joblog import JobLog, LogEntry
from sqlstream.storage.manifests import Manifest, read_manifest
from sqlstream.storage.segments import Segment
from sqlstream.units import EventTime, ProcessingTime
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.jobs import JobRecord, read_record
from sqlstream.warehouse.paths import BucketedPaths, Warehouse
from sqlstream.warehouse.records import GONE, damage
from sqlstream.warehouse.status import read_status

# A listing may miss a file while others change the directory: a missing file is looked for again.
_LOOKS = 3


class VersionGone(Exception):
    """A version of `job` (in lower case) is older than all versions that can still be read; `oldest` is the oldest of them."""

    def __init__(self, job: str, oldest: int):
        super().__init__(f"version {oldest} of job {job} is the oldest")
        self.job, self.oldest = job, oldest


@dataclass(frozen=True, slots=True)
class JobVersion:
    """A committed version of a job, and the watermark up to which that version has forgotten rows.

    `time` is the processing time of its batch. `newest` is the log's entry of the newest committed version: the manifests that
    it names also answer older versions. `watermarks` has, by name, the operators whose watermark differs from the job's.
    """

    version: int
    watermark: EventTime | None
    time: ProcessingTime
    newest: LogEntry
    watermarks: Mapping[str, EventTime | None] = field(default_factory=dict)

    def watermark_of(self, operator: str) -> EventTime | None:
        """Return the watermark of an operator, by its name; its state may be behind it by a delay."""
        return self.watermarks.get(operator, self.watermark)


class JobHistory:
    """The committed versions of one job as they were at the first look, so that all parts of a query see the same ones.

    `record` saves reading the job's record, for callers that have it.
    """

    def __init__(self, warehouse: Warehouse, name: str, record: JobRecord | None = None):
        self.name = name
        self._fs = warehouse.fs
        self._paths = warehouse.job(name)
        self._log = JobLog(warehouse.fs, self._paths.log)
        self._known_record = record
        # Those that were asked for by their numbers.
        self._versions: dict[int, JobVersion] = {}

    @cached_property
    def record(self) -> JobRecord | None:
        """The job's record, None if there is no job. Raises DamageError and OtherVersionError."""
        return self._known_record or read_record(self._fs, self._paths)

    @property
    def readable_record(self) -> JobRecord | None:
        """The record; None also where it is damaged or of another version of sqlstream, which must not spoil a list of jobs."""
        try:
            return self.record
        except (DamageError, OtherVersionError):
            return None

    @cached_property
    def _committed(self) -> int | None:
        """The newest version. Raises DamageError when the job ended with a newer one."""
        status_version = -1
        for _ in range(_LOOKS):
            status = read_status(self._fs, self._paths)
            committed = last_committed(self._fs, self._paths)
            if status is None or status.version is None or status.version <= (-1 if committed is None else committed):
                return committed
            # Dropping a job deletes its status, and then its commits.
            status_version = status.version
        raise damage(f"{self._paths.commits}/{status_version}", GONE)

    @cached_property
    def newest(self) -> JobVersion | None:
        """The newest version, None before the first commit."""
        return self._snapshot(self.newest_entry)

    @cached_property
    def newest_entry(self) -> LogEntry | None:
        """The log's entry of the newest version, None before the first commit. Raises DamageError when it is missing."""
        return self._entry(self._committed) if self._committed is not None else None

    def _entry(self, version: int) -> LogEntry:
        for _ in range(_LOOKS):
            if entry := self._log.entry(version):
                return entry
        raise self._log.missing(version)

    @cached_property
    def entries(self) -> list[LogEntry]:
        """The log of all retained versions, oldest first. Raises DamageError when it has a gap."""
        return self._entries(0)

    def entries_since(self, version: int) -> list[LogEntry]:
        """Return the log of a version and the versions after it, oldest first, mostly without reading older entries."""
        entries = self._entries(version)
        if not entries or entries[0].version > version:
            # It begins later, or has a gap there.
            entries = [entry for entry in self.entries if entry.version >= version]
        return entries

    def _entries(self, first: int) -> list[LogEntry]:
        # Spark remembers only the last hundred commits; what comes before a commit is committed, too.
        if self._committed is None or first > self._committed:
            return []
        gap = -1
        for _ in range(_LOOKS):
            entries = self._log.entries(self._committed, first)
            missing_version = first_gap(entries, self._committed)
            if missing_version is None:
                return entries
            gap = missing_version
        raise self._log.missing(gap)

    @property
    def oldest(self) -> int | None:
        """The oldest version in the log, None before the first commit."""
        return self.entries[0].version if self.entries else None

    def at_version(self, version: int) -> JobVersion | None:
        """Return a committed version, None if it does not exist or is not retained. Raises DamageError."""
        if self._committed is None or version > self._committed:
            return None
        if (cached := self._versions.get(version)) is not None:
            return cached
        entry = self._log.entry(version) or next((e for e in self.entries if e.version == version), None)
        if (snapshot := self._snapshot(entry)) is not None:
            self._versions[version] = snapshot
        return snapshot

    def at_time(self, time: ProcessingTime) -> JobVersion | None:
        """Return the newest version that was committed at `time` or before, None if there is none."""
        return self._snapshot(next((e for e in reversed(self.entries) if e.committed_at <= time), None))

    def _snapshot(self, entry: LogEntry | None) -> JobVersion | None:
        if entry is None or self.newest_entry is None:
            return None
        return JobVersion(entry.version, entry.watermark, entry.committed_at, self.newest_entry, entry.watermarks)


def first_gap(entries: Sequence[LogEntry], newest: int) -> int | None:
    """Return the first version that is missing from a log up to the newest one, None if none is.

    >>> then = ProcessingTime(0)
    >>> first_gap([LogEntry(v, then, None) for v in (3, 4, 6)], 6), first_gap([LogEntry(2, then, None)], 2), first_gap([], 2)
    (5, None, 2)
    """
    versions = [e.version for e in entries]
    expected = range(versions[0] if versions else newest, newest + 1)
    return next((v for v in expected if v not in set(versions)), None)


@dataclass(frozen=True, slots=True)
class VisibleSegments:
    """The segments of a table that hold rows of a version, with names from the directory above the buckets.

    The version sees all rows of `whole`. Of `forgetting` it sees rows whose time is after its watermark. Of `mixed`, which has a
    column with the batch of each row, it sees rows whose time is after its watermark and whose batch is not after the version.
    """

    whole: Sequence[Segment] = ()
    forgetting: Sequence[Segment] = ()
    mixed: Sequence[Segment] = ()

    def __bool__(self) -> bool:
        return bool(self.whole or self.forgetting or self.mixed)


def visible_segments(
    fs: Filesystem,
    job: str,
    paths: BucketedPaths,
    manifests: Mapping[int, str],
    snapshot: JobVersion,
    replicated: frozenset[str] = frozenset(),
) -> Mapping[str, VisibleSegments]:
    """Return the segments that hold rows of a version of a job, by state table of an operator or by warehouse table.

    `paths` is the directory of the operator's state, or of the rows that the job wrote into one warehouse table. `manifests` are
    the names of the newest version's manifests by bucket: segments record batches, so these manifests answer older versions as
    well. Every bucket has all rows of `replicated` tables: one bucket is read. Raises VersionGone, and DamageError; a manifest
    that is missing may have been replaced meanwhile.
    """
    tables: dict[str, dict[str, list[Segment]]] = {}
    fs.fetch(f"{paths.manifests(bucket)}/{name}" for bucket, name in manifests.items())
    for bucket, name in manifests.items():
        manifest = named_manifest(fs, paths, bucket, name)
        if manifest.oldest > snapshot.version:
            raise VersionGone(job.lower(), manifest.oldest)
        for table, segments in manifest.tables.items():
            if table in replicated and bucket != min(manifests):
                continue
            groups = tables.setdefault(table, {"whole": [], "forgetting": [], "mixed": []})
            for kind, segment in _visible(segments, snapshot):
                groups[kind].append(structs.replace(segment, name=f"{bucket}/{segment.name}"))
    return {table: VisibleSegments(**groups) for table, groups in tables.items()}


def named_manifest(fs: Filesystem, paths: BucketedPaths, bucket: int, name: str) -> Manifest:
    """Return the manifest that a log names. Raises DamageError when it is missing or not intact."""
    path = f"{paths.manifests(bucket)}/{name}"
    try:
        return read_manifest(fs, path)
    except FileNotFoundError:
        raise damage(path, GONE) from None


def _visible(segments: Sequence[Segment], snapshot: JobVersion) -> Iterator[tuple[str, Segment]]:
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
