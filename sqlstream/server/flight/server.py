"""Listens for clients of Arrow Flight SQL."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from types import TracebackType

import pyarrow as pa
import pyarrow.flight as fl

from sqlstream.errors import UsageError
from sqlstream.server.flight.access import MIDDLEWARE, Handshakes, TokenCheck
from sqlstream.server.flight.metadata import Metadata
from sqlstream.server.flight.queries import ClientQueries, FlightLimits
from sqlstream.server.flight.requests import FlightRequests
from sqlstream.server.flight.sockets import StrangerWatch, address_of, connections, cut
from sqlstream.server.flight.watching import CallWatcher
from sqlstream.server.query_processes.pool import QueryProcesses
from sqlstream.server.settings import is_loopback
from sqlstream.server.state_reader import StateReader

__all__ = ["FlightLimits", "FlightServer"]

# Clients that have not read their results this many seconds after the server begins to end are disconnected.
_LAST_SECONDS = 1.0


class FlightServer:
    """Serves a project's warehouse to clients of Flight SQL: a context manager.

    `allows` returns whether a token is valid; without it all clients are allowed, on a loopback address or if `insecure`. With
    `certificate` (the files of a certificate and its key) only encrypted connections are accepted. Port 0 is a free port. Raises
    UsageError.
    """

    def __init__(
        self,
        processes: QueryProcesses,
        host: str = "127.0.0.1",
        port: int = 31337,
        *,
        allows: Callable[[str], bool] | None = None,
        certificate: tuple[str, str] | None = None,
        limits: FlightLimits | None = None,
        insecure: bool = False,
    ):
        if not is_loopback(host) and not insecure and (allows is None or certificate is None):
            hint = "Give it tokens and a certificate, or listen on 127.0.0.1."
            raise UsageError(f'clients from other machines are not served on "{host}" without both', hint=hint)
        self.host, self.port = host, port
        self._allows, self._certificate = allows, certificate
        self._limits = limits or FlightLimits()
        self._reader = StateReader(processes)

    @property
    def url(self) -> str:
        """The address for clients, such as grpc+tls://host:31337."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"grpc{'+tls' if self._certificate else ''}://{host}:{self.port}"

    def __enter__(self) -> FlightServer:
        self._check_port()
        self._watcher = CallWatcher(self._cut)
        self._strangers = StrangerWatch()
        self._metadata = Metadata(self._reader.tables)
        self.queries = ClientQueries(self._reader, self._limits, self._watcher)
        try:
            self._server = FlightRequests(
                self.queries,
                self._metadata,
                self._strangers,
                self.url,
                auth_handler=Handshakes(),
                tls_certificates=_certificates(self._certificate),
                middleware={MIDDLEWARE: TokenCheck(self._allows)},
            )
        except (pa.ArrowException, OSError) as error:
            self._watcher.end()
            raise UsageError(f"port {self.port} of {self.host} cannot be listened on", detail=str(error)) from error
        self.port = self._server.port
        self._strangers.start(self.port)
        return self

    def _check_port(self) -> None:
        """Raise UsageError for a port that is in use: gRPC would print about it."""
        if not self.port:
            return
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((self.host, self.port))
            except OSError as error:
                detail = error.strerror or str(error)
                raise UsageError(f"port {self.port} of {self.host} cannot be listened on", detail=detail) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._strangers.end()
        self._watcher.end()
        # This waits for all calls, also for calls whose clients do not read.
        ending = threading.Thread(target=self._server.shutdown, name="flight-end", daemon=True)
        ending.start()
        ending.join(_LAST_SECONDS)
        while ending.is_alive():
            self._cut(None)
            ending.join(_LAST_SECONDS)
        self.queries.close()
        self._metadata.close()

    def _cut(self, peer: str | None) -> None:
        """End the connection of a peer, or all (None). Nothing else ends a call of Flight whose client does not read."""
        target = None if peer is None else address_of(peer)
        if peer is not None and target is None:
            # Its address is unknown.
            return
        for address, connection in connections(self.port):
            if target is None or target == address:
                cut(connection)


def _certificates(files: tuple[str, str] | None) -> list[fl.CertKeyPair] | None:
    if files is None:
        return None
    contents = []
    for path in files:
        with open(path, "rb") as file:
            contents.append(file.read())
    return [fl.CertKeyPair(*contents)]
