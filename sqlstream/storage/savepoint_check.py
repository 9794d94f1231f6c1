"""Whether the files of savepoints are as they were written, and what a repair makes of those that are not."""

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
    """What is damaged of a savepoint, and of which job it is; of one of a later version of sqlstream, `unreadable` says so."""

    name: str
    job: str
    damaged: tuple[DamageError, ...]
    unreadable: str | None = None


def check_savepoints(warehouse: Warehouse, job: str | None = None) -> list[SavepointCheckup]:
    """Look at all files of the savepoints of a warehouse, or of those of a job. One without a record may be of any job."""
    warehouse = warehouse.uncached()
    found = []
    for name in sorted(warehouse.savepoints()):
        # It may be dropped meanwhile.
        with contextlib.suppress(FileNotFoundError):
            found.append(check_savepoint(warehouse, name))
    return [one for one in found if job is None or one.job.lower() in ("", job.lower())]


def check_savepoint(warehouse: Warehouse, name: str) -> SavepointCheckup:
    """Look at all files of a savepoint of a warehouse. Raises FileNotFoundError where there is none, or none any more."""
    try:
        savepoint = read_savepoint(warehouse.savepoint(name), name)
    except OtherVersionError as error:
        return SavepointCheckup(name, "", (), unreadable=error.message)
    except DamageError as error:
        return SavepointCheckup(name, "", (error,))
    faults = {error.path: error for error in (*savepoint.faults(), *_contents(savepoint))}
    if faults and not is_savepoint(savepoint.warehouse):
        raise FileNotFoundError(savepoint.warehouse.root)
    return SavepointCheckup(savepoint.record.name, savepoint.record.job, tuple(faults.values()))


def _contents(savepoint: Savepoint) -> Iterator[DamageError]:
    """Yield which files have another content than they were written with."""
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
    """Put files with rows that the job still has in the place of those that are damaged; return what stays damaged.

    Such a file has a name that no other one ever gets. Nothing else of a savepoint is anywhere else.
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
