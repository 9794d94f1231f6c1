"""Worker processes on this machine, for an engine that has none: one for each call that runs at the same time.

They are forked from a launcher process, which has imported the modules that they need and done nothing else: it has no threads
and no connections, of which a fork would inherit a broken copy. Each process talks to the driver over a socket, and ends when
the socket closes, as it also does when the driver dies.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from queue import SimpleQueue
from threading import Thread
from typing import IO, TypeVar

from sqlstream.connectors.worker_calls import answer, answers
from sqlstream.errors import JobError
from sqlstream.forking import ENVIRONMENT

T = TypeVar("T")

_LENGTH = struct.Struct("<Q")
# How often the same calls are tried, each time in new processes.
_ATTEMPTS = 4
# The module that the launcher process runs.
MODULE = "sqlstream.connectors.worker_processes"


class WorkerProcesses:
    """`Workers` on this machine. They start with the first `run`, one process per call; call n runs in process n.

    If a process dies, all of them are ended, and all calls run again in new ones. `modules` names the modules of the calls.
    """

    def __init__(self, modules: Sequence[str]):
        self._modules = modules
        self._launcher: subprocess.Popen[bytes] | None = None
        self._sockets: list[socket.socket] = []
        self._output: IO[bytes] | None = None

    def run(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Run calls in parallel, see `Workers.run`. Raises JobError if processes keep dying."""
        if len(calls) > len(self._sockets):
            self.close()
        requests = [pickle.dumps(call) for call in calls]
        for attempt in range(_ATTEMPTS):
            if not self._sockets:
                self._launch(len(calls))
            try:
                replies = self._exchange(requests)
            except OSError as error:
                last_line = self._last_words()
                self.close()
                if attempt == _ATTEMPTS - 1:
                    raise JobError(f"a process that writes rows has ended: {error}", detail=last_line) from error
            except BaseException:
                # Their late replies would be taken for replies to later calls.
                self.close()
                raise
            else:
                return answers(replies)
        return []

    def _launch(self, count: int) -> None:
        pairs = [socket.socketpair() for _ in range(count)]
        ends = [theirs.fileno() for _, theirs in pairs]
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        self._launcher = subprocess.Popen(
            [sys.executable, "-m", MODULE, ",".join(map(str, ends)), *self._modules],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            pass_fds=ends,
            # It imports from the same places as this process. Ctrl-C is for this process only.
            env={**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )
        for _, theirs in pairs:
            theirs.close()
        self._sockets = [ours for ours, _ in pairs]

    def _exchange(self, requests: Sequence[bytes]) -> list[bytes]:
        for ours, request in zip(self._sockets, requests, strict=False):
            send(ours, request)
        return [receive(ours) for ours, _ in zip(self._sockets, requests, strict=False)]

    def _last_words(self) -> str | None:
        """Return the last line of the processes' output, which may say why one died; None without output."""
        assert self._output is not None
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else None

    def close(self) -> None:
        """End the processes, and wait for the launcher."""
        while self._sockets:
            self._sockets.pop().close()
        if self._launcher is not None:
            self._launcher.wait()
            self._launcher = None
        if self._output is not None:
            self._output.close()
            self._output = None


def send(to: socket.socket, message: bytes) -> None:
    """Send a message, with its length in front."""
    to.sendall(_LENGTH.pack(len(message)) + message)


def receive(source: socket.socket) -> bytes:
    """Return the next message that `send` sent. Raises an OSError if the other side is gone."""
    (length,) = _LENGTH.unpack(_exactly(source, _LENGTH.size))
    return _exactly(source, length)


def _exactly(source: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = source.recv(min(count, 1 << 20))
        if not part:
            raise ConnectionResetError("the other side is gone")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def serve(driver: socket.socket) -> None:
    """Run calls from the driver, and send back the replies of `answer`. Once the driver is gone, the process exits at once."""
    calls: SimpleQueue[bytes] = SimpleQueue()

    def listen() -> None:
        with suppress(OSError):
            while True:
                calls.put(receive(driver))
        os._exit(0)

    Thread(target=listen, daemon=True, name="calls of the driver").start()
    while True:
        send(driver, answer(calls.get()))


def main(ends: str, *modules: str) -> None:
    """Import modules, fork a process for each socket, and wait for them; `ends` are file descriptors, separated by commas."""
    for module in modules:
        import_module(module)
    sockets = [socket.socket(fileno=int(end)) for end in ends.split(",")]
    for one in sockets:
        if os.fork() == 0:
            for other in sockets:
                if other is not one:
                    other.close()
            serve(one)
    for one in sockets:
        one.close()
    with suppress(ChildProcessError):
        while True:
            os.wait()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main(*sys.argv[1:])
