"""Lowers the priority of long queries: readers must not slow down jobs."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator

# A process keeps its priority for so many seconds of processor time, and regains this part of a core as time passes.
_SECONDS = 2.0
_PART = 0.2
# The nice value of its threads then: next to a job on all cores each gets some three percent of one.
_NICE = 15
_LOOK_SECONDS = 0.25


class Courtesy:
    """Lowers the priority of this process (`gives_way`) after it has computed for long. It cannot be raised again."""

    def __init__(self) -> None:
        self.gives_way = False
        self._working = threading.Event()
        self._spent, self._seen, self._since = 0.0, time.process_time(), time.monotonic()
        threading.Thread(target=self._watch, name="courtesy", daemon=True).start()

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Measure the processor time inside of the context."""
        self._working.set()
        try:
            yield
        finally:
            self._working.clear()

    def _watch(self) -> None:
        while not self.gives_way:
            self._working.wait()
            time.sleep(_LOOK_SECONDS)
            computed, now = time.process_time(), time.monotonic()
            self._spent = max(self._spent + computed - self._seen - _PART * (now - self._since), 0.0)
            self._seen, self._since = computed, now
            if self._spent > _SECONDS:
                _give_way()
                self.gives_way = True


def _give_way() -> None:
    """Lower the priority of all threads of this process; new threads inherit it."""
    try:
        threads = list(map(int, os.listdir("/proc/self/task")))
    except OSError:
        threads = [0]
    for thread in threads:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, _NICE)
