"""Back to the newest version of a job that is whole.

What a version needs to be gone on from is written before its commit. So when a power cut took some of the newest files, an older
version has all of its own, and the batches after it are repeated: results of a repeated batch replace those of the first time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from sqlstream.catalog import VALUES
from sqlstream.errors import DamageError
from sqlstream.storage.begun import Begun, read_begun, write_begun
from sqlstream.storage.descriptors import Descriptors
from sqlstream.storage.joblog import JobLog, LogEntry
from sqlstream.storage.manifests import Manifest, batch_of, read_manifest
from sqlstream.storage.old_checkpoints import leave_checkpoint
from sqlstream.storage.segments import segment_fault
from sqlstream.warehouse.commits import commit_fault
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.jobs import JobRecord, read_record
from sqlstream.warehouse.paths import BucketedPaths, Warehouse
from sqlstream.warehouse.records import GONE, damage, read_sealed
from sqlstream.warehouse.status import read_status

# A power cut takes what was written shortly before: the content of the files of so many versions is looked at.
_LATEST = 10


def numbers(fs: Filesystem, directory: str, ending: str = "") -> list[int]:
    """Return the numbers by which the files of a directory are called, in order."""
    names = (name.removesuffix(ending) for name in fs.list(directory) if name.endswith(ending))
    return sorted(int(name) for name in names if name.isdigit())


@dataclass
class Versions:
    """The versions of a job, and what is damaged of the files that each needs; with `content`, files of rows are read, too."""

    warehouse: Warehouse
    name: str
    content: bool = False
    _manifests: dict[str, Manifest | DamageError] = field(default_factory=dict)
    _segments: dict[str, DamageError | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fs = self.warehouse.fs
        self.paths = self.warehouse.job(self.name)
        self.log = JobLog(self.fs, self.paths.log)

    @cached_property
    def newest(self) -> int:
        """The newest version that there was, -1 before the first."""
        status = read_status(self.fs, self.paths)
        told = status.version if status is not None else None
        return max([*numbers(self.fs, self.paths.commits), -1 if told is None else told, -1])

    def candidates(self) -> Iterator[int]:
        """Yield the versions that the job may go back to, the newest first; -1 is its beginning."""
        commits = numbers(self.fs, self.paths.commits)
        oldest = commits[0] if commits else 0
        yield from range(self.newest, oldest - 1, -1)
        # What was folded away of the input is not read again.
        if oldest == 0 and not self._descriptors.folds():
            yield -1

    def entry(self, version: int) -> LogEntry | DamageError:
        """Return the log's entry of a version, or why there is none."""
        try:
            return self.log.entry(version) or self.log.missing(version)
        except DamageError as error:
            return error

    def faults(self, version: int) -> list[DamageError]:
        """Return what hinders the job from going on after a version."""
        if version < 0:
            return []
        found = self.commit_faults([version])
        entry = self.entry(version)
        if isinstance(entry, DamageError):
            return [*found, entry]
        for paths, bucket, name in self.named(entry):
            found += self.manifest_faults(paths, bucket, name)
        return [*found, *self._input_faults(entry)]

    def commit_faults(self, versions: Iterable[int]) -> list[DamageError]:
        """Return which commits are damaged."""
        paths = [f"{self.paths.commits}/{version}" for version in versions]
        return [damage(path, fault) for path in paths if (fault := commit_fault(self.fs, path))]

    def named(self, entry: LogEntry) -> Iterator[tuple[BucketedPaths, int, str]]:
        """Yield where the manifests are that an entry names: the directory, the bucket, and the name."""
        for operator in entry.operators:
            for bucket, name in entry.state_manifests(operator).items():
                yield self.paths.operator(operator), bucket, name
        for table, name in entry.results.items():
            yield self.warehouse.table(table).job(self.name), 0, name

    def manifest(self, path: str) -> Manifest | DamageError:
        """Return the manifest in a file, or why there is none."""
        if path not in self._manifests:
            try:
                self._manifests[path] = read_manifest(self.fs, path)
            except FileNotFoundError:
                self._manifests[path] = damage(path, GONE)
            except DamageError as error:
                self._manifests[path] = error
        return self._manifests[path]

    def manifest_faults(self, paths: BucketedPaths, bucket: int, name: str) -> list[DamageError]:
        """Return what is wrong with a manifest and the segments that it names."""
        manifest = self.manifest(f"{paths.manifests(bucket)}/{name}")
        if isinstance(manifest, DamageError):
            return [manifest]
        found = []
        for segment in (s for segments in manifest.tables.values() for s in segments):
            path = f"{paths.data(bucket)}/{segment.name}"
            if path not in self._segments:
                content = self.content or segment.last_batch > self.newest - _LATEST
                fault = segment_fault(self.fs, path, segment, content=content)
                self._segments[path] = damage(path, fault) if fault else None
            found.append(self._segments[path])
        return [error for error in found if error is not None]

    # -- what was read

    @property
    def inputs(self) -> str:
        return f"{self.paths.root}/splits"

    @property
    def _descriptors(self) -> Descriptors:
        return Descriptors(self.fs, self.inputs)

    def descriptor(self, sequence: int) -> str:
        return self._descriptors.path(sequence)

    def record_fault(self, path: str) -> DamageError | None:
        """Return what is wrong with a sealed record."""
        try:
            read_sealed(self.fs, path)
        except FileNotFoundError:
            return damage(path, GONE)
        except DamageError as error:
            return error
        return None

    def _input_faults(self, entry: LogEntry) -> list[DamageError]:
        """Return which descriptors of what a version has read are damaged: without them it would be read again."""
        kept = self._descriptors
        present, folded = kept.numbers(), kept.folds()
        first = kept.folded_to(folded[-1]) + 1 if folded else 0
        if not present and not folded and not self.fs.exists(self.paths.begun):
            # It does not run on Spark.
            return []
        found = [self.record_fault(f"{self.inputs}/{name}") for name in folded[-1:]]
        found += [self.record_fault(self.descriptor(sequence)) for sequence in range(first, entry.sequence + 1)]
        return [error for error in found if error is not None]

    # -- going back

    def settle(self) -> list[DamageError]:
        """Let a job that is about to run go on: when a power cut damaged its newest files, go back to the newest whole version.

        Returns what was damaged. Raises DamageError for damage of another kind, or when batches cannot be repeated.
        """
        self.leave_checkpoint()
        faults: list[DamageError] = []
        for version in self.candidates():
            found = self.faults(version)
            if not found:
                break
            faults += found
        else:
            raise next((e for e in faults if not e.torn), faults[0])
        if not faults:
            self.tidy(version)
            return []
        changed = next((e for e in faults if not e.torn), None)
        if changed is not None or not self.is_repeatable:
            raise changed or faults[0]
        self.go_back(version)
        return faults

    def leave_checkpoint(self) -> None:
        """Take from a job of an earlier version what it needs to go on without Spark's checkpoint."""
        leave_checkpoint(self.fs, self.paths, max(numbers(self.fs, self.paths.commits), default=-1) + 1)

    def tidy(self, version: int) -> None:
        """Remove what is damaged, is not needed any more after a version, and would be believed."""
        kept = self._forget_inputs(version)
        self._settle_begun(version, kept=kept)
        for sink in self.fs.list(self.paths.output):
            directory = f"{self.paths.output}/{sink}"
            if any(self.record_fault(f"{directory}/{n:010d}.json") for n in numbers(self.fs, directory, ".json")):
                self._take_back(version, begun=kept)
                break

    @property
    def is_repeatable(self) -> bool:
        """Whether a batch can be run again: rows that stood in a statement are nowhere else."""
        record = self.record()
        return not (isinstance(record, JobRecord) and record.scans and all(s.table == VALUES for s in record.scans))

    def record(self) -> JobRecord | DamageError | None:
        try:
            return read_record(self.fs, self.paths)
        except DamageError as error:
            return error

    def go_back(self, version: int) -> None:
        """Forget what came after a version."""
        entry = self.entry(version) if version >= 0 else None
        is_same = self._settle_begun(version, kept=self._forget_inputs(version))
        self.fs.delete(self.paths.status)
        # When it is interrupted the job can go on, too: what says that a batch is done goes before what it did.
        for n in reversed(numbers(self.fs, self.paths.commits)):
            if n > version:
                self.fs.delete(f"{self.paths.commits}/{n}")
        self.__dict__.pop("newest", None)
        self.log.forget_after(version)
        self._take_back(version, begun=is_same)
        named = [paths for paths, _, _ in self.named(entry)] if isinstance(entry, LogEntry) else []
        for paths in {*named, *self._places()}:
            for bucket in self.fs.list(f"{paths.root}/manifests"):
                directory = paths.manifests(int(bucket))
                for name in self.fs.list(directory):
                    if batch_of(name) > version:
                        self.fs.delete(f"{directory}/{name}")

    def _take_back(self, version: int, *, begun: bool) -> None:
        """Forget which files were published after a version; with `begun`, not those of the next batch, which stays the same.

        Whoever opens the sink removes files of which there is neither a record nor a commit.
        """
        for sink in self.fs.list(self.paths.output):
            directory = f"{self.paths.output}/{sink}"
            for n in numbers(self.fs, directory, ".json"):
                path = f"{directory}/{n:010d}.json"
                if n > version + begun or self.record_fault(path):
                    self.fs.delete(path)

    def _places(self) -> Iterator[BucketedPaths]:
        for operator in self.fs.list(self.paths.state):
            yield BucketedPaths(f"{self.paths.state}/{operator}")
        for table in self.warehouse.tables():
            if self.name.lower() in self.warehouse.writers(table):
                yield self.warehouse.table(table).job(self.name)

    def places(self) -> list[BucketedPaths]:
        """Return where the job keeps rows: the directories of its operators, and its own in tables."""
        return sorted(self._places(), key=lambda paths: paths.root)

    def _begun(self, version: int) -> Begun | None:
        """Return the batch after a version if it is known what it has begun to read."""
        return read_begun(self.fs, self.paths, version + 1)

    def _settle_begun(self, version: int, *, kept: bool) -> bool:
        """Let the batch after a version read what it has begun to read; return whether that is known, and its input `kept`."""
        begun = self._begun(version) if kept else None
        if begun is None:
            self.fs.delete(self.paths.begun)
        else:
            write_begun(self.fs, self.paths, begun)
        return begun is not None

    def _forget_inputs(self, version: int) -> bool:
        """Remove the descriptors after a version from the first damaged one on: their input is found again.

        Return whether what the next batch has begun to read could stay.
        """
        entry = self.entry(version) if version >= 0 else None
        last = entry.sequence if isinstance(entry, LogEntry) else -1
        begun = self._begun(version)
        later = [n for n in self._descriptors.numbers() if n > last]
        expected = range(last + 1, max([*later, -1 if begun is None else begun.sequence]) + 1)
        first = next((n for n in expected if self.record_fault(self.descriptor(n))), None)
        if first is None:
            return True
        for n in reversed(later):
            if n >= first:
                self.fs.delete(self.descriptor(n))
        return begun is not None and first > begun.sequence
