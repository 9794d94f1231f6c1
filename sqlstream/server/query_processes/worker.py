"""What requests use in the process of a query: the project with its tables and functions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb

from sqlstream.compiler.project import Project
from sqlstream.queries.query import QueryLimits
from sqlstream.server.listed_tables import TABLES, ListedTable, listed_table
from sqlstream.session.state_queries import ProjectQueries

# So old what is known of the tables may be, in seconds: a client asks a dozen questions about them in a row.
LISTED_FOR = 2.0


@dataclass(slots=True)
class OpenRelation:
    """The result of a query, not yet computed, and the database that it is in."""

    relation: duckdb.DuckDBPyRelation
    connections: Sequence[duckdb.DuckDBPyConnection] = ()

    def close(self) -> None:
        """Close the database: one that failed stays in memory with its error, for long, and has threads."""
        for connection in self.connections:
            connection.close()


@dataclass(slots=True)
class _Opened:
    """The connections of queries that are being opened."""

    connections: list[duckdb.DuckDBPyConnection] = field(default_factory=list)

    def close(self) -> None:
        for connection in self.connections:
            connection.close()


class Worker:
    """Runs queries of a project; requests of one client after the other keep here what they need again."""

    def __init__(self, project: Project, limits: QueryLimits):
        self._queries, self._limits = ProjectQueries(project), limits
        self._listed: tuple[float, Sequence[ListedTable]] | None = None
        # What a protocol keeps from request to request, by its name.
        self.memory: dict[str, Any] = {}
        # The first query takes longer than those after it.
        self.open("SELECT 1").close()

    def open(self, sql: str) -> OpenRelation:
        """Return the result of a query. Raises SqlStreamError."""
        opened = _Opened()
        try:
            relation = self._queries.query(sql, limits=self._limits, opened=opened.connections.append)
        except BaseException:
            opened.close()
            raise
        return OpenRelation(relation, opened.connections)

    def tables(self) -> Sequence[ListedTable]:
        """Return the tables that there are to read. Raises SqlStreamError."""
        if self._listed is None or self._listed[0] < time.monotonic() - LISTED_FOR:
            result = self.open(TABLES)
            try:
                rows = result.relation.fetchall()
            finally:
                result.close()
            self._listed = time.monotonic(), [listed_table(*row) for row in rows]
        return self._listed[1]
