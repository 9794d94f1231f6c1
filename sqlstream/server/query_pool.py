"""Keeps the tables and functions of a project loaded, for the server's own queries.

Queries of clients run in their own processes (`query_processes`).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb

from sqlstream.project import Project
from sqlstream.session.state_queries import ProjectQueries


class QueryPool:
    """Lends loaded projects to threads, each to one caller at a time. It loads the project again after its files have changed."""

    def __init__(self, project: Project):
        self._project = project
        self._free: list[ProjectQueries] = []
        self._seen: object = None
        self._changing = threading.Lock()

    @contextlib.contextmanager
    def lent(self) -> Iterator[ProjectQueries]:
        """Yield a loaded project, which no other caller uses within the context."""
        seen = project_files(self._project)
        with self._changing:
            if seen != self._seen:
                self._seen, old, self._free = seen, self._free, []
                for one in old:
                    one.close()
            queries = self._free.pop() if self._free else None
        queries = queries or ProjectQueries(self._project)
        try:
            yield queries
        finally:
            with self._changing:
                if is_current := seen == self._seen:
                    self._free.append(queries)
            if not is_current:
                queries.close()

    def prepare(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Register the project's functions in a connection."""
        with self.lent() as queries:
            queries.prepare(connection)

    def close(self) -> None:
        """Close the loaded projects that are not lent."""
        for one in self._free:
            one.close()


def project_files(project: Project) -> object:
    """Return a value that changes when a file of the catalog or of functions does."""
    files = []
    for folder, pattern in ((project.catalog, "*.sql"), (project.udfs, "*.py")):
        for path in sorted(Path(folder).rglob(pattern)):
            with contextlib.suppress(OSError):
                status = os.stat(path)
                files.append((str(path), status.st_mtime_ns, status.st_size))
    return tuple(files)
