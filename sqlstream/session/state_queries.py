"""State queries of a project, which can use its functions and declared tables besides the warehouse."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import duckdb

from sqlstream.catalog import Catalog, Table
from sqlstream.compiler.catalog_answers import Answer, WarehouseQuery
from sqlstream.compiler.compiler import Compiler
from sqlstream.compiler.loading import load_project
from sqlstream.connectors.interface import Snapshot
from sqlstream.connectors.registry import connector_of
from sqlstream.connectors.tables import is_queried, not_queried
from sqlstream.duck.sql import Relation, Select, no_rows, quote_name, subquery
from sqlstream.errors import QueryError, SourceText, SqlStreamError
from sqlstream.functions.registration import register_for_queries
from sqlstream.options import Options
from sqlstream.project import Project
from sqlstream.queries.query import QueryLimits, calls_with, open_query
from sqlstream.queries.statement import Statement, parse_statement
from sqlstream.sql.nodes import DescribeState, Show
from sqlstream.sql.statements import describes_state, parse_script, shows_what_scripts_show
from sqlstream.warehouse.paths import Warehouse

_MISSING = re.compile(r'(table|function) "(.+)" does not exist')


def query(
    project: Project,
    compiler: Compiler,
    sql: str,
    folders: Mapping[str, Warehouse] | None = None,
    relations: Mapping[tuple[str, str], str] | None = None,
    *,
    limits: QueryLimits | None = None,
    opened: Callable[[duckdb.DuckDBPyConnection], object] | None = None,
) -> duckdb.DuckDBPyRelation:
    """Return the result of a state query, not yet computed; it may use declared tables and the project's functions.

    `folders` are savepoints outside of the warehouse that the query may read, by the texts that name them; `relations` are
    further relations, by schema and name. `opened` is called with the connection before the query runs, so that the caller can
    interrupt it. Raises SqlStreamError.
    """
    try:
        return _query(project, compiler, sql, folders or {}, relations, limits, opened)
    except SqlStreamError as error:
        # A broken file of the project matters only to a query that needs it.
        raise _unloaded(compiler.catalog, error) or error from None


def _unloaded(catalog: Catalog, error: SqlStreamError) -> SqlStreamError | None:
    """Return the error of the catalog file that should have declared a missing table or function; None if there is none."""
    match = _MISSING.match(error.message)
    if match is None:
        return None
    if match[1] == "function":
        about = (one for one in catalog.broken if match[2] in one.render())
        return next(about, next(iter(catalog.broken), None))
    fault = catalog.fault(match[2])
    return None if fault is None else fault.error


def _query(
    project: Project,
    compiler: Compiler,
    sql: str,
    folders: Mapping[str, Warehouse],
    relations: Mapping[tuple[str, str], str] | None,
    limits: QueryLimits | None,
    opened: Callable[[duckdb.DuckDBPyConnection], object] | None,
) -> duckdb.DuckDBPyRelation:
    functions = compiler.catalog.duck_functions
    table_functions = [f.name for f in compiler.catalog.functions.values() if f.kind == "table"]
    readable = [t for t in compiler.catalog.tables.values() if is_queried(t) and t.columns]
    if describes_state(SourceText("query", sql)):
        return _described(project, sql)
    if shows_what_scripts_show(SourceText("query", sql)):
        shown = _shown(compiler, sql, Warehouse(project.warehouse))
        if isinstance(shown, Answer):
            from sqlstream.session.answers import relation_of

            return relation_of(shown)
        sql = shown.sql
    with compiler.connection() as con:
        statement = parse_statement(SourceText("query", sql), con, table_functions)
        snapshots = _snapshots(con, statement, readable, project)

    def register_snapshots(connection: duckdb.DuckDBPyConnection) -> None:
        for rows in snapshots.values():
            rows.register(connection)

    return open_query(
        Warehouse(project.warehouse),
        sql,
        functions=[
            *([opened] if opened is not None else []),
            lambda connection: register_for_queries(connection, functions),
            register_snapshots,
        ],
        table_functions=table_functions,
        catalog_tables={name: rows.relation for name, rows in snapshots.items()},
        others=_not_queried(compiler),
        calls={"verify": partial(_verified, project, compiler), **calls_with(folders)},
        extra_relations=relations,
        allowed_paths=[path for rows in snapshots.values() for path in rows.paths],
        more_warehouses=list(folders.values()),
        limits=limits or QueryLimits(),
    )


def _snapshots(
    con: duckdb.DuckDBPyConnection, statement: Statement, readable: Sequence[Table], project: Project
) -> dict[str, Snapshot]:
    """Return the current rows of the declared tables that a query reads; of tables that it only lists, their columns."""
    named = [t for t in readable if t.name.lower() in statement.names]
    snapshots = {t.name: snapshot(con, t, project.root) for t in named}
    if statement.lists_relations:
        # A list reads no files, so that one unreadable file does not make it fail.
        return {**{t.name: Snapshot(_no_rows(t)) for t in readable}, **snapshots}
    return snapshots


def _verified(project: Project, compiler: Compiler, *call: Any) -> str:
    """Create the relation that a call of `sqlstream.verify` returns, and return its name. See `MakesDifferences`."""
    # Imported here, because few queries verify jobs, and it imports half of the compiler.
    from sqlstream.session.verifying import MakesDifferences

    return MakesDifferences(project, compiler)(*call)


def _no_rows(table: Table) -> Relation:
    """Return a relation without rows that has the columns of a declared table."""
    return subquery(no_rows(table.visible))


def _described(project: Project, sql: str) -> duckdb.DuckDBPyRelation:
    """Return the answer to DESCRIBE STATE, a statement that DuckDB does not have."""
    from sqlstream.session.answers import relation_of
    from sqlstream.session.explaining import described_state

    statement, *more = parse_script(SourceText("query", sql))
    assert isinstance(statement, DescribeState)
    if more:
        raise QueryError("one statement is run at a time", more[0].span)
    return relation_of(described_state(statement, Warehouse(project.warehouse)))


def _shown(compiler: Compiler, sql: str, warehouse: Warehouse) -> Answer | WarehouseQuery:
    """Return the answer that SHOW has in a script."""
    statement, *more = parse_script(SourceText("query", sql))
    if more:
        raise QueryError("one statement is run at a time", more[0].span)
    assert isinstance(statement, Show)
    name = statement.name
    if name is not None and name.text.lower() in {*warehouse.tables()} - {t.lower() for t in compiler.catalog.tables}:
        raise QueryError(
            f'table "{name.text}" is not declared in the catalog of the project',
            name.span,
            detail="A script declares it that writes it.",
            hint=f"DESCRIBE {name.text} lists its columns; SELECT sql FROM sqlstream.jobs has the scripts.",
        )
    shown = compiler.statement(statement)
    assert isinstance(shown, Answer | WarehouseQuery)
    return shown


def _not_queried(compiler: Compiler) -> Mapping[str, str]:
    """Map each declared table and view to why queries cannot read it, "" if they can."""
    declared = compiler.catalog.tables.values()
    tables = {t.name: "" if is_queried(t) else not_queried(t) for t in declared}
    tables |= {t.name: f"{t.problem.message}.".capitalize() for t in declared if t.problem and not t.columns}
    views = "It is a view for the queries of jobs: query what a job writes or keeps."
    return {**tables, **dict.fromkeys((v.name for v in compiler.catalog.views.values()), views)}


class ProjectQueries:
    """State queries of a project without a session, one after the other."""

    def __init__(self, project: Project):
        self._project = project
        self._compiler = Compiler(Options(project.configuration.options), project=project.root, plans_jobs=False)
        load_project(project, self._compiler)

    def query(
        self,
        sql: str,
        folders: Mapping[str, Warehouse] | None = None,
        *,
        limits: QueryLimits | None = None,
        opened: Callable[[duckdb.DuckDBPyConnection], object] | None = None,
    ) -> duckdb.DuckDBPyRelation:
        """Return the result of a query. The arguments have the same meaning as in the function `query`."""
        return query(self._project, self._compiler, sql, folders, limits=limits, opened=opened)

    def prepare(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Register the project's functions in a connection."""
        register_for_queries(connection, self._compiler.catalog.duck_functions)

    def close(self) -> None:
        """Close the compiler."""
        self._compiler.close()


def snapshot(con: duckdb.DuckDBPyConnection, table: Table, project: str) -> Snapshot:
    """Return the current rows of a declared table, with its computed columns."""
    columns = ", ".join(
        quote_name(c.name) if c.expression is None else f"{c.expression} AS {quote_name(c.name)}" for c in table.visible
    )
    rows = connector_of(table).snapshot(con, table, project)
    assert rows is not None
    return replace(rows, relation=subquery(Select(f"SELECT {columns} FROM {rows.relation}")))
