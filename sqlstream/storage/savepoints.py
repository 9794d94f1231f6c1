"""Taking savepoints: a committed version of a job in a folder of its own.

A savepoint is a warehouse of one job with one version: what that version needs, and nothing else. In the warehouse of the job its
files of rows are those of the job under a second name, so taking one costs little, and what retention deletes of the job stays
in the savepoint. The job goes on meanwhile: all that is read of a committed version never changes. It may be deleted while it is
being linked; then the next version is taken.
"""

from __future__ import annotations

import shutil
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from sqlstream.errors import DamageError, UsageError
from sqlstream.storage.descriptors import Descriptors
from sqlstream.storage.joblog import JobLog
from sqlstream.storage.manifests import manifest_name, read_manifest
from sqlstream.storage.metrics import OperatorMetrics
from sqlstream.units import SECOND, Duration, ProcessingTime, now
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.jobs import read_record
from sqlstream.warehouse.paths import SAVEPOINT, BucketedPaths, Warehouse
from sqlstream.warehouse.records import GONE, damage, sealed
from sqlstream.warehouse.savepoints import Savepoint, SavepointRecord, is_savepoint, write_savepoint

# So often a version is deleted while it is being linked before that is an error.
_ATTEMPTS = 10
# A savepoint that has not been completed for so long never will be.
_LEFTOVER = Duration(3600 * SECOND)
_TAKING = ".taking-"
# An empty file in a folder that is being filled: its time says since when.
_BEGUN = "begun"


def take(warehouse: Warehouse, job: str, name: str, target: Warehouse | None = None) -> Savepoint:
    """Take a savepoint of the newest version of a job: in its warehouse, or whole and by itself in a folder `target`.

    The job may be running. Raises UsageError when the job has no version yet, or the name is taken, and DamageError.
    """
    folder = target or warehouse.savepoint(name)
    _check_free(folder, name, is_outside=target is not None)
    _remove_leftovers(warehouse)
    before: int | None = None
    for attempt in range(_ATTEMPTS):
        version = last_committed(warehouse.fs, warehouse.job(job))
        if version is None:
            raise UsageError(f'job "{job}" has no version yet', hint="It has one once it has committed a batch.")
        # Where a folder can get its name at once, nobody ever sees half of one.
        named_last = target is None and folder.fs.local
        draft = warehouse.below(f"savepoints/{_TAKING}{uuid4().hex}") if named_last else folder
        try:
            record = _Taking(warehouse, job, name, version, draft, links=target is None).run()
            if named_last and not draft.fs.move_tree(draft.root, folder.root):
                raise _taken(name)
            return Savepoint(folder, record, name)
        except (FileNotFoundError, DamageError) as error:
            draft.fs.delete_tree(draft.root)
            gone = isinstance(error, FileNotFoundError) or error.fault == GONE
            if not gone or version == before or attempt == _ATTEMPTS - 1:
                raise _as_damage(error) from error
            before = version
        except BaseException:
            draft.fs.delete_tree(draft.root)
            raise
    raise AssertionError("unreachable")


def _check_free(folder: Warehouse, name: str, *, is_outside: bool) -> None:
    """Raise UsageError when there can be no savepoint in a folder, because there is something."""
    if is_outside and folder.fs.entries(folder.root):
        raise UsageError(f'the folder "{folder.root}" is not empty', hint="A savepoint needs a folder of its own.")
    if is_savepoint(folder):
        raise _taken(name)
    # What a process has left that died.
    folder.fs.delete_tree(folder.root)


def _taken(name: str) -> UsageError:
    hint = f'Give it another name, or drop that one first: sqlstream drop --savepoint "{name}".'
    return UsageError(f'savepoint "{name}" exists already', hint=hint)


def _as_damage(error: FileNotFoundError | DamageError) -> DamageError:
    return error if isinstance(error, DamageError) else damage(str(error.filename or error), GONE)


def _remove_leftovers(warehouse: Warehouse) -> None:
    """Delete what processes have left that died while they took savepoints."""
    fs, folder = warehouse.fs, f"{warehouse.root}/savepoints"
    for name in fs.entries(folder) if fs.local else ():
        written = [f.modified for f in fs.infos(f"{folder}/{name}")]
        if name.startswith(_TAKING) and max(written, default=ProcessingTime(0)) < now() - _LEFTOVER:
            fs.delete_tree(f"{folder}/{name}")


