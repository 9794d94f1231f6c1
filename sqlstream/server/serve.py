"""Starts the server: it listens and supervises until it gets a signal."""

from __future__ import annotations

import contextlib
import errno
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace

import uvicorn

from sqlstream.errors import UsageError
from sqlstream.queries.lookup import Lookups
from sqlstream.server.app import make_app
from sqlstream.server.computations import compilations_of, verifications_of
from sqlstream.server.connections import FILES_BESIDE, Connections, HttpServer, ListeningSocket, most_files
from sqlstream.server.endpoints import Service
from sqlstream.server.events import Events, ListenerLimit
from sqlstream.server.overview import Overview
from sqlstream.server.processes import Command, run_command
from sqlstream.server.queries import Queries
from sqlstream.server.query_pool import QueryPool
from sqlstream.server.query_processes.pool import QueryProcesses
from sqlstream.server.settings import ServerSettings
from sqlstream.server.sql_clients import serving_sql_clients
from sqlstream.server.state_reader import StateReader
from sqlstream.server.supervisor import Supervisor
from sqlstream.server.table_tails import TableTails
from sqlstream.server.turns import RequestTurns
from sqlstream.storage_errors import make_folder
from sqlstream.warehouse.paths import Warehouse

# Requests that run when the server ends get this many seconds.
_LAST_SECONDS = 3


@contextlib.contextmanager
def opened_service(
    settings: ServerSettings, notice: Callable[[str], None], command: Command | None = None
) -> Iterator[Service]:
    """Yield the service while it supervises jobs; `command` makes the command of a submission's process."""
    warehouse = Warehouse(settings.project.warehouse)
    if warehouse.fs.local:
        make_folder(warehouse.root)
    supervisor = Supervisor(warehouse, settings.project.root, command or run_command(settings.project), notice)
    overview = Overview(warehouse, supervisor.about)
    processes = QueryProcesses(settings.project, settings.limits.query)
    reader = StateReader(processes)
    limits = settings.limits
    queries = Queries(reader, limits)
    compilations, verifications = (
        RequestTurns(reader, compilations_of(limits)),
        RequestTurns(reader, verifications_of(limits)),
    )
    # Lookups of keys run in this process, because they must be fast: their statements are the server's own, and read the few rows
    # of a key.
    pool = QueryPool(settings.project)
    limit = ListenerLimit(settings.limits.subscribers)
    events, tails = Events(warehouse, limit, supervisor.about), TableTails(warehouse, limit)
    lookups = Lookups(warehouse, settings.limits.lookups, pool.prepare)
    connections = Connections(settings.limits.connections)
    supervisor.start()
    try:
        with serving_sql_clients(settings, processes, notice):
            yield Service(
                settings,
                warehouse,
                supervisor,
                overview,
                queries,
                compilations,
                verifications,
                events,
                tails,
                lookups,
                connections,
            )
    finally:
        # First, because clients that wait for an answer block others.
        processes.close()
        for turns in (queries, compilations, verifications):
            turns.close()
        events.close()
        tails.close()
        supervisor.close()
        lookups.close()
        pool.close()
        overview.close()


def serve(settings: ServerSettings, notice: Callable[[str], None], command: Command | None = None) -> None:
    """Serve until SIGINT or SIGTERM; `command` makes the command of a submission's process.

    Raises UsageError for unsafe or invalid settings, and if the server cannot listen.
    """
    settings.check()
    most = most_files() - FILES_BESIDE
    settings = replace(settings, limits=replace(settings.limits, connections=min(settings.limits.connections, most)))
    with listening_socket(settings) as listening, opened_service(settings, notice, command) as service:
        notice(f"listening on {settings.url(listening.getsockname()[1])}")
        if settings.tokens is None:
            notice("warning: there are no tokens: whoever can connect may do everything")
        server = http_server(service, listening, log_level=logging.ERROR)
        service.queries.start()
        # After a signal uvicorn ends, and raises the signal again with its usual effect, which would abandon the jobs.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: None)
        server.run(sockets=[listening])


def http_server(service: Service, listening: ListeningSocket, log_level: int) -> HttpServer:
    """Return the HTTP server of a service; call `run` with the socket."""
    listening.connections = service.connections
    settings = service.settings
    config = uvicorn.Config(
        make_app(service),
        # Addresses are those of connections, whatever a header says; another loop would not use our socket class.
        proxy_headers=False,
        loop="asyncio",
        log_level=log_level,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=_LAST_SECONDS,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
    )
    return HttpServer(config, service.connections)


@contextlib.contextmanager
def listening_socket(settings: ServerSettings) -> Iterator[ListeningSocket]:
    """Yield a socket that listens at the address in the settings. Raises UsageError."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # asyncio sends small parts at once (TCP_NODELAY) only on sockets that name their protocol. Otherwise the body of each answer
    # waits until the client acknowledges the headers, which takes 40 ms.
    listening = ListeningSocket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((settings.host, settings.port))
            listening.listen(128)
        except (OSError, UnicodeError) as error:
            message = f'the server cannot listen on "{settings.host}", port {settings.port}'
            detail = f"{getattr(error, 'strerror', None) or error}."
            raise UsageError(message, detail=detail, hint=_way_out(error)) from error
        yield listening
    finally:
        listening.close()


def _way_out(error: OSError | UnicodeError) -> str:
    """Return the hint of the error about an address on which the server cannot listen."""
    if isinstance(error, socket.gaierror | UnicodeError) or error.errno == errno.EADDRNOTAVAIL:
        return "Name an address of this machine with --host; 0.0.0.0 is all of them."
    if error.errno in (errno.EACCES, errno.EPERM):
        return "Ports below 1024 are for root alone: name another port with --port."
    return "Name another port with --port; 0 is any that is free."
