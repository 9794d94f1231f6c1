"""Submitted scripts: they are compiled, checked, and stored in the warehouse, where the supervisor finds and runs them.

The memory and time for compiling a script depend on its author. So all but `keep` runs in a process that can be killed.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

import duckdb
from msgspec.structs import replace

from sqlstream.compiler.compiler import Compiled, Explanation
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.duck.sql import quote_name
from sqlstream.errors import SourceText, Span, SqlStreamError, UsageError
from sqlstream.jobs.identity import is_planned
from sqlstream.jobs.launch import check_fresh, check_only_writer, fresh_jobs, only_jobs
from sqlstream.jobs.restart_strategies import PREFIX
from sqlstream.jobs.savepoints.restore_plans import Restore, plan_restore
from sqlstream.jobs.start import check_same_query, ended_for_good
from sqlstream.jobs.upgrades.upgrading import Upgrade
from sqlstream.secrets import secret_spans, shown
from sqlstream.server.access import Role
from sqlstream.server.messages import (
    PlanRequest,
    StatementAnswer,
    SubmissionReply,
    SubmitRequest,
    VerificationReply,
    VerifyRequest,
)
from sqlstream.server.placeholders import check_text
from sqlstream.server.restrictions import TableRestrictions, check_request
from sqlstream.server.settings import ServerSettings
from sqlstream.server.submissions import (
    Submission,
    forget_submission,
    is_going_on,
    read_state,
    submissions,
    write_submission,
)
from sqlstream.session.explaining import as_it_goes_on, explained
from sqlstream.session.session import Session
from sqlstream.session.upgrades import compared_with, upgrade_texts, upgrade_with
from sqlstream.session.verifying import NotDeclared, existing_record, planned_job
from sqlstream.sql.nodes import head
from sqlstream.units import now
from sqlstream.warehouse.commits import newest_commit
from sqlstream.warehouse.jobs import read_record
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.status import effective_status, read_status

_KEEPING = threading.Lock()


@dataclass(frozen=True, slots=True)
class CheckedScript:
    """A compiled and checked script: the answer to the client, and the submission to store, if it has jobs."""

    answer: SubmissionReply
    submission: Submission | None = None


def keep(warehouse: Warehouse, script: CheckedScript) -> SubmissionReply:
    """Store a script's submission, if it has jobs, and return its answer. Raises UsageError if one of the jobs is being run."""
    if script.submission is not None:
        # Of two concurrent submissions with the same job, the second one is refused.
        with _KEEPING:
            submission = _with_past(warehouse, script.submission)
            _forget_earlier(warehouse, submission)
            write_submission(warehouse, submission)
    return script.answer


def _with_past(warehouse: Warehouse, submission: Submission) -> Submission:
    """Return a submission that records the present statuses and versions of its jobs.

    The supervisor recognizes by them what the jobs did before the submission.
    """
    paths = {name: warehouse.job(name) for name in (*submission.starts, *submission.jobs)}
    statuses = {name: read_status(warehouse.fs, job) for name, job in paths.items()}
    versions = {name: newest_commit(warehouse.fs, paths[name]) for name in submission.starts}
    return replace(
        submission,
        submitted_at=now(),
        statuses={name: status.updated_at for name, status in statuses.items() if status is not None},
        versions={name: version for name, version in versions.items() if version is not None},
    )


def prepare(settings: ServerSettings, role: Role, request: SubmitRequest) -> CheckedScript:
    """Compile and check a script, and answer its SHOW, DESCRIBE and EXPLAIN. Raises SqlStreamError, with positions in it."""
    source = SourceText("request", request.sql)
    notices: list[str] = []
    _check_fresh(request)
    with _session(settings, role, request, source, notices) as session:
        compiled = session.compile(source)
        compiled, restored = plan_restore(
            compiled, session.warehouse, request.savepoint, request.as_job, session.compiler.table_options.starting
        )
        statements = only_jobs(compiled, request.only, restored) if request.only else compiled
        jobs = [one for one in statements if isinstance(one, PlannedJob)]
        for job in jobs:
            if job.is_query:
                hint = "Write INSERT INTO a table, or ask POST /v1/query for what is in state and tables."
                raise UsageError("a SELECT alone is not a job", head(job.statement), hint=hint)
        if jobs:
            # It is stored in the warehouse.
            _check_secrets(source)
            _check_options(request)
        anew = fresh_jobs(statements, request.fresh)
        for job in [job for job in jobs if not job.appends and job.name not in restored]:
            _check_startable(session.warehouse, job, is_anew=job.name in anew, upgrades=_upgrades(request))
            if job.name not in anew and (skipped := _skipped(session.warehouse, job)) is not None:
                jobs.remove(job)
                notices.append(skipped)
        if _upgrades(request):
            _texts_of_upgrade(session, jobs, restored, request)
        answers = [_answered(session, one) for one in statements if not isinstance(one, PlannedJob)]
        warnings = [*notices, *(f"{job.name}: {one.render()}" for job in jobs for one in job.warnings)]
        if not jobs:
            return CheckedScript(SubmissionReply(None, [], warnings, answers))
        submission = _submission(request, jobs, tuple(anew), session.compiler.table_options.within)
        answer = SubmissionReply(submission.id, [*submission.starts, *submission.jobs], warnings, answers)
        return CheckedScript(answer, submission)


