"""The pace of a job while somebody who may only read does the worst that the limits allow (`python -m tests.bench.attack`).

The server has its default limits; the job runs on Spark with as many tasks as there are cores, and always has more to read.
Its rows are counted for a while in peace, under attack by `ATTACKERS` clients over HTTP, and in peace again. The pace under
attack should be within 20 % of that in peace; the memory is that of the server and of its queries, without the job's. What
each of them takes of the cores is shown, too: the clients are on the same machine.
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
class Cores:
    """How many cores processes keep busy: those of the job, the server, its queries, and the clients; `all` is the machine."""

    job: float
    server: float
    queries: float
    clients: float
    all: float

    @property
    def text(self) -> str:
        parts = f"job {self.job:.2f}, server {self.server:.2f}, queries {self.queries:.2f}, clients {self.clients:.2f}"
        return f"{self.all:.2f} cores busy ({parts})"


@dataclass(frozen=True, slots=True)
class Phase:
    """Rows a second that the job reads in a part of the measurement, and who keeps the cores busy meanwhile."""

    pace: float
    cores: Cores


@dataclass(frozen=True, slots=True)
class AttackRun:
    """The job in peace and under attack, and the most megabytes that server and queries had meanwhile."""

    before: Phase
    attacked: Phase
    after: Phase
    megabytes: float
    answers: dict[int, int]

    @property
    def peace(self) -> float:
        return statistics.mean([self.before.pace, self.after.pace])

    @property
    def text(self) -> str:
        answers = ", ".join(f"{count} x {status}" for status, count in sorted(self.answers.items()))
        shares = (("in peace", self.before), ("under attack", self.attacked), ("afterwards", self.after))
        return "\n".join(
            (
                f"a job reads {self.peace:,.0f} rows/s in peace, {self.attacked.pace:,.0f} under attack"
                f" ({self.attacked.pace / self.peace:.0%}); server and queries have {self.megabytes:,.0f} MB at most;"
                f" answers: {answers}",
                *(f"{name}: {phase.cores.text}" for name, phase in shares),
            )
        )


def measure(folder: Path) -> AttackRun:
    """Run a job under a server, and attack this."""
    (folder / "catalog").mkdir()
    with serving(folder) as (url, server), httpx.Client(base_url=url, timeout=600) as client:
        client.post("/v1/jobs", json={"sql": SQL}).raise_for_status()
        wait_until(lambda: _rows(client) > 1_000_000, 600)
        before = _phase(client, server)
        end, answers = threading.Event(), list[int]()
        attackers = [threading.Thread(target=_attack, args=(url, end, answers, n)) for n in range(ATTACKERS)]
        for attacker in attackers:
            attacker.start()
        memory = _Memory(server)
        memory.start()
        attacked = _phase(client, server)
        end.set()
        memory.join()
        for attacker in attackers:
            attacker.join()
        after = _phase(client, server)
        client.post("/v1/jobs/sums/stop", json={})
    counts = {status: answers.count(status) for status in set(answers)}
    return AttackRun(before, attacked, after, memory.most / (1 << 20), counts)


def _rows(client: httpx.Client) -> int:
    found = client.get("/v1/jobs/sums")
    if not found.is_success:
        return 0
    job = found.json()["job"]
    if job["status"] == "FAILED":
        raise RuntimeError(f"the job has failed: {job}")
    return int(job["rows_in"] or 0)


def _phase(client: httpx.Client, server: psutil.Process) -> Phase:
    began, rows, busy = time.monotonic(), _rows(client), _busy(server)
    time.sleep(SECONDS)
    more, now, seconds = _rows(client) - rows, _busy(server), time.monotonic() - began
    return Phase(more / seconds, Cores(*((after - before) / seconds for before, after in zip(busy, now, strict=True))))


def _busy(server: psutil.Process) -> list[float]:
    """Return the seconds of processor time of the job, the server, its queries, the clients, and the whole machine so far."""
    children = server.children()
    seeds = [child for child in children if _is_seed(child)]
    jobs = [child for child in children if child not in seeds]
    times = psutil.cpu_times()
    return [
        sum(_seconds(process) for job in jobs for process in (job, *job.children(recursive=True))),
        _seconds(server, children=False),
        sum(_seconds(process) for seed in seeds for process in (seed, *seed.children(recursive=True))),
        _seconds(psutil.Process(), children=False),
        sum(times) - times.idle - times.iowait,
    ]


def _is_seed(process: psutil.Process) -> bool:
    """Return whether the processes of queries are forked from a process; jobs are in processes with a command."""
    try:
        return "query_processes" in " ".join(process.cmdline())
    except psutil.Error:
        return False


def _seconds(process: psutil.Process, *, children: bool = True) -> float:
    """Return the processor time of a process, and of those of its children that have ended."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    own = times.user + times.system
    return float(own + times.children_user + times.children_system if children else own)


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
        seeds = [child for child in self._server.children() if _is_seed(child)]
        return [self._server, *seeds, *(process for seed in seeds for process in seed.children())]


def _private(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().uss)
    except psutil.Error:
        return 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        print(measure(Path(place)).text)
