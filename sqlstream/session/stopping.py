"""What Ctrl-C and SIGTERM do while a program shows what its jobs do, or waits for an answer of DuckDB's."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import duckdb

# So often a query is interrupted again, until it ends: between two of its statements nothing is interrupted.
_AGAIN_SECONDS = 0.1


@contextmanager
def stop_on_signals(stopping: threading.Event, terminated: Callable[[], object] | None = None) -> Iterator[None]:
    """Make Ctrl-C and SIGTERM ask for a stop; a second Ctrl-C does not wait. `terminated` is called for SIGTERM."""

    def ask(number: int, frame: FrameType | None) -> None:
        if stopping.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        if terminated is not None and number == signal.SIGTERM:
            terminated()
        stopping.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class InterruptedBySignals:
    """Interrupts a query of DuckDB's on Ctrl-C and SIGTERM; the query then ends with KeyboardInterrupt.

    A context manager around a query whose connection is given to `opened`. Python calls its handlers of signals between two of
    its own steps only, and a query is one step: so a thread waits for the byte that Python writes when the signal comes. In
    another thread than the main one, which no signal reaches, it does nothing.
    """

    def __init__(self) -> None:
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._over = threading.Event()
        self._is_interrupted = False
        self._is_ctrl_c = False
        self._thread: threading.Thread | None = None

    def opened(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Say in which connection the query runs."""
        self._connection = connection

    def __enter__(self) -> InterruptedBySignals:
        if threading.current_thread() is threading.main_thread():
            self._read, self._written = socket.socketpair()
            self._written.setblocking(False)
            self._before = signal.set_wakeup_fd(self._written.fileno(), warn_on_full_buffer=False)
            self._thread = threading.Thread(target=self._watch, name="sqlstream-interrupts", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._thread is None:
            return
        try:
            self._end()
        except KeyboardInterrupt:
            # A signal that comes just now: the thread ends all the same.
            self._end()
            raise
        if self._is_interrupted and isinstance(error, Exception):
            raise KeyboardInterrupt from None
        if error is None and self._is_ctrl_c and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            # What Python raised on Ctrl-C has become an error of DuckDB's, and somebody has handled that.
            raise KeyboardInterrupt

    def _end(self) -> None:
        assert self._thread is not None
        signal.set_wakeup_fd(self._before)
        self._over.set()
        # The thread reads the end.
        self._written.close()
        self._thread.join()
        self._read.close()

    def _watch(self) -> None:
        while signals := self._read.recv(64):
            if signal.SIGINT in signals or signal.SIGTERM in signals:
                self._is_interrupted = True
                self._is_ctrl_c = self._is_ctrl_c or signal.SIGINT in signals
                while not self._over.wait(_AGAIN_SECONDS):
                    if self._connection is not None:
                        self._connection.interrupt()
