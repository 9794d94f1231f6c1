"""Restores of jobs from savepoints; a restore replaces all files of an existing job of the name.

A plan is written first. A process that dies on the way leaves a job without a version; the next start completes the restore, and
never resumes from a half-restored job.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from sqlstream.errors import DamageError, OtherVersionError, UsageError
from sqlstream.jobs.savepoints.savepoint_folders import put_file
from sqlstream.storage.joblog import JobLog, LogEntry
from sqlstream.storage.recovery import Versions
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.jobs import JobRecord, read_record, write_record
from sqlstream.warehouse.leases import check_held
from sqlstream.warehouse.paths import JobPaths, Warehouse
from sqlstream.warehouse.records import Record, UnreadableFormat, read_json, read_sealed, write_sealed
from sqlstream.warehouse.savepoint_records import Savepoint, find_savepoint, is_savepoint


class Restoring(Record, frozen=True, tag_field="format", tag=1):
    """The plan of a restore: the savepoint, by its name or its folder, the record of the job as JSON, and its new table names.

    `tables` maps the tables of the warehouse, by their lower-case names in the savepoint, to their names in the job. `sinks` are
    the indexes, in the plan, of the sinks outside of the warehouse that continue; other sinks see a new job. `overruled` are the
    indexes of the scans that begin where their options say, not at the positions of the savepoint.
    """

    savepoint: str
    record: str
    tables: Mapping[str, str]
    sinks: tuple[int, ...]
    overruled: tuple[int, ...] = ()


# The prefix of folders, below that of the savepoints, with savepoints that were rewritten for a changed query.
DRAFT = ".upgrading-"
# Makes scans, by their indexes in the plan, begin where their options say, not at the restored positions.
StartOver = Callable[[Collection[int]], None]


def check_present(savepoint: Savepoint) -> None:
    """Raise DamageError when a file of a savepoint is missing or has another size."""
    _refuse(savepoint, [*savepoint.faults()])


def check(savepoint: Savepoint) -> None:
    """Raise DamageError unless all files of a savepoint are intact, to the last byte."""
    check_present(savepoint)
    versions = Versions(savepoint.warehouse, savepoint.record.job, content=True)
    _refuse(savepoint, versions.faults(savepoint.record.version))


def _refuse(savepoint: Savepoint, faults: Sequence[DamageError]) -> None:
    if faults:
        first = faults[0]
        more = f", and {len(faults) - 1} more files" if len(faults) > 1 else ""
        raise DamageError(
            first.path,
            f"{first.fault}{more}",
            torn=False,
            detail=f'It belongs to savepoint "{savepoint.location}", which cannot be restored. Nothing was changed.',
            hint="Restore the file from a backup, or take another savepoint.",
        )


def has_rows_of(warehouse: Warehouse, savepoint: Savepoint) -> bool:
    """Return whether a job, at the version of a savepoint, has the same files of state and tables as the savepoint."""
    version, job = savepoint.record.version, savepoint.record.job
    files = _row_files(warehouse, job, version)
    return files is not None and files == _row_files(savepoint.warehouse, job, version)


def _row_files(warehouse: Warehouse, job: str, version: int) -> set[str] | None:
    """Return the files with the rows of a version, below the folder of the warehouse, None where not all are known."""
    versions = Versions(warehouse, job)
    entry = versions.entry(version)
    if isinstance(entry, DamageError):
        return None
    files = set()
    for paths, bucket, name in versions.named(entry):
        manifest = versions.manifest(f"{paths.manifests(bucket)}/{name}")
        if isinstance(manifest, DamageError):
            return None
        current = (s for segments in manifest.tables.values() for s in segments if s.until is None)
        files |= {f"{paths.data(bucket)}/{segment.name}".removeprefix(warehouse.root) for segment in current}
    return files


def restore(warehouse: Warehouse, savepoint: Savepoint, plan: Restoring, start_over: StartOver) -> None:
    """Restore a job from a savepoint, which replaces all that it had. The caller holds the job's lock."""
    record = JobRecord.from_json(plan.record)
    paths = warehouse.job(record.job)
    write_sealed(warehouse.fs, paths.restoring, plan.to_json(), durable=True)
    _lay_out(warehouse, savepoint, plan, record, start_over)


