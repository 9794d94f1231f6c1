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
from sqlstream.compiler.binding import bound, bound_in_duckdbs, bound_table, new_binder, noticed
from sqlstream.compiler.catalog_answers import answer
from sqlstream.compiler.databases import Databases
from sqlstream.compiler.declarations import Declarations, checked_definition, script_of
from sqlstream.compiler.job_checks import check_limits, check_tables, tables_of
from sqlstream.compiler.job_names import JobNames
from sqlstream.compiler.notices import Notices
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.compiler.planning import planning
from sqlstream.compiler.requests import Compiled, Explanation, Question, SavepointRequest
from sqlstream.compiler.session_functions import SessionFunctions
from sqlstream.compiler.table_as import declaration_of, declared_as, insert_of
from sqlstream.compiler.table_options import TableOptions, changed, of_database
from sqlstream.connectors.inference import only_named, with_columns, without_columns
from sqlstream.connectors.tables import check_usable, usable, validate, without_flinks
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
from sqlstream.secrets import remember, shown
from sqlstream.sql.nodes import (
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

    Methods that compile raise ParseError, BindError or UnsupportedError, with a place in the text.
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
        # If false, tables of connectors of other packages have only a name, and these packages are not imported.
        self._plans_jobs = plans_jobs
        self.catalog = Catalog()
        self.catalog.with_options = self._with_options
        self.table_options = TableOptions(table_options or {})
        self.options = options or Options()
        self._functions = SessionFunctions(self.catalog, project, lambda: self.options.text("table.local-time-zone"))
        self._binder: Binder | None = None
        self._names = JobNames()
        self._declarations = Declarations()
        self._databases = Databases()
        self._defining = False
        # Called with the name, options and place of each table whose options a script sets, before anything is opened; may raise.
        self.check_table: Callable[[str, Mapping[str, str], Span | None], None] = lambda name, options, span: None
        # Called with warnings about statements.
        self.warn: Callable[[SqlStreamError], None] = lambda warning: None
        self.notices = Notices(lambda notice: self.warn(notice))
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

    def take_over(self, other: Compiler, but: Iterable[str]) -> None:
        """Add the functions, tables and views of another compiler, without the tables and views named in `but`."""
        catalog, left_out = other.catalog, set(map(str.lower, but))
        self.add_functions([*catalog.duck_functions, *catalog.process_functions.values()])
        for entry in catalog:
            if entry.name.lower() not in left_out:
                self.catalog.add(entry)

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
        self._defining = True
        try:
            self.statement(statement)
        finally:
            self._defining = False

    def statement(self, statement: Statement) -> Compiled | None:
        """Compile one statement; return its job or request, None if it only changes the session."""
        try:
            return self._compiled(statement)
        except RecursionError:
            raise ParseError("the statement is nested too deeply", statement.span) from None

    def _compiled(self, statement: Statement) -> Compiled | None:
        match statement:
            case CreateTable():
                self._define(self._table(statement), statement)
            case CreateTableAs():
                return self._table_as(statement)
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
                self._check_names(statement)
                logical = bound(statement, self._next_binder())
                job = self._job(statement, logical, self._name(statement, logical))
                if not (job.is_query or job.appends):
                    # 'pipeline.name' names one job, and this is it.
                    self.options.take_job_name()
                return job
            case Explain(statement=explained):
                self._check_names(explained)
                logical = bound(explained, self._next_binder())
                return Explanation(self._job(explained, logical, logical[0].table.name), statement.stage)
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
        self._databases.check_query(statement.query, statement.span.source)
        query, _ = self._next_binder().bind(statement.query, statement.span.source)
        declared = declared_as(statement, query)
        table = self._table(declared)
        self._define(table, declared)
        declaration = declaration_of(table)
        text = None if declaration is None else f"{self._databases.use_current}{declaration}"
        self._declarations.add_text(table.name, text)
        return self._compiled(insert_of(statement))

    def _table(self, statement: CreateTable) -> Table:
        """Return the table of a CREATE TABLE statement, with its options from outside applied."""
        name = statement.name.text
        overrides = self.table_options.of(name)
        for options in ({key: value.value for key, value in statement.options.items()}, overrides):
            remember(options)
        try:
            declared = of_database(self.table_options.declared(statement))
            remember({key: option.value for key, option in declared.options.items()})
            self.check_table(name, {k: option.value for k, option in declared.options.items()}, statement.name.span)
            if not self._plans_jobs and (placeholder := only_named(declared)) is not None:
                return placeholder
            try:
                declared = with_columns(declared, self.project, self.table_options.within)
            except SqlStreamError as error:
                # In a catalog file the error is raised when a job uses the table.
                placeholder = without_columns(declared, error) if self._defining else None
                if placeholder is None:
                    raise
                validate(self._without_flinks(placeholder))
                return placeholder
            table = replace(bound_table(declared, self._next_binder()), within=self.table_options.within)
            if statement.like is not None:
                table = replace(table, options=changed(name, table.options, overrides, table.span))
                self.check_table(name, table.options, statement.name.span)
            table = self._without_flinks(table)
            validate(table)
            table = self._usable(table)
        except SqlStreamError as error:
            if overrides:
                settings = ", ".join(f"'{key}' = '{shown(key, value)}'" for key, value in overrides.items())
                error.detail = error.detail or f'From outside, table "{name}" was given {settings}.'
            raise
        return table

    def _without_flinks(self, table: Table) -> Table:
        """Return a table without options of Flink that have no effect here; warn about each of them."""
        table, notices = without_flinks(table)
        if self._defining:
            self.notices.keep(table.name, notices)
        else:
            self.notices.give(notices)
        return table

    def _usable(self, table: Table) -> Table:
        """Return a table with its implementation; if it is not usable, raise, or in a catalog file record the problem."""
        table = usable(table)
        if table.problem is not None and self.catalog.broken and table.problem.detail is None:
            table.problem.detail = "\n".join(f"{error.message}." for error in self.catalog.broken)
        if not self._defining:
            check_usable(table)
        return table

    def _with_options(self, table: Table, overrides: Mapping[str, str], span: Span) -> Table:
        """Return a table with the options of a query's hint OPTIONS; errors point at the hint."""
        remember(overrides)
        options = changed(table.name, table.options, overrides, span)
        for key, value in self.table_options.of(table.name).items():
            if key in overrides and overrides[key] != value:
                self.warn(
                    StatementWarning(
                        f'the hint goes over the "{key}" that table "{table.name}" was given from outside', span
                    )
                )
        self.check_table(table.name, options, span)
        # Options of the hint have their place there; the others keep their places.
        places = {name: place for name, place in table.places.items() if name not in overrides}
        variant = replace(table, options=options, span=span, places=places, within=self.table_options.within)
        variant = self._without_flinks(variant)
        validate(variant)
        if any(table.options.get(key) != variant.options.get(key) for key in ("connector", "class", "function")):
            variant = self._usable(replace(variant, problem=None))
        return replace(variant, span=table.span, places=table.places)

    def _define(self, entry: Table | View, statement: CreateTable | CreateView) -> None:
        existing = self.catalog.declared(entry.name)
        if not self._defining:
            self._databases.declare(statement, exists=existing is not None)
        if existing is None or (statement.or_replace and type(existing) is type(entry)):
            self.catalog.add(entry)
            if not self._defining:
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
            if self._defining and any(error is table.problem for table in self.catalog.tables.values()):
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
