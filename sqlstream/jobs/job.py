"""A job as its session sees it: how it is doing, and what can be asked of it."""

from __future__ import annotations

from collections.abc import Callable

from sqlstream.errors import SqlStreamError, UsageError, plainly
from sqlstream.jobs.progress import Progress, progress_of
from sqlstream.jobs.savepoints import take_savepoint
from sqlstream.jobs.verification.report import Verification
from sqlstream.queries.versions import Version
from sqlstream.runtime.engine import Run
from sqlstream.warehouse.locks import JobLock
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.status import FINISHED


class Job:
    """A job that was started, or skipped because it had finished before."""

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
        # Set by whoever knows its plan.
        self.verifier: Callable[[Version | None], Verification] | None = None
        # How a job that was skipped had ended.
        self._ended = ended

    def __dir__(self) -> list[str]:
        return ["error", "name", "progress", "savepoint", "status", "stop", "verify", "wait", "warnings"]

    def __repr__(self) -> str:
        return f"Job({self.name!r}, {self.status})"

    @property
    def status(self) -> str:
        """RUNNING, FINISHED, DRAINED, STOPPED or FAILED."""
        return self._ended if self._run is None else self._run.state

    @property
    def progress(self) -> Progress:
        """What the job has done up to its last batch: rows, watermark, sources and operators."""
        return Progress() if self._run is None else progress_of(self._run.totals)

    @property
    def is_waiting(self) -> bool:
        """Whether the job has read all there is, and waits for more."""
        return self._run is not None and self._run.is_waiting

    @property
    def is_stopping(self) -> bool:
        """Whether the job was asked to stop."""
        return self._run is not None and self._run.is_stopping

    @property
    def error(self) -> SqlStreamError | None:
        return None if self._run is None else self._run.error

    @property
    def cause(self) -> BaseException | None:
        """What Spark or Python raised, for debugging."""
        return None if self._run is None else self._run.cause

    def warnings(self) -> list[str]:
        """Return what the job has to say since the last call: files that were rewritten after they had been read."""
        return [] if self._run is None else self._run.take_warnings()

    def stop(self, *, drain: bool = False) -> None:
        """Ask the job to stop after the batch that is running; `wait` tells when it has.

        With `drain` it reads no more, and closes all windows as at the end of its input: it cannot go on later.
        """
        if self._run is not None:
            self._run.request_stop(drain=drain)

    def savepoint(self, name: str | None = None, *, to: str | None = None) -> str:
        """Take a savepoint of the newest version of the job, which goes on meanwhile; return its name.

        Without a name it is called `<job>-<version>`. With `to` it is written into that folder, whole and by itself, and not
        into the warehouse. Raises UsageError when the job has no version yet, or a savepoint has the name.
        """
        assert self._warehouse is not None
        with plainly():
            return take_savepoint(self._warehouse, self.name, name, to).record.name

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end (or so many seconds) and return whether it came; raise the error that ended it, if one did."""
        if self._run is None:
            return True
        self._run.join(timeout)
        if self._run.is_alive():
            return False
        self.release()
        if self._run.error is not None:
            with plainly():
                raise self._run.error
        return True

    def verify(self, *, at: Version | None = None) -> Verification:
        """Compare what the job had written at a version (by default its newest) with a batch over all that it had read.

        The result is true where every difference is explained; as text it says which there are. Raises CannotVerify where the
        query, or what it read or wrote, has nothing to compare with.
        """
        if self.verifier is None:
            raise UsageError(f'of job "{self.name}" nothing is kept that could be verified')
        with plainly():
            return self.verifier(at)

    def release(self) -> None:
        """Give back what the job holds; it has ended."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
            if self._on_end:
                self._on_end()