def _read(warehouse: Warehouse, paths: JobPaths) -> Restoring:
    """Return the plan of a job's restore. Raises FileNotFoundError when there is none, DamageError and OtherVersionError."""
    try:
        return read_json(read_sealed(warehouse.fs, paths.restoring), Restoring)
    except UnreadableFormat as other:
        raise other.error(f'how job "{paths.name}" is being restored') from other


@dataclass(frozen=True, slots=True)
class InterruptedRestore:
    """A restore or an upgrade that a process began and did not complete: the next start of the job completes it.

    `record` is the job's record after it. `savepoint` is what it restores, None if that is gone.
    """

    record: JobRecord
    savepoint: Savepoint | None


def interrupted(warehouse: Warehouse, job: str) -> InterruptedRestore | None:
    """Return a job's restore that is not complete, None if there is none or its plan cannot be read."""
    with contextlib.suppress(FileNotFoundError, DamageError, OtherVersionError):
        plan = _read(warehouse, warehouse.job(job))
        record = JobRecord.from_json(plan.record)
        with contextlib.suppress(UsageError):
            return InterruptedRestore(record, find_savepoint(warehouse, plan.savepoint))
        return InterruptedRestore(record, None)
    return None


def half_restored(warehouse: Warehouse, savepoint: str) -> str | None:
    """Return the name of a job whose restore from a savepoint has begun and is not complete, None if there is none."""
    for job in warehouse.jobs():
        paths = warehouse.job(job)
        with contextlib.suppress(FileNotFoundError, DamageError, OtherVersionError):
            plan = _read(warehouse, paths)
            if plan.savepoint.lower() == savepoint.lower() and last_committed(warehouse.fs, paths) is None:
                return job
    return None


def forget_completed(warehouse: Warehouse, job: str) -> None:
    """Delete the plan of a complete restore: its process died after the commit, which comes last, and before deleting the plan.

    Without a plan, delete a savepoint that was rewritten for the job. The caller holds the job's lock.
    """
    fs, paths = warehouse.fs, warehouse.job(job)
    try:
        plan = _read(warehouse, paths)
    except FileNotFoundError:
        fs.delete_tree(draft_folder(warehouse, job).root)
        return
    record, plan_record = read_record(fs, paths), JobRecord.from_json(plan.record)
    # The job that was there before had another time of creation, or there was none. An upgraded job keeps its time of creation;
    # as long as its rewritten savepoint exists, it has not resumed.
    is_made = record is not None and record.created_at == plan_record.created_at
    if is_draft(plan.savepoint):
        is_made = is_made and not is_savepoint(Warehouse(plan.savepoint))
    if is_made and last_committed(fs, paths) is not None:
        fs.delete(paths.restoring)


def _forget_draft(warehouse: Warehouse, plan: Restoring) -> None:
    """Delete the savepoint that was rewritten for a changed query, once it is restored."""
    if is_draft(plan.savepoint):
        warehouse.fs.delete_tree(plan.savepoint)


def draft_folder(warehouse: Warehouse, job: str) -> Warehouse:
    """Return the folder in which a savepoint is rewritten for a changed query of a job."""
    return warehouse.below(f"savepoints/{DRAFT}{warehouse.job(job).root.rpartition('/')[2]}")


def is_draft(location: str) -> bool:
    """Return whether a savepoint's folder is one of savepoints that are rewritten for a changed query."""
    return location.rpartition("/")[2].startswith(DRAFT)


