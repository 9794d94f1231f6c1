"""Connections of HTTP clients: limits of their number, and of the time in which a client must show a token."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import uvicorn

from sqlstream.errors import UsageError

# Files that the server opens besides HTTP connections, the fewest that it needs in all, and the most that it takes.
FILES_BESIDE = 192
_NEEDED_FILES = 256
_WANTED_FILES = 65_536
# This many connections may be of strangers, who have shown no token; of more, the oldest is closed.
MOST_STRANGERS = 128
# The seconds in which a client must show one, including the handshake of TLS and the headers of a request.
STRANGER_SECONDS = 20.0
# The seconds in which the headers of each further request must come. uvicorn closes an idle connection sooner.
HEADER_SECONDS = 20.0
_NO_FILES = (errno.EMFILE, errno.ENFILE)
Peer: TypeAlias = tuple[str, int]


def most_files() -> int:
    """Raise this process's limit of open files, up to 65,536, and return it. Raises UsageError if it stays too low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, _WANTED_FILES)
    if soft != resource.RLIM_INFINITY and soft < limit:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = _WANTED_FILES if soft == resource.RLIM_INFINITY else soft
    if count < _NEEDED_FILES:
        raise UsageError(
            f"the server may have {count} files open at a time, and needs {_NEEDED_FILES}",
            hint="Raise the limit before it is started: ulimit -n 1024, or LimitNOFILE=1024 of systemd.",
        )
    return count


@dataclass
class _Client:
    """A connection whose client has shown a token. `requests` are being answered; `waits_since` is when the last answer ended."""

    connection: socket.socket
    requests: int = 0
    waits_since: float = 0.0


class Connections:
    """The open connections. A stranger is a connection that has shown no token yet; a client has shown one, or needs none.

    Only one thread may use it.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic):
        self._most, self._clock = most, clock
        # (socket, time of its start in seconds), the oldest first.
        self._strangers: dict[Peer, tuple[socket.socket, float]] = {}
        self._clients: dict[Peer, _Client] = {}

    @property
    def strangers(self) -> int:
        """The number of connections without a token."""
        return len(self._strangers)

    def admit(self, connection: socket.socket, address: Any) -> bool:
        """Add a new connection, and close the oldest stranger's if there are too many; return False if there is no room."""
        if len(self._strangers) >= MOST_STRANGERS:
            self._forget_closed_strangers()
        if len(self._strangers) >= MOST_STRANGERS:
            self._drop_oldest()
        if len(self._strangers) + len(self._clients) >= self._most:
            self._forget_closed_clients()
            if len(self._strangers) + len(self._clients) >= self._most:
                if not self._strangers:
                    return False
                self._drop_oldest()
        self._strangers[_peer(address)] = connection, self._clock()
        return True

    def know(self, address: Any) -> None:
        """Record that the connection from an address is a client's, and that one more request of it is being answered."""
        if address is None:
            return
        peer = _peer(address)
        if (stranger := self._strangers.pop(peer, None)) is not None:
            self._clients[peer] = _Client(stranger[0])
        if (client := self._clients.get(peer)) is not None:
            client.requests += 1

    def answered(self, address: Any) -> None:
        """Record that the answer to a request of the client at an address has ended."""
        if address is not None and (client := self._clients.get(_peer(address))) is not None:
            client.requests = max(client.requests - 1, 0)
            client.waits_since = self._clock()

    def sweep(self) -> None:
        """Close connections whose clients take too long to send a token or the headers of a request; remove ended connections."""
        self._forget_closed_strangers()
        self._forget_closed_clients()
        moment = self._clock()
        while self._strangers and next(iter(self._strangers.values()))[1] < moment - STRANGER_SECONDS:
            self._drop_oldest()
        for peer, client in list(self._clients.items()):
            if not client.requests and client.waits_since < moment - HEADER_SECONDS:
                del self._clients[peer]
                # The client may still read its last answer.
                _end(client.connection, socket.SHUT_RD)

    def _forget_closed_strangers(self) -> None:
        self._strangers = {peer: one for peer, one in self._strangers.items() if one[0].fileno() >= 0}

    def _forget_closed_clients(self) -> None:
        self._clients = {peer: one for peer, one in self._clients.items() if one.connection.fileno() >= 0}

    def _drop_oldest(self) -> None:
        connection, _ = self._strangers.pop(next(iter(self._strangers)))
        _end(connection)


def _end(connection: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    """Shut a connection down: its reader notices the end, and closes it."""
    with contextlib.suppress(OSError):
        connection.shutdown(how)


def _peer(address: Any) -> Peer:
    return address[0], address[1]


class ListeningSocket(socket.socket):
    """A listening socket that accepts only connections for which there is room.

    A connection for which no file descriptor is left is closed: asyncio would retry forever, and log a line each time.
    """

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.connections: Connections | None = None
        self._spare: int | None = os.open(os.devnull, os.O_RDONLY)

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection for which there is room, and its address."""
        while True:
            try:
                connection, address = super().accept()
            except OSError as error:
                if error.errno not in _NO_FILES or self._spare is None:
                    raise
                self._refuse()
                continue
            if self.connections is None or self.connections.admit(connection, address):
                return connection, address
            connection.close()

    def _refuse(self) -> None:
        """Close the next connection, after freeing the file descriptor that is reserved for accepting it."""
        assert self._spare is not None
        os.close(self._spare)
        self._spare = None
        try:
            connection, _ = super().accept()
            connection.close()
        finally:
            with contextlib.suppress(OSError):
                self._spare = os.open(os.devnull, os.O_RDONLY)

    def close(self) -> None:
        """Close the socket, and the reserved file."""
        spare, self._spare = self._spare, None
        if spare is not None:
            os.close(spare)
        super().close()


class HttpServer(uvicorn.Server):
    """The HTTP server of uvicorn, which also closes the connections of strangers and of slow clients."""

    def __init__(self, config: uvicorn.Config, connections: Connections):
        super().__init__(config)
        self._connections = connections

    async def on_tick(self, counter: int) -> bool:
        """Run uvicorn's periodic work, and sweep the connections once a second."""
        if counter % 10 == 0:
            self._connections.sweep()
        return bool(await super().on_tick(counter))
