"""The processes in which a server's queries run: some wait for queries, so that these find them ready."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlstream.compiler.project import Project
from sqlstream.errors import OutageError, SqlStreamError
from sqlstream.queries.query import QueryLimits
from sqlstream.server.query_pool import project_files
from sqlstream.server.query_processes.process import ProcessGone, QueryProcess, SeedProcess
from sqlstream.server.query_processes.protocol import Condition

# So many wait for queries; more are kept as long as they are used again within so many seconds.
_WARM = 2
_MOST_IDLE = 8
_IDLE_SECONDS = 60.0
# One that gives way to all else is not kept longer than whoever has made it do so goes on.
_SLOW_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Idle:
    process: QueryProcess
    condition: Condition
    since: float

    def is_over(self, now: float, files: object) -> bool:
        """Whether it is not to be used again."""
        most = _SLOW_SECONDS if self.condition is Condition.GIVES_WAY else _IDLE_SECONDS
        return now - self.since > most or self.process.project_files != files


class QueryProcesses:
    """Lends processes for queries of a project, with limits for each; where a file of the project has changed, new ones."""

    def __init__(self, project: Project, limits: QueryLimits | None = None):
        self._project, self._limits = project, limits or QueryLimits()
        # An answer that nobody has closed gives its process back whenever Python comes to it.
        self._changing, self._starting = threading.RLock(), threading.Lock()
        self._seed: SeedProcess | None = None
        self._idle: list[_Idle] = []
        self._lent: set[QueryProcess] = set()
        self._wanted = threading.Event()
        self._warmer: threading.Thread | None = None
        self._is_closed = False

    def start(self) -> None:
        """Have processes wait for queries from now on."""
        with self._changing:
            if self._warmer is None and not self._is_closed:
                self._warmer = threading.Thread(target=self._keep_warm, name="query-processes", daemon=True)
                self._warmer.start()
        self._wanted.set()

    @property
    def idle(self) -> int:
        """How many processes wait for queries."""
        return len(self._idle)

    @property
    def lent(self) -> int:
        """How many processes are in use."""
        return len(self._lent)

    def lend(self, begun: Callable[[QueryProcess], object]) -> QueryProcess:
        """Return a process, which is to be given back. Raises OutageError.

        One that is new has to read the project first, so `begun` is called with it before that: it may be killed.
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
            self._wanted.set()

    def give_back(self, process: QueryProcess, condition: Condition) -> None:
        """Take a process back; one that cannot be used again is ended."""
        with self._changing:
            self._lent.discard(process)
            is_kept = condition is not Condition.SPENT and not self._is_closed and len(self._idle) < _MOST_IDLE
            if is_kept:
                self._idle.append(_Idle(process, condition, time.monotonic()))
        if not is_kept:
            process.close()
            self._wanted.set()

    def _started(self, files: object, begun: Callable[[QueryProcess], object] = lambda process: None) -> QueryProcess:
        """Return a new process. Raises OutageError."""
        for attempt in range(2):
            try:
                process = QueryProcess(self._living_seed(), files)
            except OSError as error:
                # The process that others are forked from has just had an accident.
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
        """Start processes as long as fewer wait for queries than should."""
        while not self._is_closed:
            self._wanted.wait()
            self._wanted.clear()
            files = project_files(self._project)
            with contextlib.suppress(SqlStreamError, OSError):
                while not self._is_closed and len(self._idle) < _WARM:
                    process = self._started(files)
                    self.give_back(process, Condition.FINE)

    def close(self) -> None:
        """Kill all processes: whoever waits for one of them gets no answer."""
        with self._starting, self._changing:
            self._is_closed = True
            processes = [*self._lent, *(idle.process for idle in self._idle)]
            self._idle = []
            seed, self._seed = self._seed, None
        self._wanted.set()
        for process in processes:
            process.kill()
        if seed is not None:
            seed.close()
