"""What a call with several kinds of answers gave, as the kind that a test expects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from sqlstream.compiler.compiler import Compiler
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import SourceText
from sqlstream.jobs.job import Job

T = TypeVar("T")


def of_type(kind: type[T], value: object) -> T:
    """Return `value`; a test fails here when it is not of this type."""
    assert isinstance(value, kind), f"not a {kind.__name__}: {value!r}"
    return value


def job_of(answer: object) -> Job:
    """Return the job that `Session.sql` started."""
    return of_type(Job, answer)


def jobs_of(compiled: Iterable[object]) -> list[PlannedJob]:
    """Return what a compiler made of statements that are all jobs."""
    return [of_type(PlannedJob, planned) for planned in compiled]


def last_job(script: str) -> PlannedJob:
    """Compile a script that ends with a job."""
    compiler = Compiler()
    try:
        return of_type(PlannedJob, compiler.scripts([SourceText("test", script)])[-1])
    finally:
        compiler.close()
