"""Checks of the files of jobs and savepoints against what was written, and repairs of damaged ones."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from sqlstream.errors import DamageError, JobError, OtherVersionError
from sqlstream.jobs.savepoints.savepoint_folders import put_file
from sqlstream.storage.joblog import LogEntry
from sqlstream.storage.recovery import Versions, numbers
from sqlstream.storage.snapshot import first_gap
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.records import GONE
from sqlstream.warehouse.savepoint_records import Savepoint, is_savepoint, read_savepoint
from sqlstream.warehouse.status import effective_status

# A running job replaces files while it is looked at: what is missing is looked for again.
_LOOKS = 3


@dataclass(frozen=True)
class Checkup:
    """The result of a check: damaged files of a job, its newest version, and its newest intact version.

    `whole` is -1 for the job's beginning, None if nothing is intact. A job with files of another version of sqlstream is not
    checked: `unreadable` is the message.
    """

    job: str
    damaged: tuple[DamageError, ...]
    newest: int
    whole: int | None
    unreadable: str | None = None


def check_job(warehouse: Warehouse, name: str) -> Checkup:
    """Check all files of a job, including every byte of its segments; the job may be running."""
    try:
        return _check_readable(warehouse.uncached(), name)
    except OtherVersionError as error:
        return Checkup(name, (), -1, None, unreadable=error.message)


def _check_readable(warehouse: Warehouse, name: str) -> Checkup:
    """Check all files of a job. Raises OtherVersionError."""
    damaged: dict[str, DamageError] = {}
    for look in range(_LOOKS):
        versions = Versions(warehouse, name, content=True)
        faults = {error.path: error for error in _every_fault(versions)}
        damaged = {path: error for path, error in faults.items() if look == 0 or path in damaged}
        status = effective_status(warehouse.fs, warehouse.job(name))
        if not damaged or status is None or not status.is_active:
            break
    return Checkup(name, tuple(damaged.values()), versions.newest, _newest_whole(versions))


def _newest_whole(versions: Versions) -> int | None:
    if isinstance(versions.record(), DamageError):
        return None
    return next((version for version in versions.candidates() if not versions.faults(version)), None)


def _every_fault(versions: Versions) -> Iterator[DamageError]:
    fs, paths = versions.fs, versions.paths
    if isinstance(record := versions.record(), DamageError):
        yield record
    for path in (paths.status, paths.lock, paths.begun):
        if fs.exists(path) and (error := versions.record_fault(path)):
            yield error
    newest = versions.newest
    if newest >= 0:
        yield from versions.faults(newest)
    yield from versions.commit_faults(numbers(fs, paths.commits))
    yield from _log_faults(versions, newest)
    yield from _state_faults(versions, newest)
    outputs = [f"{paths.output}/{sink}" for sink in fs.list(paths.output)]
    for directory in (f"{versions.inputs}/next", f"{versions.inputs}/read", versions.inputs, *outputs):
        for name in fs.list(directory):
            if name.endswith(".json") and (error := versions.record_fault(f"{directory}/{name}")):
                yield error


def _state_faults(versions: Versions, newest: int) -> Iterator[DamageError]:
    entries = versions.log.entries(newest, faults=[])
    needed = {(directory.root, bucket, name) for entry in entries for directory, bucket, name in versions.named(entry)}
    for directory in versions.directories():
        for bucket in numbers(versions.fs, f"{directory.root}/manifests"):
            for name in versions.fs.list(directory.manifests(bucket)):
                for error in versions.manifest_faults(directory, bucket, name):
                    # A copy of a running job has manifests of batches that were not committed, but not all their files.
                    if error.fault != GONE or (directory.root, bucket, name) in needed:
                        yield error


def _log_faults(versions: Versions, newest: int) -> Iterator[DamageError]:
    faults: list[DamageError] = []
    entries = versions.log.entries(newest, faults=faults)
    yield from faults
    gap = first_gap(entries, newest) if newest >= 0 and not faults else None
    if gap is not None:
        yield versions.log.missing(gap)


def repair_job(warehouse: Warehouse, name: str) -> list[str]:
    """Take a job back to its newest intact version, delete other damaged files, and return sentences that say what was done.

    The caller holds the job's lock. Returns nothing for an intact job. Raises JobError when no version is intact.
    """
    warehouse = warehouse.uncached()
    Versions(warehouse, name).leave_checkpoint()
    checkup = check_job(warehouse, name)
    if not checkup.damaged:
        return []
    if checkup.whole is None:
        raise JobError(
            f'job "{name}" cannot be repaired: no version of it is intact',
            detail="\n".join(f"{error.message}. {error.detail or ''}".rstrip() for error in checkup.damaged),
            hint="Restore the files from a backup, or start the job anew with --fresh: then it reads all its input again.",
        )
    versions = Versions(warehouse, name, content=True)
    done = []
    if checkup.whole < checkup.newest:
        versions.go_back(checkup.whole)
        done.append(_what_is_repeated(versions, checkup))
    else:
        versions.tidy(checkup.whole)
    for path in _remains(versions, checkup.whole):
        warehouse.fs.delete(path)
    oldest = _shorten_log(versions, checkup.whole)
    if oldest:
        done.append(f"Versions before {oldest} can no longer be queried.")
    return done or ["What was damaged is no longer needed, and was removed."]


def _what_is_repeated(versions: Versions, checkup: Checkup) -> str:
    back = (
        f"It goes back to version {checkup.whole}"
        if checkup.whole is not None and checkup.whole >= 0
        else "It begins anew"
    )
    first = (checkup.whole or 0) + 1 if checkup.whole != -1 else 0
    batches = f"batch {first}" if first == checkup.newest else f"batches {first} to {checkup.newest}"
    if not versions.is_repeatable:
        return f"{back}: the rows of {batches} are lost. Insert them again."
    return f"{back}: the next run repeats {batches}."


def _remains(versions: Versions, whole: int) -> list[str]:
    """Return the damaged files that no remaining version needs."""
    needed = {error.path for error in versions.faults(whole)}
    again = Versions(versions.warehouse, versions.name, content=True)
    return [error.path for error in _every_fault(again) if error.path not in needed]


def _shorten_log(versions: Versions, newest: int) -> int | None:
    """Cut the log off before its last gap; return the oldest version left, None if nothing was cut."""
    entries = versions.log.entries(newest) if newest >= 0 else []
    tail: list[LogEntry] = []
    for entry in reversed(entries):
        if tail and entry.version != tail[-1].version - 1:
            break
        tail.append(entry)
    if not tail or len(tail) == len(entries):
        return None
    versions.log.keep_from(tail[-1].version)
    return tail[-1].version


@dataclass(frozen=True)
class SavepointCheckup:
    """The result of a check: a savepoint, its job (empty: not known), and its damaged files.

    A savepoint with files of another version of sqlstream is not checked: `unreadable` is the message. If its own record has
    been read, its job is known.
    """

    name: str
    job: str
    damaged: tuple[DamageError, ...]
    unreadable: str | None = None


def check_savepoints(warehouse: Warehouse, job: str | None = None) -> list[SavepointCheckup]:
    """Check all files of the savepoints of a warehouse, or of one job; without a readable record, it may be any job's."""
    warehouse = warehouse.uncached()
    checkups = []
    for name in sorted(warehouse.savepoints()):
        # It may be dropped meanwhile.
        with contextlib.suppress(FileNotFoundError):
            checkups.append(check_savepoint(warehouse, name))
    return [one for one in checkups if job is None or one.job.lower() in ("", job.lower())]


