"""Queries of Flight's clients: limited in number and time; their rows are sent while they are computed."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from sqlstream.errors import SourceText, SqlStreamError
from sqlstream.server.flight.errors import flight_exception, with_client_span
from sqlstream.server.flight.result_memory import ResultMemory
from sqlstream.server.flight.watching import CallWatcher
from sqlstream.server.record_answers import RecordRequest
from sqlstream.server.state_reader import RunningAnswer, RunningQuery, StateReader

# An open query whose rows are not fetched for this many seconds is closed, and opened again when they are.
_WAITING_SECONDS = 5.0
_MOST_WAITING = 8
_TURN_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class FlightLimits:
    """Limits of clients: concurrent queries, seconds per call, and results that are read at the same time.

    All results that are being read may take `memory` bytes together. None is no limit.
    """

    queries: int = 8
    seconds: float | None = 300.0
    results: int = 32
    memory: int | None = None


@dataclass(slots=True)
class OpenedQuery:
    """A bound query with its columns, whose rows are not computed yet. `since` is the time of its opening, in seconds."""

    source: SourceText
    running: RunningQuery
    answer: RunningAnswer
    schema: pa.Schema
    since: float = field(default_factory=time.monotonic)


class ClientQueries:
    """Runs the queries of all clients."""

    def __init__(self, reader: StateReader, limits: FlightLimits, watcher: CallWatcher):
        self._reader, self._limits, self._watcher = reader, limits, watcher
        self._turns = threading.Semaphore(limits.queries)
        self._results = threading.Semaphore(limits.results)
        self._held = ResultMemory(limits.memory)
        self._changing = threading.Lock()
        # Queries between the call that returns their columns and the call that fetches their rows; and those whose rows are sent.
        self._waiting: dict[bytes, OpenedQuery] = {}
        self._sent: dict[bytes, RunningQuery] = {}

    @property
    def running(self) -> int:
        """The number of results that are being sent."""
        return len(self._sent)

    @contextlib.contextmanager
    def _turn(self, running: RunningQuery) -> Iterator[None]:
        """Wait until fewer queries run than the limit, and count this one as running within the context. Raises QueryStopped."""
        while not self._turns.acquire(timeout=_TURN_SECONDS):
            running.check()
        try:
            running.check()
            yield
        finally:
            self._turns.release()

    def schema(self, source: SourceText, context: Any) -> pa.Schema:
        """Return the columns of a query. Raises SqlStreamError and QueryStopped."""
        return self.open(source, context, is_described=True).schema

    def open(self, source: SourceText, context: Any, *, is_described: bool = False) -> OpenedQuery:
        """Bind a query; with `is_described` only to learn its columns. Raises SqlStreamError and QueryStopped."""
        running = RunningQuery()
        request = RecordRequest(source.text, is_described, self._held.is_limited)
        with self._watcher.watching(running, context, self._limits.seconds), self._turn(running):
            try:
                answer = self._reader.open(request, running)
            except SqlStreamError as error:
                raise with_client_span(error, source) from error
        return OpenedQuery(source, running, answer, pa.ipc.read_schema(pa.py_buffer(answer.head)))

    def keep(self, opened: OpenedQuery) -> bytes:
        """Keep an open query until a call fetches its rows; return its key, which nobody can guess."""
        key = secrets.token_bytes(16)
        with self._changing:
            self._forget()
            self._waiting[key] = opened
        return key

    def _forget(self) -> None:
        """Close open queries that nobody has fetched in time; if there is still no room for one more, close the oldest."""
        recent = [(k, q) for k, q in self._waiting.items() if q.since > time.monotonic() - _WAITING_SECONDS]
        before, self._waiting = self._waiting, dict(recent[1 - _MOST_WAITING :])
        for key, opened in before.items():
            if key not in self._waiting:
                opened.answer.close()

    def take(self, key: bytes) -> OpenedQuery | None:
        """Remove and return the open query of a key; None if it has been closed in the meantime."""
        with self._changing:
            opened = self._waiting.pop(key, None)
            self._forget()
        if opened is None or opened.since > time.monotonic() - _WAITING_SECONDS:
            return opened
        opened.answer.close()
        return None

    def close(self) -> None:
        """Close all open queries that wait for their fetch."""
        with self._changing:
            waiting, self._waiting = self._waiting, {}
        for opened in waiting.values():
            opened.answer.close()

    def cancel(self, key: bytes) -> bool:
        """Stop the query of a key; return whether it waited for its fetch or was being sent."""
        with self._changing:
            waiting, running = self._waiting.get(key), self._sent.get(key)
        running = waiting.running if waiting is not None else running
        if running is None:
            return False
        running.stop("the query was cancelled")
        return True

    def rows(self, opened: OpenedQuery, key: bytes, context: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of an open query while they are computed, then close it. Raises errors of Flight."""
        try:
            with self._sending(opened, key):
                yield from self._batches(opened, key, context)
        except Exception as error:
            raise flight_exception(error) from None
        finally:
            opened.answer.close()

    @contextlib.contextmanager
    def _sending(self, opened: OpenedQuery, key: bytes) -> Iterator[None]:
        if not self._results.acquire(blocking=False):
            raise fl.FlightUnavailableError(f"{self._limits.results} results are being read, which is the most")
        with self._changing:
            self._sent[key] = opened.running
        try:
            yield
        finally:
            with self._changing:
                self._sent.pop(key, None)
            self._held.forget(key)
            self._results.release()

    def _batches(self, opened: OpenedQuery, key: bytes, context: Any) -> Iterator[pa.RecordBatch]:
        running = opened.running
        with self._watcher.watching(running, context, self._limits.seconds) as call:
            try:
                while True:
                    with self._turn(running):
                        data, held = opened.answer.part()
                        running.check()
                        if data is None:
                            return
                        if self._held.is_limited:
                            self._held.note(key, held)
                    call.sending = True
                    yield pa.ipc.read_record_batch(pa.py_buffer(data), opened.schema)
                    call.sending = False
            except SqlStreamError as error:
                raise with_client_span(error, opened.source) from error
