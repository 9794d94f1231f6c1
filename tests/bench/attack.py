"""The pace of a job while somebody who may only read does the worst that the limits allow (`python -m tests.bench.attack`).

The server has its default limits; the job runs on Spark with as many tasks as there are cores, and always has more to read.
Its rows are counted for a while in peace, under attack by `ATTACKERS` clients over HTTP, and in peace again. The pace under
attack should be within 20 % of that in peace; the memory is that of the server and of its queries, without the job's.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from tests.bench.lookups import serving
from tests.processes import wait_until

SECONDS, ATTACKERS = 30.0, 8
SQL = """
CREATE TABLE numbers (k BIGINT, v BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '5000000');
CREATE TABLE sums (k BIGINT, n BIGINT, total BIGINT, PRIMARY KEY (k) NOT ENFORCED);
SET 'sqlstream.unbounded-state' = 'allow';
INSERT INTO sums SELECT k % 1000 AS k, COUNT(*), SUM(v % 1000) FROM numbers GROUP BY k % 1000;
"""
# What takes cores, memory, or time that nothing interrupts.
ATTACKS = (
    "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b",
    "SELECT len(range(1000000000))",
    "SELECT len(repeat('x', 400000000))",
    "SELECT count(*) FROM (SELECT DISTINCT range, repeat('x', 100) || range FROM range(50000000))",
    "SELECT 1",
    f"SELECT {' + '.join(['1'] * 20_000)}",
)


@dataclass(frozen=True, slots=True)
class AttackRun:
    """Rows a second of the job in peace and under attack, and the most megabytes that server and queries had meanwhile."""

    peace: float
    attacked: float
    megabytes: float
    answers: dict[int, int]

    @property
    def text(self) -> str:
        answers = ", ".join(f"{count} x {status}" for status, count in sorted(self.answers.items()))
        return (
            f"a job reads {self.peace:,.0f} rows/s in peace, {self.attacked:,.0f} under attack"
            f" ({self.attacked / self.peace:.0%}); server and queries have {self.megabytes:,.0f} MB at most; answers: {answers}"
        )


def measure(folder: Path) -> AttackRun:
    """Run a job under a server, and attack this."""
    (folder / "catalog").mkdir()
    with serving(folder) as (url, server), httpx.Client(base_url=url, timeout=600) as client:
        client.post("/v1/jobs", json={"sql": SQL}).raise_for_status()
        wait_until(lambda: _rows(client) > 1_000_000, 600)
        before = _pace(client)
        end, answers = threading.Event(), list[int]()
        attackers = [threading.Thread(target=_attack, args=(url, end, answers, n)) for n in range(ATTACKERS)]
        for attacker in attackers:
            attacker.start()
        memory = _Memory(server)
        memory.start()
        attacked = _pace(client)
        end.set()
        memory.join()
        for attacker in attackers:
            attacker.join()
        peace = statistics.mean([before, _pace(client)])
        client.post("/v1/jobs/sums/stop", json={})
    return AttackRun(peace, attacked, memory.most / (1 << 20), {s: answers.count(s) for s in set(answers)})


def _rows(client: httpx.Client) -> int:
    found = client.get("/v1/jobs/sums")
    if not found.is_success:
        return 0
    job = found.json()["job"]
    if job["status"] == "FAILED":
        raise RuntimeError(f"the job has failed: {job}")
    return int(job["rows_in"] or 0)


def _pace(client: httpx.Client) -> float:
    began, rows = time.monotonic(), _rows(client)
    time.sleep(SECONDS)
    return (_rows(client) - rows) / (time.monotonic() - began)


def _attack(url: str, end: threading.Event, answers: list[int], first: int) -> None:
    with httpx.Client(base_url=url, timeout=600) as client:
        for sql in itertools.islice(itertools.cycle(ATTACKS), first, None):
            if end.is_set():
                return
            found = client.post("/v1/query", json={"sql": sql})
            answers.append(found.status_code)
            if found.status_code == 429:
                time.sleep(0.05)


class _Memory(threading.Thread):
    """Looks at what a server and the processes of its queries have in memory."""

    def __init__(self, server: psutil.Process):
        super().__init__(daemon=True)
        self._server, self.most = server, 0
        self._until = time.monotonic() + SECONDS

    def run(self) -> None:
        while time.monotonic() < self._until:
            self.most = max(self.most, sum(map(_private, self._family())))
            time.sleep(0.5)

    def _family(self) -> list[psutil.Process]:
        # Jobs are in sessions of their own, with a command; the processes of queries are forked from one without a module.
        children = self._server.children()
        seeds = [child for child in children if "query_processes" in " ".join(child.cmdline())]
        return [self._server, *seeds, *(process for seed in seeds for process in seed.children())]


def _private(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().uss)
    except psutil.Error:
        return 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        print(measure(Path(place)).text)
