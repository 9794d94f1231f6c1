"""The handle of a job that a session returns: its status, progress, savepoints and verification."""

from __future__ import annotations

from collections.abc import Callable

from sqlstream.errors import SqlStreamError, UsageError, plainly
from sqlstream.jobs.progress import Progress, progress_of
from sqlstream.jobs.savepoints.named_savepoints import take_savepoint
from sqlstream.jobs.verification.report import Verification
from sqlstream.queries.versions import Version
from sqlstream.runtime.engine import Run
from sqlstream.warehouse.locks import JobLock
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.status import FINISHED


class Job:
    """The handle of a job that a session has started, or has skipped because the job had ended before."""

    def __init__(
        self,
        name: str,
        run: Run | None = None,
        lock: JobLock | None = None,
        on_end: Callable[[], None] | None = None,
        *,
        ended: str = FINISHED,
        warehouse: Warehouse | None = None,
    ):
        self.name = name
        self._warehouse = warehouse
        self._run = run
        self._lock = lock
        self._on_end = on_end
        # Set by the session, which knows the plan.
        self.verifier: Callable[[Version | None], Verification] | None = None
        # The state of a job that was skipped: FINISHED or DRAINED.
        self._ended = ended

    def __dir__(self) -> list[str]:
        return ["error", "name", "progress", "savepoint", "status", "stop", "verify", "wait", "warnings"]

    def __repr__(self) -> str:
        return f"Job({self.name!r}, {self.status})"

    @property
    def status(self) -> str:
        """RUNNING, RESTARTING (after a failure), FINISHED, DRAINED, STOPPED or FAILED."""
        return self._ended if self._run is None else self._run.state

    @property
    def progress(self) -> Progress:
        """What the job has done up to its last batch: rows, watermark, sources and operators."""
        return Progress() if self._run is None else progress_of(self._run.totals)

    @property
    def is_waiting(self) -> bool:
        """Whether the job has read all available input, and waits for more."""
        return self._run is not None and self._run.is_waiting

    @property
    def is_stopping(self) -> bool:
        """Whether the job was asked to stop."""
        return self._run is not None and self._run.is_stopping

    @property
    def error(self) -> SqlStreamError | None:
        """The error that ended the job; None while it runs, and after any other end."""
        return None if self._run is None else self._run.error

    @property
    def cause(self) -> BaseException | None:
        """The exception of Spark or Python behind `error`, for debugging."""
        return None if self._run is None else self._run.cause

    def warnings(self) -> list[str]:
        """Return the warnings since the last call, such as restarts and input files that changed after the job had read them."""
        return [] if self._run is None else self._run.take_warnings()

    def stop(self, *, drain: bool = False) -> None:
        """Request a stop after the running batch, and return at once; `wait` waits for the end.

        With `drain` the job reads no more input and closes all windows, as at the end of its input; it cannot continue later.
        """
        if self._run is not None:
            self._run.request_stop(drain=drain)

    def savepoint(self, name: str | None = None, *, to: str | None = None) -> str:
        """Take a savepoint of the newest version of the job, while the job runs on; return the savepoint's name.

        The default name is `<job>-<version>`, with a number appended if it is taken. With `to`, the savepoint is a self-contained
        folder there, outside of the warehouse. Raises UsageError when the job has no version yet, or a savepoint of the name
        exists.
        """
        assert self._warehouse is not None
        with plainly():
            return take_savepoint(self._warehouse, self.name, name, to).record.name

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end of the job, at most `timeout` seconds; return whether it has ended. Raises the error that ended it."""
        if self._run is None:
            return True
        self._run.join(timeout)
        if self._run.is_alive():
            return False
        try:
            self.release()
        except SqlStreamError:
            # The error that ended the job says more.
            if self._run.error is None:
                raise
        if self._run.error is not None:
            with plainly():
                raise self._run.error
        return True

    def verify(self, *, at: Version | None = None) -> Verification:
        """Compare the rows written up to a version (default: the newest) with a batch query over all rows read up to it.

        The result is true if every difference is explained; its text lists the differences. Raises CannotVerify when the query,
        its input or its output cannot be compared, and UsageError when the job or the version is not kept.
        """
        if self.verifier is None:
            raise UsageError(f'of job "{self.name}" nothing is kept that could be verified')
        with plainly():
            return self.verifier(at)

    def release(self) -> None:
        """Release the lock of the job, which has ended, and call `on_end`; further calls do nothing."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
            if self._on_end:
                self._on_end()
