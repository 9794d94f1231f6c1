"""Verification of jobs of a warehouse: by the script that declares them, or by what the warehouse and the project know."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from sqlstream.compiler.compiler import Compiled, Compiler, PlannedJob
from sqlstream.compiler.project import Project
from sqlstream.errors import BindError, SourceText, UsageError, missing
from sqlstream.jobs.launch import job_spec
from sqlstream.jobs.verification import Verification, verify_job
from sqlstream.queries.statement import Token, tokenize
from sqlstream.warehouse.jobs import JobRecord, read_record
from sqlstream.warehouse.paths import Warehouse

_COLUMNS = ("table_name", "cause", "change", "row_text")


def existing_record(warehouse: Warehouse, name: str) -> JobRecord:
    """Return the record of a job, whatever the case of its name. Raises UsageError when there is none."""
    known = warehouse.jobs()
    own = next((one for one in known if one.lower() == name.lower()), None)
    record = read_record(warehouse.fs, warehouse.job(own)) if own is not None else None
    if record is None:
        raise UsageError(f'job "{name}" does not exist', hint=missing("job", name, known))
    return record


def planned_job(compiler: Compiler, record: JobRecord, compiled: Iterable[Compiled] = ()) -> PlannedJob:
    """Return the plan of a job: from compiled scripts, or else from its statement, over the tables of the project.

    Raises UsageError when that is not the plan that the job has.
    """
    plans = [one for one in compiled if isinstance(one, PlannedJob)]
    found = next((one for one in plans if one.fingerprint == record.plan_fingerprint), None)
    if found is not None:
        return found
    hint = f"Name the script that declares them: sqlstream verify {record.job} FILE.sql"
    if plans:
        raise UsageError(
            f'the SQL has no job "{record.job}", or one with another plan', hint="Is it the script that ran?"
        )
    try:
        plans = [one for one in compiler.scripts([SourceText("job", record.sql)]) if isinstance(one, PlannedJob)]
    except BindError as error:
        message = f'the tables of job "{record.job}" are not all in the catalog of the project'
        raise UsageError(message, detail=f"{error.message}.", hint=f"{hint}.") from error
    if len(plans) != 1 or plans[0].fingerprint != record.plan_fingerprint:
        raise UsageError(f'the catalog of the project gives job "{record.job}" another plan', hint=f"{hint}.")
    return plans[0]


def verify(
    project: Project,
    compiler: Compiler,
    name: str,
    version: int | None = None,
    compiled: Iterable[Compiled] = (),
) -> Verification:
    """Verify a job of the warehouse at a version, the newest by default. Raises CannotVerify and UsageError."""
    record = existing_record(Warehouse(project.warehouse), name)
    return verify_planned(project, planned_job(compiler, record, compiled), record, version)


def verify_planned(project: Project, planned: PlannedJob, record: JobRecord, version: int | None) -> Verification:
    """Verify a job whose plan is known."""
    job = job_spec(planned, project.warehouse, record.bucket_labels, name=record.job, project=project.root)
    return verify_job(planned, job, version)


# -- VERIFY('job') in state queries


@dataclass(frozen=True, slots=True)
class VerifyCall:
    """`VERIFY('job')` or `VERIFY('job', version)` in a query, and the name that stands for its rows."""

    name: str
    job: str
    version: int | None


def calls_in(sql: str) -> tuple[str, list[VerifyCall]]:
    """Return a query with a name for each call of VERIFY in FROM, and the calls."""
    tokens = tokenize(sql) if re.search(r"\bverify\b", sql, re.IGNORECASE) else []
    calls: list[VerifyCall] = []
    text, done = "", 0
    for place, token in enumerate(tokens):
        found = _call(tokens[place : place + 6], len(calls)) if token.text.lower() == "verify" else None
        if found is not None:
            call, end = found
            text += f"{sql[done : token.start]}{call.name}"
            done = end
            calls.append(call)
    return text + sql[done:], calls


def _call(tokens: list[Token], number: int) -> tuple[VerifyCall, int] | None:
    name = f"_verification_{number}"
    match [t.text for t in tokens]:
        case [_, "(", job, ")", *_] if job.startswith("'"):
            return VerifyCall(name, job[1:-1].replace("''", "'"), None), tokens[3].end
        case [_, "(", job, ",", version, ")"] if job.startswith("'") and version.isdigit():
            return VerifyCall(name, job[1:-1].replace("''", "'"), int(version)), tokens[5].end
    return None


def rows_of(call: VerifyCall, run: Callable[[str, int | None], Verification]) -> pa.Table:
    """Return the rows of a call: the examples of differences. Raises what verifying raises."""
    rows = run(call.job, call.version).rows()
    columns = list(zip(*rows, strict=True)) or [()] * len(_COLUMNS)
    return pa.table([pa.array(column, pa.string()) for column in columns], names=list(_COLUMNS))
