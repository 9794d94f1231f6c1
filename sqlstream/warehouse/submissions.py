"""What was submitted to a server: scripts, kept in the warehouse, so that whichever server is there lets their jobs go on.

The file of a submission is written once, by the server that took it. What becomes of it is in a second file, which the server
writes that supervises the warehouse.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TypeVar

from sqlstream.errors import DamageError
from sqlstream.units import ProcessingTime
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.paths import JobPaths, Warehouse
from sqlstream.warehouse.records import OtherFormat, Record, read_json, read_sealed, write_sealed

_R = TypeVar("_R", bound=Record)

# How a submission ended: all its jobs have, or one of them with an error.
ENDED, FAILED = "ended", "failed"


class Submission(Record, frozen=True, omit_defaults=True, tag_field="format", tag=1):
    """A script, how it is to be started, and the jobs in it that go on when their process is started again.

    `starts` are jobs of INSERT .. VALUES, which run once, at the first start. `restart` are the options of its restart strategy;
    `bounded` is true where all input ends. `fresh`, `savepoint`, `as_job`, `upgrade` and `migrate` are about the first start.
    Files of the tables that the script declares must lie `within` folders, if there are any.
    """

    id: str
    sql: str
    jobs: tuple[str, ...]
    submitted_at: ProcessingTime
    starts: tuple[str, ...] = ()
    settings: Mapping[str, str] = {}
    tables: Mapping[str, Mapping[str, str]] = {}
    restart: Mapping[str, str] = {}
    bounded: bool = False
    fresh: tuple[str, ...] = ()
    savepoint: str | None = None
    as_job: str | None = None
    upgrade: bool = False
    migrate: str | None = None
    within: tuple[str, ...] = ()


class SubmissionState(Record, frozen=True, omit_defaults=True, tag_field="format", tag=1):
    """What became of a submission: the process that runs it, if one does, and how it ended, if it has.

    `born` tells a process from a later one with its id. With `paused` the server stopped it when it was stopped itself. `stopped`
    are jobs of it that were asked to end.
    """

    pid: int = 0
    host: str = ""
    born: str = ""
    starts: int = 0
    paused: bool = False
    outcome: str | None = None
    error: str | None = None
    stopped: tuple[str, ...] = ()


def leadership(warehouse: Warehouse) -> JobPaths:
    """Return where the lock is of the server that supervises a warehouse: that of a job, in a folder beside those of jobs."""
    return JobPaths(f"{warehouse.root}/server/supervisor")


def submission_ids(warehouse: Warehouse) -> set[str]:
    """Return the ids of what was submitted, and not forgotten."""
    return set(warehouse.fs.list(_folder(warehouse)))


def submissions(warehouse: Warehouse, but: Collection[str] = ()) -> Iterator[Submission]:
    """Yield what was submitted, oldest first, `but` for those of some ids; one whose file is damaged is left out."""
    found = []
    for name in submission_ids(warehouse) - set(but):
        submission = _read(warehouse.fs, f"{_folder(warehouse)}/{name}/submission.json", Submission)
        if submission is not None:
            found.append(submission)
    yield from sorted(found, key=lambda one: (one.submitted_at, one.id))


def write_submission(warehouse: Warehouse, submission: Submission) -> None:
    """Keep a submission; it survives a power cut."""
    path = f"{_folder(warehouse)}/{submission.id}/submission.json"
    write_sealed(warehouse.fs, path, submission.to_json(), durable=True)


def read_state(warehouse: Warehouse, id: str) -> SubmissionState:
    """Return what became of a submission; as if nothing had yet, where nobody wrote it."""
    return _read(warehouse.fs, f"{_folder(warehouse)}/{id}/state.json", SubmissionState) or SubmissionState()


def write_state(warehouse: Warehouse, id: str, state: SubmissionState) -> None:
    write_sealed(warehouse.fs, f"{_folder(warehouse)}/{id}/state.json", state.to_json())


def is_going_on(warehouse: Warehouse, job: str) -> bool:
    """Tell whether a job was submitted, and a server runs it, or is going to."""
    name = job.lower()
    for submission in submissions(warehouse):
        if name in map(str.lower, submission.jobs):
            state = read_state(warehouse, submission.id)
            if state.outcome is None and name not in map(str.lower, state.stopped):
                return True
    return False


def forget_submission(warehouse: Warehouse, id: str) -> None:
    """Delete a submission that has ended."""
    warehouse.fs.delete(f"{_folder(warehouse)}/{id}/submission.json")
    warehouse.fs.delete_tree(f"{_folder(warehouse)}/{id}")


def _folder(warehouse: Warehouse) -> str:
    return f"{warehouse.root}/server/submissions"


def _read(fs: Filesystem, path: str, kind: type[_R]) -> _R | None:
    try:
        return read_json(read_sealed(fs, path), kind)
    except (FileNotFoundError, DamageError, OtherFormat):
        return None
