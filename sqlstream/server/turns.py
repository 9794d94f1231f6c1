"""Requests of HTTP clients that run in processes: limited in number and time, and ended when the client leaves."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from sqlstream.server.problems import HttpError
from sqlstream.server.query_processes.protocol import ProcessRequest
from sqlstream.server.state_reader import QueryStopped, RunningAnswer, RunningQuery, StateReader


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """How many requests run at a time, how many seconds each may take, and how many seconds (`patience`) it waits for its turn.

    `noun` and `running` are for errors: `noun` names a request, such as "query"; `running` is, for example, "queries are
    running".
    """

    most: int
    seconds: float
    noun: str
    running: str
    patience: float = 0.0


class RequestTurns:
    """Runs requests of one kind in processes, for the clients of one event loop."""

    def __init__(self, reader: StateReader, limits: TurnLimits):
        self._reader, self._limits = reader, limits
        self._semaphore = asyncio.Semaphore(limits.most)
        # Threads that wait for processes.
        self._threads = ThreadPoolExecutor(limits.most, thread_name_prefix=limits.noun)
        self.running = 0

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Count a request as running within the context. Raises HttpError if too many run."""
        try:
            async with asyncio.timeout(self._limits.patience):
                await self._semaphore.acquire()
        except TimeoutError:
            message = f"{self.running} {self._limits.running}, which is the most"
            raise HttpError(429, message, headers={"Retry-After": "1"}) from None
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            self._semaphore.release()

    async def parts(self, request: ProcessRequest) -> AsyncGenerator[Any, None]:
        """Yield the parts of an answer. Raises HttpError if its turn does not come or its time is over, and SqlStreamError."""
        async with self._turn():
            parts = _AnswerParts(self._reader, request)
            loop = asyncio.get_running_loop()
            deadline = loop.time() + self._limits.seconds
            try:
                while True:
                    work = loop.run_in_executor(self._threads, parts.next)
                    # Nobody may be left to receive its error.
                    work.add_done_callback(lambda done: done.cancelled() or done.exception())
                    ended, _ = await asyncio.wait({work}, timeout=max(deadline - loop.time(), 0))
                    if not ended:
                        message = f"the {self._limits.noun} took longer than {self._limits.seconds:g} s"
                        raise HttpError(504, message, hint="Ask for less, or have the limit raised.")
                    yield work.result()
                    if parts.is_whole:
                        return
            except QueryStopped as error:
                raise HttpError(503, f"the {self._limits.noun} was stopped: {error}") from error
            finally:
                parts.stop()

    def start(self) -> None:
        """Start processes for requests in advance."""
        self._reader.start()

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class _AnswerParts:
    """The parts of an answer, for which threads wait."""

    def __init__(self, reader: StateReader, request: ProcessRequest):
        self._reader, self._request = reader, request
        self._running = RunningQuery()
        self._answer: RunningAnswer | None = None
        self._waiting = threading.Lock()

    @property
    def is_whole(self) -> bool:
        """Whether there are no more parts."""
        return self._answer is not None and self._answer.is_whole

    def next(self) -> Any:
        """Return the next part. Raises SqlStreamError, and QueryStopped."""
        with self._waiting:
            if self._answer is not None:
                return self._answer.part()
            self._answer = self._reader.open(self._request, self._running)
            return self._answer.head

    def stop(self) -> None:
        """End the query, if it has not ended: a thread that still waits for it gets an error."""
        self._running.stop("nobody waits for its answer")
        if self._waiting.acquire(blocking=False):
            if self._answer is not None:
                self._answer.close()
            self._waiting.release()
