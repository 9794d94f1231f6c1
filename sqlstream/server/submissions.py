"""Scripts that were submitted to a server. They are in the warehouse, so that any later server can continue their jobs.

The server that accepts a submission writes its file, once. The server that supervises the warehouse writes its state into a
second file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TypeVar

from sqlstream.errors import DamageError
from sqlstream.units import ProcessingTime
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.paths import JobPaths, Warehouse
from sqlstream.warehouse.records import Record, UnreadableFormat, read_json, read_sealed, write_sealed

_R = TypeVar("_R", bound=Record)

# Outcomes of a submission: all its jobs have ended, or one has failed.
ENDED, FAILED = "ended", "failed"


class Submission(Record, frozen=True, omit_defaults=True, tag_field="format", tag=1):
    """A submitted script, how to start it, and its jobs, which continue when their process is started again.

    `starts` are jobs of INSERT .. VALUES, which run once, at the first start. `restart` are the options of the restart strategy;
    `bounded` is true if all input ends. `fresh`, `savepoint`, `as_job`, `upgrade` and `migrate` apply to the first start. Files
    of the tables that the script declares must be `within` these folders, if there are any. `statuses` and `versions` tell what
    the jobs did before this submission without a comparison of clocks: when the status of each job was written, and the newest
    version of each job in `starts`. Both are None in records of older versions of sqlstream.
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
    statuses: Mapping[str, ProcessingTime] | None = None
    versions: Mapping[str, int] | None = None


class SubmissionState(Record, frozen=True, omit_defaults=True, tag_field="format", tag=1):
    """The state of a submission: the process that runs it, if there is one, and its outcome, if it has ended.

    `born` distinguishes the process from a later one with the same pid. `starts` is the number of starts. `paused` says that the
    server stopped the process because it was itself stopped. `stopped` are the jobs that users have asked to stop.
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
    """Return the folder with the lock of the server that supervises a warehouse. The lock is like a job's."""
    return JobPaths(f"{warehouse.root}/server/supervisor")


def submission_ids(warehouse: Warehouse) -> set[str]:
    """Return the ids of the submissions that are not deleted."""
    return set(warehouse.fs.list(_folder(warehouse)))


def submissions(warehouse: Warehouse, but: Collection[str] = ()) -> Iterator[Submission]:
    """Yield the submissions, oldest first, without those whose ids are in `but`, and without damaged ones."""
    records = []
    for name in submission_ids(warehouse) - set(but):
        submission = _read(warehouse.fs, f"{_folder(warehouse)}/{name}/submission.json", Submission)
        if submission is not None:
            records.append(submission)
    yield from sorted(records, key=lambda one: (one.submitted_at, one.id))


def write_submission(warehouse: Warehouse, submission: Submission) -> None:
    """Write a submission; it survives a power failure."""
    path = f"{_folder(warehouse)}/{submission.id}/submission.json"
    write_sealed(warehouse.fs, path, submission.to_json(), durable=True)


def read_state(warehouse: Warehouse, id: str) -> SubmissionState:
    """Return the state of a submission; the initial state if none has been written, or the file is damaged."""
    return _read(warehouse.fs, f"{_folder(warehouse)}/{id}/state.json", SubmissionState) or SubmissionState()


def write_state(warehouse: Warehouse, id: str, state: SubmissionState) -> None:
    """Write the state of a submission, in place of the last one."""
    write_sealed(warehouse.fs, f"{_folder(warehouse)}/{id}/state.json", state.to_json())


def is_going_on(warehouse: Warehouse, job: str) -> bool:
    """Return whether a job was submitted and has neither ended nor been stopped: a server runs it, or will start it."""
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
    except (FileNotFoundError, DamageError, UnreadableFormat):
        return None
