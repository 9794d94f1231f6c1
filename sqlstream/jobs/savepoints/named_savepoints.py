"""Takes and drops savepoints by name."""

from __future__ import annotations

from sqlstream.errors import UsageError, missing
from sqlstream.jobs import ending
from sqlstream.jobs.savepoints import savepoint_folders
from sqlstream.jobs.savepoints.restored_files import half_restored
from sqlstream.names import problem
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.savepoint_records import Savepoint


def take_savepoint(warehouse: Warehouse, job: str, name: str | None = None, to: str | None = None) -> Savepoint:
    """Take a savepoint of a job's newest version; the job may be running.

    The default name is `<job>-<version>`, with a number appended if it is taken. With `to` the savepoint is a self-contained
    folder there, or below a URI, outside of the warehouse. Raises UsageError when there is no such job, the job has no version
    yet, or a savepoint of the name exists.
    """
    paths = ending.existing(warehouse, job)
    if name is None:
        name = _free_name(warehouse, default_name(warehouse, job, last_committed(warehouse.fs, paths)))
    if (wrong := problem(name)) is not None:
        raise UsageError(f"the name of a savepoint {wrong}")
    return savepoint_folders.take(warehouse, paths.name, name, None if to is None else Warehouse(to))


def default_name(warehouse: Warehouse, job: str, version: int | None) -> str:
    """Return the default name of a savepoint of a version; a savepoint of that name may exist."""
    return f"{warehouse.job(job).name}-{version}"


def _free_name(warehouse: Warehouse, base: str) -> str:
    """Return a name, with a number appended if a savepoint of the name exists."""
    names = {*warehouse.savepoints()}
    numbered = (base if n == 1 else f"{base}-{n}" for n in range(1, len(names) + 2))
    return next(name for name in numbered if name.lower() not in names)


def drop_savepoint(warehouse: Warehouse, name: str) -> None:
    """Delete a savepoint of a warehouse. Raises UsageError when it does not exist, or a restore from it is half done."""
    names = warehouse.savepoints()
    if "/" in name:
        hint = "One that was written with --to is a folder: delete that."
        raise UsageError(f'savepoint "{name}" does not exist in the warehouse', hint=hint)
    if name.lower() not in names:
        raise UsageError(f'savepoint "{name}" does not exist', hint=missing("savepoint", name, names))
    if (job := half_restored(warehouse, name)) is not None:
        hint = "Run the job, which completes it, or start it anew with --fresh. Then drop the savepoint."
        raise UsageError(f'job "{job}" is half restored from savepoint "{name}"', hint=hint)
    savepoint_folders.drop(warehouse, name)
