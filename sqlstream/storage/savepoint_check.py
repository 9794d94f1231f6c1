"""Checks of the files of savepoints against what was written, and repairs from files that the job still has."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from sqlstream.errors import DamageError, OtherVersionError
from sqlstream.storage.recovery import Versions
from sqlstream.storage.savepoints import put_file
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.savepoints import Savepoint, is_savepoint, read_savepoint


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
