"""A warehouse that a job writes, and a server for PostgreSQL's clients over it, in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.queries.small_job import SmallJob
from tests.server.postgres import serving


@dataclass(frozen=True)
class Served:
    """A project with a job, and the port of a server."""

    root: Path
    job: SmallJob
    port: int

    @property
    def url(self) -> str:
        return f"postgresql://someone@127.0.0.1:{self.port}/flights"

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, autocommit=True, **options)

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with self.connect() as con:
            return con.execute(sql.encode(), parameters or None).fetchall()


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("postgres")
    job = SmallJob(root / "warehouse")
    job.batch([("a", 1, 10), ("b", 2, 10)], [("a", 1)])
    job.batch([("a", 5, 20)], [("b", 2)])
    with serving.started(root, seconds=120) as port:
        yield Served(root, job, port)
