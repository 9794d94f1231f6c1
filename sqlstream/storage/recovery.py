"""Recovery: a job returns to its newest intact version.

All that a job needs to resume from a version is written before its commit. So when a power failure took some of the newest files,
an older version has all of its own. The batches after it are repeated, and their results replace the first ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from sqlstream.errors import DamageError
from sqlstream.storage.begun import BegunBatch, is_of_finished, read_begun, write_begun
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

# A power failure takes what was written shortly before: segments of this many versions are checked byte by byte.
_LATEST = 10


def numbers(fs: Filesystem, directory: str, ending: str = "") -> list[int]:
    """Return the files of a directory that are named by numbers, without `ending`, as sorted numbers."""
    names = (name.removesuffix(ending) for name in fs.list(directory) if name.endswith(ending))
    return sorted(int(name) for name in names if name.isdigit())


@dataclass
class Versions:
    """The versions of a job, and the damage to the files that each needs; with `content`, every byte of segments is checked."""

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
        """The newest version that was ever committed, -1 before the first."""
        status = read_status(self.fs, self.paths)
        version = status.version if status is not None else None
        return max([*numbers(self.fs, self.paths.commits), -1 if version is None else version, -1])

    def candidates(self) -> Iterator[int]:
        """Yield the versions that the job may return to, the newest first; -1 is its beginning."""
        commits = numbers(self.fs, self.paths.commits)
        oldest = commits[0] if commits else 0
        yield from range(self.newest, oldest - 1, -1)
        # Input whose descriptors are folded is not read again.
        if oldest == 0 and not self._descriptors.folds():
            yield -1

    def entry(self, version: int) -> LogEntry | DamageError:
        """Return the log's entry of a version, or the error that explains why there is none."""
        try:
            return self.log.entry(version) or self.log.missing(version)
        except DamageError as error:
            return error

    def faults(self, version: int) -> list[DamageError]:
        """Return the errors that keep the job from resuming after a version; none for -1."""
        if version < 0:
            return []
        errors = self.commit_faults([version])
        entry = self.entry(version)
        if isinstance(entry, DamageError):
            return [*errors, entry]
        for paths, bucket, name in self.named(entry):
            errors += self.manifest_faults(paths, bucket, name)
        return [*errors, *self._input_faults(entry)]

    def commit_faults(self, versions: Iterable[int]) -> list[DamageError]:
        """Return an error for each damaged commit."""
        paths = [f"{self.paths.commits}/{version}" for version in versions]
        return [damage(path, fault) for path in paths if (fault := commit_fault(self.fs, path))]

    def named(self, entry: LogEntry) -> Iterator[tuple[BucketedPaths, int, str]]:
        """Yield the manifests that an entry names, as (directory of the operator or table, bucket, name)."""
        for operator in entry.operators:
            for bucket, name in entry.state_manifests(operator).items():
                yield self.paths.operator(operator), bucket, name
        for table, name in entry.results.items():
            yield self.warehouse.table(table).job(self.name), 0, name

    def manifest(self, path: str) -> Manifest | DamageError:
        """Return the manifest in a file, or the error that explains why there is none."""
        if path not in self._manifests:
            try:
                self._manifests[path] = read_manifest(self.fs, path)
            except FileNotFoundError:
                self._manifests[path] = damage(path, GONE)
            except DamageError as error:
                self._manifests[path] = error
        return self._manifests[path]

    def manifest_faults(self, paths: BucketedPaths, bucket: int, name: str) -> list[DamageError]:
        """Return the errors of a manifest and of the segments that it names."""
        manifest = self.manifest(f"{paths.manifests(bucket)}/{name}")
        if isinstance(manifest, DamageError):
            return [manifest]
        errors = []
        for segment in (s for segments in manifest.tables.values() for s in segments):
            path = f"{paths.data(bucket)}/{segment.name}"
            if path not in self._segments:
                content = self.content or segment.last_batch > self.newest - _LATEST
                fault = segment_fault(self.fs, path, segment, content=content)
                self._segments[path] = damage(path, fault) if fault else None
            errors.append(self._segments[path])
        return [error for error in errors if error is not None]

    # -- what was read

    @property
    def inputs(self) -> str:
        """The folder of the job's positions."""
        return f"{self.paths.root}/splits"

    @property
    def _descriptors(self) -> Descriptors:
        return Descriptors(self.fs, self.inputs)

    def descriptor(self, sequence: int) -> str:
        """Return the path of a descriptor that is not folded."""
        return self._descriptors.path(sequence)

    def record_fault(self, path: str) -> DamageError | None:
        """Return the error of a sealed record, None if it is intact."""
        try:
            read_sealed(self.fs, path)
        except FileNotFoundError:
            return damage(path, GONE)
        except DamageError as error:
            return error
        return None

    def _input_faults(self, entry: LogEntry) -> list[DamageError]:
        """Return the errors of descriptors that a version has read: without these, their input would be read again."""
        descriptors = self._descriptors
        present, folded = descriptors.numbers(), descriptors.folds()
        first = descriptors.folded_to(folded[-1]) + 1 if folded else 0
        if not present and not folded and not self.fs.exists(self.paths.begun):
            # It does not run on Spark.
            return []
        errors = [self.record_fault(f"{self.inputs}/{name}") for name in folded[-1:]]
        errors += [self.record_fault(self.descriptor(sequence)) for sequence in range(first, entry.sequence + 1)]
        return [error for error in errors if error is not None]

    # -- going back

    def settle(self) -> list[DamageError]:
        """Prepare a job to resume: when a power failure damaged its newest files, return to the newest intact version.

        Returns the errors of the damaged files. Raises DamageError for other damage, or when batches cannot be repeated.
        """
        self.leave_checkpoint()
        faults: list[DamageError] = []
        for version in self.candidates():
            errors = self.faults(version)
            if not errors:
                break
            faults += errors
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
        """Convert the checkpoint of Spark in the folder of a job of an earlier version of sqlstream, if there is one."""
        leave_checkpoint(self.fs, self.paths, max(numbers(self.fs, self.paths.commits), default=-1) + 1)

    def tidy(self, version: int) -> None:
        """Delete damaged records after a version that a resumed job would trust: descriptors, a begun batch, outputs."""
        is_intact = self._forget_inputs(version)
        self._settle_begun(version, is_intact=is_intact)
        for sink in self.fs.list(self.paths.output):
            directory = f"{self.paths.output}/{sink}"
            if any(self.record_fault(f"{directory}/{n:010d}.json") for n in numbers(self.fs, directory, ".json")):
                self._take_back(version, begun=is_intact)
                break

    @property
    def is_repeatable(self) -> bool:
        """Whether batches can be repeated: not if all input is VALUES of a statement, which is stored nowhere."""
        record = self.record()
        return not (isinstance(record, JobRecord) and record.scans and all(s.is_values for s in record.scans))

    def record(self) -> JobRecord | DamageError | None:
        """Return the job's record, None if there is none, or the error of a damaged one. Raises OtherVersionError."""
        try:
            return read_record(self.fs, self.paths)
        except DamageError as error:
            return error

    def go_back(self, version: int) -> None:
        """Discard what came after a version. When this is interrupted, the job can still resume."""
        entry = self.entry(version) if version >= 0 else None
        is_same = self._settle_begun(version, is_intact=self._forget_inputs(version))
        self.fs.delete(self.paths.status)
        # When it is interrupted, the job can resume, too: what says that a batch is done goes before what it did.
        for n in reversed(numbers(self.fs, self.paths.commits)):
            if n > version:
                self.fs.delete(f"{self.paths.commits}/{n}")
        self.__dict__.pop("newest", None)
        self.log.forget_after(version)
        self._take_back(version, begun=is_same)
        named = [paths for paths, _, _ in self.named(entry)] if isinstance(entry, LogEntry) else []
        for paths in {*named, *self._directories()}:
            for bucket in self.fs.list(f"{paths.root}/manifests"):
                directory = paths.manifests(int(bucket))
                for name in self.fs.list(directory):
                    if batch_of(name) > version:
                        self.fs.delete(f"{directory}/{name}")

    def _take_back(self, version: int, *, begun: bool) -> None:
        """Discard the records of files that were published after a version.

        With `begun`, the records of the next batch stay: it will be the same. When a sink is opened, it deletes files that have
        neither a record nor a commit.
        """
        for sink in self.fs.list(self.paths.output):
            directory = f"{self.paths.output}/{sink}"
            for n in numbers(self.fs, directory, ".json"):
                path = f"{directory}/{n:010d}.json"
                if n > version + begun or self.record_fault(path):
                    self.fs.delete(path)

    def _directories(self) -> Iterator[BucketedPaths]:
        for operator in self.fs.list(self.paths.state):
            yield BucketedPaths(f"{self.paths.state}/{operator}")
        for table in self.warehouse.tables():
            if self.name.lower() in self.warehouse.writers(table):
                yield self.warehouse.table(table).job(self.name)

    def directories(self) -> list[BucketedPaths]:
        """Return the directories in which the job stores rows: one of each operator, and its own one in each table."""
        return sorted(self._directories(), key=lambda paths: paths.root)

    def _begun(self, version: int) -> BegunBatch | None:
        """Return the batch after a version if it has begun, else None."""
        return read_begun(self.fs, self.paths, version + 1)

    def _settle_begun(self, version: int, *, is_intact: bool) -> bool:
        """Fix what the batch after a version reads, if it has begun and its input is intact; return whether it is fixed."""
        begun = self._begun(version) if is_intact else None
        if begun is None:
            if not is_of_finished(self.fs, self.paths, version):
                self.fs.delete(self.paths.begun)
        else:
            write_begun(self.fs, self.paths, begun)
        return begun is not None

    def _forget_inputs(self, version: int) -> bool:
        """Delete the descriptors after a version from the first damaged one on: their input is looked for again.

        Return whether the descriptors that the next batch has begun to read are intact.
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
