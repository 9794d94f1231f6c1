"""Lookups of single keys over HTTP, in a state of many keys, while its job goes on: how long one takes, how many there are.

The server, its job on Spark and each client are processes of their own, as they are for users: threads of one process would wait
for each other's Python. `python -m tests.bench.lookups URL KEYS SECONDS` is a client.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import duckdb
import httpx
import psutil

from tests.processes import wait_until

CLIENTS, SECONDS, WARM_UP = (2, 8), 15.0, 100
# So many keys change in each batch that comes meanwhile.
CHANGED = 1_000
SQL = """
SET 'sqlstream.unbounded-state' = 'allow';
CREATE TABLE events (k STRING, v BIGINT) WITH (
    'connector' = 'filesystem', 'path' = 'in', 'format' = 'parquet', 'source.monitor-interval' = '200 ms');
CREATE TABLE counts (k STRING, n BIGINT, total BIGINT, PRIMARY KEY (k) NOT ENFORCED);
INSERT INTO counts SELECT k, COUNT(*), SUM(v) FROM events GROUP BY k;
"""


@dataclass(frozen=True, slots=True)
class LookupsRun:
    """What was measured with so many clients: milliseconds of a lookup, how many there were in a second, and batches meanwhile.

    `processor` is what the server takes of it for a lookup, in milliseconds, with all else that it does meanwhile.
    """

    keys: int
    clients: int
    first: float
    median: float
    p99: float
    per_second: float
    batches: int
    processor: float

    @property
    def text(self) -> str:
        return (
            f"lookups in a state of {self.keys:,} keys while its job commits ({self.batches} batches), {self.clients} clients:"
            f" median {self.median:.1f} ms, p99 {self.p99:.1f} ms, {self.per_second:.0f} per second,"
            f" {self.processor:.1f} ms of the processor each; the first one {self.first:.0f} ms"
        )


def measure(folder: Path, keys: int) -> list[LookupsRun]:
    """Run a job over so many keys under a server, and look them up, by few clients and by more."""
    for name in ("in", "catalog"):
        (folder / name).mkdir(parents=True)
    _write(folder, "first", f"range({keys})")
    with serving(folder) as (url, server), httpx.Client(base_url=url, timeout=600) as client:
        client.post("/v1/jobs", json={"sql": SQL}).raise_for_status()
        wait_until(lambda: _state_rows(client) >= keys, 600)
        warm = _Client(url)
        first, *_ = [warm.milliseconds(keys) for _ in range(WARM_UP)]
        stop = threading.Event()
        feed = threading.Thread(target=_feed, args=(folder, keys, stop))
        feed.start()
        runs = [_run(client, server, keys, count, first) for count in CLIENTS]
        stop.set()
        feed.join()
        client.post("/v1/jobs/counts/stop", json={})
    return runs


def _run(client: httpx.Client, server: psutil.Process, keys: int, clients: int, first: float) -> LookupsRun:
    before, used = _version(client), _processor(server)
    times = _asked(str(client.base_url), keys, clients)
    used, batches = _processor(server) - used, _version(client) - before
    quantiles = statistics.quantiles(times, n=100)
    median, count = statistics.median(times), len(times)
    return LookupsRun(keys, clients, first, median, quantiles[98], count / SECONDS, batches, used * 1000 / count)


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    """Yield the address of a server, and its process; it ends with its jobs."""
    command = [sys.executable, "-m", "sqlstream", "serve", "--port", "0", "--project", str(folder)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        found = next(line for line in process.stderr if line.startswith("listening on "))
        # What it says later must not fill the pipe.
        threading.Thread(target=process.stderr.read, daemon=True).start()
        try:
            yield found.removeprefix("listening on ").strip(), psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait()


def _write(folder: Path, name: str, source: str) -> None:
    hidden = folder / f".{name}"
    duckdb.sql(f"COPY (SELECT 'key-' || range AS k, range % 1000 AS v FROM {source}) TO '{hidden}' (FORMAT parquet)")
    hidden.rename(folder / "in" / f"{name}.parquet")


def _feed(folder: Path, keys: int, stop: threading.Event) -> None:
    number = 0
    while not stop.wait(1.0):
        number += 1
        begin = random.randrange(max(keys - CHANGED, 1))
        _write(folder, f"more-{number}", f"range({begin}, {begin + CHANGED})")


def _asked(url: str, keys: int, count: int) -> list[float]:
    """Let so many clients ask at the same time, and return the milliseconds of all lookups."""
    command = [sys.executable, "-m", "tests.bench.lookups", url, str(keys), str(SECONDS)]
    clients = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    found = [client.communicate()[0] for client in clients]
    return [time for text in found for time in json.loads(text)]


class _Client:
    """A client that keeps its connection, and takes little of the processor."""

    def __init__(self, url: str):
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=600)

    def milliseconds(self, keys: int) -> float:
        """Look a key up, and return the milliseconds that it took."""
        key = f"key-{random.randrange(keys)}"
        began = time.perf_counter()
        self._connection.request("GET", f"/v1/state/counts/aggregate_1?key={key}")
        answer = self._connection.getresponse()
        text = answer.read()
        assert answer.status == 200, text
        [row] = json.loads(text)["rows"]
        assert row[0] == key
        return (time.perf_counter() - began) * 1000


def _state_rows(client: httpx.Client) -> int:
    found = client.get("/v1/jobs/counts")
    return sum(o["state_rows"] for o in found.json()["operators"]) if found.is_success else 0


def _version(client: httpx.Client) -> int:
    return int(client.get("/v1/jobs/counts").json()["job"]["version"])


def _processor(server: psutil.Process) -> float:
    """Return the seconds that a process has taken of the processor."""
    times = server.cpu_times()
    return float(times.user + times.system)


def main(url: str, keys: int, seconds: float) -> None:
    """Look keys up for so long, and print the milliseconds of each as JSON."""
    client, times, end = _Client(url), list[float](), time.monotonic() + seconds
    while time.monotonic() < end:
        times.append(client.milliseconds(keys))
    print(json.dumps(times))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
