"""Processes that tests start, kill and wait for: each may end by itself at any moment."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import psutil

# So long a condition is waited for, and the end of a process: a JVM starts in seconds, on a busy machine in a minute.
SECONDS = 240.0
# Between two looks at a condition: the first at least, and so many times what a look takes of the processor, for a look that is a
# query would keep a core busy which the processes need that are waited for.
PAUSE = 0.02
PAUSES = 4.0


class Process(Protocol):
    """What the functions here use of a process: `subprocess.Popen` has it, and `tests.forked.Forked`."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def communicate(self) -> tuple[Any, Any]: ...


def wait_until(condition: Callable[..., object], seconds: float = SECONDS) -> None:
    """Poll a condition until it holds."""
    deadline = time.monotonic() + seconds
    while True:
        began = time.process_time()
        if condition():
            return
        assert time.monotonic() < deadline, "it did not come to this in time"
        time.sleep(max(PAUSE, PAUSES * (time.process_time() - began)))


def wait_with(process: Process, condition: Callable[..., object]) -> None:
    """Poll a condition until it holds, for something that a process does which must not end meanwhile."""
    wait_until(lambda: condition() or process.poll() is not None)
    assert process.poll() is None, process.communicate()[0]


def kill_group(process: Process) -> None:
    """Kill a process and its group, as a crash of the machine would."""
    # One that was forked is no zombie when it has ended.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def kill_family(process: Process) -> None:
    """Kill a process and all that it started, and wait until all are gone."""
    family: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        family += _frozen(psutil.Process(process.pid))
    for member in family:
        # It may have ended before its turn came.
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    process.communicate()
    await_end(family)


def _frozen(parent: psutil.Process) -> Iterator[psutil.Process]:
    """Stop a process, so that it starts no further ones, and then those that it has started."""
    yield parent
    with contextlib.suppress(psutil.NoSuchProcess):
        parent.suspend()
        for child in parent.children():
            yield from _frozen(child)


def await_end(processes: Iterable[psutil.Process]) -> None:
    """Wait until processes have ended, whether their parents have noticed or not."""
    left = list(processes)
    wait_until(lambda: all(map(has_ended, left)))


def has_ended(process: psutil.Process) -> bool:
    """Return whether a process has ended. One that nobody has reaped yet is a zombie."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def is_gone(pid: int) -> bool:
    """Return whether no process has this id, or one that has ended."""
    try:
        return has_ended(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return True


def children_of(pid: int, word: str) -> list[psutil.Process]:
    """Return the processes that one has started, also through others, in whose command line a word stands.

    Its own come before those of others. One that has just been forked still has its parent's command line.
    """
    called = []
    for child in psutil.Process(pid).children(recursive=True):
        # It may end while it is looked at.
        with contextlib.suppress(psutil.Error):
            if word in " ".join(child.cmdline()):
                called.append(child)
    return called
