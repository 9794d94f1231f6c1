"""Supervises the jobs of a warehouse: one server at a time, which holds a lock; others are standbys.

Submissions are in the warehouse. The server with the lock starts a process for each submission, and starts it again when it dies,
by the restart strategy of its jobs. A process of an earlier server that still runs is watched, too.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from sqlstream.errors import NotWritableError, OutageError, SqlStreamError, UsageError
from sqlstream.jobs.restart_strategies import Attempt, RestartStrategy, strategy_of
from sqlstream.options import Options
from sqlstream.server.processes import Command, JobProcess, last_words
from sqlstream.server.submissions import (
    ENDED,
    Submission,
    SubmissionState,
    leadership,
    read_state,
    submission_ids,
    submissions,
    write_state,
)
from sqlstream.server.submissions import FAILED as SUBMISSION_FAILED
from sqlstream.storage.joblog import JobLog
from sqlstream.units import Duration, elapsed, now, seconds
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.leases import Lease, lock_job
from sqlstream.warehouse.locks import JobLock, SessionLock
from sqlstream.warehouse.log_files import delete_log, rotate
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.process_folders import user_folder
from sqlstream.warehouse.restarts import Restart, add_restarts
from sqlstream.warehouse.status import (
    DRAINED,
    FAILED,
    FINISHED,
    LOST,
    STOPPED,
    Status,
    effective_status,
    requested_stop,
)

LOOK_SECONDS = 0.25
# A store is read over a network.
_LOOK_IN_STORE_SECONDS = 2.0
_STOP_SECONDS = 60.0
# The time between two checks of outputs: whether they are too large, or no longer needed.
_HOUSE_SECONDS = 10.0


@dataclass
class SupervisedSubmission:
    """A submission that has not ended. It has a `process`, or waits for its `next_start`."""

    submission: Submission
    state: SubmissionState
    strategy: RestartStrategy
    process: JobProcess | None
    # By `units.elapsed`, as the attempts are.
    began: Duration
    attempts: list[Attempt] = field(default_factory=list)
    # In seconds of the monotonic clock.
    next_start: float | None = None

    @property
    def jobs(self) -> list[str]:
        """The jobs of the submission that continue: nobody has stopped them."""
        return [job for job in self.submission.jobs if job not in self.state.stopped]

    @property
    def text(self) -> str:
        """How the server supervises the submission at the moment, for people."""
        # The supervising thread may change them in the meantime.
        process, next_start = self.process, self.next_start
        if process is not None:
            return f"process {process.pid}"
        if next_start is None:
            return "starting"
        return f"starts again in {max(next_start - time.monotonic(), 0):.0f} s"


class Supervisor:
    """The thread that supervises jobs, or waits for the lock as a standby. `notice` gets messages for the server's operator."""

    def __init__(self, warehouse: Warehouse, folder: str, command: Command, notice: Callable[[str], None]):
        self._warehouse, self._folder, self._command, self._notice = warehouse, folder, command, notice
        self._session: SessionLock | None = None
        self._lock: JobLock | None = None
        self._supervised: dict[str, SupervisedSubmission] = {}
        self._ended: set[str] = set()
        self._kept_house = float("-inf")
        # The faults of this look and of the one before it: one that lasts is reported once.
        self._faults: set[str] = set()
        self._faults_before: set[str] = set()
        self._changing = threading.Lock()
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="sqlstream-supervisor", daemon=True)
        self._look_seconds = LOOK_SECONDS if warehouse.fs.local else _LOOK_IN_STORE_SECONDS

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def is_active(self) -> bool:
        """Whether this server supervises the jobs; otherwise it is a standby."""
        return self._lock is not None

    def look(self) -> None:
        """Wake the thread, so that it looks for new submissions now."""
        self._wake.set()

    def about(self, job: str) -> str | None:
        """Return how the server supervises a job, as text; None for a job that it does not supervise."""
        with self._changing:
            matching = [s for s in self._supervised.values() if job.lower() in map(str.lower, s.jobs)]
            return matching[-1].text if matching else None

    def output_of(self, id: str) -> str:
        """Return the file with the output of a submission's process."""
        if self._warehouse.fs.local:
            return f"{self._warehouse.root}/server/output/{id}.log"
        return f"{user_folder()}/server/{id}.log"

    def close(self) -> None:
        """Stop the jobs after their batches, and release the lock: the next server continues them."""
        self._stopping = True
        self._wake.set()
        self._thread.join(_STOP_SECONDS + 5)

    # -- its thread

    def _run(self) -> None:
        while not self._stopping:
            # An error in one look may be gone in the next one.
            with _reported(self._report):
                if self._lock is None:
                    self._try_to_lead()
                if self._lock is not None:
                    self._supervise()
            self._faults_before, self._faults = self._faults, set()
            self._wake.wait(self._look_seconds)
            self._wake.clear()
        with _reported(self._notice):
            self._stop()

    def _report(self, fault: str) -> None:
        """Report a fault, unless it was there at the last look, too."""
        if fault not in self._faults_before | self._faults:
            self._notice(fault)
        self._faults.add(fault)

    def _try_to_lead(self) -> None:
        try:
            if self._session is None:
                self._session = SessionLock.open(self._warehouse)
            self._lock = self._leadership(self._session)
        except NotWritableError as error:
            text = f"{error.message}: this server answers queries, and supervises no jobs as long as that is so"
            self._report(f"{text}. {error.detail}" if error.detail else text)
        if self._lock is not None:
            self._forget()
            self._ended.clear()
            self._notice("this server supervises the jobs of the warehouse")

    def _leadership(self, session: SessionLock) -> JobLock | None:
        """Return the lock of the server that supervises; None if another one has it. Raises NotWritableError."""
        try:
            return lock_job(self._warehouse.fs, leadership(self._warehouse), session, patience=0)
        except NotWritableError:
            raise
        except UsageError:
            return None

    def _forget(self) -> None:
        with self._changing:
            self._supervised.clear()

    def _supervise(self) -> None:
        if isinstance(self._lock, Lease) and self._lock.is_lost:
            # Another server may have taken over. The jobs continue, and are its own now.
            self._notice("another server may supervise the jobs by now: this one waits for its turn")
            self._lock.release()
            self._lock = None
            self._forget()
            return
        # Known submissions do not change, and many may have ended.
        for submission in submissions(self._warehouse, but=self._supervised.keys() | self._ended):
            self._add(submission)
        for one in list(self._supervised.values()):
            with _reported(self._report):
                self._look_at(one)
        if time.monotonic() - self._kept_house >= _HOUSE_SECONDS:
            self._kept_house = time.monotonic()
            self._keep_house(submission_ids(self._warehouse))

    def _keep_house(self, stored_ids: set[str]) -> None:
        """Truncate output files that are too large, and delete the output files of deleted submissions."""
        for id in self._supervised:
            rotate(self.output_of(id))
        forgotten = self._ended - stored_ids
        if self._warehouse.fs.local:
            # An earlier server may have left them.
            written = self._warehouse.fs.list(os.path.dirname(self.output_of("")))
            forgotten |= {name.partition(".")[0] for name in written} - stored_ids
        for id in forgotten:
            delete_log(self.output_of(id))
        self._ended &= stored_ids

    def _add(self, submission: Submission) -> None:
        state = read_state(self._warehouse, submission.id)
        if state.outcome is not None:
            self._ended.add(submission.id)
            return
        strategy = strategy_of(Options(submission.restart), bounded=submission.bounded)
        began = Duration(elapsed() - max(now() - submission.submitted_at, 0))
        supervised = SupervisedSubmission(submission, state, strategy, JobProcess.of_state(state), began)
        with self._changing:
            self._supervised[submission.id] = supervised

    def _look_at(self, one: SupervisedSubmission) -> None:
        """Do what is due for a submission: start its process, react to the end of the process, or start it again."""
        if one.process is not None:
            if not one.process.is_alive:
                code, one.process = one.process.code, None
                self._judge(one, code)
            elif len(one.jobs) > 1:
                # Its process continues with the other jobs.
                self._note_stops(one, [j for j, s in zip(one.jobs, self._statuses(one), strict=True) if _has_ended(s)])
            return
        if one.next_start is not None:
            self._note_stops(one, self._asked_to_end(one))
            if not one.jobs and (one.submission.jobs or not self._due(one)):
                self._end(one, ENDED)
            elif time.monotonic() >= one.next_start:
                self._start(one)
            return
        if any(status is not None and status.is_active for status in self._statuses(one)):
            # They run in a process of another host, or in one that an earlier server could not record before it died.
            if not one.state.starts:
                one.state = replace(one.state, starts=1)
                write_state(self._warehouse, one.submission.id, one.state)
            return
        if one.state.paused or not one.state.starts:
            self._start(one)
        else:
            # It ended while no server was there.
            self._judge(one, None)

    def _start(self, one: SupervisedSubmission) -> None:
        """Start the process. Jobs named in `fresh` start anew only until they have begun: they must not lose progress."""
        paths, due = self._warehouse, self._due(one)
        submission = replace(one.submission, starts=due)
        submission = replace(submission, fresh=tuple(n for n in submission.fresh if n in (*due, *submission.jobs)))
        jobs: Sequence[str] = ()
        if any(self._statuses(one)):
            # The name of a fork holds only for the fork.
            jobs = one.jobs if submission.as_job is not None else (*due, *one.jobs)
        words = self._command(submission, jobs)
        try:
            process = JobProcess.start(words, submission.sql, self._folder, self.output_of(submission.id))
        except OutageError as error:
            self._notice(error.render())
            one.next_start = time.monotonic() + LOOK_SECONDS * 20
            return
        one.began, one.next_start = elapsed(), None
        state = one.state
        host = socket.gethostname()
        one.state = replace(state, pid=process.pid, host=host, born=process.born, starts=state.starts + 1, paused=False)
        write_state(paths, submission.id, one.state)
        with self._changing:
            one.process = process

    def _statuses(self, one: SupervisedSubmission) -> list[Status | None]:
        """Return the status of each job since it was submitted; None for a job without one."""
        statuses = [effective_status(self._warehouse.fs, self._warehouse.job(job)) for job in one.jobs]
        return [
            s if s is not None and _is_about(one.submission, job, s) else None
            for job, s in zip(one.jobs, statuses, strict=True)
        ]

    def _due(self, one: SupervisedSubmission) -> tuple[str, ...]:
        """Return the jobs of INSERT .. VALUES that have not committed since they were submitted: each runs once."""
        starts = one.submission.starts
        return tuple(job for job in starts if not one.state.starts or not self._has_run(one, job))

    def _has_run(self, one: SupervisedSubmission, job: str) -> bool:
        fs, paths = self._warehouse.fs, self._warehouse.job(job)
        version = last_committed(fs, paths)
        versions = one.submission.versions
        if versions is not None and job not in one.submission.fresh:
            return version is not None and version > versions.get(job, -1)
        entry = None if version is None else JobLog(fs, paths.log).entry(version)
        return entry is not None and entry.committed_at >= one.submission.submitted_at

    def _judge(self, one: SupervisedSubmission, code: int | None) -> None:
        """Decide about a submission whose process has ended, with an exit code if that is known."""
        statuses = self._statuses(one)
        failed = next((s for s in statuses if s is not None and s.state == FAILED), None)
        if code and any(s is not None and s.is_active for s in statuses):
            # An earlier server had started another process for the jobs, and died before it could record that.
            return
        if failed is not None:
            self._end(one, SUBMISSION_FAILED, failed.error)
        elif code == 0 or (code is None and statuses and all(map(_has_ended, statuses))):
            self._end(one, ENDED)
        elif code is not None and code > 0 and not any(s is not None and s.state == LOST for s in statuses):
            self._end(one, SUBMISSION_FAILED, last_words(self.output_of(one.submission.id)))
        elif not one.jobs and not self._due(one):
            self._end(one, ENDED)
        else:
            self._start_later(one)

    def _start_later(self, one: SupervisedSubmission) -> None:
        """Schedule the next start of the process, by the restart strategy of its jobs; or end the submission."""
        one.attempts = one.strategy.needed([*one.attempts, Attempt(one.began, elapsed())])
        pause = one.strategy.delay(one.attempts)
        message = "the process of the job ended, and did not say why"
        if pause is None:
            reason = f"it is not started again, by its restart strategy ({one.strategy.limits})"
            self._end(one, SUBMISSION_FAILED, f"{message}; {reason}")
            return
        one.next_start = time.monotonic() + seconds(pause)
        for job in one.jobs:
            self._note_restart(job, message, pause, one.strategy)
        self._notice(f"{message}: {', '.join(one.jobs)}; it starts again in {seconds(pause):.1f} s")

    def _note_restart(self, job: str, message: str, pause: Duration, strategy: RestartStrategy) -> None:
        paths = self._warehouse.job(job)
        status = effective_status(self._warehouse.fs, paths)
        if status is not None and status.state == LOST:
            version = last_committed(self._warehouse.fs, paths)
            version = -1 if version is None else version
            add_restarts(self._warehouse.fs, paths, Restart(now(), version, message, pause, strategy.limits))

    def _asked_to_end(self, one: SupervisedSubmission) -> list[str]:
        """Return the jobs for which a stop was requested while they waited for a restart, and delete the requests."""
        fs = self._warehouse.fs
        jobs = [job for job in one.jobs if requested_stop(fs, self._warehouse.job(job)) is not None]
        for job in jobs:
            fs.delete(self._warehouse.job(job).stop)
        return jobs

    def _note_stops(self, one: SupervisedSubmission, stopped: list[str]) -> None:
        """Record that `stopped` jobs of the submission do not continue."""
        if stopped:
            one.state = replace(one.state, stopped=(*one.state.stopped, *stopped))
            write_state(self._warehouse, one.submission.id, one.state)

    def _end(self, one: SupervisedSubmission, outcome: str, error: str | None = None) -> None:
        one.state = replace(one.state, outcome=outcome, error=error, pid=0)
        write_state(self._warehouse, one.submission.id, one.state)
        with self._changing:
            self._supervised.pop(one.submission.id, None)
        self._ended.add(one.submission.id)
        if error:
            self._notice(f"{', '.join(one.submission.jobs)}: {error}")

    def _stop(self) -> None:
        """Stop all processes after their batches, and record that the next server must continue them."""
        supervised = (
            [(one, one.process) for one in self._supervised.values() if one.process is not None] if self._lock else []
        )
        # What has ended by itself since the last look is for the next server to judge.
        running = [(one, process) for one, process in supervised if process.is_alive]
        for one, process in running:
            process.ask_to_stop()
            one.state = replace(one.state, paused=True)
            write_state(self._warehouse, one.submission.id, one.state)
        deadline = time.monotonic() + _STOP_SECONDS
        while any(process.is_alive for _, process in running) and time.monotonic() < deadline:
            time.sleep(0.05)
        if self._lock is not None:
            self._lock.release()
        if self._session is not None:
            self._session.close()


def _is_about(submission: Submission, job: str, status: Status) -> bool:
    """Return whether a status of a job was written since the job was submitted."""
    if submission.statuses is None:
        return max(status.started_at, status.updated_at) >= submission.submitted_at
    return status.updated_at != submission.statuses.get(job)


def _has_ended(status: Status | None) -> bool:
    return status is not None and status.state in (FINISHED, STOPPED, DRAINED)


class _reported:
    """Reports an error as a notice, and suppresses it."""

    def __init__(self, notice: Callable[[str], None]):
        self._notice = notice

    def __enter__(self) -> None:
        """Does nothing."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, SqlStreamError):
            self._notice(error.render())
        elif isinstance(error, Exception):
            self._notice(f"{type(error).__qualname__}: {error}")
        return isinstance(error, Exception)
