"""The process of a submission: `sqlstream run`, in its own process session, so that it outlives a killed server."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from sqlstream.errors import OutageError
from sqlstream.project import Project
from sqlstream.server.submissions import Submission, SubmissionState
from sqlstream.storage_errors import make_folder
from sqlstream.warehouse.locks import birth_of_process, process_is_alive
from sqlstream.warehouse.process_folders import user_folder

# So much of a process's output is shown if it gives no other reason for its end.
_LAST_BYTES = 4_000
# The beginning of the line before a process's output; the time follows.
_BEGINS = "--- started at "

# Makes the words of a submission's command; the second argument are its jobs that continue, empty for the first start.
Command = Callable[[Submission, Sequence[str]], list[str]]


def run_command(project: Project) -> Command:
    """Return a function that makes the command of a submission: `sqlstream run`, which reads the script from standard input."""

    def command(submission: Submission, jobs: Sequence[str]) -> list[str]:
        words = [sys.executable, "-m", "sqlstream", "run", "-", "--project", project.root]
        words += ["--warehouse", project.warehouse]
        words += [f"--files-within={folder}" for folder in submission.within]
        words += [f"--set={key}={value}" for key, value in submission.settings.items()]
        for table, options in submission.tables.items():
            words += [f"--set-table={table}.{key}={value}" for key, value in options.items()]
        # Only these jobs: the rest of the script runs once, when it is submitted.
        words += [f"--job={job}" for job in (jobs or (*submission.starts, *submission.jobs))]
        if jobs:
            # A fork runs under its own name.
            return words if submission.as_job is None else [*words, f"--set=pipeline.name={submission.as_job}"]
        words += [f"--fresh={job}" for job in submission.fresh]
        if submission.savepoint is not None:
            words.append(f"--from={submission.savepoint}")
        if submission.as_job is not None:
            words.append(f"--as={submission.as_job}")
        if submission.migrate is not None:
            words += [f"--migrate={_written(submission)}", "--yes"]
        elif submission.upgrade:
            words += ["--upgrade", "--yes"]
        return words

    return command


def _written(submission: Submission) -> str:
    """Write the migrations of a submission into a file; return its path."""
    path = f"{user_folder()}/server/{submission.id}.migrate.sql"
    make_folder(os.path.dirname(path))
    Path(path).write_text(submission.migrate or "", encoding="utf-8")
    return path


class JobProcess:
    """A process that runs a submission. This server has started it, or an earlier one."""

    def __init__(self, pid: int, born: str, started: subprocess.Popen[bytes] | None = None):
        self.pid, self.born = pid, born
        self._started = started

    @classmethod
    def start(cls, words: Sequence[str], script: str, folder: str, output: str) -> JobProcess:
        """Start a command that reads a script, and appends its output to a file. Raises OutageError."""
        make_folder(os.path.dirname(output))
        try:
            # If this process died, a pipe would give the command half a script, or none.
            with open(output, "ab") as file, tempfile.TemporaryFile() as script_file:
                # The last output of the process before may be half a line.
                file.write(b"\n" if file.tell() else b"")
                file.write(f"{_BEGINS}{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC\n".encode())
                file.flush()
                script_file.write(script.encode())
                script_file.seek(0)
                started = subprocess.Popen(
                    words,
                    cwd=folder,
                    stdin=script_file,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            raise OutageError("no process could be started for a job", detail=str(error)) from error
        return cls(started.pid, birth_of_process(started.pid), started)

    @classmethod
    def of_state(cls, state: SubmissionState) -> JobProcess | None:
        """Return the process that is recorded in a submission's state, if it still runs on this host; otherwise None."""
        if not state.pid or state.host != socket.gethostname() or not process_is_alive(state.pid):
            return None
        return cls(state.pid, state.born) if birth_of_process(state.pid) == state.born else None

    @property
    def is_alive(self) -> bool:
        """Whether the process runs. Its pid may belong to another process by now, so the time of its birth is compared, too."""
        if self._started is not None:
            return self._started.poll() is None
        return process_is_alive(self.pid) and birth_of_process(self.pid) == self.born

    @property
    def code(self) -> int | None:
        """The exit code of the process; None if this server has not started it, or it has not ended."""
        return None if self._started is None else self._started.poll()

    def ask_to_stop(self) -> None:
        """Ask the process to stop its jobs after their batches."""
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)


def last_words(output: str) -> str:
    """Return the end, up to 4,000 bytes, of the last process's part of an output file; empty if the file cannot be read."""
    with contextlib.suppress(OSError), open(output, "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(file.tell() - _LAST_BYTES, 0))
        return f"\n{file.read().decode(errors='replace')}".rpartition(f"\n{_BEGINS}")[2].partition("\n")[2].strip()
    return ""
