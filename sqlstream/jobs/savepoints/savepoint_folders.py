"""Taking savepoints: a committed version of a job in a folder of its own.

A savepoint is a warehouse with one job and one version: what that version needs, and nothing else. In the warehouse of the job
its segments are links to the job's (copies in stores), so taking one costs little, and retention of the job does not affect it.
The job runs on meanwhile: files of a committed version never change. If they are deleted while they are being linked, the
next version is taken.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from copy import copy
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from sqlstream.errors import DamageError, JobError, UsageError
from sqlstream.storage.descriptors import Descriptors
from sqlstream.storage.joblog import JobLog
from sqlstream.storage.manifests import manifest_name, read_manifest
from sqlstream.storage.metrics import OperatorMetrics
from sqlstream.units import SECOND, Duration, ProcessingTime, now
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.jobs import read_record
from sqlstream.warehouse.leases import check_held, lock_job
from sqlstream.warehouse.locks import SessionLock
from sqlstream.warehouse.paths import SAVEPOINT, BucketedPaths, JobPaths, Warehouse
from sqlstream.warehouse.records import GONE, damage, sealed
from sqlstream.warehouse.savepoint_records import Savepoint, SavepointRecord, is_savepoint, write_savepoint
from sqlstream.warehouse.stores import StoreFilesystem

# How often a version may be deleted while it is being linked, before that is an error.
_ATTEMPTS = 10
# A savepoint that has not been completed for so long never will be.
_LEFTOVER = Duration(3600 * SECOND)
# The prefix of folders that are being filled, or deleted.
_UNNAMED = ".taking-"
# A file in a folder that is being filled. It claims the folder for one process, and its time says since when.
_BEGUN = "begun"


def take(warehouse: Warehouse, job: str, name: str, target: Warehouse | None = None) -> Savepoint:
    """Take a savepoint of a job's newest version: in its warehouse, or as copies of all files in an empty folder `target`.

    The job may be running. Raises UsageError when the job has no version yet, the name is taken, `target` is not empty, or
    another process takes a savepoint of the name; DamageError; and JobError when another process took the folder over.
    """
    folder = target or warehouse.savepoint(name)
    if target is not None and folder.fs.entries(folder.root):
        raise _not_empty(folder)
    if is_savepoint(folder):
        raise _name_exists(name)
    if target is None:
        # Into another folder a savepoint is taken of a warehouse that cannot be written, too.
        _remove_leftovers(warehouse)
    if target is not None or folder.fs.local:
        return _take(warehouse, job, name, folder, is_outside=target is not None)
    with _alone(warehouse, folder, name):
        if is_savepoint(folder):
            raise _name_exists(name)
        # What a process has left that died.
        _empty(folder)
        return _take(warehouse, job, name, folder, is_outside=False)


def _take(warehouse: Warehouse, job: str, name: str, folder: Warehouse, *, is_outside: bool) -> Savepoint:
    # Where a folder can get its name at once, nobody ever sees half of one.
    named_last = not is_outside and folder.fs.local
    before: int | None = None
    for attempt in range(_ATTEMPTS):
        version = last_committed(warehouse.fs, warehouse.job(job))
        if version is None:
            raise UsageError(f'job "{job}" has no version yet', hint="It has one once it has committed a batch.")
        draft = _beside(folder) if named_last else folder
        if not draft.fs.claim(f"{draft.root}/{_BEGUN}"):
            # Another process has begun meanwhile.
            raise _not_empty(draft)
        try:
            record = _SavepointWriter(warehouse, job, name, version, draft, links=not is_outside).run()
            if named_last:
                _give_name(draft, folder, name)
                folder.fs.make_durable([folder.root])
            return Savepoint(folder, record, name)
        except (FileNotFoundError, DamageError) as error:
            _empty(draft)
            gone = isinstance(error, FileNotFoundError) or error.fault == GONE
            if not gone or version == before or attempt == _ATTEMPTS - 1:
                raise _as_damage(error) from error
            before = version
        except BaseException:
            _empty(draft)
            raise
    raise AssertionError("unreachable")


def _beside(folder: Warehouse) -> Warehouse:
    """Return a new folder beside the folder of a savepoint, for a savepoint that has no name yet, or no longer."""
    target = copy(folder)
    target.root = f"{folder.root.rpartition('/')[0]}/{_UNNAMED}{uuid4().hex}"
    return target


def _give_name(draft: Warehouse, folder: Warehouse, name: str) -> None:
    """Give a savepoint on a local disk its name. Raises UsageError when there is one of the name by now."""
    while not draft.fs.move_tree(draft.root, folder.root):
        if is_savepoint(folder):
            raise _name_exists(name)
        # What a process left that died while it dropped one.
        rest = _beside(folder)
        with suppress(FileNotFoundError):
            folder.fs.move_tree(folder.root, rest.root)
        if is_savepoint(rest) and rest.fs.move_tree(rest.root, folder.root):
            # Another process has given it the name between the two looks.
            raise _name_exists(name)
        rest.fs.delete_tree(rest.root)


def _not_empty(folder: Warehouse) -> UsageError:
    return UsageError(f'the folder "{folder.root}" is not empty', hint="A savepoint needs a folder of its own.")


@contextmanager
def _alone(warehouse: Warehouse, folder: Warehouse, name: str) -> Iterator[None]:
    """Let one process at a time take or drop a savepoint of a name in a store. Raises UsageError when another one does.

    The lease of a process that died is taken over.
    """
    if not isinstance(folder.fs, StoreFilesystem):
        yield
        return
    with SessionLock.open(warehouse) as session:
        try:
            lease = lock_job(folder.fs, _lock_paths(folder), session, patience=0)
        except UsageError as error:
            hint = "Wait until it is done, or give this one another name."
            raise UsageError(f'another process is taking or dropping savepoint "{name}"', hint=hint) from error
        try:
            yield
        finally:
            lease.release()


def _lock_paths(folder: Warehouse) -> JobPaths:
    """Return where the lease of a savepoint is."""
    return JobPaths(folder.root)


def _empty(folder: Warehouse) -> None:
    """Empty a folder, unless it may belong to another process by now."""
    try:
        check_held(_lock_paths(folder))
    except JobError:
        return
    if folder.fs.local:
        folder.fs.delete_tree(folder.root)
        return
    lease = _lock_paths(folder).lock
    folder.fs.delete_all([path for path in folder.fs.walk(folder.root) if path != lease])


def _name_exists(name: str) -> UsageError:
    hint = f'Give it another name, or drop that one first: sqlstream drop --savepoint "{name}".'
    return UsageError(f'savepoint "{name}" exists already', hint=hint)


def _as_damage(error: FileNotFoundError | DamageError) -> DamageError:
    return error if isinstance(error, DamageError) else damage(str(error.filename or error), GONE)


def _remove_leftovers(warehouse: Warehouse) -> None:
    """Delete folders of processes that died while they took or dropped savepoints."""
    fs, folder = warehouse.fs, f"{warehouse.root}/savepoints"
    for name in fs.entries(folder) if fs.local else ():
        written = [f.modified for f in fs.infos(f"{folder}/{name}")]
        if name.startswith(_UNNAMED) and max(written, default=ProcessingTime(0)) < now() - _LEFTOVER:
            fs.delete_tree(f"{folder}/{name}")


class _SavepointWriter:
    """Puts one version of a job into a folder."""

    def __init__(self, warehouse: Warehouse, job: str, name: str, version: int, folder: Warehouse, *, links: bool):
        self._warehouse, self._name, self._version, self._folder = warehouse, name, version, folder
        self._paths, self._target = warehouse.job(job), folder.job(job)
        self._links = links
        self._files: dict[str, int] = {}
        # The files that have no other name.
        self._own: list[str] = []
        self._rows = self._bytes = 0

    def run(self) -> SavepointRecord:
        """Put the version into the folder. Raises FileNotFoundError or DamageError when the version was deleted meanwhile."""
        fs, paths, target, version = self._warehouse.fs, self._paths, self._target, self._version
        record = read_record(fs, paths)
        if record is None:
            raise damage(paths.record, GONE)
        entry = JobLog(fs, paths.log).entry(version)
        if entry is None:
            raise JobLog(fs, paths.log).missing(version)
        self._write(target.record, sealed(msgspec.json.format(record.to_json(), indent=2)))
        entry = replace(
            entry,
            operators={name: self._put_operator(name, metrics) for name, metrics in entry.operators.items()},
            results={table: self._put_table(table, name) for table, name in entry.results.items()},
        )
        self._put_positions(max((s.sequence for s in entry.sources.values()), default=-1))
        self._put_output()
        self._write(JobLog(self._folder.fs, target.log).path(version), sealed(entry.to_json()))
        self._write(f"{target.commits}/{version}", fs.read_text(f"{paths.commits}/{version}"))
        savepoint_record = SavepointRecord(
            name=self._name,
            job=record.job,
            job_created_at=record.created_at,
            version=version,
            taken_at=now(),
            committed_at=entry.committed_at,
            watermark=entry.watermark,
            rows=self._rows,
            bytes=self._bytes,
            files=self._files,
        )
        # A savepoint may be all that is left of a job. What is linked is as safe from a power cut as the job's batches are.
        self._folder.fs.make_durable(self._own)
        self._check_alone()
        if not self._folder.fs.exists(f"{self._folder.root}/{_BEGUN}"):
            # Another process took it for what a dead one has left.
            raise JobError(f'savepoint "{self._name}" was not completed in time', hint="Take it again.")
        write_savepoint(self._folder, savepoint_record)
        self._folder.fs.delete(f"{self._folder.root}/{_BEGUN}")
        return savepoint_record

    def _put_operator(self, name: str, metrics: OperatorMetrics) -> OperatorMetrics:
        """Add the state of an operator, and return its metrics, which name the manifests."""
        at, to = self._paths.operator(name), self._target.operator(name)
        buckets = {
            bucket: replace(one, manifest=self._put_manifest(at, to, bucket, one.manifest))
            for bucket, one in metrics.buckets.items()
        }
        return replace(metrics, buckets=buckets)

    def _put_table(self, table: str, manifest: str) -> str:
        at, to = (w.table(table).job(self._paths.name) for w in (self._warehouse, self._folder))
        return self._put_manifest(at, to, 0, manifest)

    def _put_manifest(self, at: BucketedPaths, to: BucketedPaths, bucket: int, name: str) -> str:
        """Add a bucket, and return the name of its manifest.

        Segments that only older versions read are left out, so the manifest is another one and gets another name: caches identify
        manifests by their names.
        """
        manifest = read_manifest(self._warehouse.fs, f"{at.manifests(bucket)}/{name}")
        tables = {t: tuple(s for s in segments if s.until is None) for t, segments in manifest.tables.items()}
        oldest = max(manifest.oldest, self._version)
        manifest = replace(manifest, tables=tables, history=manifest.history[-1:], oldest=oldest)
        for segment in (s for segments in tables.values() for s in segments):
            self._put(f"{at.data(bucket)}/{segment.name}", f"{to.data(bucket)}/{segment.name}", segment.bytes)
            self._rows, self._bytes = self._rows + segment.rows, self._bytes + segment.bytes
        name = manifest_name(manifest.batch)
        self._write(f"{to.manifests(bucket)}/{name}", sealed(manifest.to_json()))
        return name

    def _put_positions(self, last: int) -> None:
        """Add the read positions up to the descriptor `last`: the newest fold, the descriptors after it, and files of sources."""
        fs, at, to = self._warehouse.fs, self._paths.splits, self._target.splits
        for name in _positions(fs, at, last):
            self._put(f"{at}/{name}", f"{to}/{name}", fs.size(f"{at}/{name}"))

    def _put_output(self) -> None:
        """Add the job's records, up to the version, of its sinks outside of the warehouse."""
        fs, at, to = self._warehouse.fs, self._paths.output, self._target.output
        for name in _outputs(fs, at, self._version):
            # Some of these are written again in their place.
            self._write(f"{to}/{name}", fs.read_text(f"{at}/{name}"))

    def _put(self, source: str, target: str, size: int) -> None:
        self._files[target.removeprefix(f"{self._folder.root}/")] = size
        put_file(self._warehouse.fs, source, self._folder.fs, target, link=self._links)
        if not self._links:
            self._own.append(target)

    def _check_alone(self) -> None:
        """Raise JobError when another process may take a savepoint of the name by now."""
        try:
            check_held(_lock_paths(self._folder))
        except JobError as error:
            hint = "Take it again, unless there is one of this name by now."
            raise JobError(
                f'savepoint "{self._name}" was not completed in time', detail=error.detail, hint=hint
            ) from error

    def _write(self, target: str, text: str) -> None:
        self._check_alone()
        self._files[target.removeprefix(f"{self._folder.root}/")] = len(text.encode())
        self._folder.fs.write_text_atomic(target, text)
        self._own.append(target)


