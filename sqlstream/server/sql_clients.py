"""Ports for the SQL clients of other systems, beside the server's own."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

from sqlstream.server.postgres.connection import ClientLimits
from sqlstream.server.postgres.server import PostgresServer
from sqlstream.server.query_pool import QueryPool
from sqlstream.server.settings import ServerSettings


@contextlib.contextmanager
def serving_sql_clients(settings: ServerSettings, pool: QueryPool, notice: Callable[[str], None]) -> Iterator[None]:
    """Let SQL clients in, those that the settings have a port for. Raises UsageError."""
    if settings.postgres is None:
        yield
        return
    with _running(postgres_server(settings, pool)) as port:
        notice(f"PostgreSQL's clients: host={settings.host} port={port}")
        yield


def postgres_server(settings: ServerSettings, pool: QueryPool) -> PostgresServer:
    """Return a server for PostgreSQL's clients, with the tokens, the certificate and the limits of the settings."""
    context = None
    if settings.certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(settings.certificate, settings.key)
    tokens, limits = settings.tokens, settings.limits
    return PostgresServer(
        pool,
        settings.host,
        settings.postgres or 0,
        # Each role may read.
        allows=None if tokens is None else lambda password: tokens.role_of(password) is not None,
        certificate=context,
        limits=ClientLimits(queries=limits.queries, seconds=limits.query_seconds),
        query_limits=limits.query,
        insecure=settings.insecure,
    )


@contextlib.contextmanager
def _running(server: PostgresServer) -> Iterator[int]:
    """Run a server in a thread with a loop of its own, as queries of others are not to wait for it; yield its port."""
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
