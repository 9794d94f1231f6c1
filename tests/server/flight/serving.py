"""A server for clients of Flight SQL in a process of its own: `python -m tests.server.flight.serving PROJECT`.

It says its port, and ends with its standard input.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlstream.compiler.project import Project
from sqlstream.server.flight.server import FlightServer
from sqlstream.server.query_pool import QueryPool

_ROOT = Path(__file__).parents[3]


@contextmanager
def started(project: Path) -> Iterator[int]:
    """Start a server, yield its port, and end it."""
    command = [sys.executable, "-m", "tests.server.flight.serving", str(project)]
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield int(server.stdout.readline())
        finally:
            server.stdin.close()
            assert server.wait(60) == 0


def _serve(project: Path) -> None:
    pool = QueryPool(Project(str(project), str(project / "warehouse")))
    with FlightServer(pool, port=0) as server:
        print(server.port, flush=True)
        sys.stdin.read()
    pool.close()


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
