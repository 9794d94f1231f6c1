"""Queries beside a job of small batches, and what its processes hold meanwhile."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from pathlib import Path

import psutil

from sqlstream.queries.query import open_query
from sqlstream.warehouse.paths import Warehouse

# From one mark to the last one, processes may hold so much more: caches fill, and files are open for a moment.
_MORE_DESCRIPTORS = 24
_MORE_MEMORY, _MORE_MB = 1.25, 48
_QUERIES = (
    "SELECT sum(n) FROM soak",
    "SELECT count(*) FROM sqlstream.snapshots WHERE job = 'soak'",
    "SELECT sum(n) FROM soak AT (VERSION => (SELECT greatest(min(version), max(version) - 50) FROM sqlstream.snapshots"
    " WHERE job = 'soak'))",
)


@dataclass(frozen=True, slots=True)
class Footprint:
    """What the processes of Python hold: memory in MB, and descriptors."""

    megabytes: int
    descriptors: int

    def growth(self, before: Footprint) -> str:
        """Return what has grown since, empty where nothing has."""
        grown = []
        if self.descriptors > before.descriptors + _MORE_DESCRIPTORS:
            grown.append(f"descriptors from {before.descriptors} to {self.descriptors}")
        if self.megabytes > before.megabytes * _MORE_MEMORY + _MORE_MB:
            grown.append(f"memory from {before.megabytes} to {self.megabytes} MB")
        return ", ".join(grown)


def footprint() -> Footprint:
    """Return what this process and those that it has started hold, but for Java's, whose heap has a limit of its own."""
    memory = descriptors = 0
    own = psutil.Process()
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            if "java" not in process.name():
                memory += process.memory_info().rss
                descriptors += process.num_fds()
    return Footprint(memory >> 20, descriptors)


class Queries(threading.Thread):
    """Queries a job all the time, live and at old versions, until it is told to stop; counts never go back."""

    def __init__(self, folder: Path):
        super().__init__(name="soak-queries", daemon=True)
        self._warehouse = Warehouse(str(folder / "warehouse"))
        self._done = threading.Event()
        self.answers = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        most = 0
        try:
            while not self._done.wait(0.05):
                found = [open_query(self._warehouse, sql).fetchall()[0][0] for sql in _QUERIES]
                live = int(found[0] or 0)
                assert live >= most, f"{live} rows are counted after {most}"
                most = live
                self.answers += len(found)
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        """Ask nothing more. Raises what a query failed of."""
        self._done.set()
        self.join()
        if self.error is not None:
            raise self.error