def _positions(fs: Filesystem, at: str, last: int) -> list[str]:
    """Return the files with the read positions up to the descriptor `last`, and files that sources have received or remember.

    They are paths below `at`, the folder of positions.
    """
    descriptors = Descriptors(fs, at)
    folded = [name for name in descriptors.folds() if descriptors.folded_to(name) <= last]
    first = descriptors.folded_to(folded[-1]) + 1 if folded else 0
    # What they have received and what they remember, whatever it is.
    # Some may be being written.
    written = (f for f in fs.walk(at) if not (f.rpartition("/")[2].startswith(".") or f.endswith(".tmp")))
    others = [f for f in written if f.startswith(f"{at}/received/") or _is_remembered(f.removeprefix(f"{at}/"))]
    names = [*folded[-1:], *descriptors.packs(), *(f.removeprefix(f"{at}/") for f in others)]
    present = descriptors.numbers()
    needed = [f"{number:010d}.json" for number in range(first, last + 1)]
    if not present and not folded:
        # Rows that stood in a statement.
        needed = []
    return [*names, *(f"next/{name}" for name in needed)]


def _outputs(fs: Filesystem, at: str, version: int) -> list[str]:
    """Return a job's records, up to a version, of its sinks outside of the warehouse, below the folder of output."""
    names = []
    for sink in fs.list(at):
        for info in fs.files(f"{at}/{sink}"):
            number = info.name.removesuffix(".json")
            if not number.isdigit() or int(number) <= version:
                names.append(f"{sink}/{info.name}")
    return names


