"""The process from which the processes of queries are forked: it has imported what they need, and does nothing else.

So a query gets a process within some fifty milliseconds. When the server ends, however that happens, the seed process and its
children end, too. The seed process reaps a child only when the server allows it: until then no other process has the pid, so the
server can safely kill the child by pid.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pickle
import select
import signal
import socket
import struct
import sys
import warnings
from typing import NoReturn

from sqlstream.project import Project
from sqlstream.queries.query import QueryLimits
from sqlstream.server.query_processes.priority import SharedSpending

FORK, FORGET = b"f", b"r"
# A request with a pid; and the pid in the reply to FORK, 0 for none.
REQUEST, NUMBER = struct.Struct("!cq"), struct.Struct("!q")
_IMPORTED = (
    "pyarrow.compute",
    "sqlstream.connectors.registry",
    "sqlstream.server.http_answers",
    "sqlstream.server.postgres.answers",
    "sqlstream.server.query_processes.child",
    "sqlstream.server.record_answers",
    "sqlstream.server.submitting",
)
# The time between two attempts to reap a killed process.
_REAP_SECONDS = 0.1


def main(descriptor: int) -> None:
    """Fork processes for the server, which has the other end of a socket, until that is closed."""
    project, limits = pickle.load(sys.stdin.buffer)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for module in _IMPORTED:
        importlib.import_module(module)
    # NumPy has threads that wait for work, and ends them at a fork.
    warnings.simplefilter("ignore", DeprecationWarning)
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=descriptor) as server:
        seed = _Seed(server, project, limits)
        try:
            while seed.answer():
                pass
        finally:
            seed.end()


class _Seed:
    """Forks processes, and reaps them."""

    def __init__(self, server: socket.socket, project: Project, limits: QueryLimits):
        self._server, self._project, self._limits = server, project, limits
        self._together = SharedSpending()
        self._living: set[int] = set()
        self._killed: set[int] = set()

    def answer(self) -> bool:
        """Answer a request of the server; return False when there are no more."""
        readable, _, _ = select.select([self._server], [], [], _REAP_SECONDS if self._killed else None)
        self._killed = {pid for pid in self._killed if not _is_reaped(pid)}
        if not readable:
            return True
        try:
            data, descriptors, _, _ = socket.recv_fds(self._server, REQUEST.size, 1)
        except OSError:
            return False
        if len(data) < REQUEST.size:
            return False
        kind, pid = REQUEST.unpack(data)
        if kind == FORK:
            self._server.sendall(NUMBER.pack(self._forked(descriptors[0])))
        else:
            self._living.discard(pid)
            self._killed.add(pid)
        return True

    def _forked(self, descriptor: int) -> int:
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            pid = 0
        else:
            if pid == 0:
                self._server.close()
                self._become(descriptor, parent)
            self._living.add(pid)
        os.close(descriptor)
        return pid

    def _become(self, descriptor: int, parent: int) -> NoReturn:
        from sqlstream.server.query_processes.child import run

        run(descriptor, parent, self._project, self._limits, self._together)

    def end(self) -> None:
        for pid in self._living | self._killed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _is_reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True
