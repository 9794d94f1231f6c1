"""The server's side of query processes: it starts them, sends requests, and kills them."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from multiprocessing.connection import Connection
from typing import Any

from sqlstream.errors import OutageError
from sqlstream.forking import ENVIRONMENT
from sqlstream.project import Project
from sqlstream.queries.query import QueryLimits
from sqlstream.server.query_processes.protocol import NextPart, ProcessReply, ProcessRequest
from sqlstream.server.query_processes.seed import FORGET, FORK, NUMBER, REQUEST

# On a busy machine the imports take long.
_START_SECONDS = 120.0
_END_SECONDS = 5.0
_PROGRAM = (
    "import sys; sys.path[:] = {path!r}; from sqlstream.server.query_processes.seed import main; main({descriptor})"
)


class ProcessGone(Exception):
    """The process of a query has ended: it was killed, or it died."""


class SeedProcess:
    """The process from which the processes of queries are forked."""

    def __init__(self, project: Project, limits: QueryLimits):
        self._asking = threading.Lock()
        self._forgotten: deque[int] = deque()
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(_START_SECONDS)
        program = _PROGRAM.format(path=[entry or os.getcwd() for entry in sys.path], descriptor=theirs.fileno())
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program],
                stdin=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                # Otherwise each thread of a query reserves an arena of addresses for its allocations.
                env={**os.environ, **ENVIRONMENT, "MALLOC_ARENA_MAX": "2"},
                # Ctrl-C is for the server, which ends this process.
                start_new_session=True,
            )
        assert self._process.stdin is not None
        with contextlib.suppress(OSError), self._process.stdin as stdin:
            stdin.write(pickle.dumps((project, limits)))

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def fork(self, theirs: socket.socket) -> int:
        """Fork a process that gets one end of a socket; return its pid. Raises OSError, and OutageError."""
        with self._asking:
            self._tell_forgotten()
            socket.send_fds(self._socket, [REQUEST.pack(FORK, 0)], [theirs.fileno()])
            data = self._socket.recv(NUMBER.size, socket.MSG_WAITALL)
        if len(data) < NUMBER.size:
            raise ConnectionResetError("the process that others are forked from has ended")
        [pid] = NUMBER.unpack(data)
        if not pid:
            raise OutageError("no process can be started for a query", hint="The machine has too many, or no memory.")
        return int(pid)

    def forget(self, pid: int) -> None:
        """Allow the seed process to reap a killed process. After that, its pid may belong to another process: do not kill it."""
        self._forgotten.append(pid)
        # A thread that waits for a new process sends it.
        if self._asking.acquire(blocking=False):
            try:
                self._tell_forgotten()
            finally:
                self._asking.release()

    def _tell_forgotten(self) -> None:
        with contextlib.suppress(OSError, IndexError):
            while True:
                self._socket.sendall(REQUEST.pack(FORGET, self._forgotten.popleft()))

    def close(self) -> None:
        """End the process, and all processes that were forked from it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class QueryProcess:
    """A process that answers one request at a time. Any thread may kill it; the thread that sends requests closes it."""

    def __init__(self, seed: SeedProcess, project_files: object):
        self._seed = seed
        # The state of the project's files when it began to read them.
        self.project_files = project_files
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._pid = seed.fork(theirs)
        except BaseException:
            ours.close()
            raise
        self._connection = Connection(ours.detach())
        self._killing = threading.Lock()
        self._is_closed = False

    def await_start(self) -> None:
        """Wait until the process has read the project. Raises ProcessGone, for example if a file of the project ends it."""
        self._received()

    def ask(self, request: ProcessRequest | NextPart) -> ProcessReply:
        """Send a request; return the reply, which may have an error. Raises ProcessGone."""
        try:
            self._connection.send(request)
        except OSError as error:
            raise ProcessGone from error
        return self._received()

    def _received(self) -> ProcessReply:
        try:
            reply: Any = self._connection.recv()
        except (EOFError, OSError) as error:
            raise ProcessGone from error
        assert isinstance(reply, ProcessReply)
        return reply

    def kill(self) -> None:
        """Kill the process at once, whatever it does. A thread that waits for its reply gets ProcessGone."""
        with self._killing:
            # Until it is closed, and as long as its parent lives, no other process has its pid.
            if not self._is_closed and self._seed.is_alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill the process, and release its pid and its connection."""
        self.kill()
        with self._killing:
            if self._is_closed:
                return
            self._is_closed = True
            self._connection.close()
        self._seed.forget(self._pid)
