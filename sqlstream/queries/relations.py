"""The names in a query and their views: state, warehouse tables, declared tables, savepoints, and `sqlstream.*`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import duckdb

from sqlstream.duck.errors import missing_table, translate
from sqlstream.duck.sql import Select, quote_name
from sqlstream.errors import DamageError, OtherVersionError, QueryError, SourceText, Span, missing
from sqlstream.queries.arguments import CallArgument, RelationFactory
from sqlstream.queries.diff import create_diff
from sqlstream.queries.statement import StateCall, Statement, TimeTravel, parse_statement
from sqlstream.queries.system import SYSTEM_TABLES, create_system_table
from sqlstream.queries.ttl import create_ttl
from sqlstream.queries.versions import StateRelation, instant, no_version
from sqlstream.queries.why import create_why
from sqlstream.storage.snapshot import JobHistory, JobVersion, VersionGone
from sqlstream.storage.views import operator_view, table_view, times_macro
from sqlstream.units import ProcessingTime
from sqlstream.warehouse.jobs import TABLE
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.records import GONE
from sqlstream.warehouse.savepoint_records import Savepoint, read_savepoint

Pick = Callable[[JobHistory], JobVersion | None]


@dataclass(frozen=True, slots=True)
class WarehouseTable:
    """A warehouse table, with the jobs that have written it or will write it; with `savepoint`, as that savepoint has it."""

    name: str
    writers: tuple[JobHistory, ...]
    savepoint: Savepoint | None = None


@dataclass(frozen=True, slots=True)
class DeclaredTable:
    """A table with a connector, which is read directly; or, in a schema, a relation that was passed to the query."""

    name: str
    relation: str
    schema: str = ""


@dataclass(frozen=True, slots=True)
class SystemTable:
    """The table `sqlstream.<name>`."""

    name: str


Relation = StateRelation | WarehouseTable | DeclaredTable | SystemTable


class Relations:
    """The relations that the names in one query stand for.

    Each job is read once: all views show the same version of it, unless AT names another. With `only`, a query sees no other job.
    """

    def __init__(
        self,
        warehouse: Warehouse,
        declared: Mapping[str, str],
        others: Mapping[str, str],
        calls: Mapping[str, RelationFactory] | None = None,
        extra_relations: Mapping[tuple[str, str], str] | None = None,
        only: str | None = None,
    ):
        self._only = None if only is None else only.lower()
        # Why queries cannot read a declared table, by lower-case name.
        self.others = {name.lower(): why for name, why in others.items() if why}
        self._named = list(others)
        self._warehouse = warehouse
        self._calls = {**_CALLS, **(calls or {})}
        self._declared = {name.lower(): DeclaredTable(name, relation) for name, relation in declared.items()}
        # Relations of this query alone, by schema and name.
        self._extra_relations = {
            (schema.lower(), name.lower()): DeclaredTable(name, relation, schema)
            for (schema, name), relation in (extra_relations or {}).items()
        }

    def _savepoint(self, name: str) -> tuple[Savepoint, JobHistory] | None:
        """Return a savepoint, and the history of its job, which has one version. Raises DamageError and OtherVersionError."""
        if name.lower() not in self._savepoints:
            return None
        entry = self._savepoints[name.lower()]
        if entry is None:
            opened = read_savepoint(self._warehouse.savepoint(name), name)
            entry = opened, JobHistory(opened.warehouse, opened.record.job.lower())
            self._savepoints[name.lower()] = entry
        return entry

    @cached_property
    def _savepoints(self) -> dict[str, tuple[Savepoint, JobHistory] | None]:
        return dict.fromkeys(self._warehouse.savepoints())

    @cached_property
    def _jobs(self) -> dict[str, JobHistory]:
        names = self._warehouse.jobs()
        return {name: JobHistory(self._warehouse, name) for name in names if self._only in (None, name)}

    def names(self) -> Iterator[str]:
        """Yield all names that a query can use, with dots; state comes before tables."""
        yield from map(".".join, self.paths())

    def paths(self) -> Iterator[tuple[str, ...]]:
        """Yield all names that a query can use, as their parts."""
        yield from map(_path, self._all())

    def suggestions(self) -> list[str]:
        """Return the names that a query can use, and all declared names, for hints in errors."""
        return list(dict.fromkeys([*self.names(), *self._named]))

    def _all(self) -> Iterator[Relation]:
        yield from self._extra_relations.values()
        records = [(job, record) for job in self._jobs.values() if (record := job.readable_record)]
        for job, record in records:
            yield from (StateRelation(job, operator, name) for operator in record.operators for name in operator.views)
        tables = {name.lower() for name in self._warehouse.tables()} | set(self._declared)
        tables |= {sink.table.lower() for _, record in records for sink in record.sinks if sink.kind == TABLE}
        for name in sorted(tables):
            # A list leaves out what cannot be read; a query that names it gets the error.
            with contextlib.suppress(DamageError, OtherVersionError):
                if table := self._table(name):
                    yield table
        yield from (SystemTable(name) for name in SYSTEM_TABLES)
        for savepoint in self._savepoints:
            with contextlib.suppress(DamageError, OtherVersionError):
                yield from self._in_savepoint(savepoint)

    def _in_savepoint(self, name: str) -> Iterator[StateRelation | WarehouseTable]:
        """Yield the relations in a savepoint: state, and the tables that its job wrote, unless a state has the same name."""
        if (entry := self._savepoint(name)) is None or (record := entry[1].record) is None:
            return
        savepoint, job = entry
        views = {view: operator for operator in record.operators for view in operator.views}
        yield from (StateRelation(job, operator, view, savepoint) for view, operator in views.items())
        names = {view.lower() for view in views}
        for sink in record.sinks:
            if sink.kind == TABLE and sink.table.lower() not in names:
                names.add(sink.table.lower())
                yield WarehouseTable(sink.table, (job,), savepoint)

    def find(self, path: tuple[str, ...]) -> Relation | None:
        """Return the relation of a name, without regard to case; None if there is none. Raises DamageError, OtherVersionError."""
        match tuple(part.lower() for part in path):
            case (schema, name) if (schema, name) in self._extra_relations:
                return self._extra_relations[schema, name]
            case "state", name, operator:
                job = self._jobs.get(name)
                operators = job.record.operators if job and job.record else ()
                views = ((o, view) for o in operators for view in o.views if view.lower() == operator)
                return next((StateRelation(job, *view) for view in views if job), None)
            case "savepoint", name, relation:
                return next((r for r in self._in_savepoint(name) if r.name.lower() == relation), None)
            case ("sqlstream", name) | ("memory", "sqlstream", name) if name in SYSTEM_TABLES:
                return SystemTable(name)
            case (name,) | ("main" | "memory", name) | ("memory", "main", name):
                return self._table(name)
        return None

    def _table(self, name: str) -> WarehouseTable | DeclaredTable | None:
        # A table exists, without rows, before its first row is written.
        names = self._warehouse.writers(name)
        jobs = [(job, job.record) for name in names if (job := self._jobs.get(name))]
        if not names:
            jobs = [(job, job.readable_record) for job in self._jobs.values()]
        writers = [(job, sink) for job, record in jobs if record and (sink := record.sink(name))]
        if writers:
            return WarehouseTable(writers[0][1].table, tuple(job for job, _ in writers))
        return self._declared.get(name)

    def create(self, connection: duckdb.DuckDBPyConnection, statement: Statement, *, last: bool = True) -> str:
        """Create the views that a statement needs; return the statement's text with time travels and calls replaced.

        Raises QueryError; and FileNotFoundError, VersionGone or DuckDB's IOException when files were replaced in the meantime:
        then the caller starts over. In the `last` attempt, a list of relations leaves out those whose files are gone.
        """
        connection.execute("CREATE SCHEMA IF NOT EXISTS sqlstream; ATTACH IF NOT EXISTS ':memory:' AS state")
        if statement.lists_relations:
            self._list(connection, last)
        for relation in map(self.find, statement.relations):
            if relation is not None:
                self._create(connection, _path(relation), relation, lambda job: job.newest)
        targets = []
        for number, travel in enumerate(statement.travels):
            catalog = f"@{number}"
            connection.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {quote_name(catalog)}")
            targets.append(self._create_older(connection, catalog, travel))
        call_targets = [self._make(connection, f"@call{number}", call) for number, call in enumerate(statement.calls)]
        return statement.rewritten(targets, call_targets)

    def _list(self, connection: duckdb.DuckDBPyConnection, last: bool) -> None:
        """Create the views of all relations that can be read; a query that names another one gets the error."""
        for relation in self._all():
            try:
                self._create(connection, _path(relation), relation, lambda job: job.newest)
            except (FileNotFoundError, VersionGone, duckdb.IOException):
                if not last:
                    raise
            except DamageError as error:
                if error.fault == GONE and not last:
                    raise
            except OtherVersionError:
                pass

    def _make(self, connection: duckdb.DuckDBPyConnection, catalog: str, call: StateCall) -> str:
        """Create the relation of a call in a new catalog, and return the relation's name as SQL."""
        make = self._calls.get(call.function)
        if make is None:
            raise QueryError(f"sqlstream.{call.function} cannot be called here", call.span)
        arguments = [
            CallArgument(a.name, self._evaluated(connection, a.value, a.span, "an argument is one value"), a.span)
            for a in call.arguments
        ]
        try:
            return make(connection, catalog, self._warehouse, self._jobs, arguments, call.span)
        except VersionGone as gone:
            raise no_version(self._jobs[gone.job], "version that old", call.span, gone.oldest) from gone

    def _create(
        self, connection: duckdb.DuckDBPyConnection, path: tuple[str, ...], relation: Relation, pick: Pick
    ) -> None:
        *schema, _ = name = [quote_name(part) for part in path]
        if len(schema) > 1:
            connection.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {schema[0]}")
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {'.'.join(schema)}")
        match relation:
            case StateRelation(job, operator, view, savepoint):
                snapshot = pick(job)
                connection.execute(times_macro(".".join(schema), snapshot))
                warehouse = savepoint.warehouse if savepoint else self._warehouse
                sql = operator_view(warehouse, job.name, operator, snapshot, operator.views[view])
            case WarehouseTable(table, writers, savepoint):
                versions = [(job.record, pick(job)) for job in writers if job.record]
                sql = table_view(savepoint.warehouse if savepoint else self._warehouse, table, versions)
            case DeclaredTable(_, source):
                if schema:
                    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema[0]}")
                sql = Select(f"SELECT * FROM {source}")
            case SystemTable(table):
                create_system_table(connection, table, self._warehouse, self._jobs.values())
                return
        connection.execute(f"CREATE OR REPLACE VIEW {'.'.join(name)} AS {sql}")

    def _create_older(self, connection: duckdb.DuckDBPyConnection, catalog: str, travel: TimeTravel) -> str:
        """Create the view of a relation at an older version or in a savepoint, and return the view's name as SQL."""
        relation = self.find(travel.path)
        if relation is None:
            error = missing_table(".".join(travel.path), travel.relation, self.suggestions(), self.others)
            if travel.unit == "SAVEPOINT":
                name = str(self._value(connection, travel, "?::VARCHAR"))
                if (saved_relation := self.find(("savepoint", name, travel.path[-1]))) is not None:
                    error.hint = f"The savepoint has it, as {'.'.join(_path(saved_relation))}."
            raise error
        if not isinstance(relation, StateRelation | WarehouseTable):
            name = ".".join(_path(relation))
            raise QueryError(
                f'"{name}" has no older versions: only state and tables of the warehouse do', travel.clause
            )
        if travel.unit == "SAVEPOINT":
            relation = self._at_savepoint(connection, travel, relation)
        parts = _path(relation)
        path = (catalog, *(parts if len(parts) == 1 else parts[1:]))
        writers = (relation.job,) if isinstance(relation, StateRelation) else relation.writers
        if relation.savepoint is not None:
            versions: Mapping[str, JobVersion | None] = {job.name: job.newest for job in writers}
        else:
            versions = self._versions(connection, travel, writers)
        try:
            self._create(connection, path, relation, lambda job: versions[job.name])
        except VersionGone as gone:
            job = next(job for job in writers if job.name == gone.job)
            raise no_version(job, "version that old", travel.clause, gone.oldest) from gone
        return ".".join(map(quote_name, path))

    def _at_savepoint(
        self, connection: duckdb.DuckDBPyConnection, travel: TimeTravel, relation: StateRelation | WarehouseTable
    ) -> StateRelation | WarehouseTable:
        """Return a relation in a savepoint of its job; of a table, in a savepoint of a job that writes it."""
        name = str(self._value(connection, travel, "?::VARCHAR"))
        if relation.savepoint is not None or (entry := self._savepoint(name)) is None:
            raise QueryError(
                f'savepoint "{name}" does not exist',
                travel.clause,
                hint=missing("savepoint", name, self._savepoints),
            )
        savepoint, job = entry
        if isinstance(relation, WarehouseTable):
            if job.record is not None and job.record.sink(relation.name):
                return WarehouseTable(relation.name, (job,), savepoint)
        elif job.name == relation.job.name:
            operators = (o for o in (job.record.operators if job.record else ()) if relation.name in o.views)
            if (operator := next(operators, None)) is not None:
                return StateRelation(job, operator, relation.name, savepoint)
        raise QueryError(
            f'savepoint "{name}" does not have "{".".join(_path(relation))}"',
            travel.clause,
            detail=f'It is of job "{savepoint.record.job}".',
        )

    def _versions(
        self, connection: duckdb.DuckDBPyConnection, travel: TimeTravel, jobs: tuple[JobHistory, ...]
    ) -> Mapping[str, JobVersion | None]:
        """Return the version of each job that an AT clause asks for."""
        if travel.unit == "VERSION":
            if len(jobs) > 1:
                names = ", ".join(f'"{job.name}"' for job in jobs)
                raise QueryError(
                    f"several jobs write this table, each with versions of its own: {names}",
                    travel.clause,
                    hint="Write AT (TIMESTAMP => ..).",
                )
            number = int(self._value(connection, travel, "?::BIGINT"))
            versions = {jobs[0].name: jobs[0].at_version(number)}
            description = f"version {number}"
        else:
            micros = self._value(connection, travel, "epoch_us(?::TIMESTAMPTZ)")
            if micros is None:
                raise QueryError("AT takes a time that is not infinite", travel.clause)
            time = ProcessingTime(micros)
            versions = {job.name: job.at_time(time) for job in jobs}
            description = f"version of {instant(time)} or before"
        for job in jobs:
            # If another job has a version, this one may have begun later: it had written nothing.
            began_later = any(versions.values()) and job.oldest == 0
            if versions[job.name] is None and not began_later:
                raise no_version(job, description, travel.clause)
        return versions

    def _value(self, connection: duckdb.DuckDBPyConnection, travel: TimeTravel, conversion: str) -> Any:
        """Return the value in an AT clause, converted: a constant, or the result of a query over `sqlstream.*`."""
        value = self._evaluated(connection, travel.value, travel.clause, "AT takes one value that is not NULL")
        if value is None:
            raise QueryError("AT takes one value that is not NULL", travel.clause)
        try:
            [(result,)] = connection.execute(f"SELECT {conversion}", [value]).fetchall()
        except duckdb.Error as error:
            raise QueryError(translate(error, SourceText("query", travel.value)).message, travel.clause) from error
        return result

    def _evaluated(self, connection: duckdb.DuckDBPyConnection, sql: str, span: Span, message: str) -> Any:
        """Return the only value of a SELECT. Its expression is at the same position as in the statement, for errors."""
        origin = span.source
        value = SourceText(origin.name, sql)
        try:
            statement = parse_statement(value, connection)
            named = [(path, self.find(path)) for path in statement.relations]
            declared = {*self._declared, *(name.lower() for name in self._named)}
            ours = (isinstance(r, StateRelation | WarehouseTable) or path[-1].lower() in declared for path, r in named)
            if statement.travels or statement.calls or any(ours):
                hint = "A query in it can read the tables of sqlstream.*, such as sqlstream.snapshots."
                what = "AT" if span.text[:2].upper() == "AT" else "an argument"
                raise QueryError(f"{what} takes a constant, or a query over sqlstream.*", span, hint=hint)
            for _, relation in named:
                # Another name may be a CTE.
                if relation is not None:
                    self._create(connection, _path(relation), relation, lambda job: job.newest)
            rows = connection.execute(sql).fetchall()
            if len(rows) != 1 or len(rows[0]) != 1:
                raise QueryError(message, span)
        except duckdb.Error as error:
            raise QueryError(translate(error, value).message, span) from error
        except QueryError as error:
            at = Span(origin, error.span.start, error.span.end) if error.span else span
            raise QueryError(error.message, at, hint=error.hint) from error
        return rows[0][0]


