"""The worker in the process of a query: it runs queries over the project's tables and functions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb

from sqlstream.project import Project
from sqlstream.queries.query import QueryLimits
from sqlstream.server.listed_tables import TABLES, ListedTable, listed_table
from sqlstream.session.state_queries import ProjectQueries

# The list of tables may be this many seconds old: a client sends a dozen queries about them in a row.
LISTED_FOR = 2.0


@dataclass(slots=True)
class OpenRelation:
    """The result of a query, not yet computed, with the connections that it needs."""

    relation: duckdb.DuckDBPyRelation
    connections: Sequence[duckdb.DuckDBPyConnection] = ()

    def close(self) -> None:
        """Close the connections: the error of a failed query would keep its connection and its threads alive for long."""
        for connection in self.connections:
            connection.close()


@dataclass(slots=True)
class _PendingConnections:
    """The connections of queries that are being opened."""

    connections: list[duckdb.DuckDBPyConnection] = field(default_factory=list)

    def close(self) -> None:
        for connection in self.connections:
            connection.close()


class Worker:
    """Runs queries of a project, for one request after the other. Requests can keep data in `memory` for later ones."""

    def __init__(self, project: Project, limits: QueryLimits):
        self._queries, self._limits = ProjectQueries(project), limits
        self._listed: tuple[float, Sequence[ListedTable]] | None = None
        # What a protocol keeps between requests, by its name.
        self.memory: dict[str, Any] = {}
        # The first query takes longer than later ones.
        self.open("SELECT 1").close()

    def open(self, sql: str) -> OpenRelation:
        """Return the result of a query, not yet computed. Raises SqlStreamError."""
        opened = _PendingConnections()
        try:
            relation = self._queries.query(sql, limits=self._limits, opened=opened.connections.append)
        except BaseException:
            opened.close()
            raise
        return OpenRelation(relation, opened.connections)

    def tables(self) -> Sequence[ListedTable]:
        """Return the readable tables. Raises SqlStreamError."""
        if self._listed is None or self._listed[0] < time.monotonic() - LISTED_FOR:
            result = self.open(TABLES)
            try:
                rows = result.relation.fetchall()
            finally:
                result.close()
            self._listed = time.monotonic(), [listed_table(*row) for row in rows]
        return self._listed[1]