def complete(warehouse: Warehouse, job: str, start_over: StartOver) -> str | None:
    """Complete the restore of a job whose process died; return the savepoint's name or folder, None if there is none to complete.

    Raises UsageError when the savepoint is gone, DamageError when it is damaged.
    """
    paths = warehouse.job(job)
    try:
        plan = _read(warehouse, paths)
    except FileNotFoundError:
        return None
    try:
        savepoint = find_savepoint(warehouse, plan.savepoint)
    except UsageError as gone:
        raise UsageError(
            f'job "{job}" is half restored from savepoint "{plan.savepoint}", which is gone',
            hint="Put it back, restore the job from another one with --from, or start it anew with --fresh.",
        ) from gone
    check(savepoint)
    _lay_out(warehouse, savepoint, plan, JobRecord.from_json(plan.record), start_over)
    _forget_draft(warehouse, plan)
    return plan.savepoint


def _lay_out(
    warehouse: Warehouse, savepoint: Savepoint, plan: Restoring, record: JobRecord, start_over: StartOver
) -> None:
    fs, paths = warehouse.fs, warehouse.job(record.job)
    # A process that was suspended meanwhile may have lost the job to another one.
    check_held(paths)
    _clear(warehouse, paths)
    version = savepoint.record.version
    # There is no older version to go back to after a power cut.
    fs.make_durable(_put_files(warehouse, savepoint, plan, paths))
    if plan.overruled:
        start_over(plan.overruled)
    entry = JobLog(savepoint.warehouse.fs, savepoint.warehouse.job(savepoint.record.job).log).entry(version)
    assert entry is not None
    JobLog(fs, paths.log).append(_renamed(entry, plan.tables), durable=True)
    write_record(fs, paths, record)
    check_held(paths)
    # From here on there is a job with a version.
    commits = savepoint.warehouse.job(savepoint.record.job).commits
    commit = savepoint.warehouse.fs.read_text(f"{commits}/{version}")
    fs.write_text_atomic(f"{paths.commits}/{version}", commit, durable=True)
    fs.delete(paths.restoring)


def _clear(warehouse: Warehouse, paths: JobPaths) -> None:
    """Delete the files of a job, except its lock and the plan of the restore; files that readers open first are deleted first."""
    fs = warehouse.fs
    fs.delete(paths.status)
    fs.delete_tree(paths.commits)
    for table in warehouse.tables():
        if paths.name in warehouse.writers(table):
            fs.delete_tree(warehouse.table(table).job(paths.name).root)
    files = {info.name for info in fs.infos(paths.root)}
    for name in fs.entries(paths.root):
        if not name.startswith("lock") and f"{paths.root}/{name}" != paths.restoring:
            (fs.delete if name in files else fs.delete_tree)(f"{paths.root}/{name}")


def _put_files(warehouse: Warehouse, savepoint: Savepoint, plan: Restoring, paths: JobPaths) -> list[str]:
    """Put a savepoint's files where the job has them, except those that make a version; return the new paths."""
    source, job = savepoint.warehouse, savepoint.warehouse.job(savepoint.record.job)
    moved = {f"{job.output}/{sink}/": f"{paths.output}/{sink}/" for sink in plan.sinks}
    moved |= {f"{job.splits}/": f"{paths.splits}/", f"{job.state}/": f"{paths.state}/", job.begun: paths.begun}
    for old, new in plan.tables.items():
        moved[f"{source.table(old).job(job.name).root}/"] = f"{warehouse.table(new).job(paths.name).root}/"
    inside = savepoint.warehouse.root.startswith(f"{warehouse.root}/")
    put = []
    for name in savepoint.record.files:
        path = f"{source.root}/{name}"
        folder = next((old for old in moved if path.startswith(old)), None)
        if folder is not None:
            put.append(moved[folder] + path.removeprefix(folder))
            put_file(source.fs, path, warehouse.fs, put[-1], link=inside)
    return put


def _renamed(entry: LogEntry, tables: Mapping[str, str]) -> LogEntry:
    """Return the entry with the job's table names; tables that the job does not continue are left out."""
    named = {tables[table].lower(): name for table, name in entry.results.items() if table in tables}
    return replace(entry, results=named)
