"""How many records the sources of a Flink job have read, asked of its REST interface while it runs.

Runs in Flink's own virtual environment, with Python's standard library only.
"""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.parse
import urllib.request
from contextlib import closing
from typing import Any

EVERY_SECONDS = 0.25


def free_port() -> int:
    """Return a port of this machine on which nobody listens."""
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Progress:
    """The settings that open the REST interface, and the records that all sources have read, in turns of a quarter second."""

    def __init__(self) -> None:
        self._port = free_port()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._begun = 0.0
        self.points: list[tuple[int, float]] = []

    @property
    def settings(self) -> dict[str, str]:
        return {
            "rest.bind-address": "127.0.0.1",
            "rest.bind-port": str(self._port),
            "rest.port": str(self._port),
            "metrics.fetcher.update-interval": str(int(EVERY_SECONDS * 1000)),
        }

    def begin(self) -> None:
        """Count seconds from now, and begin to ask."""
        self._begun = time.monotonic()
        self._thread.start()

    def end(self) -> dict[str, Any]:
        """Return the points, and the seconds since the beginning."""
        seconds = time.monotonic() - self._begun
        self._ended.set()
        self._thread.join(10)
        return {"points": self.points, "seconds": seconds}

    def _watch(self) -> None:
        while not self._ended.wait(EVERY_SECONDS):
            try:
                rows = self._rows()
            except (OSError, ValueError, KeyError):  # not yet there, or already gone
                continue
            if rows and (not self.points or rows > self.points[-1][0]):
                self.points.append((rows, time.monotonic() - self._begun))

    def _rows(self) -> int:
        """Return the records that all sources have emitted so far."""
        total = 0
        for job in self._get("/jobs")["jobs"]:
            for vertex in self._get(f"/jobs/{job['id']}")["vertices"]:
                if "Source: " not in vertex["name"]:
                    continue
                metrics = f"/jobs/{job['id']}/vertices/{vertex['id']}/subtasks/metrics"
                names = [m["id"] for m in self._get(metrics)]
                wanted = [n for n in names if n.startswith("Source__") and n.endswith(".numRecordsOut")]
                if wanted:
                    query = urllib.parse.quote(",".join(wanted))
                    total += sum(int(m["sum"]) for m in self._get(f"{metrics}?get={query}&agg=sum"))
        return total

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=5) as answer:
            return json.load(answer)
