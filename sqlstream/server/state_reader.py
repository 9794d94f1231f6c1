"""Queries of a server's clients: they only read, can be interrupted from another thread, and have limits."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from sqlstream.errors import JobError, SourceText, SqlStreamError
from sqlstream.functions.registration import recover
from sqlstream.queries.query import QueryLimits, translate
from sqlstream.server.query_pool import QueryPool

# So old what is known of the tables may be, in seconds: a client asks a dozen questions about them in a row.
_LISTED_FOR = 2.0
_TABLES = """
SELECT database, schema, name, column_names, column_types FROM (SHOW ALL TABLES)
WHERE database NOT LIKE '@%' ORDER BY ALL
"""


class QueryStopped(Exception):
    """A query was stopped before its end; the message tells why."""


class RunningQuery:
    """A query that another thread can stop, before it has begun, too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._why: str | None = None

    def opened(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Say in which connection the query runs. Raises QueryStopped when it is not to begin."""
        with self._lock:
            self._connection = connection
        self.check()

    def stop(self, why: str) -> None:
        """Interrupt the query; again, as long as it has not ended: between two of its statements nothing is interrupted."""
        with self._lock:
            self._why = self._why or why
            if self._connection is not None:
                self._connection.interrupt()

    def memory(self) -> int:
        """Return how many bytes of memory the query has of DuckDB, whose rows are being read."""
        with self._lock:
            connection = self._connection
        if connection is None:
            return 0
        # Another statement of the same connection would end the result.
        with connection.cursor() as beside:
            [(held,)] = beside.execute("SELECT sum(memory_usage_bytes) FROM duckdb_memory()").fetchall()
        return int(held or 0)

    @property
    def is_stopped(self) -> bool:
        return self._why is not None

    def check(self) -> None:
        """Raise QueryStopped when the query has been stopped."""
        if self._why is not None:
            raise QueryStopped(self._why)


@dataclass(frozen=True, slots=True)
class ListedTable:
    """A table that a query can read: `state.hourly` and `counts`, or `main` and the name of a table of the warehouse."""

    schema: str
    name: str
    columns: tuple[tuple[str, str], ...]

    @property
    def is_view(self) -> bool:
        """Whether it shows what is kept elsewhere: state, and what is known about jobs."""
        return self.schema != "main"


class StateReader:
    """Runs queries over the state and the tables of a project's warehouse, those of several threads."""

    def __init__(self, pool: QueryPool, limits: QueryLimits | None = None):
        self._pool = pool
        self._limits = limits or QueryLimits()
        self._listing = threading.Lock()
        self._listed: tuple[float, Sequence[ListedTable]] | None = None

    def open(self, sql: str, running: RunningQuery) -> duckdb.DuckDBPyRelation:
        """Return the result of a query, not yet computed. Raises SqlStreamError, and QueryStopped."""
        with self._pool.lent() as queries:
            running.check()
            try:
                return queries.query(sql, limits=self._limits, opened=running.opened)
            except (SqlStreamError, duckdb.Error):
                # It reports an interruption as an error of its SQL.
                running.check()
                raise

    def tables(self) -> Sequence[ListedTable]:
        """Return the tables that there are to read. Raises SqlStreamError."""
        with self._listing:
            if self._listed is None or self._listed[0] < time.monotonic() - _LISTED_FOR:
                rows = self.open(_TABLES, RunningQuery()).fetchall()
                self._listed = time.monotonic(), [_listed(*row) for row in rows]
            return self._listed[1]


def _listed(database: str, schema: str, name: str, columns: list[str], types: list[str]) -> ListedTable:
    schema = schema if database == "memory" else f"{database}.{schema}"
    return ListedTable(schema, name, tuple(zip(columns, types, strict=True)))


def failure(error: Exception, source: SourceText, running: RunningQuery) -> SqlStreamError:
    """Return what DuckDB reports as an error of a query. Raises QueryStopped for one that was stopped."""
    running.check()
    recovered: JobError | None = recover(error) if isinstance(error, duckdb.Error) else None
    return recovered or translate(error, source)
