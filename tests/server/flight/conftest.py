"""A warehouse that a job writes, and a server for clients of Flight SQL over it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi
import pyarrow as pa
import pytest

from sqlstream.project import Project
from sqlstream.server.flight.server import FlightServer
from sqlstream.server.query_processes.pool import QueryProcesses
from tests.queries.small_job import SmallJob


@dataclass(frozen=True)
class Served:
    """A project with a job, and a server."""

    root: Path
    job: SmallJob
    server: FlightServer

    @property
    def url(self) -> str:
        return self.server.url

    @contextlib.contextmanager
    def connect(self, **options: str) -> Iterator[Any]:
        """Yield a connection of ADBC's."""
        with connect(self.url, **options) as connection:
            yield connection

    def table(self, sql: str, parameters: Sequence[object] | None = None) -> pa.Table:
        """Return the result of a query."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return cursor.fetch_arrow_table()

    def rows(self, sql: str, parameters: Sequence[object] | None = None) -> list[tuple[Any, ...]]:
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            found: list[tuple[Any, ...]] = cursor.fetchall()
            return found


def connect(url: str, **options: str) -> Any:
    """Return a connection of ADBC's, which begins no transactions."""
    return adbc_driver_flightsql.dbapi.connect(url, options, autocommit=True)


def fetch(cursor: Any, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    cursor.execute(sql)
    found: list[tuple[Any, ...]] = cursor.fetchall()
    return found


@contextlib.contextmanager
def flight_server(root: Path, **options: Any) -> Iterator[FlightServer]:
    """Yield a server over a project."""
    processes = QueryProcesses(Project(str(root), str(root / "warehouse")))
    with FlightServer(processes, port=0, **options) as server:
        yield server
    processes.close()


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("flight")
    job = SmallJob(root / "warehouse")
    job.batch([("a", 1, 10), ("b", 2, 10)], [("a", 1)])
    job.batch([("a", 5, 20)], [("b", 2)])
    with flight_server(root) as server:
        yield Served(root, job, server)
