"""A state query of a project that no session has open, as quick as can be: what knows SQL is imported where it is needed.

Most queries name what the warehouse has, and call functions of DuckDB's. Nothing that the catalog declares changes their meaning:
a table of the warehouse goes before a declared one, and no function may have the name of one of DuckDB's. So a query is tried
without the project's tables and functions. Where it fails, it is run anew with them: it may need one, or its error may name one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import partial

import duckdb

from sqlstream.compiler.project import Project
from sqlstream.errors import SourceText, SqlStreamError
from sqlstream.options import Options
from sqlstream.queries.diff import create_diff
from sqlstream.queries.query import QueryLimits, open_query
from sqlstream.queries.statement import parse_statement
from sqlstream.queries.why import create_why
from sqlstream.warehouse.paths import Warehouse

Opened = Callable[[duckdb.DuckDBPyConnection], object]

# DuckDB's own views have such names: before them goes what is declared under one.
_OF_DUCKDB = ("duckdb_", "pg_", "pragma_", "sqlite_")
# Names behind SHOW and DESCRIBE that may be words of a statement of ours.
_WORDS = ("savepoints", "state")


def open_project_query(
    project: Project,
    sql: str,
    folders: Mapping[str, Warehouse] | None = None,
    *,
    limits: QueryLimits | None = None,
    opened: Opened | None = None,
) -> duckdb.DuckDBPyRelation:
    """Return the result of a state query, not yet computed. Raises SqlStreamError.

    `folders` are savepoints outside of the warehouse that it may read, by how it names them. `opened` is called with each
    connection in which the query is tried, before it runs.
    """
    # Options that are wrong are refused whatever is asked.
    Options(project.configuration.options)
    with contextlib.suppress(SqlStreamError):
        found = _without_catalog(project, sql, folders or {}, limits or QueryLimits(), opened)
        if found is not None:
            return found

    from sqlstream.session.state_queries import ProjectQueries

    queries = ProjectQueries(project)
    try:
        return queries.query(sql, folders, limits=limits, opened=opened)
    finally:
        queries.close()


def _without_catalog(
    project: Project, sql: str, folders: Mapping[str, Warehouse], limits: QueryLimits, opened: Opened | None
) -> duckdb.DuckDBPyRelation | None:
    """Return the result of a query, None where it may mean something else beside a catalog. Raises SqlStreamError."""
    with duckdb.connect() as connection:
        statement = parse_statement(SourceText("query", sql), connection)
    if statement.lists_relations or any(n in _WORDS or n.startswith(_OF_DUCKDB) for n in statement.names):
        return None
    return open_query(
        Warehouse(project.warehouse),
        sql,
        functions=[opened] if opened is not None else [],
        calls={"diff": partial(create_diff, folders=folders), "why": partial(create_why, folders=folders)},
        more_warehouses=list(folders.values()),
        limits=limits,
    )
