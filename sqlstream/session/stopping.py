"""What Ctrl-C and SIGTERM do while a program shows what its jobs do."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_on_signals(stopping: threading.Event) -> Iterator[None]:
    """Make Ctrl-C and SIGTERM ask for a stop; a second Ctrl-C does not wait."""

    def ask(number: int, frame: FrameType | None) -> None:
        if stopping.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stopping.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
