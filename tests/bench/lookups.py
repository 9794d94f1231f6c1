"""Lookups of single keys over HTTP, in a state of many keys, while its job goes on: how long one takes, how many there are."""

from __future__ import annotations

import random
import statistics
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import duckdb
import httpx

from tests.processes import wait_until
from tests.server.serving import serving, settings_of

CLIENTS, SECONDS, WARM_UP = 2, 15.0, 100
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
    """What was measured: milliseconds of a lookup, how many there were in a second, and batches of the job meanwhile."""

    keys: int
    first: float
    median: float
    p99: float
    per_second: float
    batches: int

    @property
    def text(self) -> str:
        return (
            f"lookups in a state of {self.keys:,} keys while its job commits ({self.batches} batches): median"
            f" {self.median:.1f} ms, p99 {self.p99:.1f} ms, {self.per_second:.0f} per second with {CLIENTS} clients;"
            f" the first one {self.first:.0f} ms"
        )


def measure(folder: Path, keys: int) -> LookupsRun:
    """Run a job over so many keys under a server, and look them up."""
    for name in ("in", "catalog"):
        (folder / name).mkdir(parents=True)
    _write(folder, "first", f"range({keys})")
    with serving(settings_of(folder)) as (url, _), httpx.Client(base_url=url, timeout=600) as client:
        client.post("/v1/jobs", json={"sql": SQL}).raise_for_status()
        wait_until(lambda: _state_rows(client) >= keys, 600)
        first = _looked_up(client, keys)
        for _ in range(WARM_UP):
            _looked_up(client, keys)
        stop, times = threading.Event(), list[float]()
        before = _version(client)
        threads = [threading.Thread(target=_feed, args=(folder, keys, stop))]
        threads += [threading.Thread(target=_ask, args=(url, keys, stop, times)) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        time.sleep(SECONDS)
        stop.set()
        for thread in threads:
            thread.join()
        batches = _version(client) - before
        client.post("/v1/jobs/counts/stop", json={})
    quantiles = statistics.quantiles(times, n=100)
    return LookupsRun(keys, first, statistics.median(times), quantiles[98], len(times) / SECONDS, batches)


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


def _ask(url: str, keys: int, stop: threading.Event, times: list[float]) -> None:
    with httpx.Client(base_url=url, timeout=600) as client:
        while not stop.is_set():
            times.append(_looked_up(client, keys))


def _looked_up(client: httpx.Client, keys: int) -> float:
    """Look a key up, and return the milliseconds that it took."""
    key = f"key-{random.randrange(keys)}"
    began = time.perf_counter()
    [row] = client.get("/v1/state/counts/aggregate_1", params={"key": key}).raise_for_status().json()["rows"]
    assert row[0] == key
    return (time.perf_counter() - began) * 1000


def _state_rows(client: httpx.Client) -> int:
    found = client.get("/v1/jobs/counts")
    return sum(o["state_rows"] for o in found.json()["operators"]) if found.is_success else 0


def _version(client: httpx.Client) -> int:
    return int(client.get("/v1/jobs/counts").json()["job"]["version"])
