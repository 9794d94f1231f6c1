"""Ctrl-C and SIGTERM: they stop jobs that a program shows, and interrupt queries of DuckDB."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import duckdb

# Seconds between two interrupts of a query, until it ends: between two of its statements an interrupt has no effect.
_AGAIN_SECONDS = 0.1


@contextmanager
def stop_on_signals(stopping: threading.Event, terminated: Callable[[], object] | None = None) -> Iterator[None]:
    """Set `stopping` on Ctrl-C and SIGTERM; a second Ctrl-C raises KeyboardInterrupt. SIGTERM also calls `terminated`."""

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
    """Interrupts a query of DuckDB on Ctrl-C and SIGTERM; the query then ends with KeyboardInterrupt.

    It is a context manager around the query, which passes its connection to `opened`. Python runs signal handlers only between
    its own instructions, and a query is one call: so a thread waits for the byte that Python writes when a signal comes. Outside
    of the main thread, which alone receives signals, it does nothing.
    """

    def __init__(self) -> None:
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._over = threading.Event()
        self._is_interrupted = False
        self._is_ctrl_c = False
        self._thread: threading.Thread | None = None

    def opened(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Set the connection in which the query runs."""
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
            # A signal came just now; the thread must end all the same.
            self._end()
            raise
        if self._is_interrupted and isinstance(error, Exception):
            raise KeyboardInterrupt from None
        if error is None and self._is_ctrl_c and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            # DuckDB turned the KeyboardInterrupt into an error of its own, and somebody has handled that error.
            raise KeyboardInterrupt

    def _end(self) -> None:
        assert self._thread is not None
        signal.set_wakeup_fd(self._before)
        self._over.set()
        # The thread reads the end of the stream.
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
