"""Peak memory of a process and everything it started: the sum of their proportional shares (PSS), sampled."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import psutil

SAMPLE_SECONDS = 0.25


class ChildFailed(Exception):
    """A measured process ended with an error; its log says why."""


def run_measured(command: Sequence[str], log: Path, folder: Path | None = None) -> tuple[str, int]:
    """Run a command, in this folder or another; return its standard output and the peak memory of its process tree in bytes."""
    with open(log, "ab") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=folder)
        peak = _Peak(process.pid)
        peak.start()
        try:
            output, _ = process.communicate()
        except BaseException:
            for child in [*_tree(process.pid)]:
                child.kill()
            raise
        finally:
            peak.stop()
    if process.returncode != 0:
        raise ChildFailed(f"{' '.join(command[:3])} ended with code {process.returncode}, see {log}")
    return output, peak.bytes


class _Peak(threading.Thread):
    def __init__(self, pid: int):
        super().__init__(daemon=True)
        self.bytes = 0
        self._pid = pid
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(SAMPLE_SECONDS):
            self.bytes = max(self.bytes, sum(_memory(p) for p in _tree(self._pid)))

    def stop(self) -> None:
        self._stopped.set()
        self.join()


def _tree(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _memory(process: psutil.Process) -> int:
    """Return the process's memory; forked workers share most of theirs, which PSS counts once (RSS where there is none)."""
    try:
        memory = process.memory_full_info()
        return int(getattr(memory, "pss", memory.rss))
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0
