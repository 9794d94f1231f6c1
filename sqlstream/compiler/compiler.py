"""Compiles SQL text to jobs: keeps the catalog and the options of a session, and plans every INSERT and SELECT.

Nothing starts here: a script is compiled as a whole before its first job runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeAlias, assert_never

import duckdb

from sqlstream.catalog import AggregateFunction, AnyFunction, Catalog, Function, Table, View
from sqlstream.compiler.binding import bound, bound_in_duckdbs, bound_table, new_binder, noticed
from sqlstream.compiler.catalog_answers import Answer, WarehouseQuery, answer
from sqlstream.compiler.declarations import Declarations, checked_definition, script_of
from sqlstream.compiler.job_checks import check_limits, check_tables
from sqlstream.compiler.job_names import JobNames
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.compiler.planning import planning
from sqlstream.compiler.table_options import TableOptions, changed
from sqlstream.connectors.inference import only_named, with_columns, without_columns
from sqlstream.connectors.tables import (
    check_usable,
    usable,
    validate,
)
from sqlstream.errors import (
    BindError,
    ParseError,
    SourceText,
    Span,
    SqlStreamError,
    StatementWarning,
    UnboundedState,
    UnsupportedError,
    missing,
)
from sqlstream.functions.databases import FunctionDatabase, open_database
from sqlstream.functions.declaration import builtin_names
from sqlstream.functions.load import find
from sqlstream.logical.bind.definitions import bind_view, declared_view
from sqlstream.logical.bind.queries import Binder
from sqlstream.logical.plan.tables import ResultSink
from sqlstream.options import Options
from sqlstream.secrets import remember, shown
from sqlstream.sql.nodes import (
    CreateFunction,
    CreateSavepoint,
    CreateStateCheck,
    CreateTable,
    CreateView,
    Describe,
    DescribeState,
    Drop,
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
    head,
)
from sqlstream.sql.statements import parse_script


@dataclass(frozen=True, slots=True)
class Explanation:
    """The request of EXPLAIN: to show a job, which does not run, at a stage such as LOGICAL."""

    job: PlannedJob
    stage: str


@dataclass(frozen=True, slots=True)
class SavepointRequest:
    """The request of CREATE SAVEPOINT or DROP SAVEPOINT; it is executed when the statements before it have run."""

    statement: CreateSavepoint | DropSavepoint


# Requests of statements that are not jobs, and all that a statement can be compiled to.
Question: TypeAlias = (
    Answer | WarehouseQuery | Explanation | SavepointRequest | CreateStateCheck | DropStateCheck | DescribeState
)
Compiled: TypeAlias = PlannedJob | Question


# Settings of the database that checks types.
_SETTINGS = {"threads": 1}


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
        # The database that checks types, opened on first use.
        self._database: FunctionDatabase | None = None
        self._cursor: duckdb.DuckDBPyConnection | None = None
        self._binder: Binder | None = None
        self._names = JobNames()
        self._declarations = Declarations()
        self._defining = False
        # Called with the name, options and place of each table whose options a script sets, before anything is opened; may raise.
        self.check_table: Callable[[str, Mapping[str, str], Span | None], None] = lambda name, options, span: None
        # Called with warnings about statements.
        self.warn: Callable[[SqlStreamError], None] = lambda warning: None
        # Returns the names of the running jobs that read or write a table.
        self.jobs_of: Callable[[str], Iterable[str]] = lambda table: ()

    @property
    def _con(self) -> duckdb.DuckDBPyConnection:
        if self._cursor is None:
            self._cursor = self._open_database().cursor()
            self._use_zone()
        return self._cursor

    def _open_database(self) -> FunctionDatabase:
        if self._database is None:
            self._database = open_database(self.catalog.duck_functions, _SETTINGS)
        return self._database

    def _use_zone(self) -> None:
        if self._cursor is not None:
            self._cursor.execute(f"SET TimeZone = '{self.options.text('table.local-time-zone')}'")

    @contextmanager
    def connection(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a connection in which the user's functions are registered; its temporary tables are dropped at the end."""
        with self._open_database().cursor() as con:
            yield con

    def close(self) -> None:
        """Close the database that checks types."""
        if self._cursor is not None:
            self._cursor.close()
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def add_functions(self, functions: Iterable[AnyFunction]) -> None:
        """Add functions for statements compiled from now on; each replaces a function of its name."""
        added = tuple(functions)
        callable_in_duckdb = [function for function in added if isinstance(function, Function | AggregateFunction)]
        if self._database is None and callable_in_duckdb:
            self._database = open_database((*self.catalog.duck_functions, *callable_in_duckdb), _SETTINGS)
            callable_in_duckdb = []
        for function in added:
            if (other := self.catalog.any_function(function.name)) is not None and type(other) is not type(function):
                self._remove(other)
            if self._database is not None and function in callable_in_duckdb:
                self._database.add(function)
            self.catalog.add(function)
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
            self._binder = new_binder(self.catalog, self._con)
        return self._binder

    def _next_binder(self) -> Binder:
        """Return what binds the next statement, by the options that are set now."""
        self.binder.checker.meaning.begin(self.options.text("sqlstream.sql.division").lower())
        return self.binder

    def scripts(self, sources: Iterable[SourceText]) -> list[Compiled]:
        """Compile scripts in order; return their jobs and requests. Definitions and SET take effect on the session.

        All scripts are parsed before the first statement is bound. Raises UsageError for options of a table that does not exist.
        """
        self._names.clear()
        statements = [statement for source in sources for statement in parse_script(source)]
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
            self._create_function(statement)
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
            case CreateView():
                self._define(self._view(statement), statement)
            case Drop():
                self._drop(statement)
                self._declarations.forget(statement.name.text)
            case CreateFunction():
                self._create_function(statement)
                self._declarations.add(statement.name.text, statement.span)
            case DropFunction():
                self._drop_function(statement)
                self._declarations.forget(statement.name.text)
            case SetOption(key=key, value=value):
                if not self.options.set(key.text, value.value, key.span, value.span):
                    self.warn(StatementWarning(f"--set {key.text} goes over this SET, which does nothing", key.span))
                self._use_zone()
            case Reset():
                self.options.reset(statement.key.text if statement.key else None, statement.span)
                self._use_zone()
            case Insert() | StatementSet() | Select():
                logical = bound(statement, self._next_binder())
                job = self._job(statement, logical, self._name(statement, logical))
                if not (job.is_query or job.appends):
                    # 'pipeline.name' names one job, and this is it.
                    self.options.take_job_name()
                return job
            case Explain(statement=explained):
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
                return answer(statement, self.binder, self.options)
            case _:
                assert_never(statement)
        return None

    def _table(self, statement: CreateTable) -> Table:
        """Return the table of a CREATE TABLE statement, with its options from outside applied."""
        name = statement.name.text
        overrides = self.table_options.of(name)
        for options in ({key: value.value for key, value in statement.options.items()}, overrides):
            remember(options)
        try:
            declared = self.table_options.declared(statement)
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
                validate(placeholder)
                return placeholder
            table = replace(bound_table(declared, self._next_binder()), within=self.table_options.within)
            if statement.like is not None:
                table = replace(table, options=changed(name, table.options, overrides, table.span))
                self.check_table(name, table.options, statement.name.span)
            validate(table)
            table = self._usable(table)
        except SqlStreamError as error:
            if overrides:
                settings = ", ".join(f"'{key}' = '{shown(key, value)}'" for key, value in overrides.items())
                error.detail = error.detail or f'From outside, table "{name}" was given {settings}.'
            raise
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
        validate(variant)
        if any(table.options.get(key) != options.get(key) for key in ("connector", "class", "function")):
            variant = self._usable(replace(variant, problem=None))
        return replace(variant, span=table.span, places=table.places)

    def _define(self, entry: Table | View, statement: CreateTable | CreateView) -> None:
        existing = self.catalog.declared(entry.name)
        if existing is None or (statement.or_replace and type(existing) is type(entry)):
            self.catalog.add(entry)
            if not self._defining:
                self._declarations.add(entry.name, statement.span)
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

    def _create_function(self, statement: CreateFunction) -> None:
        existing = self.catalog.any_function(statement.name.text)
        if existing is not None and statement.if_not_exists:
            return
        if (builtin := builtin_names().get(statement.name.text.lower())) is not None:
            raise BindError(f'"{statement.name.text}" is the name of {builtin} of SQL', statement.name.span)
        function = find(statement.reference, statement.reference_span, statement.name.text, self.project)
        if existing is not None and existing.location != function.location:
            raise BindError(
                f'function "{existing.name}" exists already, from {existing.location}',
                statement.name.span,
                hint="Give it another name, or write DROP FUNCTION first.",
            )
        self.add_functions([function])

    def _drop_function(self, statement: DropFunction) -> None:
        name = statement.name.text
        if (function := self.catalog.any_function(name)) is not None:
            self._remove(function)
        elif not statement.if_exists:
            hint = missing("function", name, self.catalog.function_names)
            raise BindError(f'function "{name}" does not exist', statement.name.span, hint=hint)

    def _remove(self, function: AnyFunction) -> None:
        self.catalog.drop_function(function.name)
        if isinstance(function, Function | AggregateFunction) and self._database is not None:
            self._database.remove(function)
        self._binder = None

    def _job(self, statement: Insert | StatementSet | Select, logical: tuple[ResultSink, ...], name: str) -> PlannedJob:
        check_tables(statement, logical, self.catalog)
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
