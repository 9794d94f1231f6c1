"""Queries of Flight's clients: they take turns, have limits, and are streamed as they are computed."""

from __future__ import annotations

import contextlib
import re
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.flight as fl

from sqlstream.duck.sql import quote_name
from sqlstream.errors import QueryError, SourceText, SqlStreamError
from sqlstream.server.flight.errors import placed, told
from sqlstream.server.flight.held import HeldMemory
from sqlstream.server.flight.watching import CallWatcher
from sqlstream.server.state_reader import RunningQuery, StateReader, failure

# Rows that DuckDB hands over at a time. Clients refuse large messages, those in Go from 4 MiB on: larger batches are cut.
_ROWS = 65_536
_MESSAGE_BYTES = 2 << 20
# A query whose rows nobody has asked for after so many seconds is opened again when somebody does.
_KEPT_SECONDS = 5.0
_KEPT = 32
_TURN_SECONDS = 0.1
_ENUM = re.compile(r"ENUM\((?:'(?:[^']|'')*'(?:, )?)+\)")


@dataclass(frozen=True, slots=True)
class FlightLimits:
    """What clients may use: queries that run at once, seconds for each call, results that are read at once.

    `memory` is the most that the results hold together which are being read, in bytes. None is no limit.
    """

    queries: int = 8
    seconds: float | None = 300.0
    results: int = 100
    memory: int | None = None


@dataclass(slots=True)
class OpenedQuery:
    """A query that is bound: its columns are known, and its rows are not computed yet."""

    source: SourceText
    running: RunningQuery
    relation: duckdb.DuckDBPyRelation
    schema: pa.Schema
    since: float = field(default_factory=time.monotonic)


class ClientQueries:
    """Runs the queries of all clients."""

    def __init__(self, reader: StateReader, limits: FlightLimits, watcher: CallWatcher):
        self._reader, self._limits, self._watcher = reader, limits, watcher
        self._turns = threading.Semaphore(limits.queries)
        self._results = threading.Semaphore(limits.results)
        self._held = HeldMemory(limits.memory)
        self._changing = threading.Lock()
        # Queries between the call that tells their columns and the one that gets their rows, and those whose rows are sent.
        self._kept: dict[bytes, OpenedQuery] = {}
        self._sent: dict[bytes, RunningQuery] = {}

    @property
    def running(self) -> int:
        """How many results are on their way."""
        return len(self._sent)

    @contextlib.contextmanager
    def _turn(self, running: RunningQuery) -> Iterator[None]:
        """Wait for a turn among the queries that run at once. Raises QueryStopped."""
        while not self._turns.acquire(timeout=_TURN_SECONDS):
            running.check()
        try:
            running.check()
            yield
        finally:
            self._turns.release()

    def open(self, source: SourceText, context: Any) -> OpenedQuery:
        """Bind a query. Raises SqlStreamError and QueryStopped."""
        running = RunningQuery()
        with self._watcher.watching(running, context, self._limits.seconds), self._turn(running):
            try:
                relation = _plain(self._reader.open(source.text, running))
                schema = _schema(relation)
            except SqlStreamError as error:
                raise placed(error, source) from error
            except duckdb.Error as error:
                raise failure(error, source, running) from error
        return OpenedQuery(source, running, relation, schema)

    def keep(self, opened: OpenedQuery) -> bytes:
        """Keep a query for the call that gets its rows, and return by what it is known: no one else can guess it."""
        key = secrets.token_bytes(16)
        with self._changing:
            self._forget()
            self._kept[key] = opened
        return key

    def _forget(self) -> None:
        """Forget what nobody has asked for, so that there is room for one more."""
        recent = [(k, q) for k, q in self._kept.items() if q.since > time.monotonic() - _KEPT_SECONDS]
        self._kept = dict(recent[1 - _KEPT :])

    def taken(self, key: bytes) -> OpenedQuery | None:
        """Return a query that was kept, if it still is; once."""
        with self._changing:
            opened = self._kept.pop(key, None)
            self._forget()
        return opened if opened is not None and opened.since > time.monotonic() - _KEPT_SECONDS else None

    def cancel(self, key: bytes) -> bool:
        """Stop a query that is known by a key; return whether there was one."""
        with self._changing:
            kept, running = self._kept.get(key), self._sent.get(key)
        running = kept.running if kept is not None else running
        if running is None:
            return False
        running.stop("the query was cancelled")
        return True

    def rows(self, opened: OpenedQuery, key: bytes, context: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query as they are computed; the errors are those of Flight."""
        try:
            with self._sending(opened, key):
                yield from self._batches(opened, key, context)
        except Exception as error:
            raise told(error) from None

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
                with self._turn(running):
                    reader = opened.relation.to_arrow_reader(_ROWS)
                if not reader.schema.equals(opened.schema):
                    raise QueryError("the columns of the result have changed", hint="Run the query again.")
                while True:
                    with self._turn(running):
                        batch = next(reader, None)
                        running.check()
                        if batch is None:
                            return
                        if self._held.is_limited:
                            self._held.note(key, running.memory() + batch.nbytes)
                    call.sending = True
                    yield from _in_parts(batch)
                    call.sending = False
            except fl.FlightError:
                # Ours, and one of Arrow's, too.
                raise
            except (duckdb.Error, pa.ArrowException, OSError) as error:
                raise failure(error, opened.source, running) from error


def _schema(relation: duckdb.DuckDBPyRelation) -> pa.Schema:
    """Return the columns of a relation as Arrow, without computing its rows."""
    schema = relation.limit(0).to_arrow_table().schema
    # Of columns with one name, the second has another one there.
    return pa.schema([field.with_name(name) for field, name in zip(schema, relation.columns, strict=True)])


def _plain(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Return a relation whose enumerations are texts: clients want Arrow's dictionaries before all rows."""
    types = list(map(str, relation.types))
    if not any("ENUM(" in kind for kind in types):
        return relation
    items = (
        f"CAST(#{i} AS {_ENUM.sub('VARCHAR', kind)}) AS {quote_name(name)}"
        for i, (name, kind) in enumerate(zip(relation.columns, types, strict=True), 1)
    )
    return relation.project(", ".join(items))


def _in_parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts that are small enough for a message, as far as rows are."""
    count = -(-batch.nbytes // _MESSAGE_BYTES)
    if count <= 1 or batch.num_rows <= 1:
        yield batch
        return
    rows = max(batch.num_rows // count, 1)
    for start in range(0, batch.num_rows, rows):
        part = batch.slice(start, rows)
        if rows > 1 and part.nbytes > 2 * _MESSAGE_BYTES:
            # Some rows are much longer than others.
            yield from _in_parts(part)
        else:
            yield part
