"""Watches the calls of Flight's clients: whether the client has left, and whether the time of the call is over."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlstream.server.flight.errors import ENDS, TOO_LONG
from sqlstream.server.state_reader import RunningQuery

# The time between two looks at the calls.
_WATCH_SECONDS = 0.1
# A client that has not read this many seconds after the end of its time is disconnected.
_READING_SECONDS = 10.0
_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class WatchedCall:
    """A call of a client; `context` is Flight's, which knows whether the client still waits; `seconds` is its limit."""

    running: RunningQuery
    context: Any
    seconds: float | None
    since: float = field(default_factory=time.monotonic)
    # Whether it waits for the client, which reads slower than rows are computed.
    sending: bool = False


class CallWatcher:
    """Stops the queries of clients that have left or exceeded their time; `cut` ends the connection of a peer."""

    def __init__(self, cut: Callable[[str], None]):
        self._cut = cut
        self._calls: set[WatchedCall] = set()
        self._changing = threading.Lock()
        self._wake = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._watch, name="flight-watcher", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def watching(self, running: RunningQuery, context: Any, seconds: float | None) -> Iterator[WatchedCall]:
        """Watch a call inside of the context. Raises QueryStopped if its query was stopped before."""
        call = WatchedCall(running, context, seconds)
        with self._changing:
            self._calls.add(call)
            if self._ended:
                running.stop(ENDS)
        self._wake.set()
        try:
            running.check()
            yield call
        finally:
            # Flight's context is gone after the call; the thread does not use it once the call is removed.
            with self._changing:
                self._calls.discard(call)

    def _watch(self) -> None:
        while True:
            self._wake.wait()
            with self._changing:
                if self._ended and not self._calls:
                    return
                if not self._calls:
                    self._wake.clear()
                late = [call.context.peer() for call in self._calls if self._look(call)]
            for peer in late:
                try:
                    self._cut(peer)
                except Exception:
                    # The other calls must still be watched.
                    _log.exception("a Flight client could not be cut off")
            time.sleep(_WATCH_SECONDS)

    def _look(self, call: WatchedCall) -> bool:
        """Stop a query that is no longer wanted; return whether its client must be disconnected."""
        late = -1.0 if call.seconds is None else time.monotonic() - call.since - call.seconds
        if call.context.is_cancelled():
            call.running.stop("the client has left")
        elif late > 0:
            call.running.stop(f"{TOO_LONG} {call.seconds:g} s")
            return call.sending and late > _READING_SECONDS
        elif self._ended:
            call.running.stop(ENDS)
        elif call.running.is_stopped:
            # Between two of its statements there was nothing to interrupt.
            call.running.stop("")
        return False

    def end(self) -> None:
        """Stop all queries; queries that begin later are stopped at once."""
        with self._changing:
            self._ended = True
            for call in self._calls:
                call.running.stop(ENDS)
        self._wake.set()
