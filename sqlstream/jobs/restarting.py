"""A run with restarts: after an outage, a new attempt continues after the last committed batch, in the same process."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlstream.errors import JobError, OutageError, SqlStreamError
from sqlstream.jobs.restart_strategies import Attempt, RestartStrategy
from sqlstream.runtime.commits import Totals
from sqlstream.runtime.engine import Run
from sqlstream.runtime.job_thread import ASK_SECONDS, MOST_WARNINGS
from sqlstream.units import Duration, elapsed, now, seconds
from sqlstream.warehouse.filesystem import Filesystem
from sqlstream.warehouse.leases import check_held
from sqlstream.warehouse.paths import JobPaths
from sqlstream.warehouse.restarts import KEPT, Restart, add_restarts
from sqlstream.warehouse.status import (
    FAILED,
    RESTARTING,
    RUNNING,
    STOPPED,
    Status,
    requested_stop,
    write_status,
)

_POLL_SECONDS = 0.05


class RestartingRun:
    """A run that starts again after errors of the classes `covered`, as its restart strategy decides.

    `attempt` returns a run that continues after the last committed batch. It is called first by the constructor, so an error at
    the start of the job is raised to the caller.

    The outage may be one of the warehouse's store. So if the job's status cannot be written, that is a warning, not an error.
    """

    def __init__(
        self,
        fs: Filesystem,
        paths: JobPaths,
        attempt: Callable[[], Run],
        strategy: RestartStrategy,
        covered: tuple[type[JobError], ...] = (OutageError,),
    ):
        self._fs, self._paths = fs, paths
        self._attempt, self._strategy, self._covered = attempt, strategy, covered
        self.untold: tuple[type[SqlStreamError], ...] = ()
        self._run = self._new_run()
        self._attempts: list[Attempt] = []
        # When the latest attempt began.
        self._began = now()
        # Bounded, because a caller need not take them.
        self._warnings: deque[str] = deque(maxlen=MOST_WARNINGS)
        # Restarts that are not recorded yet.
        self._unrecorded: deque[Restart] = deque(maxlen=KEPT)
        self._asked_at = float("-inf")
        self._stop_requested = threading.Event()
        self._drain_requested = False
        self._waits = False
        # The state and the error, if the job ended between two attempts.
        self._ended: tuple[str, SqlStreamError | None] | None = None
        self._thread = threading.Thread(target=self._supervise, name=f"sqlstream-restarts-{paths.name}", daemon=True)

    @property
    def latest(self) -> Run:
        """The run of the latest attempt."""
        return self._run

    # -- what a session asks of a run

    @property
    def engine(self) -> str:
        return self._run.engine

    @property
    def state(self) -> str:
        if self._ended is not None:
            return self._ended[0]
        if self._waits:
            return RESTARTING
        # An attempt that has failed may not be the last one.
        return RUNNING if self._run.state == FAILED and self._thread.is_alive() else self._run.state

    @property
    def error(self) -> SqlStreamError | None:
        return self._run.error if self._ended is None else self._ended[1]

    @property
    def cause(self) -> BaseException | None:
        return self._run.cause

    @property
    def totals(self) -> Totals:
        return self._run.totals

    @property
    def is_waiting(self) -> bool:
        return not self._waits and self._run.is_waiting

    @property
    def is_stopping(self) -> bool:
        return self._stop_requested.is_set() or self._run.is_stopping

    def start(self) -> None:
        """Begin the first attempt."""
        self._run.start()
        self._thread.start()

    def request_stop(self, *, drain: bool = False) -> None:
        """Request a stop after the running batch; a job that waits for its next attempt stops at once."""
        self._drain_requested = self._drain_requested or drain
        self._stop_requested.set()
        self._run.request_stop(drain=drain)

    def take_warnings(self) -> list[str]:
        """Remove and return the pending warnings, of the runs and about restarts."""
        warnings = []
        while self._warnings:
            warnings.append(self._warnings.popleft())
        return [*warnings, *self._run.take_warnings()]

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the last attempt, at most `timeout` seconds."""
        self._thread.join(timeout)

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    # -- its thread

    def _supervise(self) -> None:
        began, self._began = elapsed(), now()
        while True:
            self._run.join()
            error = self._run.error
            if error is None or not isinstance(error, self._covered):
                return
            if self._run.is_stopping:
                self._end(FAILED, error)
                return
            while error is not None:
                pause = self._next_pause(began)
                if pause is None:
                    sentence = f"It is not started again, by its restart strategy ({self._strategy.limits})."
                    error.detail = f"{error.detail}\n{sentence}" if error.detail else sentence
                    self._end(FAILED, error)
                    return
                self._wait(error, pause)
                if self._is_asked_to_stop():
                    self._end(STOPPED, None)
                    return
                began, self._began = elapsed(), now()
                error = self._begin_again()
                if self._ended is not None:
                    return

    def _new_run(self) -> Run:
        """Return the run of a new attempt, which leaves the job's status to this object after a covered error."""
        run = self._attempt()
        run.untold = self._covered
        return run

    def _next_pause(self, began: Duration) -> float | None:
        """Return how many seconds to wait after a failure; None when the job has failed for good."""
        self._attempts = self._strategy.needed([*self._attempts, Attempt(began, elapsed())])
        pause = self._strategy.delay(self._attempts)
        return None if pause is None else seconds(pause)

    def _wait(self, error: SqlStreamError, pause: float) -> None:
        """Record the restart, and wait for the pause, in seconds, or until a stop is requested."""
        deadline = time.monotonic() + pause
        self._waits = True
        limits = self._strategy.limits
        self._unrecorded.append(
            Restart(now(), self.totals.version, error.render(), Duration(round(pause * 1e6)), limits)
        )
        number = self._record_restarts()
        which = "restart" if number is None else f"restart {number}"
        self._warnings.append(f"{error.message}; {which} in {pause:.1f} s, after the last committed batch")
        with self._warned():
            check_held(self._paths)
            self._write_status(RESTARTING, error)
        while (remaining := deadline - time.monotonic()) > 0 and not self._is_asked_to_stop():
            time.sleep(min(_POLL_SECONDS, remaining))

    def _record_restarts(self) -> int | None:
        """Record the restarts that the warehouse lacks; return the number of restarts so far, None if nothing was recorded."""
        number = None
        if self._unrecorded:
            with self._warned():
                check_held(self._paths)
                number = add_restarts(self._fs, self._paths, *self._unrecorded)
                self._unrecorded.clear()
        return number

    @contextmanager
    def _warned(self) -> Iterator[None]:
        """Turn an error of the warehouse into a warning."""
        try:
            yield
        except (SqlStreamError, OSError) as error:
            message = error.message if isinstance(error, SqlStreamError) else str(error)
            self._warnings.append(f'the status of job "{self._paths.name}" was not written: {message}')

    def _is_asked_to_stop(self) -> bool:
        """Whether a stop is requested. A store is asked once a second, as each look is a request."""
        if self._stop_requested.is_set():
            return True
        moment = time.monotonic()
        if not self._fs.local and moment - self._asked_at < ASK_SECONDS:
            return False
        self._asked_at = moment
        try:
            if requested_stop(self._fs, self._paths) is not None:
                self._stop_requested.set()
        except (SqlStreamError, OSError):
            # The next attempt says what is wrong.
            return False
        return self._stop_requested.is_set()

    def _begin_again(self) -> SqlStreamError | None:
        """Start the next attempt. Return a covered error of its start; any other error ends the job."""
        self._warnings.extend(self._run.take_warnings())
        try:
            check_held(self._paths)
            run = self._new_run()
        except SqlStreamError as error:
            if isinstance(error, self._covered):
                return error
            self._end(FAILED, error)
            return None
        except Exception as error:
            self._end(FAILED, JobError(f"{type(error).__qualname__}: {error}"))
            return None
        self._run, self._waits = run, False
        if self._stop_requested.is_set():
            run.request_stop(drain=self._drain_requested)
        run.start()
        self._record_restarts()
        return None

    def _end(self, state: str, error: SqlStreamError | None) -> None:
        self._ended = state, error
        self._waits = False
        with self._warned():
            # What another process runs by now says itself how it does.
            check_held(self._paths)
            self._fs.delete(self._paths.stop)
            self._write_status(state, error)

    def _write_status(self, state: str, error: SqlStreamError | None) -> None:
        text = error.render() if error else None
        version = self.totals.version if self.totals.version >= 0 else None
        status = Status(
            state, os.getpid(), socket.gethostname(), self._began, now(), text, version, engine=self._run.engine
        )
        write_status(self._fs, self._paths, status)