def check_savepoint(warehouse: Warehouse, name: str) -> SavepointCheckup:
    """Check all files of a savepoint. Raises FileNotFoundError where there is none, or it is dropped meanwhile."""
    job = ""
    try:
        savepoint = read_savepoint(warehouse.savepoint(name), name)
        job = savepoint.record.job
        faults = {error.path: error for error in (*savepoint.faults(), *_contents(savepoint))}
    except OtherVersionError as error:
        return SavepointCheckup(name, job, (), unreadable=error.message)
    except DamageError as error:
        return SavepointCheckup(name, job, (error,))
    if faults and not is_savepoint(savepoint.warehouse):
        raise FileNotFoundError(savepoint.warehouse.root)
    return SavepointCheckup(savepoint.record.name, savepoint.record.job, tuple(faults.values()))


def _contents(savepoint: Savepoint) -> Iterator[DamageError]:
    """Yield the errors of files whose content differs from what was written."""
    versions = Versions(savepoint.warehouse, savepoint.record.job, content=True)
    if isinstance(record := versions.record(), DamageError):
        yield record
    yield from versions.faults(savepoint.record.version)
    output, inputs = f"{versions.paths.output}/", f"{versions.inputs}/"
    for name in savepoint.record.files:
        path = f"{savepoint.warehouse.root}/{name}"
        is_remembered = path.startswith(inputs) and "/" not in path.removeprefix(inputs)
        is_record = path.endswith(".json") and (is_remembered or path.startswith(output))
        if is_record and (error := versions.record_fault(path)):
            yield error


def repair_savepoint(warehouse: Warehouse, name: str) -> list[DamageError]:
    """Replace damaged segments by the job's segments of the same names; return what stays damaged.

    A segment's name is never used again. Nothing else of a savepoint has a second copy.
    """
    folder = warehouse.savepoint(name)
    if not is_savepoint(folder):
        # It was dropped meanwhile.
        return []
    for error in check_savepoint(warehouse, name).damaged:
        own = error.path.removeprefix(f"{folder.root}/")
        # What is not there, either, stays missing; what is damaged in the same way is found below.
        with contextlib.suppress(FileNotFoundError):
            if own.endswith(".parquet") and warehouse.fs.size(f"{warehouse.root}/{own}"):
                warehouse.fs.delete(error.path)
                put_file(warehouse.fs, f"{warehouse.root}/{own}", folder.fs, error.path, link=True)
    return list(check_savepoint(warehouse.uncached(), name).damaged)
