"""Verification of jobs of a warehouse, with plans from scripts, from job records or from the project's catalog."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from sqlstream.compiler.compiler import Compiled, Compiler
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import quote_name
from sqlstream.errors import BindError, QueryError, SourceText, Span, SqlStreamError, UsageError, missing
from sqlstream.jobs.identity import as_recorded, is_planned
from sqlstream.jobs.launch import job_spec
from sqlstream.jobs.verification import Verification, verify_job
from sqlstream.project import Project
from sqlstream.queries.arguments import CallArgument, by_parameter
from sqlstream.queries.versions import Version, find_version
from sqlstream.sql.nodes import AlterTable, CreateTable, CreateView, RenameTable, Statement
from sqlstream.sql.statements import parse_script
from sqlstream.storage.snapshot import JobHistory
from sqlstream.warehouse.jobs import JobRecord, read_record
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.savepoint_records import find_savepoint

IN_PYTHON = 'Declare them in the session first, as the script does: session.sql("CREATE TABLE ..").'
USAGE = "Write sqlstream.verify('job'), or sqlstream.verify('job', 20) for a version, as a number or a time."
_COLUMNS = ("table_name", "cause", "change", "row_text")
_ROWS = internal("differences")


class NotDeclared(UsageError):
    """The tables of a job are not declared as in its script: the caller must declare them, or name the script."""


def existing_record(warehouse: Warehouse, name: str) -> JobRecord:
    """Return the record of a job, without regard to case. Raises UsageError when there is no such job, and DamageError."""
    names = warehouse.jobs()
    own = next((one for one in names if one.lower() == name.lower()), None)
    record = read_record(warehouse.fs, warehouse.job(own)) if own is not None else None
    if record is None:
        raise UsageError(f'job "{name}" does not exist', hint=missing("job", name, names))
    return record


def planned_job(compiler: Compiler, record: JobRecord, compiled: Iterable[Compiled] = ()) -> PlannedJob:
    """Return the plan of a job: from compiled scripts if there are any, else from its record and the project's tables.

    Ties are decided as in the job. Raises UsageError when the job has another plan; NotDeclared if its script could help.
    """
    plans = [one for one in compiled if isinstance(one, PlannedJob)]
    plan = next((one for one in plans if is_planned(record, one)), None)
    if plan is not None:
        return as_recorded(plan, record)
    if plans:
        raise UsageError(
            f'the SQL has no job "{record.job}", or one with another plan', hint="Is it the script that ran?"
        )
    if (own := _by_script(compiler, record)) is not None:
        return own
    try:
        plans = [one for one in compiler.scripts([SourceText("job", record.sql)]) if isinstance(one, PlannedJob)]
    except BindError as error:
        message = f'the tables of job "{record.job}" are not all in the catalog of the project'
        detail = f"{error.message[:1].upper()}{error.message[1:]}."
        raise NotDeclared(message, detail=detail, hint=IN_PYTHON) from error
    if len(plans) != 1 or not is_planned(record, plans[0]):
        raise NotDeclared(f'the catalog of the project gives job "{record.job}" another plan', hint=IN_PYTHON)
    return as_recorded(plans[0], record)


def _by_script(compiler: Compiler, record: JobRecord) -> PlannedJob | None:
    """Return the plan of a job over the tables that its recorded script declares, and other tables of the catalog.

    None if no script is recorded, or the plan has changed since.
    """
    if record.script is None:
        return None
    texts = [*record.script.declarations, record.sql]
    own = Compiler(project=compiler.project, table_options=record.script.tables)
    own.table_options.within = record.script.within
    try:
        for option, value in record.script.options.items():
            own.options.set(option, value)
        statements = [statement for text in texts for statement in parse_script(SourceText("job", text))]
        own.take_over(compiler, _names_of(statements))
        plans = [one for one in map(own.statement, statements) if isinstance(one, PlannedJob)]
    except SqlStreamError:
        return None
    finally:
        own.close()
    return as_recorded(plans[0], record) if len(plans) == 1 and is_planned(record, plans[0]) else None


def _names_of(statements: Iterable[Statement]) -> Iterator[str]:
    """Yield the names that statements give to tables and views."""
    for statement in statements:
        match statement:
            case CreateTable() | CreateView():
                yield statement.name.text
            case AlterTable(change=RenameTable(name)):
                yield name.text


def verify(
    project: Project,
    compiler: Compiler,
    name: str,
    at: Version | None = None,
    compiled: Iterable[Compiled] = (),
) -> Verification:
    """Verify a job of the warehouse at a version (None: the newest), or in a savepoint that `at` names.

    `compiled` are scripts to take the plan from: see `planned_job`. Raises CannotVerify, QueryError and UsageError.
    """
    saved = _savepoint(Warehouse(project.warehouse), name, at)
    if saved is not None:
        folder, record = saved
        planned = planned_job(compiler, record, compiled)
        job = job_spec(planned, project.warehouse, record.bucket_labels, name=record.job, project=project.root)
        return verify_job(planned, job, saved=folder)
    record = existing_record(Warehouse(project.warehouse), name)
    return verify_planned(project, compiler, planned_job(compiler, record, compiled), record, at)


def _savepoint(warehouse: Warehouse, name: str, at: Version | None) -> tuple[Warehouse, JobRecord] | None:
    """Return the folder of a savepoint and the record of its job; None if `at` names no savepoint."""
    if not isinstance(at, str) or not ("/" in at or os.sep in at or at.lower() in warehouse.savepoints()):
        return None
    savepoint = find_savepoint(warehouse, at)
    if savepoint.record.job.lower() != name.lower():
        raise UsageError(f'savepoint "{at}" is of job "{savepoint.record.job}", not of job "{name}"')
    record = read_record(savepoint.warehouse.fs, savepoint.warehouse.job(savepoint.record.job))
    assert record is not None
    return savepoint.warehouse, record


def verify_planned(
    project: Project, compiler: Compiler, planned: PlannedJob, record: JobRecord, at: Version | None
) -> Verification:
    """Verify a job, with a plan of it, at a version (None: the newest). Raises CannotVerify and QueryError."""
    planned = as_recorded(planned, record)
    job = job_spec(planned, project.warehouse, record.bucket_labels, name=record.job, project=project.root)
    if at is None:
        return verify_job(planned, job)
    with compiler.connection() as con:
        version = find_version(con, JobHistory(Warehouse(project.warehouse), record.job.lower()), at, None)
    return verify_job(planned, job, version.version)


# -- sqlstream.verify('job') in state queries


@dataclass(frozen=True)
class MakesDifferences:
    """Creates the relation of a call of `sqlstream.verify`, with a row of texts per example of a difference. It is a `Maker`."""

    project: Project
    compiler: Compiler

    def __call__(
        self,
        connection: duckdb.DuckDBPyConnection,
        catalog: str,
        warehouse: Warehouse,
        jobs: Mapping[str, JobHistory],
        arguments: Sequence[CallArgument],
        span: Span,
    ) -> str:
        """Create the table, and return its name as SQL. Raises QueryError, UsageError and CannotVerify."""
        named = by_parameter(arguments, ("job", "version"), USAGE, span, required=1)
        name = str(named[0].value)
        history = jobs.get(name.lower())
        if history is None or history.record is None:
            job_names = [h.record.job for h in jobs.values() if h.readable_record and h.record]
            raise QueryError(f'job "{name}" does not exist', named[0].span, hint=missing("job", name, job_names))
        versions = [find_version(connection, history, v.value, v.span).version for v in named[1:]]
        try:
            rows = verify(self.project, self.compiler, name, versions[0] if versions else None).rows()
        except NotDeclared as error:
            error.hint = f"Declare them in the catalog, or name their script: sqlstream verify {name} FILE.sql."
            raise
        columns = list(zip(*rows, strict=True)) or [()] * len(_COLUMNS)
        table = pa.table([pa.array(column, pa.string()) for column in columns], names=list(_COLUMNS))
        differences = f"{quote_name(catalog)}.main.differences"
        connection.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {quote_name(catalog)}")
        connection.register(_ROWS, table)
        connection.execute(f"CREATE TABLE {differences} AS FROM {_ROWS}")
        connection.unregister(_ROWS)
        return differences