class _Taking:
    """Puts one version of a job into a folder."""

    def __init__(self, warehouse: Warehouse, job: str, name: str, version: int, folder: Warehouse, *, links: bool):
        self._warehouse, self._name, self._version, self._folder = warehouse, name, version, folder
        self._paths, self._target = warehouse.job(job), folder.job(job)
        self._links = links
        self._files: dict[str, int] = {}
        self._rows = self._bytes = 0

    def run(self) -> SavepointRecord:
        """Raises FileNotFoundError or DamageError when the version was deleted meanwhile."""
        fs, paths, target, version = self._warehouse.fs, self._paths, self._target, self._version
        begun = f"{self._folder.root}/{_BEGUN}"
        self._folder.fs.write_text_atomic(begun, "")
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
        taken = SavepointRecord(
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
        write_savepoint(self._folder, taken)
        self._folder.fs.delete(begun)
        return taken

    def _put_operator(self, name: str, metrics: OperatorMetrics) -> OperatorMetrics:
        """Put the state of an operator in, and return its metrics, which name the manifests."""
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
        """Put a bucket in, and return the name of its manifest.

        What only older versions read is left out, so the manifest is another one, and has another name: there are copies of
        manifests that are believed by their names.
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
        """Put in what was read up to a descriptor: the file that old ones were folded into, and those since."""
        fs, at, to = self._warehouse.fs, self._paths.splits, self._target.splits
        kept = Descriptors(fs, at)
        folded = [name for name in kept.folds() if kept.folded_to(name) <= last]
        first = kept.folded_to(folded[-1]) + 1 if folded else 0
        # What they have received and what they remember, whatever it is.
        others = [f for f in fs.walk(at) if f.startswith(f"{at}/received/") or _is_remembered(f.removeprefix(f"{at}/"))]
        names = [*folded[-1:], *kept.packs(), *(f.removeprefix(f"{at}/") for f in others)]
        present = kept.numbers()
        needed = [f"{number:010d}.json" for number in range(first, last + 1)]
        if not present and not folded:
            # Rows that stood in a statement.
            needed = []
        for name in [*names, *(f"next/{name}" for name in needed)]:
            self._put(f"{at}/{name}", f"{to}/{name}", fs.size(f"{at}/{name}"))

    def _put_output(self) -> None:
        """Put in what the job knows of its sinks outside of the warehouse up to the version."""
        fs, at, to = self._warehouse.fs, self._paths.output, self._target.output
        for sink in fs.list(at):
            for info in fs.files(f"{at}/{sink}"):
                number = info.name.removesuffix(".json")
                if not number.isdigit() or int(number) <= self._version:
                    path = f"{sink}/{info.name}"
                    # Some of these are written again in their place.
                    self._write(f"{to}/{path}", fs.read_text(f"{at}/{path}"))

    def _put(self, source: str, target: str, size: int) -> None:
        self._files[target.removeprefix(f"{self._folder.root}/")] = size
        put_file(self._warehouse.fs, source, self._folder.fs, target, link=self._links)

    def _write(self, target: str, text: str) -> None:
        self._files[target.removeprefix(f"{self._folder.root}/")] = len(text.encode())
        self._folder.fs.write_text_atomic(target, text)


def _is_remembered(name: str) -> bool:
    """Tell whether a file beside the descriptors is what a source remembers, by its name below their folder."""
    return name.endswith(".json") and "/" not in name and not Descriptors.is_fold(name)


def put_file(fs: Filesystem, source: str, other: Filesystem, target: str, *, link: bool) -> None:
    """Give a file that does not change a second name, or copy it. Raises FileNotFoundError."""
    if link:
        fs.link(source, target)
        return
    with fs.open_bytes(source) as file, other.create(target) as copy:
        shutil.copyfileobj(file, copy)


def drop(folder: Warehouse) -> None:
    """Delete a savepoint; without its record it is none any more."""
    folder.fs.delete(f"{folder.root}/{SAVEPOINT}")
    folder.fs.delete_tree(folder.root)
