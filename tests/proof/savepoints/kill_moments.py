"""When processes are killed in a step, and how far they had come by then."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

# So much of the kills is before the job runs: in the step itself.
_IN_THE_STEP = 0.75
# What tells a file from another one of its name: its inode and its time.
_Identity = tuple[int, int]


def moment_of(part: float, until_running: float, until_done: float) -> float:
    """Return the moment of a kill, in seconds: `part`, from 0 to 1, is its place among all kills."""
    if part < _IN_THE_STEP:
        return part / _IN_THE_STEP * until_running
    return until_running + (part - _IN_THE_STEP) / (1 - _IN_THE_STEP) * (until_done - until_running)


def files_of(folder: Path) -> dict[str, _Identity]:
    """Return the files of the jobs and savepoints of a project, each with its inode and its time."""
    found = {}
    for part in ("jobs", "savepoints"):
        for place, _, names in os.walk(folder / "warehouse" / part):
            for name in names:
                # On Spark others may still delete what they no longer need.
                with contextlib.suppress(FileNotFoundError):
                    status = os.stat(path := os.path.join(place, name))
                    found[path] = (status.st_ino, status.st_mtime_ns)
    return found


def changes(before: dict[str, _Identity], after: dict[str, _Identity]) -> set[str]:
    return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
