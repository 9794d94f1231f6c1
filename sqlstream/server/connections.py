"""Connections of HTTP's clients: how many there may be, and how long a client may take to say who it is."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import uvicorn

from sqlstream.errors import UsageError

# Files that the server has open beside connections over HTTP, the least that it starts with, and as many as it takes.
FILES_BESIDE = 192
_NEEDED_FILES = 256
_WANTED_FILES = 65_536
# So many connections may be there whose clients have shown no token; of more, the oldest has to go.
MOST_STRANGERS = 128
# So long a client may take to show one: for the handshake of TLS, and the headers of a request.
STRANGER_SECONDS = 20.0
_NO_FILES = (errno.EMFILE, errno.ENFILE)
Peer: TypeAlias = tuple[str, int]


def most_files() -> int:
    """Let this process open as many files as it may, up to a number, and return how many. Raises UsageError for too few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, _WANTED_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = _WANTED_FILES if soft == resource.RLIM_INFINITY else soft
    if count < _NEEDED_FILES:
        raise UsageError(
            f"the server may have {count} files open at a time, and needs {_NEEDED_FILES}",
            hint="Raise the limit before it is started: ulimit -n 1024, or LimitNOFILE=1024 of systemd.",
        )
    return count


class Connections:
    """The connections that there are: of strangers, and of clients that have shown a token. Used by one thread."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic):
        self._most, self._clock = most, clock
        # The oldest first, with when it began.
        self._strangers: dict[Peer, tuple[socket.socket, float]] = {}
        self._clients: dict[Peer, socket.socket] = {}

    @property
    def strangers(self) -> int:
        return len(self._strangers)

    def admit(self, connection: socket.socket, address: Any) -> bool:
        """Tell whether there is room for a new connection; one of a stranger may have to go for it."""
        if len(self._strangers) >= MOST_STRANGERS:
            self._forget_closed_strangers()
        if len(self._strangers) >= MOST_STRANGERS:
            self._drop_oldest()
        if len(self._strangers) + len(self._clients) >= self._most:
            self._clients = {peer: one for peer, one in self._clients.items() if one.fileno() >= 0}
            if len(self._strangers) + len(self._clients) >= self._most:
                if not self._strangers:
                    return False
                self._drop_oldest()
        self._strangers[_peer(address)] = connection, self._clock()
        return True

    def know(self, address: Any) -> None:
        """Note that the client at an address has shown a token, or needs none."""
        if address is not None and (stranger := self._strangers.pop(_peer(address), None)) is not None:
            self._clients[_peer(address)] = stranger[0]

    def sweep(self) -> None:
        """Send strangers away that have had their time, and forget connections that have ended."""
        self._forget_closed_strangers()
        self._clients = {peer: one for peer, one in self._clients.items() if one.fileno() >= 0}
        oldest = self._clock() - STRANGER_SECONDS
        while self._strangers and next(iter(self._strangers.values()))[1] < oldest:
            self._drop_oldest()

    def _forget_closed_strangers(self) -> None:
        self._strangers = {peer: one for peer, one in self._strangers.items() if one[0].fileno() >= 0}

    def _drop_oldest(self) -> None:
        connection, _ = self._strangers.pop(next(iter(self._strangers)))
        # Whoever reads from it hears of its end, and closes it.
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def _peer(address: Any) -> Peer:
    return address[0], address[1]


class ListeningSocket(socket.socket):
    """A socket that takes no more connections than there is room for.

    Where no file can be opened for a connection it is closed: asyncio would try again and again, and write a line each time.
    """

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.connections: Connections | None = None
        self._spare: int | None = os.open(os.devnull, os.O_RDONLY)

    def accept(self) -> tuple[socket.socket, Any]:
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
        """Close the next connection, with the file that is kept for that."""
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
        spare, self._spare = self._spare, None
        if spare is not None:
            os.close(spare)
        super().close()


class HttpServer(uvicorn.Server):
    """A server that looks after its connections as it runs."""

    def __init__(self, config: uvicorn.Config, connections: Connections):
        super().__init__(config)
        self._connections = connections

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:
            self._connections.sweep()
        return bool(await super().on_tick(counter))
