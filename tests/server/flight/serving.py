"""A server for clients of Flight SQL in a process of its own: `python -m tests.server.flight.serving PROJECT`."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from pathlib import Path

from sqlstream.project import Project
from sqlstream.server.flight.server import FlightServer
from sqlstream.server.query_processes.pool import QueryProcesses
from tests.server import child


def started(project: Path) -> AbstractContextManager[int]:
    """Start a server, yield its port, and end it."""
    return child.started("tests.server.flight.serving", str(project))


def _serve(project: Path) -> None:
    processes = QueryProcesses(Project(str(project), str(project / "warehouse")))
    with FlightServer(processes, port=0) as server:
        print(server.port, flush=True)
        sys.stdin.read()
    processes.close()


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