# The functions `sqlstream.*` of all sessions; see the argument `calls` of Relations for more.
_CALLS: Mapping[str, RelationFactory] = {"diff": create_diff, "ttl": create_ttl, "why": create_why}


def drop_names(connection: duckdb.DuckDBPyConnection) -> None:
    """Drop all that `Relations.create` has created in a connection."""
    connection.execute("DROP SCHEMA IF EXISTS sqlstream CASCADE")
    for (name,) in connection.execute(
        "SELECT database_name FROM duckdb_databases() WHERE NOT internal AND database_name <> 'memory'"
    ).fetchall():
        connection.execute(f"DETACH {quote_name(name)}")
    for (name,) in connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall():
        connection.execute(f"DROP VIEW {quote_name(name)}")


def _path(relation: Relation) -> tuple[str, ...]:
    match relation:
        case StateRelation(name=name, savepoint=savepoint) | WarehouseTable(name=name, savepoint=savepoint) if (
            savepoint
        ):
            return "savepoint", savepoint.record.name, name
        case StateRelation(job, _, view):
            return "state", job.record.job if job.record else job.name, view
        case SystemTable(name):
            return "sqlstream", name
        case DeclaredTable(name, _, schema) if schema:
            return schema, name
        case WarehouseTable(name) | DeclaredTable(name):
            return (name,)