def _skipped(warehouse: Warehouse, job: PlannedJob) -> str | None:
    """Return a notice about a job that has ended for good with this query, and so does not run; otherwise None."""
    record = read_record(warehouse.fs, warehouse.job(job.name))
    if record is None or not is_planned(record, job):
        return None
    ended = ended_for_good(warehouse, job.name)
    return None if ended is None else ended[1]


def _texts_of_upgrade(
    session: Session, jobs: Sequence[PlannedJob], restored: Mapping[str, Restore], request: SubmitRequest
) -> list[str]:
    """Return the upgrade plans of jobs with changed queries. Raises UsageError, with the plan, if an upgrade is impossible."""
    upgrade = Upgrade()
    if request.migrate is not None:
        migrations = SourceText("migrate", request.migrate)
        upgrade = upgrade_with(session.project, session.compiler, jobs, migrations, restored.values())
    refused: list[str] = []
    try:
        return upgrade_texts(session, jobs, restored, upgrade, refused.append)
    except UsageError as error:
        error.detail = "\n".join([*refused, *([error.detail] if error.detail else [])]) or None
        raise


def upgrade_plans(settings: ServerSettings, role: Role, request: SubmitRequest) -> list[str]:
    """Return the upgrade plans of the jobs of a script whose queries have changed, as texts. Raises SqlStreamError."""
    source = SourceText("request", request.sql)
    _check_fresh(request)
    with _session(settings, role, request, source, []) as session:
        compiled = session.compile(source)
        starting = session.compiler.table_options.starting
        compiled, restored = plan_restore(compiled, session.warehouse, request.savepoint, request.as_job, starting)
        statements = only_jobs(compiled, request.only, restored) if request.only else compiled
        jobs = [one for one in statements if isinstance(one, PlannedJob)]
        return _texts_of_upgrade(session, jobs, restored, request)


def verified(settings: ServerSettings, role: Role, request: VerifyRequest, job: str) -> VerificationReply:
    """Compare the results of a job with a batch over its input. Raises SqlStreamError."""
    source = SourceText("request", request.sql or "")
    with _session(settings, role, _without_jobs(request), source, []) as session:
        try:
            verification = session.verify(job, at=request.version, compiled=session.compile(source))
        except NotDeclared as error:
            error.hint = "Name the script that declares them behind the job, or send it as sql."
            raise
        return VerificationReply(str(verification), bool(verification))


def _without_jobs(request: PlanRequest | VerifyRequest) -> SubmitRequest:
    """Return a request for the checks of a script that is not started."""
    migrate = request.migrate if isinstance(request, PlanRequest) else None
    return SubmitRequest(request.sql or "", request.settings, request.tables, migrate=migrate)


def planned(settings: ServerSettings, role: Role, request: PlanRequest, job: str | None, of_job: bool = False) -> str:
    """Return the plans of a script as text; with `job`, the plan of upgrading that job to the script's query.

    With `of_job` it is the query of the job as one batch. Raises SqlStreamError.
    """
    source = SourceText("request", request.sql)
    with _session(settings, role, _without_jobs(request), source, []) as session:
        compiled = session.compile(source)
        if job is not None and of_job:
            job_plan = planned_job(session.compiler, existing_record(session.warehouse, job), compiled)
            return explained(job_plan, "batch")
        if job is not None:
            migrations = None if request.migrate is None else SourceText("migrate", request.migrate)
            return compared_with(session, compiled, job, migrations)
        plans: list[tuple[PlannedJob, str]] = [(one, request.stage) for one in compiled if isinstance(one, PlannedJob)]
        plans += [(one.job, one.stage) for one in compiled if isinstance(one, Explanation)]
        return "\n\n".join(explained(as_it_goes_on(one, session.warehouse), stage) for one, stage in plans)


