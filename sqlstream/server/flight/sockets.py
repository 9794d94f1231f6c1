"""Finds the connections of Flight's clients among this process's file descriptors, because gRPC does not expose them."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import resource
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

from sqlstream.server.connections import MOST_STRANGERS, STRANGER_SECONDS

Address: TypeAlias = tuple[str, int]
_PEER = re.compile(r"ipv[46]:\[?(?P<host>[^\]]+?)\]?:(?P<port>\d+)")
_SWEEP_SECONDS = 1.0
_MOST_FILES = 65_536


def connections(port: int) -> Iterator[tuple[Address, socket.socket]]:
    """Yield (address of the client, socket) for each client connection to a port of this process."""
    for number in _descriptors():
        with contextlib.suppress(OSError, ValueError):
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            # gRPC owns it: it is not closed here.
            connection = socket.socket(fileno=number)
            try:
                if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.getsockname()[1] == port:
                    host, peer, *_ = connection.getpeername()
                    yield (_plain(host), peer), connection
            finally:
                connection.detach()


def _descriptors() -> Iterator[int]:
    try:
        yield from map(int, os.listdir("/dev/fd"))
    except OSError:
        # No descriptor is left for reading the folder.
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        yield from range(_MOST_FILES if soft == resource.RLIM_INFINITY else min(soft, _MOST_FILES))


def address_of(peer: str) -> Address | None:
    """Return the host and the port of a peer, from Flight's name for it; None if it has neither.

    >>> address_of("ipv4:127.0.0.1:5000"), address_of("ipv6:%5B::1%5D:5000")
    (('127.0.0.1', 5000), ('::1', 5000))
    """
    match = _PEER.fullmatch(peer.replace("%5B", "[").replace("%5D", "]"))
    return (_plain(match["host"]), int(match["port"])) if match else None


def _plain(host: str) -> str:
    """Return an address in its usual form; an IPv4 address that is mapped to IPv6 as IPv4."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def cut(connection: socket.socket) -> None:
    """Shut down a connection: gRPC, its owner, notices that, and closes it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class StrangerWatch:
    """Ends connections without an authenticated call: the oldest if there are too many, and each after some time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._port: int | None = None
        self._clock = clock
        self._changing = threading.Lock()
        self._clients: set[Address] = set()
        # Since when each was seen, in seconds; the oldest first.
        self._strangers: dict[Address, float] = {}
        self._ended = threading.Event()

    def start(self, port: int) -> None:
        """Watch the connections to a port, in a thread."""
        self._port = port
        threading.Thread(target=self._watch, name="flight-strangers", daemon=True).start()

    def know(self, peer: str) -> None:
        """Record that a call of a peer was authenticated."""
        address = address_of(peer)
        if address is not None and address not in self._clients:
            with self._changing:
                self._clients.add(address)

    def sweep(self) -> None:
        """End the connections of strangers that are too old, and the oldest if there are too many."""
        assert self._port is not None
        now = self._clock()
        present = dict(connections(self._port))
        with self._changing:
            self._clients &= present.keys()
            strangers = [address for address in present if address not in self._clients]
            earlier = {address: since for address, since in self._strangers.items() if address in strangers}
            self._strangers = {**earlier, **{address: now for address in strangers if address not in earlier}}
            oldest = list(self._strangers)[: max(len(strangers) - MOST_STRANGERS, 0)]
            late = {address for address, since in self._strangers.items() if since < now - STRANGER_SECONDS} | {*oldest}
        if late:
            for address, connection in connections(self._port):
                if address in late:
                    cut(connection)

    def _watch(self) -> None:
        while not self._ended.wait(_SWEEP_SECONDS):
            self.sweep()

    def end(self) -> None:
        """End the thread."""
        self._ended.set()
