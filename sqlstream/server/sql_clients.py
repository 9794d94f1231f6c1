"""Ports for SQL clients of other systems, in addition to the HTTP port."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING

from sqlstream.errors import UsageError
from sqlstream.server.postgres.backend import ClientLimits
from sqlstream.server.postgres.server import PostgresServer
from sqlstream.server.query_processes.pool import QueryProcesses
from sqlstream.server.settings import Limits, ServerSettings

if TYPE_CHECKING:
    from sqlstream.server.flight.server import FlightServer


@contextlib.contextmanager
def serving_sql_clients(
    settings: ServerSettings, processes: QueryProcesses, notice: Callable[[str], None]
) -> Iterator[None]:
    """Serve PostgreSQL's and Flight SQL's clients in the context, if the settings have ports for them. Raises UsageError."""
    with contextlib.ExitStack() as servers:
        if settings.postgres is not None:
            port = servers.enter_context(_running(postgres_server(settings, processes)))
            notice(f"PostgreSQL's clients: host={settings.host} port={port}")
        if settings.flight is not None:
            notice(f"Arrow Flight SQL: {servers.enter_context(flight_server(settings, processes)).url}")
        yield


def flight_server(settings: ServerSettings, processes: QueryProcesses) -> FlightServer:
    """Return a server for clients of Flight SQL, with the tokens, the certificate and the limits of the settings."""
    try:
        from sqlstream.server.flight.server import FlightLimits, FlightServer
    except ImportError as error:
        hint = "Install a pyarrow that has Flight: pip install pyarrow."
        raise UsageError(f"Arrow Flight cannot be imported: {error}", hint=hint) from error
    limits = settings.limits
    files = (settings.certificate, settings.key) if settings.certificate and settings.key else None
    return FlightServer(
        processes,
        settings.flight_host,
        settings.flight.port if settings.flight else 0,
        allows=_allows(settings),
        certificate=files,
        # Results that are read slowly hold no more memory than concurrent queries may use.
        limits=FlightLimits(limits.queries, limits.query_seconds, memory=_together(limits)),
        insecure=settings.insecure,
    )


def _together(limits: Limits) -> int | None:
    """Return the bytes of memory that all concurrent queries may use together; None for no limit."""
    return None if limits.query.memory is None else limits.queries * limits.query.memory


def _allows(settings: ServerSettings) -> Callable[[str], bool] | None:
    tokens = settings.tokens
    # Every role may read.
    return None if tokens is None else lambda token: tokens.role_of(token) is not None


def postgres_server(settings: ServerSettings, processes: QueryProcesses) -> PostgresServer:
    """Return a server for PostgreSQL's clients, with the tokens, the certificate and the limits of the settings."""
    context = None
    if settings.certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(settings.certificate, settings.key)
    limits = settings.limits
    return PostgresServer(
        processes,
        settings.host,
        settings.postgres or 0,
        allows=_allows(settings),
        certificate=context,
        limits=ClientLimits(queries=limits.queries, seconds=limits.query_seconds),
        insecure=settings.insecure,
    )


@contextlib.contextmanager
def _running(server: PostgresServer) -> Iterator[int]:
    """Run a server in a thread with its own event loop, so that other queries do not wait for it; yield its port."""
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, int]] = Future()

    async def run() -> None:
        async with server:
            end = asyncio.Event()
            started.set_result((asyncio.get_running_loop(), end, server.port))
            await end.wait()

    def begin() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=begin, name="postgres", daemon=True)
    thread.start()
    loop, end, port = started.result()
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()
