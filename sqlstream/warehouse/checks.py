"""State checks: conditions on the state of a job, and the results of their last evaluations.

A check is a file of the warehouse, not of its job: it can exist before the job does, and survives a fresh start of the job.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlstream.errors import DamageError
from sqlstream.names import path_name
from sqlstream.units import ProcessingTime
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.paths import JobPaths, Warehouse
from sqlstream.warehouse.records import Record, UnreadableFormat, read_json, read_sealed, write_sealed

# What happens to the job when a check is broken: it stops, or gives a warning.
STOP, WARN = "stop", "warn"
# The result of an evaluation: the query returned no rows, or some, or it failed.
PASSED, BROKEN, ERROR = "passed", "broken", "error"
# The name of the checks that the option 'sqlstream.state.max-rows' makes, one for each operator.
MAX_ROWS = "max-rows"


class StateCheck(Record, frozen=True, omit_defaults=True, tag_field="format", tag=1):
    """A query over the state of a job that must return no rows; it runs after every `every` batches. `action`: STOP or WARN."""

    name: str
    job: str
    operator: str | None
    sql: str
    every: int
    action: str
    created_at: ProcessingTime


class CheckResult(Record, frozen=True, omit_defaults=True, tag_field="format", tag=1):
    """The last evaluation of a check: its version and status, how many rows break it, and the first of them or the error."""

    name: str
    operator: str | None
    condition: str
    every: int
    action: str
    status: str
    version: int
    checked_at: ProcessingTime
    rows: int = 0
    detail: str | None = None


class CheckResults(Record, frozen=True, omit_defaults=True, tag_field="format", tag=1):
    """The last results of the checks of a job."""

    results: tuple[CheckResult, ...] = ()


def checks(warehouse: Warehouse, job: str | None = None) -> Iterator[StateCheck]:
    """Yield the checks of a warehouse, or of one job, in the order of their names; damaged files are left out."""
    for file in sorted(warehouse.fs.list(warehouse.checks)):
        check = _read(warehouse.fs, f"{warehouse.checks}/{file}")
        if check is not None and (job is None or check.job.lower() == job.lower()):
            yield check


def find_check(warehouse: Warehouse, name: str) -> StateCheck | None:
    """Return the check of a name, without regard to case; None if there is none, or its file is damaged."""
    return _read(warehouse.fs, _path(warehouse, name))


def write_check(warehouse: Warehouse, check: StateCheck) -> None:
    """Write a check, in place of the check of its name; it survives a power failure."""
    write_sealed(warehouse.fs, _path(warehouse, check.name), check.to_json(), durable=True)


def drop_check(warehouse: Warehouse, name: str) -> None:
    """Delete the check of a name, if there is one."""
    warehouse.fs.delete(_path(warehouse, name))


def read_results(fs: Filesystem, job: JobPaths) -> tuple[CheckResult, ...]:
    """Return the last results of a job's checks; none if the file is missing or damaged: only messages depend on it."""
    try:
        return read_json(read_sealed(fs, job.checks), CheckResults).results
    except (FileNotFoundError, DamageError, UnreadableFormat):
        return ()


def write_results(fs: Filesystem, job: JobPaths, results: tuple[CheckResult, ...]) -> None:
    """Write the results of a job's checks, in place of the last ones."""
    write_sealed(fs, job.checks, CheckResults(results).to_json())


def _path(warehouse: Warehouse, name: str) -> str:
    return f"{warehouse.checks}/{path_name(name.lower())}.json"


def _read(fs: Filesystem, path: str) -> StateCheck | None:
    try:
        return read_json(read_sealed(fs, path), StateCheck)
    except (FileNotFoundError, DamageError, UnreadableFormat):
        return None
