"""The jobs that the shell has started in the background: it reports their warnings, and their end."""

from __future__ import annotations

import threading

from sqlstream.errors import SqlStreamError
from sqlstream.jobs.job import Job
from sqlstream.session.job_texts import ended_text
from sqlstream.shell.output import ShellOutput, unexpected

_POLL_SECONDS = 0.2


class BackgroundJobs:
    """Watches jobs in a thread, which the first job starts."""

    def __init__(self, output: ShellOutput):
        self._output = output
        self._lock = threading.Lock()
        self._running: list[Job] = []
        # Jobs that are to stop, about which nothing is printed.
        self._stopping: list[Job] = []
        self._thread: threading.Thread | None = None
        self._over = threading.Event()

    def add(self, job: Job) -> None:
        """Watch a job."""
        with self._lock:
            self._running.append(job)
            self._start()

    def leave(self, job: Job) -> None:
        """Let a job that was asked to stop end in its own time, without a message."""
        with self._lock:
            self._stopping.append(job)
            self._start()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="sqlstream-shell-jobs", daemon=True)
            self._thread.start()

    @property
    def running(self) -> list[Job]:
        """The watched jobs that have not ended."""
        with self._lock:
            return list(self._running)

    def take(self) -> list[Job]:
        """Return the jobs that have not ended, and stop watching them."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            jobs, self._running = self._running, []
        self._over, self._thread = threading.Event(), None
        return jobs

    def _watch(self) -> None:
        over = self._over
        while not over.wait(_POLL_SECONDS):
            for job in self.running:
                self._look(job)
            with self._lock:
                self._stopping = [job for job in self._stopping if not _has_ended(job)]

    def _look(self, job: Job) -> None:
        for warning in job.warnings():
            self._output.say(f"{job.name}: warning: {warning}", "yellow")
        error: SqlStreamError | None = None
        try:
            if not job.wait(0):
                return
        except SqlStreamError as e:
            error = e
        except Exception as e:
            error = unexpected(e)
        with self._lock:
            self._running.remove(job)
        if text := ended_text(job):
            self._output.say(text)
        if error is not None:
            self._output.error(error)


def _has_ended(job: Job) -> bool:
    """Return whether a job has ended; the call lets an ended job release its resources."""
    try:
        return job.wait(0)
    except SqlStreamError:
        return True
