"""Memory of processes and numbers of files, taken every two seconds, and what they grow by in a minute.

Growth is the median of the slopes between all pairs of samples (Theil and Sen): what is more for a moment does not move it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import statistics
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.soak.kills import WORKERS

SERVER = "server"
EVERY = 2.0
# Slopes are taken between so many samples at most, spread evenly: of all pairs there would be too many.
MOST_SAMPLES = 300
# A part of a job's folder, such as "splits/next" or "state/totals", has so many names.
PART_DEPTH = 2
MB = 1 << 20


@dataclass(frozen=True, slots=True)
class Sample:
    """A value at a time, in seconds, and which process it is of: another one says nothing about growth."""

    at: float
    value: float
    life: int = 0


class Measuring(threading.Thread):
    """Takes samples of series by their names; `processes` yields those to look at, by name."""

    def __init__(
        self,
        warehouse: Path,
        temporary: Path,
        processes: Callable[[], dict[str, psutil.Process]],
        versions: Callable[[], dict[str, int]],
    ):
        super().__init__(name="soak-measuring", daemon=True)
        self._warehouse, self._temporary = warehouse, temporary
        self._processes, self._versions = processes, versions
        self.memory: defaultdict[str, list[Sample]] = defaultdict(list)
        self.files: defaultdict[str, list[Sample]] = defaultdict(list)
        self.bytes: defaultdict[str, list[Sample]] = defaultdict(list)
        # The files in the folders of a job, such as "jobs/sales/log": they tell what grows.
        self.parts: defaultdict[str, list[Sample]] = defaultdict(list)
        # The last version that a job has committed.
        self.batches: defaultdict[str, list[Sample]] = defaultdict(list)
        self.error: BaseException | None = None
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            while not self._stopping.wait(EVERY):
                self._look()
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    def _look(self) -> None:
        at = time.monotonic()
        for name, process in self._processes().items():
            # The children of the server are the jobs that it has started, and those that an earlier one has started are not.
            for part, (size, life) in _memory(process, with_children=name != SERVER).items():
                self.memory[f"{name}{part}"].append(Sample(at, size, life))
        for name, folder in self._folders().items():
            counts, size = sizes(folder)
            self.files[name].append(Sample(at, counts.total()))
            self.bytes[name].append(Sample(at, size))
            for part, count in counts.items():
                self.parts[f"{name}/{part}"].append(Sample(at, count))
        for job, version in self._versions().items():
            self.batches[job].append(Sample(at, version))

    def _folders(self) -> dict[str, Path]:
        found = {"server": self._warehouse / "server", "logs": self._warehouse / "logs", "temporary": self._temporary}
        for kind in ("jobs", "tables"):
            with contextlib.suppress(FileNotFoundError):
                found |= {f"{kind}/{folder.name}": folder for folder in (self._warehouse / kind).iterdir()}
        return found


def _memory(process: psutil.Process, *, with_children: bool) -> dict[str, tuple[int, int]]:
    """Return the resident memory of a process, of its JVM, and of its other children together, each with whose it is."""
    found: dict[str, tuple[int, int]] = {}
    with contextlib.suppress(psutil.Error):
        found[""] = (process.memory_info().rss, process.pid)
        workers = []
        for child in process.children(recursive=True) if with_children else ():
            with contextlib.suppress(psutil.Error):
                words, size = child.cmdline(), child.memory_info().rss
                if words and words[0].endswith("java"):
                    found[", JVM"] = (size, child.pid)
                elif WORKERS in words:
                    workers.append(size)
        if workers:
            # A worker that was killed is replaced by another one, which is as large.
            found[", workers"] = (sum(workers), process.pid)
    return found


def sizes(folder: Path) -> tuple[Counter[str], int]:
    """Return how many files are in each part of a folder, and the bytes of all; files that come and go may be left out."""
    counts: Counter[str] = Counter()
    size = 0
    for root, _, names in os.walk(folder):
        counts["/".join(Path(root).relative_to(folder).parts[:PART_DEPTH]) or "."] += len(names)
        for name in names:
            with contextlib.suppress(OSError):
                size += os.path.getsize(f"{root}/{name}")
    return counts, size


def growth(samples: Sequence[Sample]) -> float | None:
    """Return by how much a value grows in a minute, of the process that was there last; None of too few samples.

    >>> growth([Sample(60.0 * at, 5.0 * at + (100.0 if at == 3 else 0.0)) for at in range(20)])
    5.0
    """
    last = [sample for sample in samples if sample.life == samples[-1].life]
    step = max(len(last) // MOST_SAMPLES, 1)
    taken = last[::step]
    if len(taken) < 10:
        return None
    slopes = [(b.value - a.value) / (b.at - a.at) for a, b in itertools.combinations(taken, 2)]
    return statistics.median(slopes) * 60


def since(samples: Sequence[Sample], at: float) -> list[Sample]:
    return [sample for sample in samples if sample.at >= at]
