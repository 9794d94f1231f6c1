"""Servers for tests: in a thread of this process, with real HTTP; and jobs of submissions that need no JVM."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from sqlstream.project import find_project
from sqlstream.server.endpoints import Service
from sqlstream.server.processes import Command, run_command
from sqlstream.server.query_processes.pool import QueryProcesses
from sqlstream.server.serve import http_server, listening_socket, opened_service
from sqlstream.server.settings import ServerSettings
from sqlstream.server.submissions import Submission
from tests.processes import wait_until


def settings_of(folder: Path) -> ServerSettings:
    return ServerSettings(find_project(str(folder), None), port=0)


@contextlib.contextmanager
def serving(settings: ServerSettings, command: Command | None = None) -> Iterator[tuple[str, Service]]:
    """Yield the address of a server in this process, and what it answers with."""
    with listening_socket(settings) as listening, opened_service(settings, lambda text: None, command) as service:
        server = http_server(service, listening, log_level=logging.CRITICAL)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        wait_until(lambda: server.started)
        try:
            yield replace(settings, host=settings.host).url(listening.getsockname()[1]), service
        finally:
            server.should_exit = True
            thread.join()


def await_idle(processes: QueryProcesses) -> None:
    """Wait until processes wait for queries: to start the first one may take longer than a limit of a test."""
    processes.start()
    wait_until(lambda: processes.idle >= 2)


def without_spark(project: Path) -> Command:
    """Return what makes the command of a submission whose jobs run in one process of Python, on the local engine."""

    run = run_command(find_project(str(project), None))

    def command(submission: Submission, jobs: Sequence[str]) -> list[str]:
        names = jobs or (*submission.starts, *submission.jobs)
        within = (word for word in run(submission, jobs) if word.startswith("--files-within="))
        return [sys.executable, str(Path(__file__).parent / "local_jobs.py"), str(project), *within, *names]

    return command
