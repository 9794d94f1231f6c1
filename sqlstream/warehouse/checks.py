"""State checks: what must be true of the state of a job, and what the last look found.

A check is a file of the warehouse, not of its job: it is there before the job, and stays when the job starts anew.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlstream.errors import DamageError
from sqlstream.names import path_name
from sqlstream.units import ProcessingTime
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.paths import JobPaths, Warehouse
from sqlstream.warehouse.records import OtherFormat, Record, read_json, read_sealed, write_sealed

# What follows when a check is broken.
STOP, WARN = "stop", "warn"
# How a look ended: nothing broke the check, something did, or its query failed.
PASSED, BROKEN, ERROR = "passed", "broken", "error"
# The checks of the option 'sqlstream.state.max-rows', one for each operator.
MAX_ROWS = "max-rows"


class StateCheck(Record, frozen=True, omit_defaults=True, tag_field="format", tag=1):
    """A query over the state of a job whose result must be empty, looked at every so many batches."""

    name: str
    job: str
    operator: str | None
    sql: str
    every: int
    action: str
    created_at: ProcessingTime


class CheckResult(Record, frozen=True, omit_defaults=True, tag_field="format", tag=1):
    """What the last look at a check found: at which version, how it ended, how many rows break it, and what they say."""

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
    """Yield the checks of a warehouse, or of a job, by name; one whose file is damaged is left out."""
    for file in sorted(warehouse.fs.list(warehouse.checks)):
        check = _read(warehouse.fs, f"{warehouse.checks}/{file}")
        if check is not None and (job is None or check.job.lower() == job.lower()):
            yield check


def find_check(warehouse: Warehouse, name: str) -> StateCheck | None:
    return _read(warehouse.fs, _path(warehouse, name))


def write_check(warehouse: Warehouse, check: StateCheck) -> None:
    write_sealed(warehouse.fs, _path(warehouse, check.name), check.to_json(), durable=True)


def drop_check(warehouse: Warehouse, name: str) -> None:
    warehouse.fs.delete(_path(warehouse, name))


def read_results(fs: Filesystem, job: JobPaths) -> tuple[CheckResult, ...]:
    """Return the last results of a job's checks; a damaged file says nothing, and nothing but messages depends on it."""
    try:
        return read_json(read_sealed(fs, job.checks), CheckResults).results
    except (FileNotFoundError, DamageError, OtherFormat):
        return ()


def write_results(fs: Filesystem, job: JobPaths, results: tuple[CheckResult, ...]) -> None:
    write_sealed(fs, job.checks, CheckResults(results).to_json())


def _path(warehouse: Warehouse, name: str) -> str:
    return f"{warehouse.checks}/{path_name(name.lower())}.json"


def _read(fs: Filesystem, path: str) -> StateCheck | None:
    try:
        return read_json(read_sealed(fs, path), StateCheck)
    except (FileNotFoundError, DamageError, OtherFormat):
        return None
