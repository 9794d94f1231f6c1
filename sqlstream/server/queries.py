"""State queries over HTTP: in threads, within limits, and interrupted when whoever asked has gone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from sqlstream.duck.sql import quote_name
from sqlstream.errors import SqlStreamError
from sqlstream.functions.registration import recover
from sqlstream.queries.query import translate
from sqlstream.server.problems import HttpError
from sqlstream.server.query_pool import QueryPool
from sqlstream.server.settings import Limits
from sqlstream.session.row_values import ROWS, finite, plain_value, values_of
from sqlstream.session.state_queries import ProjectQueries
from sqlstream.session.state_tools import asked

ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"
# Parts of an answer that wait to be sent.
_WAITING = 4
_AGAIN_SECONDS = 0.05

# Takes a part of an answer; False says that nobody wants more.
Emit = Callable[[bytes], bool]


@dataclass(frozen=True, slots=True)
class Asked:
    """A query, how many rows of it are sent as JSON, and whether their values are texts.

    Where nobody wrote it as SQL (`is_made`), its errors have no place in it.
    """

    sql: str
    limit: int
    text: bool = False
    is_made: bool = False


class Queries:
    """Runs queries of a project."""

    def __init__(self, pool: QueryPool, limits: Limits):
        self._pool, self._limits = pool, limits
        self._changing = threading.Lock()
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
            running = _Running(asyncio.get_running_loop())
            work = asyncio.create_task(asyncio.to_thread(self._answer, running, query, form))
            deadline = asyncio.get_running_loop().time() + self._limits.query_seconds
            try:
                while True:
                    left = deadline - asyncio.get_running_loop().time()
                    try:
                        part = await asyncio.wait_for(running.parts.get(), max(left, 0))
                    except TimeoutError:
                        message = f"the query took longer than {self._limits.query_seconds:g} s"
                        raise HttpError(504, message, hint="Ask for less, or have the limit raised.") from None
                    if part is None:
                        break
                    yield part
                await work
            finally:
                await running.end(work)

    def _answer(self, running: _Running, query: Asked, form: str) -> None:
        try:
            with self._pool.lent() as queries:
                if query.is_made:
                    asked(lambda sql: self._send(queries, running, query, form), query.sql)
                else:
                    self._send(queries, running, query, form)
        finally:
            running.close()
            running.finish()

    def _send(self, queries: ProjectQueries, running: _Running, query: Asked, form: str) -> None:
        relation = queries.query(query.sql, limits=self._limits.query, opened=running.opened)
        try:
            if form == ARROW:
                _write_arrow(relation, running.emit)
            else:
                _write_json(relation, running.emit, query)
        except duckdb.Error as error:
            raise recover(error) or translate(error, query.sql) from error


class _Running:
    """A query in a thread, and the parts of its answer on their way to the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self.parts: asyncio.Queue[bytes | None] = asyncio.Queue(_WAITING)
        self._loop = loop
        self._connection: duckdb.DuckDBPyConnection | None = None
        # Nothing is interrupted that is closed.
        self._closing = threading.Lock()
        self._unwanted = threading.Event()

    def opened(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        if self._unwanted.is_set():
            raise _gone()

    def close(self) -> None:
        """Close the database of the query: one that failed stays in memory with its error, for long, and has threads."""
        with self._closing:
            connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(duckdb.Error):
                connection.close()

    def emit(self, part: bytes) -> bool:
        """Hand on a part, as soon as there is room for it; return whether more is wanted."""
        if self._unwanted.is_set():
            return False
        asyncio.run_coroutine_threadsafe(self.parts.put(part), self._loop).result()
        return not self._unwanted.is_set()

    def finish(self) -> None:
        """Say that nothing more comes."""
        if not self._unwanted.is_set():
            with contextlib.suppress(RuntimeError):
                asyncio.run_coroutine_threadsafe(self.parts.put(None), self._loop).result()

    async def end(self, work: asyncio.Task[None]) -> None:
        """Interrupt the query until it has ended, if it has not."""
        self._unwanted.set()
        while not work.done():
            while not self.parts.empty():
                self.parts.get_nowait()
            with self._closing:
                if self._connection is not None:
                    # Between two statements nothing is interrupted: say it again.
                    self._connection.interrupt()
            with contextlib.suppress(TimeoutError, asyncio.CancelledError, SqlStreamError, duckdb.Error):
                await asyncio.wait_for(asyncio.shield(work), _AGAIN_SECONDS)
        if not work.cancelled():
            # Whoever waits for it has been told.
            work.exception()


def _gone() -> SqlStreamError:
    return HttpError(504, "the query was interrupted")


def _write_arrow(relation: duckdb.DuckDBPyRelation, emit: Emit) -> None:
    reader = relation.to_arrow_reader(ROWS)
    sink = _Parts()
    with pa.ipc.new_stream(sink, reader.schema) as writer:
        for batch in reader:
            if not emit(sink.take()):
                return
            writer.write_batch(batch)
    emit(sink.take())


class _Parts:
    """A file whose content is taken away as it comes."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(self._parts[-1])

    def take(self) -> bytes:
        found, self._parts = b"".join(self._parts), []
        return found

    def flush(self) -> None:
        """Nothing to flush."""

    def close(self) -> None:
        """Nothing to close."""


def _write_json(relation: duckdb.DuckDBPyRelation, emit: Emit, query: Asked) -> None:
    types = zip(relation.columns, relation.types, strict=True)
    columns = json.dumps([{"name": name, "type": str(kind)} for name, kind in types])
    text = f'{{"columns":{columns},"rows":['
    # One more tells whether there are more.
    rows = relation.limit(query.limit + 1)
    for count, row in enumerate(values_of(_as_texts(rows) if query.text else rows)):
        if count == query.limit:
            break
        values = json.dumps(list(map(finite, row)), default=plain_value, ensure_ascii=False)
        text += f",{values}" if count else values
        if len(text) > 1 << 16:
            if not emit(text.encode()):
                return
            text = ""
    else:
        emit(f'{text}],"truncated":false}}\n'.encode())
        return
    emit(f'{text}],"truncated":true}}\n'.encode())


def _as_texts(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Return a relation with the texts of its values; of a STRUCT each field is one."""
    items = []
    # By their places: names may be there several times.
    for place, kind in enumerate(relation.types, 1):
        wanted = "VARCHAR"
        if kind.id == "struct":
            wanted = f"STRUCT({', '.join(f'{quote_name(field)} VARCHAR' for field, _ in kind.children)})"
        items.append(f"CAST(#{place} AS {wanted})")
    return relation.project(", ".join(items))
