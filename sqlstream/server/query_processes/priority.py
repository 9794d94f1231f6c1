"""Lowers the priority of long queries: readers must not slow down jobs."""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import sys
import threading
import time
from collections.abc import Iterator

# A process keeps its priority for this many seconds of processor time, and regains this part of a core as time passes.
_SECONDS = 2.0
_PART = 0.2
# All query processes of a server together keep their priority for this many seconds of processor time, also if they are replaced.
_TOGETHER_SECONDS = 2.0
_TOGETHER_PART = 0.05
# At most this many are counted, so it takes no longer than half a minute until new processes keep theirs again.
_MOST_SECONDS = 3.5
# The nice value of its threads then: next to a job on all cores each gets some one and a half percent of one.
_NICE = 19
_LOOK_SECONDS = 0.25


class SharedSpending:
    """Seconds of processor time that the query processes of a server have used lately, in memory that they share.

    If two processes add at the same instant, the seconds of one may be lost: a quarter of a second at most.
    """

    _VALUES = struct.Struct("dd")

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, self._VALUES.size)
        self._VALUES.pack_into(self._memory, 0, 0.0, time.monotonic())

    def add(self, seconds: float) -> bool:
        """Add seconds of processor time; return whether all processes together have used more than their share lately."""
        spent, since = map(float, self._VALUES.unpack_from(self._memory))
        now = time.monotonic()
        spent = min(max(spent - _TOGETHER_PART * (now - since), 0.0) + seconds, _MOST_SECONDS)
        self._VALUES.pack_into(self._memory, 0, spent, now)
        return spent > _TOGETHER_SECONDS


class ProcessPriority:
    """Lowers the priority of this process when it, or all query processes of the server together, have used much processor time.

    `gives_way` is True from then on. The priority cannot be raised again.
    """

    def __init__(self, together: SharedSpending) -> None:
        self.gives_way = False
        self._together = together
        self._working = threading.Event()
        self._spent, self._seen, self._since = 0.0, time.process_time(), time.monotonic()
        threading.Thread(target=self._watch, name="courtesy", daemon=True).start()

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Count the processor time within the context. Lower the priority at once if all processes have already used too much."""
        if not self.gives_way and self._together.add(0.0):
            self._lower()
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
            are_many = self._together.add(computed - self._seen)
            self._seen, self._since = computed, now
            if self._spent > _SECONDS or are_many:
                self._lower()

    def _lower(self) -> None:
        _give_way()
        self.gives_way = True


def _give_way() -> None:
    """Lower the priority of all threads of this process, and the priority of its session; new threads inherit it.

    Linux shares the cores out to sessions first (autogroups), and counts the priority of a thread within its session alone. With
    SCHED_IDLE a thread of a job that wakes up takes the core at once. The first half of the cores has no such thread at all.
    """
    with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as group:
        group.write(str(_NICE))
    try:
        threads = list(map(int, os.listdir("/proc/self/task")))
    except OSError:
        threads = [0]
    for thread in threads:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, _NICE)
    if sys.platform == "linux":
        cores = sorted(os.sched_getaffinity(0))
        for thread in threads:
            with contextlib.suppress(OSError):
                os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
                os.sched_setaffinity(thread, cores[len(cores) // 2 :])
