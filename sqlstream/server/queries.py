"""State queries over HTTP: within limits, and ended when whoever asked has gone."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

from sqlstream.server.http_answers import Asked, HttpRequest
from sqlstream.server.problems import HttpError
from sqlstream.server.settings import Limits
from sqlstream.server.state_reader import QueryStopped, RunningAnswer, RunningQuery, StateReader


class Queries:
    """Runs queries of a project."""

    def __init__(self, reader: StateReader, limits: Limits):
        self._reader, self._limits = reader, limits
        self._changing = threading.Lock()
        # They wait for the processes of queries.
        self._threads = ThreadPoolExecutor(limits.queries, thread_name_prefix="query")
        self.running = 0

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Count a query as long as it runs. Raises HttpError when there are too many."""
        with self._changing:
            if self.running >= self._limits.queries:
                raise HttpError(
                    429, f"{self.running} queries are running, which is the most", headers={"Retry-After": "1"}
                )
            self.running += 1
        try:
            yield
        finally:
            with self._changing:
                self.running -= 1

    async def stream(self, query: Asked, form: str) -> AsyncIterator[bytes]:
        """Yield the parts of an answer. Raises errors before the first one; later on they end the answer in the middle."""
        with self._turn():
            parts = _AnswerParts(self._reader, HttpRequest(query, form))
            loop = asyncio.get_running_loop()
            deadline = loop.time() + self._limits.query_seconds
            try:
                while True:
                    work = loop.run_in_executor(self._threads, parts.next)
                    # Nobody may be there to hear of its error.
                    work.add_done_callback(lambda done: done.cancelled() or done.exception())
                    ended, _ = await asyncio.wait({work}, timeout=max(deadline - loop.time(), 0))
                    if not ended:
                        message = f"the query took longer than {self._limits.query_seconds:g} s"
                        raise HttpError(504, message, hint="Ask for less, or have the limit raised.")
                    yield work.result()
                    if parts.is_whole:
                        return
            except QueryStopped as error:
                raise HttpError(503, f"the query was stopped: {error}") from error
            finally:
                parts.stop()

    def start(self) -> None:
        """Have processes wait for queries."""
        self._reader.start()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class _AnswerParts:
    """The parts of an answer, as a thread waits for them."""

    def __init__(self, reader: StateReader, request: HttpRequest):
        self._reader, self._request = reader, request
        self._running = RunningQuery()
        self._answer: RunningAnswer | None = None
        self._waiting = threading.Lock()

    @property
    def is_whole(self) -> bool:
        """Whether there are no more parts."""
        return self._answer is not None and self._answer.is_whole

    def next(self) -> bytes:
        """Return the next part. Raises SqlStreamError, and QueryStopped."""
        with self._waiting:
            if self._answer is None:
                self._answer = self._reader.open(self._request, self._running)
                part: bytes = self._answer.head
            else:
                part = self._answer.part()
            return part

    def stop(self) -> None:
        """End the query, if it has not ended: a thread that still waits for it gets an error."""
        self._running.stop("nobody waits for its answer")
        if self._waiting.acquire(blocking=False):
            if self._answer is not None:
                self._answer.close()
            self._waiting.release()
