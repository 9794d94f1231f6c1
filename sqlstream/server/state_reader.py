"""Queries of a server's clients: each runs in its own process, and any thread can stop it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlstream.errors import QueryError
from sqlstream.server.listed_tables import ListedTable
from sqlstream.server.query_processes.pool import QueryProcesses
from sqlstream.server.query_processes.process import ProcessGone, QueryProcess
from sqlstream.server.query_processes.protocol import (
    ComputationCall,
    Condition,
    NextPart,
    ProcessReply,
    ProcessRequest,
    WholeAnswer,
)
from sqlstream.server.query_processes.worker import LISTED_FOR, Worker


class QueryStopped(Exception):
    """A query was stopped before its end; the message is the reason."""


class RunningQuery:
    """A query that other threads can stop, also before it begins."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: QueryProcess | None = None
        self._why: str | None = None

    def begin(self, process: QueryProcess) -> None:
        """Set the process in which the query runs."""
        with self._lock:
            self._process = process
            if self._why is not None:
                process.kill()

    def end(self) -> None:
        """Mark the query as ended: its process can no longer be stopped through it."""
        with self._lock:
            self._process = None

    def stop(self, why: str) -> None:
        """Kill the process of the query; the first reason counts."""
        with self._lock:
            self._why = self._why or why
            if self._process is not None:
                self._process.kill()

    @property
    def is_stopped(self) -> bool:
        """Whether the query was stopped."""
        return self._why is not None

    def check(self) -> None:
        """Raise QueryStopped if the query has been stopped."""
        if self._why is not None:
            raise QueryStopped(self._why)


class RunningAnswer:
    """The answer to a request, in parts. Closing it before its last part kills its process."""

    def __init__(self, processes: QueryProcesses, running: RunningQuery, request: ProcessRequest):
        self._processes, self._running = processes, running
        self._noun = request.noun if isinstance(request, ComputationCall) else "query"
        self._closing = threading.Lock()
        self._process: QueryProcess | None = None
        self.since = time.monotonic()
        running.check()
        try:
            self._process = processes.lend(running.begin)
            self.head = self._ask(request)
        except BaseException:
            self.close()
            # The error follows from the kill of its process, so it is not the reason.
            running.check()
            raise

    @property
    def is_whole(self) -> bool:
        """Whether there are no more parts."""
        return self._process is None

    def part(self, *arguments: Any) -> Any:
        """Return the next part. Raises SqlStreamError, and QueryStopped."""
        self._running.check()
        try:
            return self._ask(NextPart(arguments))
        except BaseException:
            self.close()
            self._running.check()
            raise

    def _ask(self, request: ProcessRequest | NextPart) -> Any:
        assert self._process is not None
        try:
            reply = self._process.ask(request)
        except ProcessGone as error:
            self._running.check()
            raise QueryError(
                f"the process of the {self._noun} ended: it may have been out of memory",
                hint="Ask for less at a time.",
            ) from error
        self.since = time.monotonic()
        self._take(reply)
        return reply.value

    def _take(self, reply: ProcessReply) -> None:
        if reply.is_last:
            self._give_back(reply.condition)
        if reply.error is not None:
            raise reply.error

    def _give_back(self, condition: Condition) -> None:
        with self._closing:
            process, self._process = self._process, None
        self._running.end()
        if process is not None:
            self._processes.give_back(process, Condition.SPENT if self._running.is_stopped else condition)

    def close(self) -> None:
        """Close the answer. A computation that has not ended is killed with its process."""
        self._give_back(Condition.SPENT)

    def __del__(self) -> None:
        # For an answer that nobody has read to its end.
        self.close()


@dataclass(frozen=True, slots=True)
class _ListTables:
    """A request for the readable tables."""

    def open(self, worker: Worker) -> WholeAnswer:
        return WholeAnswer(worker.tables())


class StateReader:
    """Runs the requests of clients in query processes. Several threads may use it."""

    def __init__(self, processes: QueryProcesses):
        self._processes = processes
        self._listing = threading.Lock()
        self._listed: tuple[float, Sequence[ListedTable]] | None = None

    def start(self) -> None:
        """Start processes in advance."""
        self._processes.start()

    def open(self, request: ProcessRequest, running: RunningQuery) -> RunningAnswer:
        """Return the answer to a request, with its head. Raises SqlStreamError, and QueryStopped."""
        return RunningAnswer(self._processes, running, request)

    def tables(self) -> Sequence[ListedTable]:
        """Return the readable tables, at most LISTED_FOR seconds old. Raises SqlStreamError."""
        with self._listing:
            if self._listed is None or self._listed[0] < time.monotonic() - LISTED_FOR:
                tables: Sequence[ListedTable] = self.open(_ListTables(), RunningQuery()).head
                self._listed = time.monotonic(), tables
            return self._listed[1]
