"""When processes are killed in a step, and how far they had come by then."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from tests.forked import Forked

# So much of the kills is before the job runs: in the step itself.
_IN_THE_STEP = 0.75
# Files by their paths, with what tells a file from another one of its name: its inode and its time.
Files = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Moment:
    """When a process is killed: so many seconds after the step began, or when so many files have changed."""

    seconds: float
    files: int | None = None

    def wait(self, process: Forked, folder: Path, before: Files) -> None:
        """Wait for the moment, or for the end of the process; `before` has the files of the folder before the step."""
        if self.files is None:
            time.sleep(self.seconds)
            return
        # Without a pause: some files change within a millisecond.
        while process.poll() is None and len(changes(before, files_of(folder))) < self.files:
            pass

    def __str__(self) -> str:
        return f"{self.seconds:.3f} s" if self.files is None else f"{self.files} changed files"


def moment_of(part: float, until_running: float, until_done: float) -> float:
    """Return the moment of a kill, in seconds: `part`, from 0 to 1, is its place among all kills."""
    if part < _IN_THE_STEP:
        return part / _IN_THE_STEP * until_running
    return until_running + (part - _IN_THE_STEP) / (1 - _IN_THE_STEP) * (until_done - until_running)


def files_of(folder: Path) -> Files:
    """Return the files of the jobs and savepoints of a project, each with its inode and its time."""
    found: Files = {}
    for part in ("jobs", "savepoints"):
        for place, _, names in os.walk(folder / "warehouse" / part):
            for name in names:
                # On Spark others may still delete what they no longer need.
                with contextlib.suppress(FileNotFoundError):
                    status = os.stat(path := os.path.join(place, name))
                    found[path] = (status.st_ino, status.st_mtime_ns)
    return found


def changes(before: Files, after: Files) -> set[str]:
    return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