def is_as_now(warehouse: Warehouse, savepoint: Savepoint) -> bool:
    """Return whether a savepoint taken now would have the same read positions and records of sinks as this one.

    The job must be at the savepoint's version, and not run. It may have received rows since then, or begun a batch.
    """
    fs, record, folder = warehouse.fs, savepoint.record, savepoint.warehouse
    paths, saved = warehouse.job(record.job), folder.job(record.job)
    entry = JobLog(fs, paths.log).entry(record.version)
    if entry is None:
        return False
    positions = _positions(fs, paths.splits, max((s.sequence for s in entry.sources.values()), default=-1))
    copies = {f"{paths.splits}/{name}": f"{saved.splits}/{name}" for name in positions}
    # These are written again in their place.
    changing = {f"{paths.splits}/{name}": f"{saved.splits}/{name}" for name in positions if _is_remembered(name)}
    changing |= {f"{paths.output}/{n}": f"{saved.output}/{n}" for n in _outputs(fs, paths.output, record.version)}
    for path, copy_of_it in (copies | changing).items():
        if record.files.get(copy_of_it.removeprefix(f"{folder.root}/")) != fs.size(path):
            return False
    return all(fs.read_text(path) == folder.fs.read_text(copy_of_it) for path, copy_of_it in changing.items())


def _is_remembered(name: str) -> bool:
    """Return whether a file beside the descriptors is a source's memory, by its name below their folder."""
    return name.endswith(".json") and "/" not in name and not Descriptors.is_fold(name)


def put_file(fs: Filesystem, source: str, other: Filesystem, target: str, *, link: bool) -> None:
    """Link or copy a file that never changes. Raises FileNotFoundError."""
    if link:
        fs.link(source, target)
        return
    with fs.open_bytes(source) as file, other.create(target) as copy:
        shutil.copyfileobj(file, copy)


def drop(warehouse: Warehouse, name: str) -> None:
    """Delete a savepoint of a warehouse, if there is one. Raises UsageError when another process takes or drops it."""
    folder = warehouse.savepoint(name)
    if folder.fs.local:
        # Nobody ever sees half of it, and another one may have the name at once.
        unnamed = _beside(folder)
        with suppress(FileNotFoundError):
            folder.fs.move_tree(folder.root, unnamed.root)
        unnamed.fs.delete_tree(unnamed.root)
        return
    with _alone(warehouse, folder, name):
        # Without its record it is none any more.
        folder.fs.delete(f"{folder.root}/{SAVEPOINT}")
        _empty(folder)
