"""A soak from its beginning to its end: jobs are submitted, then things are killed, then nothing is, then all is compared."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from sqlstream.queries.query import open_query
from sqlstream.warehouse.paths import Warehouse
from tests.processes import SECONDS, wait_until
from tests.soak.checks import checks
from tests.soak.clients import (
    Browser,
    Client,
    HttpClient,
    InProcessClient,
    Listener,
    Outages,
    Page,
    PostgresClient,
    Scraper,
)
from tests.soak.kills import Kills
from tests.soak.measuring import SERVER, Measuring
from tests.soak.serving import SoakServer
from tests.soak.workload import JOBS, Generator, SoakJob, answers

TICK = 0.5
# Of the time without kills so much is a warm-up: files of the retained versions gather, allocators fill.
WARM_UP_SHARE, WARM_UP_SECONDS = 0.35, 120.0
DRAIN_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a soak is told: how long it lasts, in seconds, how many jobs run on Spark, how often something is killed."""

    seconds: float
    seed: int
    rows_a_second: int
    on_spark: int
    kill_every: float
    calm_share: float
    with_page: bool = False


@dataclass
class Soak:
    """What a soak has found out; `told` takes what happens meanwhile."""

    plan: Plan
    folder: Path
    told: Callable[[str], None]
    outages: Outages = field(default_factory=Outages)
    failures: list[str] = field(default_factory=list)
    results: dict[str, int] = field(default_factory=dict)
    # When nothing was killed any more and all was warm.
    warm_at: float = float("inf")
    calm_ended: float = float("inf")
    seconds_of_input: float = 0.0
    rows_read: dict[str, int] = field(default_factory=dict)
    # Of the calm half, by job.
    batches_a_minute: dict[str, float] = field(default_factory=dict)
    _versions_when_warm: dict[str, int] = field(default_factory=dict)

    def run(self) -> None:
        """Run it; what went wrong is among `failures`."""
        (self.folder / "tmp").mkdir()
        (self.folder / "catalog").mkdir()
        plan = self.plan
        names = [job.name for job in JOBS]
        self.generator = Generator(self.folder / "in", plan.seed, plan.rows_a_second, TICK)
        self.server = SoakServer(self.folder, names[: plan.on_spark])
        self.kills = Kills(self.server, names, names[: plan.on_spark], self.outages, plan.seed)
        self.measuring = Measuring(self.folder / "warehouse", self.folder / "tmp", self._processes, self.kills.versions)
        self.clients: list[Client] = []
        try:
            self._run()
        except (Exception, KeyboardInterrupt) as error:
            # What was measured so far is worth a look.
            self.failures.append(f"{type(error).__name__}: {error}")
        finally:
            self._end()

    def _run(self) -> None:
        self.server.start()
        self.generator.start()
        began = time.monotonic()
        for job in JOBS:
            self._submit(job)
        self.kills.await_batches(dict.fromkeys(self.kills.versions(), -1))
        self.told("all jobs run")
        with self._clients():
            self.measuring.start()
            calm = self.plan.seconds * self.plan.calm_share
            self._kill_for(self.plan.seconds - calm)
            self.warm_at = time.monotonic() + min(max(calm * WARM_UP_SHARE, WARM_UP_SECONDS), calm / 2)
            self.told(f"no more kills for {calm:.0f} s")
            before, deadline = self.kills.versions(), time.monotonic() + calm
            self._watch_for(self.warm_at - time.monotonic())
            self._versions_when_warm = self.kills.versions()
            self._watch_for(deadline - time.monotonic())
            self.batches_a_minute = {job: (v - before[job]) / calm * 60 for job, v in self.kills.versions().items()}
            self.calm_ended = time.monotonic()
            self.generator.stop()
            self.seconds_of_input = time.monotonic() - began
            self.told(f"{self.generator.rows['orders']:,} orders were written")
            self._await_input()
        self.measuring.stop()
        for job in JOBS:
            self._drain(job)
            self._compare(job)

    def _processes(self) -> dict[str, psutil.Process]:
        found = {f"job {job.name}": self.kills.process_of(job.name) for job in JOBS}
        with contextlib.suppress(psutil.NoSuchProcess):
            found[SERVER] = psutil.Process(self.server.process.pid) if self.server.process is not None else None
        return {name: process for name, process in found.items() if process is not None}

    def _submit(self, job: SoakJob) -> None:
        response = httpx.post(f"{self.server.url}/v1/jobs", json={"sql": job.script}, timeout=SECONDS)
        assert response.status_code == 201, response.text

    @contextmanager
    def _clients(self) -> Iterator[None]:
        url, seed, asked = self.server.url, self.plan.seed, checks(self.generator.rows_of_a_file)
        self.clients = [
            HttpClient(url, self.outages, asked, seed),
            PostgresClient(self.server.postgres, self.outages, asked, seed + 1),
            InProcessClient(str(self.folder / "warehouse"), asked, seed + 2),
            Scraper(url, self.outages),
            Listener(url, self.outages),
            Page(url, self.outages),
        ]
        if self.plan.with_page:
            self.clients.append(Browser(url, self.outages))
        for client in self.clients:
            client.start()
        try:
            yield
        finally:
            for client in self.clients:
                client.stop()
            for client in self.clients:
                client.join(120)
            self.failures += [failure for client in self.clients for failure in client.failures]

    def _kill_for(self, seconds: float) -> None:
        chance = random.Random(self.plan.seed)
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._watch_for(min(chance.uniform(0, 2 * self.plan.kill_every), left))
            if time.monotonic() < deadline:
                self.kills.one(self.told)

    def _watch_for(self, seconds: float) -> None:
        """Wait, and stop where the threads that make input or measure have failed."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for thread in (self.generator, self.measuring):
                if thread.error is not None:
                    raise thread.error
            time.sleep(0.2)

    def _await_input(self) -> None:
        """Wait until all jobs have read all input."""
        wait_until(lambda: all(self._rows_in(job) == self.generator.expected_rows(job) for job in JOBS), DRAIN_SECONDS)

    def _rows_in(self, job: SoakJob) -> int:
        found = httpx.get(f"{self.server.url}/v1/jobs/{job.name}", timeout=60).json()["job"]
        if found["status"] == "FAILED":
            raise RuntimeError(f"job {job.name} has failed: {found['error']}")
        self.rows_read[job.name] = int(found["rows_in"])
        return self.rows_read[job.name]

    def _drain(self, job: SoakJob) -> None:
        url = f"{self.server.url}/v1/jobs/{job.name}/stop"
        response = httpx.post(url, json={"drain": True}, timeout=DRAIN_SECONDS)
        if response.status_code != 200:
            self.failures.append(f"job {job.name} did not drain: {response.text}")

    def _compare(self, job: SoakJob) -> None:
        """Compare what a job has written with DuckDB's answer over all input at once."""
        warehouse = Warehouse(str(self.folder / "warehouse"))
        rows = open_query(warehouse, f"SELECT {job.columns} FROM {job.name}").fetchall()
        expected = answers(self.folder / "in", job)
        self.results[job.name] = len(rows)
        found = set(rows)
        lost, strange, twice = len(expected - found), len(found - expected), len(rows) - len(found)
        if lost or strange or twice:
            examples = f"such as {sorted(expected ^ found, key=str)[:3]}"
            self.failures.append(
                f"{job.name}: {lost} rows are lost, {strange} should not be there, {twice} are there twice, {examples}"
            )
        late = open_query(warehouse, f"SELECT sum(late_rows) FROM sqlstream.operators WHERE job = '{job.name}'")
        if (count := late.fetchall()[0][0]) not in (0, None):
            self.failures.append(f"{job.name}: {count} rows were late, and none is")

    def _end(self) -> None:
        if self.measuring.is_alive():
            self.measuring.stop()
        family = list(self._processes().values())
        for process in list(family):
            with contextlib.suppress(psutil.NoSuchProcess):
                family += process.children(recursive=True)
        if self.generator.is_alive():
            self.generator.stop()
        if self.server.process is not None and self.server.process.poll() is None:
            try:
                if (code := self.server.stop()) != 0:
                    self.failures.append(f"the server ended with code {code}")
            except Exception as error:
                self.failures.append(f"the server does not stop: {error!r}")
                self.server.kill()
        _, left = psutil.wait_procs(family, 20)
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                self.failures.append(f"process {process.pid} is left: {' '.join(process.cmdline())[:120]}")
                process.kill()

    def is_full(self, job: str, batches: int) -> bool:
        """Tell whether a job, if it is one, had run so many batches when all was warm."""
        return self._versions_when_warm.get(job, batches) >= batches

    def samples(self) -> dict[str, Any]:
        """Return all samples, for whoever wants to look closer: the time, the value, and the process."""
        series: dict[str, Any] = {}
        for kind in ("memory", "files", "bytes", "parts", "batches"):
            found = getattr(self.measuring, kind)
            series[kind] = {name: [[round(s.at, 1), s.value, s.life] for s in all] for name, all in found.items()}
        return {"warm_at": self.warm_at, "calm_ended": self.calm_ended, **series}