def _session(
    settings: ServerSettings, role: Role, request: SubmitRequest, source: SourceText, notices: list[str]
) -> Session:
    """Return a session for a script that checks what the role may do. Raises SqlStreamError."""
    if role < Role.ADMIN:
        check_text(request.sql)
        check_request(request, source, settings.limits.parallelism)
    session = Session(
        settings.project.root,
        settings.project.warehouse,
        request.settings,
        table_options=request.tables,
        notice=notices.append,
    )
    session.options.fix(request.settings)
    if role < Role.ADMIN:
        restrictions = TableRestrictions(settings.project, settings.paths)
        session.compiler.confine(restrictions)
        session.compiler.table_options.within = tuple(restrictions.folders)
    return session


def _check_secrets(source: SourceText) -> None:
    """Raise UsageError for a secret in a script, which the warehouse would store; `${NAME}` is allowed."""
    for start, end in secret_spans(source.text):
        text = source.text[start:end]
        if not (text.startswith("${") and text.endswith("}") and ":-" not in text):
            raise UsageError(
                "a secret stands in the SQL, which is kept in the warehouse",
                Span(source, start, end),
                hint="Write it as '${NAME}': the server's environment has the value.",
            )


def _check_options(request: SubmitRequest) -> None:
    """Raise UsageError for a secret in the options of a request."""
    for options in (request.settings, *request.tables.values()):
        for option, value in options.items():
            if shown(option, value) != value:
                hint = "Write it into the SQL as '${NAME}': the server's environment has the value."
                raise UsageError(f'the option "{option}" holds a secret, and is kept in the warehouse', hint=hint)


def _check_fresh(request: SubmitRequest) -> None:
    check_fresh(request.fresh, restores=request.savepoint is not None, upgrades=_upgrades(request))


def _upgrades(request: SubmitRequest) -> bool:
    return request.upgrade or request.migrate is not None


def _check_startable(warehouse: Warehouse, job: PlannedJob, *, is_anew: bool, upgrades: bool) -> None:
    """Raise UsageError for a job that could not start, so that the client learns it from the answer to the submission."""
    paths = warehouse.job(job.name)
    status = effective_status(warehouse.fs, paths)
    if status is not None and status.is_active:
        message = f'job "{job.name}" is being run by process {status.pid}'
        raise UsageError(message, head(job.statement), hint="Stop it first.")
    record = read_record(warehouse.fs, paths)
    if record is not None and not (is_anew or upgrades):
        check_same_query(job, record)
    check_only_writer(warehouse, job, job.name, is_new=record is None)


def _submission(
    request: SubmitRequest, jobs: Sequence[PlannedJob], fresh: tuple[str, ...], within: tuple[str, ...]
) -> Submission:
    going = [job for job in jobs if not job.appends]
    # Of several jobs, an unbounded one determines how often their process is started again.
    leading = next((job for job in going if not job.bounded), jobs[0])
    return Submission(
        id=uuid4().hex,
        sql=request.sql,
        jobs=tuple(job.name for job in going),
        starts=tuple(dict.fromkeys(job.name for job in jobs if job.appends)),
        submitted_at=now(),
        settings=request.settings,
        tables=request.tables,
        restart={key: value for key, value in leading.options.values.items() if key.startswith(PREFIX)},
        bounded=leading.bounded,
        fresh=fresh,
        savepoint=request.savepoint,
        as_job=request.as_job,
        upgrade=request.upgrade,
        migrate=request.migrate,
        within=within,
    )


def _forget_earlier(warehouse: Warehouse, submission: Submission) -> None:
    """Delete earlier submissions of the same jobs that have ended. Raises UsageError for one that has not."""
    for job in submission.jobs:
        if is_going_on(warehouse, job):
            raise UsageError(f'job "{job}" is being run by a server: it was submitted before', hint="Stop it first.")
    names = {name.lower() for name in (*submission.jobs, *submission.starts)}
    for earlier in submissions(warehouse):
        common = names & {name.lower() for name in (*earlier.jobs, *earlier.starts)}
        if common and read_state(warehouse, earlier.id).outcome is not None:
            forget_submission(warehouse, earlier.id)


def _answered(session: Session, question: Compiled) -> StatementAnswer:
    assert not isinstance(question, PlannedJob)
    relation = session.answer(question)
    texts = relation.project(", ".join(f"CAST({quote_name(name)} AS VARCHAR)" for name in relation.columns))
    try:
        return StatementAnswer(list(relation.columns), [list(row) for row in texts.fetchall()])
    except duckdb.Error as error:
        raise SqlStreamError(str(error)) from error
