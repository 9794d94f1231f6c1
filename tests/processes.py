"""Processes that tests start, kill and wait for: each may end by itself at any moment."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable

import psutil


def wait_until(condition: Callable[..., object], seconds: float = 60.0) -> None:
    """Poll a condition until it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to this in time"
        time.sleep(0.02)


def kill_group(process: subprocess.Popen[str]) -> None:
    """Kill a process and its group, as a crash of the machine would."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def kill_family(process: subprocess.Popen[str]) -> None:
    """Kill a process and all that it started, and wait until all are gone."""
    parent = psutil.Process(process.pid)
    family = [parent, *parent.children(recursive=True)]
    for member in family:
        # Workers end with their JVM, maybe before their turn comes.
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    process.communicate()
    _, alive = psutil.wait_procs(family, timeout=30)
    assert alive == []


def is_gone(pid: int) -> bool:
    """Return whether a process has ended. One that nobody has reaped yet is a zombie."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def children_of(pid: int, word: str) -> list[psutil.Process]:
    """Return the processes that one has started, also through others, in whose command line a word stands."""
    called = []
    for child in psutil.Process(pid).children(recursive=True):
        # It may end while it is looked at.
        with contextlib.suppress(psutil.Error):
            if word in " ".join(child.cmdline()):
                called.append(child)
    return called
