"""A client's connection: its start, and its messages after that."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import struct
from asyncio import IncompleteReadError, StreamReader, StreamWriter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from sqlstream.errors import SqlStreamError
from sqlstream.server.placeholders import check_text
from sqlstream.server.postgres import messages
from sqlstream.server.postgres.backend import Backend, ClientLimits, Portal, PreparedStatement, answer_of
from sqlstream.server.postgres.errors import ProtocolError, cancelled, fields_of
from sqlstream.server.postgres.messages import Body
from sqlstream.server.postgres.session import ClientSession, StatementText, split
from sqlstream.server.state_reader import QueryStopped, RunningQuery

# The most bytes and seconds of the start of a connection, before the client has authenticated.
_STARTUP_BYTES = 10_000
_STARTUP_SECONDS = 30.0
# The time between two checks of a query: whether its client is there, and whether it has ended after an interrupt.
_WATCH_SECONDS = 0.1
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class ClientDisconnected(Exception):
    """The client has left, or its connection is broken."""


@dataclass(frozen=True, slots=True)
class Authentication:
    """How clients are authenticated.

    `allows` checks a password; None lets in all clients. `certificate` is the server's; None without TLS.
    """

    allows: Callable[[str], bool] | None = None
    certificate: ssl.SSLContext | None = None
    # Only a client of this machine may send its password in clear text.
    is_local: bool = True


class ClientConnection:
    """One client, from its first byte to its last."""

    def __init__(
        self, reader: StreamReader, writer: StreamWriter, key: tuple[int, int], limits: ClientLimits, pool: Executor
    ):
        self._reader, self._writer = reader, writer
        self.key, self._limits, self._pool = key, limits, pool
        self._running: RunningQuery | None = None
        self._deadline: float | None = None
        self._prepared: dict[str, PreparedStatement] = {}
        self._portals: dict[str, Portal] = {}
        self._encrypted = self._skipping = False

    def cancel(self, why: str) -> None:
        """Interrupt the client's running query, if there is one."""
        if self._running is not None:
            self._running.stop(why)

    async def begin(
        self, authentication: Authentication, cancel: Callable[[int, int], None]
    ) -> Mapping[str, str] | None:
        """Authenticate a client; return its startup parameters, or None if the connection was only for cancelling a query.

        Raises ProtocolError, ClientDisconnected and TimeoutError.
        """
        async with asyncio.timeout(_STARTUP_SECONDS):
            parameters = await self._started(authentication, cancel)
            if parameters is None:
                return None
            if authentication.allows is not None:
                await self._let_in(authentication)
        return parameters

    async def _started(
        self, authentication: Authentication, cancel: Callable[[int, int], None]
    ) -> Mapping[str, str] | None:
        while True:
            length = int.from_bytes(await self._read(4), "big")
            if not 8 <= length <= _STARTUP_BYTES:
                raise ProtocolError("this is no start of a connection", fatal=True)
            body = Body(await self._read(length - 4))
            code = body.number(4)
            if code == messages.CANCEL:
                cancel(body.number(4), body.number(4))
                return None
            if code == messages.SSL and authentication.certificate is not None and not self._encrypted:
                await self._encrypt(authentication.certificate)
            elif code in (messages.SSL, messages.GSS):
                await self._send(b"N")
            elif code >> 16 == 3:
                return self._parameters(body, code & 0xFFFF)
            else:
                raise ProtocolError("this version of the protocol is not known", "08P01", fatal=True)

    async def _encrypt(self, certificate: ssl.SSLContext) -> None:
        await self._send(b"S")
        # Data from before the handshake was not encrypted: somebody else may have inserted it.
        if getattr(self._reader, "_buffer", b""):
            raise ProtocolError("there is data before the handshake", fatal=True)
        try:
            await self._writer.start_tls(certificate)
        except OSError as error:
            # The client does not trust the certificate, or does not speak TLS.
            raise ClientDisconnected from error
        self._encrypted = True

    def _parameters(self, body: Body, minor: int) -> Mapping[str, str]:
        parameters: dict[str, str] = {}
        while not body.is_read and (name := body.text()):
            parameters[name] = body.text()
        if not parameters.get("user"):
            raise ProtocolError("no user is named", "28000", fatal=True)
        unknown = [name for name in parameters if name.startswith("_pq_.")]
        if minor or unknown:
            names = b"".join(n.encode() + b"\0" for n in unknown)
            self._writer.write(messages.message(b"v", struct.pack(">ii", messages.VERSION, len(unknown)) + names))
        return {name: value for name, value in parameters.items() if name not in unknown}

    async def _let_in(self, authentication: Authentication) -> None:
        if not (self._encrypted or authentication.is_local):
            hint = "Connect with sslmode=require."
            raise ProtocolError("a token is not sent unencrypted", "28000", fatal=True, hint=hint)
        await self._send(messages.ASK_PASSWORD)
        kind, body = await self._message(_STARTUP_BYTES)
        assert authentication.allows is not None
        if kind != b"p" or not authentication.allows(body.text()):
            hint = "The password is a token of the server; the name of the user does not matter."
            raise ProtocolError("password authentication failed", "28P01", fatal=True, hint=hint)

    async def serve(self, session: ClientSession, backend: Backend) -> None:
        """Answer the messages of a client until it leaves. Raises ClientDisconnected, and ProtocolError for a fatal error."""
        self._session, self._backend = session, backend
        reports = b"".join(messages.parameter(name, value) for name, value in session.reported().items())
        await self._send(
            messages.AUTHENTICATED + reports + messages.key_data(*self.key) + messages.ready(session.status)
        )
        while True:
            kind, body = await self._message(self._limits.message_bytes)
            if kind == b"X":
                return
            if self._skipping and kind != b"S":
                continue
            await self._reported(kind, body)
            # A client that sends without reading answers has to wait: answers would fill the memory.
            await self._send(b"")

    async def _reported(self, kind: bytes, body: Body) -> None:
        """Answer a message, and report an error to the client.

        After an error, `serve` skips messages up to Sync; after a simple query it goes on with the next message.
        """
        try:
            await self._answer(kind, body)
        except SqlStreamError as error:
            await self._failed(fields_of(error))
        except ProtocolError as error:
            if error.fatal:
                raise
            await self._failed(error.fields())
        except _PositionedError as positioned:
            await self._failed(positioned.fields)
        except (ClientDisconnected, TimeoutError):
            raise
        except Exception as error:
            _log.exception("a statement of a PostgreSQL client failed")
            await self._failed(ProtocolError(f"internal error: {type(error).__name__}", "XX000").fields())
        else:
            return
        if kind == b"Q":
            await self._ready()
        else:
            self._skipping = True

    async def _failed(self, fields: Mapping[str, str]) -> None:
        self._session.failed()
        await self._send(messages.error(fields))

    async def _answer(self, kind: bytes, body: Body) -> None:
        match kind:
            case b"Q":
                await self._simple(body.text())
            case b"P":
                await self._parse(body)
            case b"B":
                await self._bind(body)
            case b"D":
                await self._describe(body.take(1), body.text())
            case b"E":
                await self._execute(body.text(), body.number(4))
            case b"C":
                which, name = body.take(1), body.text()
                if which == b"S":
                    self._prepared.pop(name, None)
                else:
                    self._forget(name)
                self._writer.write(messages.CLOSED)
            case b"S":
                self._skipping = False
                await self._ready()
            case b"H":
                # All output is sent after every message anyway.
                pass
            case b"F":
                raise ProtocolError("function calls are not supported", "0A000")
            case b"d" | b"c" | b"f":
                # The rest of a COPY that was refused.
                pass
            case _:
                raise ProtocolError(f"message {kind!r} is not known", fatal=True)

    async def _ready(self) -> None:
        if self._session.status == "I":
            # Portals end with their transaction.
            self.close()
        await self._send(messages.ready(self._session.status))

    def close(self) -> None:
        """Close all portals."""
        for name in list(self._portals):
            self._forget(name)

    def _forget(self, name: str) -> None:
        if (portal := self._portals.pop(name, None)) is not None:
            portal.close()

    def end_idle(self, since: float) -> None:
        """Close the results that were not read after the time `since`: other clients need their places."""
        for portal in self._portals.values():
            if portal.running is not self._running and portal.is_idle(since):
                portal.running.stop("statement timeout")
                portal.close()

    async def _simple(self, text: str) -> None:
        check_text(text)
        statements = split(text)
        if not statements:
            self._writer.write(messages.EMPTY)
        for one in statements:
            portal = Portal(PreparedStatement(one), (), ())
            try:
                with self._watched(portal):
                    await self._open(portal)
                    if portal.answer is not None:
                        self._writer.write(messages.row_description(portal.answer.columns))
                    await self._rows(portal, None)
            except SqlStreamError as error:
                raise _PositionedError(fields_of(error, portal.source, one.offset)) from error
            finally:
                portal.close()
        await self._ready()

    async def _parse(self, body: Body) -> None:
        name, text = body.text(), body.text()
        check_text(text)
        statements = split(text)
        if len(statements) > 1:
            raise ProtocolError("cannot insert multiple commands into a prepared statement", "42601")
        if name and name in self._prepared:
            raise ProtocolError(f'prepared statement "{name}" already exists', "42P05")
        types = tuple(body.number(4) & 0xFFFFFFFF for _ in range(body.count()))
        prepared = PreparedStatement(statements[0] if statements else None, types)
        prepared.typed()
        self._prepared.pop(name, None)
        if len(self._prepared) >= self._limits.statements:
            raise _too_many(f"{self._limits.statements} prepared statements")
        self._check_room(len(text))
        self._prepared[name] = prepared
        self._writer.write(messages.PARSED)

    async def _bind(self, body: Body) -> None:
        name, statement = body.text(), body.text()
        formats, values, result_formats = body.numbers(2), body.values(), body.numbers(2)
        prepared = self._statement(statement)
        count = len(prepared.typed())
        if len(values) < count:
            raise ProtocolError(f"{len(values)} parameters are given, and {count} are needed")
        if len(formats) not in (0, 1, len(values)):
            raise ProtocolError(f"there are {len(formats)} formats for {len(values)} parameters")
        self._forget(name)
        if len(self._portals) >= self._limits.portals:
            raise _too_many(f"{self._limits.portals} portals")
        portal = Portal(prepared, prepared.literals(values, formats), result_formats)
        self._check_room(portal.size)
        self._portals[name] = portal
        self._writer.write(messages.BOUND)

    def _check_room(self, size: int) -> None:
        """Raise ProtocolError if the statements and values of the connection would become too large."""
        statements = sum(len(one.statement.sql) for one in self._prepared.values() if one.statement is not None)
        if statements + sum(portal.size for portal in self._portals.values()) + size > self._limits.characters:
            raise _too_many(f"statements and values of {self._limits.characters} characters")

    async def _describe(self, which: bytes, name: str) -> None:
        if which == b"S":
            prepared = self._statement(name)
            self._writer.write(messages.parameter_description(prepared.typed()))
            portal = Portal(prepared, prepared.nulls(), (), is_described=True)
        else:
            portal = self._portal(name)
        statement = portal.prepared.statement
        if statement is not None and not portal.done and self._has_rows(statement):
            await self._answered(portal, self._open(portal))
        answer = portal.answer
        self._writer.write(messages.NO_ROWS if answer is None else messages.row_description(answer.columns))
        if portal.is_described:
            portal.close()

    def _has_rows(self, statement: StatementText) -> bool:
        return statement.words[0] == "SHOW" or not self._session.is_command(statement)

    async def _execute(self, name: str, limit: int) -> None:
        portal = self._portal(name)
        if portal.prepared.statement is None:
            self._writer.write(messages.EMPTY)
            return
        await self._answered(portal, self._executed(portal, limit if limit > 0 else None))

    async def _executed(self, portal: Portal, limit: int | None) -> None:
        await self._open(portal)
        await self._rows(portal, limit)

    async def _answered(self, portal: Portal, done: Awaitable[None]) -> None:
        """Await work on a portal. Raises _Placed in place of a SqlStreamError, and closes the portal after any error."""
        try:
            with self._watched(portal):
                await done
        except BaseException as error:
            portal.close()
            if not isinstance(error, SqlStreamError):
                raise
            offset = portal.prepared.statement.offset if portal.prepared.statement else 0
            raise _PositionedError(fields_of(error, portal.source, offset)) from error

    def _statement(self, name: str) -> PreparedStatement:
        if name not in self._prepared:
            raise ProtocolError(f'prepared statement "{name}" does not exist', "26000")
        return self._prepared[name]

    def _portal(self, name: str) -> Portal:
        if name not in self._portals:
            raise ProtocolError(f'portal "{name}" does not exist', "34000")
        return self._portals[name]

    async def _open(self, portal: Portal) -> None:
        """Run the portal's session statement, or bind its query, unless that was done before."""
        statement = portal.prepared.statement
        assert statement is not None
        if portal.answer is not None or portal.reply is not None:
            return
        if statement.words[0] == "DEALLOCATE":
            self._deallocate(statement)
        portal.reply = self._session.answer(statement)
        if portal.reply is None:
            await self._in_thread(portal.running, lambda: self._backend.open(portal))
            return
        if portal.reply.tag == "DISCARD ALL":
            self._prepared.clear()
        portal.answer = answer_of(portal.reply)
        for name, value in portal.reply.changed.items():
            self._writer.write(messages.parameter(name, value))

    def _deallocate(self, statement: StatementText) -> None:
        name = statement.sql.split()[-1].strip('"')
        if statement.words[-1] == "ALL":
            self._prepared.clear()
        elif self._prepared.pop(name, None) is None:
            raise ProtocolError(f'prepared statement "{name}" does not exist', "26000")

    async def _rows(self, portal: Portal, limit: int | None) -> None:
        """Send at most `limit` rows of a portal, and then whether it is complete or suspended."""
        sent, answer = 0, portal.answer
        while answer is not None and not portal.done and (limit is None or sent < limit):
            remaining = None if limit is None else limit - sent
            data, count, more = await self._in_thread(portal.running, partial(answer.take, remaining))
            sent, portal.done = sent + count, not more
            if portal.done:
                portal.close()
            await self._send(data)
        portal.sent += sent
        if answer is not None and not portal.done:
            await self._send(messages.SUSPENDED)
            return
        tag = f"SELECT {portal.sent}" if portal.reply is None else portal.reply.tag
        await self._send(messages.complete(tag))

    @contextlib.contextmanager
    def _watched(self, portal: Portal) -> Iterator[None]:
        """Let the client cancel a statement inside of the context, also while rows are sent, and limit its time."""
        seconds = min(filter(None, (self._limits.seconds, self._session.timeout)), default=None)
        self._deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
        self._running = portal.running
        try:
            yield
        except QueryStopped as stopped:
            if self._has_left:
                raise ClientDisconnected from stopped
            raise cancelled(str(stopped)) from stopped
        finally:
            self._running = None

    @property
    def _has_left(self) -> bool:
        """Whether the client has left; earlier messages may still be unread, such as the Sync behind an Execute."""
        ended = self._reader.at_eof() or getattr(self._reader, "_eof", False)
        return ended or self._reader.exception() is not None or self._writer.is_closing()

    def _look(self, running: RunningQuery) -> None:
        """Stop a query whose client has left, or whose time is over. Raises QueryStopped if it has not begun."""
        if self._has_left:
            running.stop("the client having left")
        elif self._deadline is not None and asyncio.get_running_loop().time() > self._deadline:
            running.stop("statement timeout")
        elif running.is_stopped:
            # Between two of its statements there was nothing to interrupt.
            running.stop("user request")

    async def _in_thread(self, running: RunningQuery, work: Callable[[], _T]) -> _T:
        """Run work in a thread; stop it if the client leaves or cancels it, or its time is over."""
        self._look(running)
        running.check()
        job = self._pool.submit(work)
        future = asyncio.wrap_future(job)
        try:
            while not (await asyncio.wait({future}, timeout=_WATCH_SECONDS))[0]:
                self._look(running)
                if running.is_stopped and job.cancel():
                    # It was still waiting for a thread.
                    running.check()
            return future.result()
        finally:
            # This task is being cancelled as the server ends; a query that continues would keep the process alive.
            while not job.done():
                running.stop("the end of the server")
                if not job.cancel():
                    await asyncio.wait({future}, timeout=_WATCH_SECONDS)
                    _ = future.done() and not future.cancelled() and future.exception()

    async def _message(self, most: int) -> tuple[bytes, Body]:
        head = await self._read(5)
        length = int.from_bytes(head[1:], "big")
        if not 4 <= length <= most:
            hint = f"A message has {most} bytes at most."
            raise ProtocolError("a message is too long", "54000", fatal=True, hint=hint)
        return head[:1], Body(await self._read(length - 4))

    async def _read(self, count: int) -> bytes:
        try:
            return await self._reader.readexactly(count)
        except (IncompleteReadError, OSError) as error:
            raise ClientDisconnected from error

    async def _send(self, data: bytes) -> None:
        self._writer.write(data)
        try:
            await self._writer.drain()
        except OSError as error:
            raise ClientDisconnected from error

    async def refuse(self, error: ProtocolError) -> None:
        """Send a client the reason why its connection is closed."""
        with contextlib.suppress(ClientDisconnected):
            await self._send(messages.error(error.fields()))


def _too_many(what: str) -> ProtocolError:
    return ProtocolError(f"a connection keeps {what} at most", "54000", hint="Close those that are not needed.")


class _PositionedError(Exception):
    """An error in the form of protocol fields, whose position refers to the text that the client wrote."""

    def __init__(self, fields: Mapping[str, str]):
        super().__init__(fields["M"])
        self.fields = fields
