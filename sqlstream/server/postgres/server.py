"""Listens for PostgreSQL's clients."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import re
import secrets
import ssl
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from sqlstream.errors import UsageError
from sqlstream.server.postgres.backend import Backend, ClientLimits, ResultLimit
from sqlstream.server.postgres.connection import Authentication, ClientConnection, ClientDisconnected
from sqlstream.server.postgres.errors import ProtocolError
from sqlstream.server.postgres.session import ClientSession
from sqlstream.server.query_processes.pool import QueryProcesses
from sqlstream.server.state_reader import StateReader

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
# `-c name=value` or `--name=value`; in a value a backslash precedes a space.
_OPTION = re.compile(r"(?:^|(?<=\s))(?:-c\s*|--)([\w.-]+)=((?:\\.|[^\s\\])*)")
# A client has this many seconds to read the last message.
_CLOSING_SECONDS = 5.0
# This many connections may be unauthenticated; of more, the oldest is closed.
_MOST_STRANGERS = 64
# The time between two searches for results that nobody reads.
_LOOK_SECONDS = 1.0
_log = logging.getLogger(__name__)


class PostgresServer:
    """Serves a project's warehouse to PostgreSQL's clients: an asynchronous context manager.

    `allows` returns whether a password is valid; without it all clients are allowed, on a loopback address or if `insecure`. With
    `certificate` clients may encrypt their connections; clients on other machines must, unless `insecure`. Port 0 is a free port.
    Raises UsageError.
    """

    def __init__(
        self,
        processes: QueryProcesses,
        host: str = "127.0.0.1",
        port: int = 5432,
        *,
        allows: Callable[[str], bool] | None = None,
        certificate: ssl.SSLContext | None = None,
        limits: ClientLimits | None = None,
        insecure: bool = False,
    ):
        local = host in _LOOPBACK
        if not local and not insecure and (allows is None or certificate is None):
            hint = "Give it tokens and a certificate, or listen on 127.0.0.1."
            raise UsageError(f'clients from other machines are not served on "{host}" without both', hint=hint)
        self.host, self.port = host, port
        self._authentication = Authentication(allows, certificate, local or insecure)
        self._limits = limits or ClientLimits()
        self._reader = StateReader(processes)
        self._results = ResultLimit(self._limits.results)
        self._pool = ThreadPoolExecutor(self._limits.queries, thread_name_prefix="postgres")
        self._connections: dict[tuple[int, int], ClientConnection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # Connections that are not authenticated yet, the oldest first.
        self._strangers: dict[asyncio.Task[None], StreamWriter] = {}
        self._watcher: asyncio.Task[None] | None = None
        self._numbers = itertools.count(1)
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> PostgresServer:
        try:
            self._server = await asyncio.start_server(self._connected, self.host, self.port)
        except OSError as error:
            detail = error.strerror or str(error)
            raise UsageError(f"port {self.port} of {self.host} cannot be listened on", detail=detail) from error
        self.port = self._server.sockets[0].getsockname()[1]
        self._watcher = asyncio.create_task(self._end_idle())
        return self

    async def _end_idle(self) -> None:
        """Close results that nobody has read for as long as a statement may take: each has one of few places."""
        while self._limits.seconds is not None:
            await asyncio.sleep(_LOOK_SECONDS)
            for connection in list(self._connections.values()):
                connection.end_idle(time.monotonic() - self._limits.seconds)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        assert self._watcher is not None
        self._server.close()
        self._watcher.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(self._watcher, *self._tasks, return_exceptions=True)
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _connected(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._strangers[task] = writer
        if len(self._strangers) > _MOST_STRANGERS:
            self._strangers.pop(next(iter(self._strangers))).transport.abort()
        try:
            await self._serve(reader, writer)
        except asyncio.CancelledError:
            # The server ends: do not wait for a client that does not read.
            writer.transport.abort()
        except (ClientDisconnected, TimeoutError):
            pass
        except Exception:
            _log.exception("a connection of a PostgreSQL client failed")
        finally:
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                async with asyncio.timeout(_CLOSING_SECONDS):
                    await writer.wait_closed()
            writer.transport.abort()
            self._tasks.discard(task)
            self._strangers.pop(task, None)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        key = next(self._numbers), secrets.randbits(31)
        connection = ClientConnection(reader, writer, key, self._limits, self._pool)
        try:
            parameters = await connection.begin(self._authentication, self._cancel)
            if parameters is None:
                return
            self._forget_stranger()
            if len(self._connections) >= self._limits.connections:
                raise ProtocolError("sorry, too many clients already", "53300", fatal=True)
            session = _session(parameters)
        except ProtocolError as error:
            await connection.refuse(_fatal(error))
            return
        backend = Backend(self._reader, session, key[0], self._limits, self._results)
        self._connections[key] = connection
        try:
            await connection.serve(session, backend)
        except ProtocolError as error:
            await connection.refuse(error)
        finally:
            del self._connections[key]
            connection.close()

    def _forget_stranger(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._strangers.pop(task, None)

    def _cancel(self, number: int, secret: int) -> None:
        """Interrupt the query of a connection, for a client that knows its secret."""
        for (connection_number, its_secret), connection in self._connections.items():
            same = secrets.compare_digest(its_secret.to_bytes(4, "big"), (secret & 0xFFFFFFFF).to_bytes(4, "big"))
            if connection_number == number and same:
                connection.cancel("user request")


def _session(startup: Mapping[str, str]) -> ClientSession:
    parameters = {n: v for n, v in startup.items() if n not in ("user", "database", "options", "replication")}
    for name, value in _OPTION.findall(startup.get("options", "")):
        parameters[name.replace("-", "_")] = re.sub(r"\\(.)", r"\1", value)
    if startup.get("replication", "false") not in ("false", "off", "no", "0"):
        raise ProtocolError("replication is not supported", "0A000")
    return ClientSession(startup["user"], startup.get("database") or startup["user"], parameters)


def _fatal(error: ProtocolError) -> ProtocolError:
    return ProtocolError(error.message, error.state, fatal=True, hint=error.hint)
