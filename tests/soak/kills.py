"""Kills jobs, their workers and the server with SIGKILL, one after the other, by a seed; each time it waits until all goes on."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence

import psutil

from sqlstream.server.submissions import read_state, submissions
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.restarts import read_restarts
from sqlstream.warehouse.status import FAILED, effective_status
from tests.processes import children_of
from tests.soak.clients import Outages
from tests.soak.serving import SoakServer

SERVER, JOB, WORKER, JVM = "server", "job", "worker", "JVM"
WEIGHTS = {SERVER: 2, JOB: 3, WORKER: 2, JVM: 1}
# A word in the command line of Spark's Python workers.
WORKERS = "sqlstream.spark.daemon"
# Batches that each job commits after a kill until it counts as recovered.
BATCHES = 2
RECOVERY_SECONDS = 240.0


class Kills:
    """What is killed, and how long it took until all jobs committed again."""

    def __init__(self, server: SoakServer, jobs: Sequence[str], on_spark: Sequence[str], outages: Outages, seed: int):
        self._server, self._jobs, self._on_spark, self._outages = server, jobs, on_spark, outages
        self._warehouse = Warehouse(str(server.project / "warehouse"))
        self._random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.recoveries: list[tuple[str, float]] = []

    def one(self, told: Callable[[str], None]) -> None:
        """Kill something, and wait until every job has committed again. Raises TimeoutError when one does not."""
        kinds = [kind for kind in WEIGHTS if self._on_spark or kind not in (WORKER, JVM)]
        kind = self._random.choices(kinds, [WEIGHTS[kind] for kind in kinds])[0]
        before = self.versions()
        began = time.monotonic()
        what = self._kill(kind)
        if what is None:
            return
        self.counts[kind] += 1
        self.await_batches(before)
        self.recoveries.append((kind, time.monotonic() - began))
        told(f"killed {what}; all jobs committed again after {time.monotonic() - began:.1f} s")

    def _kill(self, kind: str) -> str | None:
        if kind == SERVER:
            return self._kill_server()
        if kind == JOB:
            name = self._random.choice(self._jobs)
            return f"job {name}" if self._kill_job(name) else None
        name = self._random.choice(self._on_spark)
        return f"a {kind} of job {name}" if self._kill_part(name, kind) else None

    def _kill_server(self) -> str:
        what = "the server"
        with self._outages.down():
            self._server.kill()
            if self._random.random() < 0.5:
                # It dies while nobody looks.
                name = self._random.choice(self._jobs)
                if self._kill_job(name):
                    self.counts[JOB] += 1
                    what += f", and job {name} meanwhile"
            time.sleep(self._random.uniform(0, 2))
            self._server.start()
        return what

    def _kill_job(self, name: str) -> bool:
        """Kill the process of a job, with all that it has started in half of the cases."""
        process = self.process_of(name)
        if process is None:
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            family = process.children(recursive=True) if self._random.random() < 0.5 else []
            process.kill()
            for member in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.kill()
            return True
        return False

    def _kill_part(self, name: str, kind: str) -> bool:
        process = self.process_of(name)
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):
            assert process is not None, name
            if kind == JVM:
                children_of(process.pid, "java")[0].kill()
                return True
            found = children_of(process.pid, WORKERS)
            # The daemon that forks them has the same command line.
            self._random.choice([worker for worker in found if worker.parent() in found]).kill()
            return True
        return False

    def process_of(self, job: str) -> psutil.Process | None:
        """Return the process that runs a job under the server, None where none does just now."""
        for submission in submissions(self._warehouse):
            if job in submission.jobs:
                state = read_state(self._warehouse, submission.id)
                with contextlib.suppress(psutil.NoSuchProcess):
                    if state.pid:
                        return psutil.Process(state.pid)
        return None

    def versions(self) -> dict[str, int]:
        """Return the last committed batch of each job, -1 where there is none."""
        found = {}
        for job in self._jobs:
            version = last_committed(self._warehouse.fs, self._warehouse.job(job))
            found[job] = -1 if version is None else version
        return found

    def await_batches(self, before: dict[str, int]) -> None:
        """Wait until each job has committed some batches more. Raises TimeoutError, and AssertionError for a job that failed."""
        deadline = time.monotonic() + RECOVERY_SECONDS
        while late := [job for job, version in self.versions().items() if version < before[job] + BATCHES]:
            for job in late:
                status = effective_status(self._warehouse.fs, self._warehouse.job(job))
                assert status is None or status.state != FAILED, f"job {job} has failed: {status.error}"
            if time.monotonic() > deadline:
                raise TimeoutError(f"{', '.join(late)} did not go on in {RECOVERY_SECONDS:.0f} s")
            time.sleep(0.2)

    def restarts(self) -> dict[str, int]:
        """Return how often each job has started again."""
        return {job: read_restarts(self._warehouse.fs, self._warehouse.job(job)).count for job in self._jobs}

    def reasons(self) -> Counter[str]:
        """Return why jobs have started again, the last hundred times each: the first line of each error."""
        found: Counter[str] = Counter()
        for job in self._jobs:
            for restart in read_restarts(self._warehouse.fs, self._warehouse.job(job)).last:
                found[f"{job}: {restart.error.strip().splitlines()[0]}"] += 1
        return found
