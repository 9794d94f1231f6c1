"""Projects in archives that another version wrote, and the jobs in them."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from sqlstream import Session
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import SourceText
from sqlstream.warehouse.jobs import JobRecord, read_record
from tests.jobs.savepoint_jobs import open_session

# The file of a project with the results, by table, that its version made of the rows of some files.
EXPECTED = "expected.json"
# The rows of each table, as text, in an order of their own.
Results = dict[str, list[str]]


def unpacked(archive: Path, folder: Path) -> Path:
    """Return the folder in which the project of an archive now is."""
    with zipfile.ZipFile(archive) as file:
        file.extractall(folder)
    return folder


def expected(project: Path, files: str) -> Results:
    """Return what the version that wrote a project made of the rows of some files, such as "ab"."""
    answers: Results = json.loads((project / EXPECTED).read_text())[files]
    return answers


def planned(session: Session, script: str) -> Mapping[str, PlannedJob]:
    """Return the jobs of a script by name, as this version plans them."""
    compiled = session.compile(SourceText("script", script))
    return {job.name: job for job in compiled if isinstance(job, PlannedJob)}


def records(project: Path, jobs: Iterable[str]) -> dict[str, JobRecord]:
    """Return the records of those of the jobs that are in a project's warehouse."""
    with open_session(project) as session:
        every = {job: read_record(session.warehouse.fs, session.warehouse.job(job)) for job in jobs}
    return {job: record for job, record in every.items() if record is not None}


def semantics_and_ties(project: Path) -> dict[str, tuple[str, str]]:
    """Return by which rules each job of a project goes: `semantics` and `ties` of sqlstream.jobs."""
    with open_session(project) as session:
        rows = session.query("SELECT job, semantics, ties FROM sqlstream.jobs").fetchall()
    return {job: (semantics, ties) for job, semantics, ties in rows}
