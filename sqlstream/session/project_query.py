"""A state query of a project without a session, as fast as possible: the compiler is imported only if it is needed.

Most queries use only relations of the warehouse and functions of DuckDB. No declaration changes their meaning: a table of the
warehouse takes precedence over a declared one, and no function may have the name of a function of DuckDB. So a query first runs
without the project's tables and functions. If it fails, it runs again with them: it may need one, or its error may name one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

import duckdb

from sqlstream.errors import SourceText, SqlStreamError
from sqlstream.options import Options
from sqlstream.project import Project
from sqlstream.queries.query import QueryLimits, calls_with, open_query
from sqlstream.queries.statement import parse_statement
from sqlstream.warehouse.paths import Warehouse

Opened = Callable[[duckdb.DuckDBPyConnection], object]

# Prefixes of DuckDB's own views. A declared table of such a name takes precedence over the view.
_OF_DUCKDB = ("duckdb_", "pg_", "pragma_", "sqlite_")
# Names after SHOW and DESCRIBE that may belong to a statement of sqlstream.
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

    `folders` are savepoints outside of the warehouse that the query may read, by the texts that name them. `opened` is called
    with each connection in which the query is tried, before it runs.
    """
    # Wrong options are an error for every query.
    Options(project.configuration.options)
    with contextlib.suppress(SqlStreamError):
        relation = _without_catalog(project, sql, folders or {}, limits or QueryLimits(), opened)
        if relation is not None:
            return relation

    from sqlstream.session.state_queries import ProjectQueries

    queries = ProjectQueries(project)
    try:
        return queries.query(sql, folders, limits=limits, opened=opened)
    finally:
        queries.close()


def _without_catalog(
    project: Project, sql: str, folders: Mapping[str, Warehouse], limits: QueryLimits, opened: Opened | None
) -> duckdb.DuckDBPyRelation | None:
    """Return the result of a query without the project's catalog; None if the catalog could change it. Raises SqlStreamError."""
    with duckdb.connect() as connection:
        statement = parse_statement(SourceText("query", sql), connection)
    if statement.lists_relations or any(n in _WORDS or n.startswith(_OF_DUCKDB) for n in statement.names):
        return None
    return open_query(
        Warehouse(project.warehouse),
        sql,
        functions=[opened] if opened is not None else [],
        calls=calls_with(folders),
        more_warehouses=list(folders.values()),
        limits=limits,
    )
