"""The processes in which a server's queries run; some are started in advance."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlstream.errors import OutageError, SqlStreamError
from sqlstream.project import Project
from sqlstream.queries.query import QueryLimits
from sqlstream.server.query_pool import project_files
from sqlstream.server.query_processes.process import ProcessGone, QueryProcess, SeedProcess
from sqlstream.server.query_processes.protocol import Condition

# This many processes wait for queries; more are kept if they are used again within this many seconds.
_WARM = 2
_MOST_IDLE = 8
_IDLE_SECONDS = 60.0
# A process of lowered priority is kept for a shorter time: only for the client that caused it.
_SLOW_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _IdleProcess:
    process: QueryProcess
    condition: Condition
    since: float

    def is_over(self, now: float, files: object) -> bool:
        """Return whether it must not be used again."""
        most = _SLOW_SECONDS if self.condition is Condition.GIVES_WAY else _IDLE_SECONDS
        return now - self.since > most or self.process.project_files != files


class QueryProcesses:
    """Lends processes, with limits, for queries of a project. After a change of the project's files it starts new ones."""

    def __init__(self, project: Project, limits: QueryLimits | None = None):
        self._project, self._limits = project, limits or QueryLimits()
        # Reentrant: an answer that nobody has closed returns its process at any time, when Python collects it.
        self._changing, self._starting = threading.RLock(), threading.Lock()
        self._seed: SeedProcess | None = None
        self._idle: list[_IdleProcess] = []
        self._lent: set[QueryProcess] = set()
        self._wake = threading.Event()
        self._warmer: threading.Thread | None = None
        self._is_closed = False

    def start(self) -> None:
        """Start processes in advance, in a thread."""
        with self._changing:
            if self._warmer is None and not self._is_closed:
                self._warmer = threading.Thread(target=self._keep_warm, name="query-processes", daemon=True)
                self._warmer.start()
        self._wake.set()

    @property
    def idle(self) -> int:
        """The number of processes that wait for queries."""
        return len(self._idle)

    @property
    def lent(self) -> int:
        """The number of processes in use."""
        return len(self._lent)

    def lend(self, begun: Callable[[QueryProcess], object]) -> QueryProcess:
        """Return a process for one caller, which must call `give_back` with it. Raises OutageError.

        `begun` is called with the process before it is returned. A new process first reads the project, and `begun` is called
        before that, so that the caller can kill it meanwhile.
        """
        self.start()
        files = project_files(self._project)
        with self._changing:
            self._drop_old(files)
            fine = [idle for idle in self._idle if idle.condition is Condition.FINE]
            if self._idle:
                chosen = (fine or self._idle)[-1]
                self._idle.remove(chosen)
                self._lent.add(chosen.process)
                begun(chosen.process)
                return chosen.process
        process = self._started(files, begun)
        with self._changing:
            self._lent.add(process)
        return process

    def _drop_old(self, files: object) -> None:
        now = time.monotonic()
        old = [idle for idle in self._idle if idle.is_over(now, files)]
        self._idle = [idle for idle in self._idle if idle not in old]
        for idle in old:
            idle.process.close()
        if old:
            self._wake.set()

    def give_back(self, process: QueryProcess, condition: Condition) -> None:
        """Take back a process; end it if it cannot be used again."""
        with self._changing:
            self._lent.discard(process)
            is_kept = condition is not Condition.SPENT and not self._is_closed and len(self._idle) < _MOST_IDLE
            if is_kept:
                self._idle.append(_IdleProcess(process, condition, time.monotonic()))
        if not is_kept:
            process.close()
            self._wake.set()

    def _started(self, files: object, begun: Callable[[QueryProcess], object] = lambda process: None) -> QueryProcess:
        """Return a new process that has read the project. Raises OutageError."""
        for attempt in range(2):
            try:
                process = QueryProcess(self._living_seed(), files)
            except OSError as error:
                # The seed process has just died.
                if attempt:
                    raise OutageError("no process can be started for a query", detail=str(error)) from error
                continue
            try:
                begun(process)
                process.await_start()
            except ProcessGone as error:
                process.close()
                detail = "Reading the project's functions may have ended it: see what the server writes."
                raise OutageError("the process for a query ended before it began", detail=detail) from error
            except BaseException:
                process.close()
                raise
            return process
        raise AssertionError("unreachable")

    def _living_seed(self) -> SeedProcess:
        with self._starting:
            if self._is_closed:
                raise OutageError("the server ends")
            if self._seed is None or not self._seed.is_alive:
                if self._seed is not None:
                    self._seed.close()
                self._seed = SeedProcess(self._project, self._limits)
            return self._seed

    def _keep_warm(self) -> None:
        """Start processes while fewer than _WARM wait for queries."""
        while not self._is_closed:
            self._wake.wait()
            self._wake.clear()
            files = project_files(self._project)
            with contextlib.suppress(SqlStreamError, OSError):
                while not self._is_closed and len(self._idle) < _WARM:
                    process = self._started(files)
                    self.give_back(process, Condition.FINE)

    def close(self) -> None:
        """Kill all processes; requests that they were answering fail."""
        with self._starting, self._changing:
            self._is_closed = True
            processes = [*self._lent, *(idle.process for idle in self._idle)]
            self._idle = []
            seed, self._seed = self._seed, None
        self._wake.set()
        for process in processes:
            process.kill()
        if seed is not None:
            seed.close()
