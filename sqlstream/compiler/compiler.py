"""Compiles SQL text to jobs: keeps the catalog and the options of a session, and plans every INSERT and SELECT.

Nothing starts here: a script is compiled as a whole before its first job runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import assert_never

import duckdb

from sqlstream.catalog import AnyFunction, Catalog, Table, View
from sqlstream.compiler.binding import bound, bound_in_duckdbs, new_binder, noticed
from sqlstream.compiler.catalog_answers import answer
from sqlstream.compiler.databases import Databases
from sqlstream.compiler.declarations import Declarations, checked_definition, script_of
from sqlstream.compiler.declared_tables import DeclaredTables
from sqlstream.compiler.job_checks import check_ends, check_limits, check_tables, tables_of
from sqlstream.compiler.job_names import JobNames
from sqlstream.compiler.notices import Notices
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.compiler.planning import planning
from sqlstream.compiler.requests import Compiled, Explanation, Question, SavepointRequest
from sqlstream.compiler.session_functions import SessionFunctions
from sqlstream.compiler.table_as import declaration_of, declared_as, insert_of
from sqlstream.compiler.table_options import TableOptions
from sqlstream.errors import (
    BindError,
    ParseError,
    SourceText,
    Span,
    SqlStreamError,
    StatementWarning,
    UnboundedState,
    UnsupportedError,
)
from sqlstream.logical.bind.definitions import bind_view, declared_view
from sqlstream.logical.bind.queries import Binder
from sqlstream.logical.plan.tables import ResultSink
from sqlstream.options import Options
from sqlstream.sql.nodes import (
    AlterTable,
    CreateDatabase,
    CreateFunction,
    CreateSavepoint,
    CreateStateCheck,
    CreateTable,
    CreateTableAs,
    CreateView,
    Describe,
    DescribeState,
    Drop,
    DropDatabase,
    DropFunction,
    DropSavepoint,
    DropStateCheck,
    Explain,
    Insert,
    MigrateState,
    RenameTable,
    Reset,
    Select,
    SetOption,
    Show,
    Statement,
    StatementSet,
    Use,
    head,
)
from sqlstream.sql.statements import parse_script

__all__ = ["Compiled", "Compiler", "Explanation", "Question", "SavepointRequest"]


class Compiler:
    """Compiles statements in order, and holds the state of a session: tables, views, functions and options.

    Methods that compile raise ParseError, BindError or UnsupportedError, with a position in the text.
    """

    def __init__(
        self,
        options: Options | None = None,
        *,
        project: str = ".",
        table_options: Mapping[str, Mapping[str, str]] | None = None,
        plans_jobs: bool = True,
    ):
        self.project = project
        self.catalog = Catalog()
        self.catalog.with_options = self._with_options
        self.table_options = TableOptions(table_options or {})
        self.options = options or Options()
        self._functions = SessionFunctions(self.catalog, project, lambda: self.options.text("table.local-time-zone"))
        self._binder: Binder | None = None
        self._names = JobNames()
        self._declarations = Declarations()
        self._databases = Databases()
        # Called with warnings about statements.
        self.warn: Callable[[SqlStreamError], None] = lambda warning: None
        self.notices = Notices(lambda notice: self.warn(notice))
        # If `plans_jobs` is false, packages with connectors are not imported.
        self._tables = DeclaredTables(
            self.catalog, self.table_options, self.notices, self._next_binder, project=project, plans_jobs=plans_jobs
        )
        # Returns the names of the running jobs that read or write a table.
        self.jobs_of: Callable[[str], Iterable[str]] = lambda table: ()

    @contextmanager
    def connection(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a connection in which the user's functions are registered; its temporary tables are dropped at the end."""
        with self._functions.connection() as con:
            yield con

    def close(self) -> None:
        """Close the database that checks types."""
        self._functions.close()

    def add_functions(self, functions: Iterable[AnyFunction]) -> None:
        """Add functions for statements compiled from now on; each replaces a function of its name."""
        self._functions.add(functions)
        self._binder = None

    def confine(self, check: Callable[[str, Mapping[str, str], Span | None], None]) -> None:
        """Let `check` see the name, options and position of each table whose options a script sets; it may raise."""
        self._tables.check = check

    def take_over(self, other: Compiler, but: Iterable[str]) -> None:
        """Add the functions, tables and views of another compiler, without the tables and views named in `but`."""
        catalog, left_out = other.catalog, set(map(str.lower, but))
        self.add_functions([*catalog.duck_functions, *catalog.process_functions.values()])
        for entry in catalog:
            if entry.name.lower() not in left_out:
                self.catalog.add(entry)
        self._tables.take_over(other._tables)

    @property
    def binder(self) -> Binder:
        if self._binder is None:
            self._binder = new_binder(self.catalog, self._functions.con)
        return self._binder

    def _next_binder(self) -> Binder:
        """Return the binder for the next statement, under the options that are set now."""
        self.binder.checker.meaning.begin(self.options.text("sqlstream.sql.division").lower())
        return self.binder

    def scripts(self, sources: Iterable[SourceText]) -> list[Compiled]:
        """Compile scripts in order; return their jobs and requests. Definitions and SET take effect on the session.

        All scripts are parsed before the first statement is bound. Raises UsageError for options of a table that does not exist.
        """
        self._names.clear()
        notices: list[StatementWarning] = []
        statements = [statement for source in sources for statement in parse_script(source, notices)]
        self.notices.give(notices)
        results = [self.statement(statement) for statement in statements]
        if jobs := [one for one in results if isinstance(one, PlannedJob)]:
            operators = {stage.name: job.name for job in jobs for stage in job.physical.stages}
            check_limits(statements, self.options.fixed, operators)
        if any(isinstance(one, PlannedJob | Explanation) for one in results):
            self.table_options.check(table.name for table in self.catalog.tables.values())
        return [one for one in results if one is not None]

    def jobs(self, sources: Iterable[SourceText]) -> list[PlannedJob]:
        """Compile scripts, as `scripts` does; return only their jobs."""
        return [one for one in self.scripts(sources) if isinstance(one, PlannedJob)]

    def definitions(self, source: SourceText, *, leave_out: bool = False) -> None:
        """Compile a catalog file, which may hold only CREATE TABLE, CREATE VIEW and CREATE FUNCTION.

        With `leave_out` the error of a wrong statement, or file, is not raised, but added to `Catalog.faults`.
        """
        try:
            parsed = parse_script(source)
        except SqlStreamError as error:
            if not leave_out:
                raise
            self.catalog.leave_out(error, source.text)
            return
        for statement in parsed:
            try:
                self._definition(statement)
            except SqlStreamError as error:
                if not leave_out:
                    raise
                self.catalog.leave_out(error, statement.span.text)

    def _definition(self, statement: Statement) -> None:
        if isinstance(statement, CreateFunction):
            self.add_functions(self._functions.created(statement))
            return
        statement = checked_definition(statement)
        existing = self.catalog.declared(statement.name.text)
        if existing is not None and existing.span is not None:
            raise BindError(
                f'"{statement.name.text}" is declared twice, first in {existing.span.source.name}',
                statement.name.span,
            )
        if (fault := self.catalog.fault(statement.name.text)) is not None:
            # The name has two declarations, of which one is wrong: either could be meant.
            raise fault.error
        self._tables.in_catalog = True
        try:
            self.statement(statement)
        finally:
            self._tables.in_catalog = False

    def statement(self, statement: Statement) -> Compiled | None:
        """Compile one statement; return its job or request, None if it only changes the session."""
        try:
            return self._compiled(statement)
        except RecursionError:
            raise ParseError("the statement is nested too deeply", statement.span) from None

    def _compiled(self, statement: Statement) -> Compiled | None:
        match statement:
            case CreateTable():
                self._define(self._tables.table(statement), statement)
            case CreateTableAs():
                return self._table_as(statement)
            case AlterTable():
                self._alter(statement)
            case CreateView():
                self._databases.check_query(statement.query, statement.span.source)
                self._define(self._view(statement), statement)
            case CreateDatabase():
                self._databases.create(statement)
                self._declarations.add_database(statement.name.text)
            case DropDatabase():
                self._databases.drop(statement)
            case Use():
                self._databases.use(statement)
            case Drop():
                self._databases.forget(statement)
                self._drop(statement)
                self._declarations.forget(statement.name.text)
            case CreateFunction():
                self.add_functions(self._functions.created(statement))
                self._declarations.add(statement.name.text, statement.span)
            case DropFunction():
                self._functions.drop(statement)
                self._binder = None
                self._declarations.forget(statement.name.text)
            case SetOption():
                self._set(statement)
            case Reset():
                self.options.reset(statement.key.text if statement.key else None, statement.span)
                self._functions.use_zone()
            case Insert() | StatementSet() | Select():
                return self._job_of(statement)
            case Explain(statement=explained):
                return self._explanation(explained, statement.stage)
            case CreateSavepoint() | DropSavepoint():
                return SavepointRequest(statement)
            case MigrateState():
                raise BindError(
                    "MIGRATE STATE is not for a script",
                    head(statement),
                    hint="Put it into a file of its own, and name that with --migrate when the job is upgraded.",
                )
            case CreateStateCheck() | DropStateCheck() | DescribeState():
                # They need the jobs before them to have started.
                return statement
            case Show() | Describe():
                if statement.name is not None:
                    self._databases.check(statement.name)
                return answer(statement, self.binder, self.options, self._databases)
            case _:
                assert_never(statement)
        return None

    def _job_of(self, statement: Insert | StatementSet | Select) -> PlannedJob:
        """Return the job of a statement. If it has a name of its own, it takes that of 'pipeline.name'."""
        self._check_names(statement)
        logical = bound(statement, self._next_binder())
        job = self._job(statement, logical, self._name(statement, logical))
        if not (job.is_query or job.appends):
            # 'pipeline.name' names one job, and this is it.
            self.options.take_job_name()
        return job

    def _explanation(self, statement: Insert | StatementSet | Select | CreateTableAs, stage: str) -> Explanation:
        if isinstance(statement, CreateTableAs):
            with self._defined_as(statement):
                return self._explanation(insert_of(statement), stage)
        self._check_names(statement)
        logical = bound(statement, self._next_binder())
        return Explanation(self._job(statement, logical, logical[0].table.name), stage)

    def _set(self, statement: SetOption) -> None:
        key, value = statement.key, statement.value
        if not self.options.set(key.text, value.value, key.span, value.span):
            self.warn(StatementWarning(f"--set {key.text} goes over this SET, which does nothing", key.span))
        elif (why := self.options.ignored.get(key.text.lower())) is not None:
            self.notices.give([StatementWarning(f'option "{key.text}" has no effect: {why}', key.span)])
        self._functions.use_zone()

    def _table_as(self, statement: CreateTableAs) -> Compiled | None:
        """Define the table of CREATE TABLE .. AS, and return the job that writes the rows of its query."""
        if statement.table.if_not_exists and self.catalog.declared(statement.table.name.text) is not None:
            return None
        declared, table = self._declared_as(statement)
        self._define(table, declared)
        declaration = declaration_of(table)
        text = None if declaration is None else f"{self._databases.use_current}{declaration}"
        self._declarations.add_text(table.name, text)
        return self._compiled(insert_of(statement))

    def _declared_as(self, statement: CreateTableAs) -> tuple[CreateTable, Table]:
        """Return the declaration and the table of CREATE TABLE .. AS. Raises BindError for a freshness that is not reached."""
        fresh = statement.freshness
        if fresh is not None and self.options.duration("execution.checkpointing.interval") > fresh.duration:
            message = 'option "execution.checkpointing.interval" is longer than this FRESHNESS'
            raise BindError(message, fresh.span, hint="SET it to a shorter time, or leave out FRESHNESS.")
        self._databases.check_query(statement.query, statement.span.source)
        query, _ = self._next_binder().bind(statement.query, statement.span.source)
        declared = declared_as(statement, query)
        return declared, self._tables.table(declared)

    @contextmanager
    def _defined_as(self, statement: CreateTableAs) -> Iterator[None]:
        """Let the catalog have the table of CREATE TABLE .. AS inside of the context only."""
        _, table = self._declared_as(statement)
        existing = self.catalog.declared(table.name)
        self.catalog.add(table)
        try:
            yield
        finally:
            self.catalog.drop(table.name)
            if existing is not None:
                self.catalog.add(existing)

    def _with_options(self, table: Table, overrides: Mapping[str, str], span: Span) -> Table:
        return self._tables.with_options(table, overrides, span, self.warn)

    def _alter(self, statement: AlterTable) -> None:
        """Change a table for the statements that follow; jobs that run go on with the table as it was."""
        name, change = statement.name, statement.change
        self._databases.check(name)
        table = self.catalog.relation(name.text)
        if table is None and statement.if_exists:
            return
        if not isinstance(table, Table):
            hint = self.catalog.relation_hint(name.text) if table is None else "Write DROP VIEW, then CREATE VIEW."
            raise BindError(
                f'table "{name.text}" does not exist' if table is None else f'"{name.text}" is a view',
                name.span,
                hint=hint,
            )
        declaration, changed = self._tables.altered(statement)
        if isinstance(change, RenameTable):
            self._rename(table, change)
        self.catalog.add(changed)
        self._tables.remember(declaration, changed)
        self._declarations.alter(table.name, changed.name, statement.span, self._databases.use_current)
        for job in self.jobs_of(table.name):
            hint = "Stop it, and run its script again: sqlstream explain --against says what becomes of its state."
            message = f'job "{job}" runs, and goes on with table "{table.name}" as it was'
            self.warn(StatementWarning(message, name.span, hint=hint))

    def _rename(self, table: Table, change: RenameTable) -> None:
        """Drop a table that gets another name. Raises BindError if that is in use, or if rows are stored under the old one."""
        name = change.name
        existing = self.catalog.declared(name.text)
        if existing is not None and existing is not table:
            raise BindError(f'"{name.text}" exists already', name.span, hint="Give it another name.")
        if table.connector is None and table.name.lower() in map(str.lower, self.catalog.written_tables()):
            hint = f"Declare another table, and write INSERT INTO it SELECT * FROM {table.name}."
            raise UnsupportedError(
                f'another name for table "{table.name}", under whose name rows are stored', name.span, hint=hint
            )
        self._databases.rename(table.name, name)
        self.catalog.drop(table.name)
        self._tables.forget(table.name)

    def _define(self, entry: Table | View, statement: CreateTable | CreateView) -> None:
        existing = self.catalog.declared(entry.name)
        if not self._tables.in_catalog:
            self._databases.declare(statement, exists=existing is not None)
        if existing is None or (statement.or_replace and type(existing) is type(entry)):
            self.catalog.add(entry)
            if isinstance(entry, Table) and isinstance(statement, CreateTable):
                self._tables.remember(statement, entry)
            if not self._tables.in_catalog:
                self._declarations.add(entry.name, statement.span, self._databases.use_current)
        elif statement.or_replace:
            kind = "TABLE" if isinstance(existing, Table) else "VIEW"
            hint = f"Give it another name, or write DROP {kind} first."
            raise BindError(f'"{entry.name}" is a {kind.lower()}', statement.name.span, hint=hint)
        elif not statement.if_not_exists and existing.definition != entry.definition:
            where = f" at {existing.span}" if existing.span else ""
            raise BindError(
                f'"{entry.name}" exists already with another definition{where}',
                statement.name.span,
                hint=f"Give it another name, or write DROP {'TABLE' if isinstance(existing, Table) else 'VIEW'} first.",
            )

    def _view(self, statement: CreateView) -> View:
        """Return a bound view; while it is bound, a view that it replaces is not in the catalog, so it cannot read itself."""
        existing = self.catalog.views.get(statement.name.text.lower()) if statement.or_replace else None
        if existing is not None:
            self.catalog.drop(existing.name)
        try:
            return bind_view(statement, self.binder)
        except SqlStreamError as error:
            if self._tables.in_catalog and any(error is table.problem for table in self.catalog.tables.values()):
                # Like the unusable table that it reads, it raises the error when a job uses it.
                return declared_view(statement)
            raise
        finally:
            if existing is not None:
                self.catalog.add(existing)

    def _drop(self, statement: Drop) -> None:
        existing = self.catalog.declared(statement.name.text)
        kind = Table if statement.kind == "TABLE" else View
        if isinstance(existing, kind):
            self.catalog.drop(statement.name.text)
            self._tables.forget(statement.name.text)
            for job in self.jobs_of(existing.name) if kind is Table else ():
                hint = "DROP TABLE forgets the declaration alone. To drop a job deletes its state and the rows that it wrote."
                message = f'job "{job}" runs, and goes on with table "{existing.name}"'
                self.warn(StatementWarning(message, statement.name.span, hint=hint))
        elif existing is not None:
            hint = f"Write DROP {'VIEW' if kind is Table else 'TABLE'}."
            raise BindError(
                f'"{statement.name.text}" is not a {statement.kind.lower()}', statement.name.span, hint=hint
            )
        elif not statement.if_exists:
            name = statement.name.text
            hint = self.catalog.relation_hint(name)
            raise BindError(f'{statement.kind.lower()} "{name}" does not exist', statement.name.span, hint=hint)

    def _check_names(self, statement: Insert | StatementSet | Select) -> None:
        """Raise BindError for the name of a table in a database that does not have it; databases are left out of the query."""
        for one in statement.inserts if isinstance(statement, StatementSet) else (statement,):
            if isinstance(one, Insert):
                self._databases.check(one.target)
            self._databases.check_query(one.query, one.span.source)

    def _job(self, statement: Insert | StatementSet | Select, logical: tuple[ResultSink, ...], name: str) -> PlannedJob:
        check_tables(statement, logical, self.catalog)
        check_ends(statement, self.options)
        self.notices.use(tables_of(logical))
        before = bound_in_duckdbs(statement, self.binder, logical)
        planned = replace(
            self._planned(statement, logical, name),
            notices=noticed(self.binder, logical),
            in_duckdbs=replace(self._planned(statement, before, name), semantics="duckdb") if before else None,
        )
        if self.options.text("sqlstream.unbounded-state").lower() == "error":
            for warning in planned.warnings:
                if isinstance(warning, UnboundedState):
                    raise UnsupportedError(warning.message, warning.span, hint=warning.hint)
        return planned

    def _planned(
        self, statement: Insert | StatementSet | Select, logical: tuple[ResultSink, ...], name: str
    ) -> PlannedJob:
        ttl = self.options.duration("table.exec.state.ttl")
        # A bare SELECT leaves nothing behind.
        steps = planning(logical, ttl, keeps_malformed=not isinstance(statement, Select))
        return PlannedJob(
            name=name,
            statement=statement,
            logical=logical,
            optimized=steps.plans.optimized,
            rules=steps.rules,
            physical=steps.plans.physical,
            options=self.options.copy(),
            functions=self.catalog.duck_functions,
            script=script_of(statement.span.written, self._declarations, self.options.values, self.table_options),
            ties=steps.plans.ties,
            other_plans=steps.other_plans,
        )

    def _name(self, statement: Insert | StatementSet | Select, logical: tuple[ResultSink, ...]) -> str:
        return self._names.name(statement, logical[0].table.name, self.options.text("pipeline.name"))
