"""The server of a soak, as a process that can be killed: `sqlstream serve`, but that jobs may run without Spark.

Its arguments are the folder of the project, the ports for HTTP and for PostgreSQL's clients, and the jobs that run on Spark.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx

from sqlstream.project import find_project
from sqlstream.server.processes import run_command
from sqlstream.server.serve import serve
from sqlstream.server.settings import ServerSettings
from sqlstream.server.submissions import Submission
from tests.processes import wait_until
from tests.server.serving import without_spark

ROOT = Path(__file__).parents[2]


class SoakServer:
    """A server with its ports, which it has again when it is started again."""

    def __init__(self, project: Path, on_spark: Sequence[str]):
        self.project, self.on_spark = project, on_spark
        self.port, self.postgres = _free_port(), _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start a process, and wait until it answers and supervises."""
        words = [sys.executable, "-m", "tests.soak.serving", str(self.project), str(self.port), str(self.postgres)]
        with (self.project / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*words, *self.on_spark],
                cwd=ROOT,
                env=os.environ | {"TMPDIR": str(self.project / "tmp")},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until(self.is_ready)

    def is_ready(self) -> bool:
        """Tell whether it supervises, and takes connections of both kinds."""
        assert self.process is not None
        assert self.process.poll() is None, f"the server ended: see {self.project / 'server.log'}"
        try:
            with socket.create_connection(("127.0.0.1", self.postgres), 1):
                return httpx.get(f"{self.url}/v1/ready", timeout=5).status_code == 200
        except (OSError, httpx.HTTPError):
            return False

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """End it as an operator does, and return its exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(120)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def main(project: str, port: str, postgres: str, *on_spark: str) -> None:
    found = find_project(project, None)
    with_spark, without = run_command(found), without_spark(Path(project))

    def command(submission: Submission, jobs: Sequence[str]) -> list[str]:
        return (with_spark if set(submission.jobs) & set(on_spark) else without)(submission, jobs)

    serve(ServerSettings(found, port=int(port), postgres=int(postgres)), print, command)


if __name__ == "__main__":
    main(*sys.argv[1:])
