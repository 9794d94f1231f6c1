"""Projects whose job is run by one process after the other, and killed in the middle of its work."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlstream.queries.query import open_query
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.status import Status, read_status
from tests.forked import Forked, start_python
from tests.processes import SECONDS, kill_group, wait_until
from tests.proof.savepoints.step import LOCAL
from tests.proof.scenarios.work import Rows, Work

COMMAND = str(Path(__file__).parent / "command.py")
# Files that wait for the job at least, so that it works when it is killed.
_AHEAD = 4
# A process is killed at a moment of so many seconds after its first batch.
_LATEST = 0.5
Answers = list[tuple[Any, ...]]


class ProofError(Exception):
    """A process did what it should not, or a result is not DuckDB's."""


class ScenarioProject:
    """A project with a job, its rows, and the process that runs it."""

    def __init__(self, folder: Path, work: Work, seed: int, engine: str = LOCAL):
        self.folder, self.work, self.engine = folder, work, engine
        self.random = random.Random(f"{seed} {folder.name}")
        self.warehouse = Warehouse(str(folder / "warehouse"))
        self.kills = self.busy = 0
        # Where a scenario takes several projects: those that have the jobs.
        self.parts: list[ScenarioProject] = []
        (folder / "udfs").mkdir(parents=True)
        (folder / "udfs" / "own.py").write_text(work.function)
        self.rows = Rows(folder / "in", work.reads, seed)
        self.write("job.sql", work.text())

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    # -- processes

    def start(self, *arguments: str) -> Forked:
        """Start a command of sqlstream in the project."""
        command = (COMMAND,) if self.engine == LOCAL else ("-m", "sqlstream")
        return start_python(*command, *arguments, cwd=self.folder, own_group=True)

    def start_job(self, *arguments: str, script: str = "job.sql") -> Forked:
        """Start the job so that it never comes to the end of its input."""
        watched = [f"--set-table={name}.source.monitor-interval=20 ms" for name in self.work.reads]
        return self.start("run", script, *watched, *arguments)

    def run(self, *arguments: str) -> str:
        """Run a command to its end, and return what it says. Raises ProofError."""
        process = self.start(*arguments)
        said, _ = process.communicate(timeout=SECONDS)
        if process.returncode != 0:
            raise ProofError(f"{' '.join(arguments)}: {said[-3000:]}")
        return said

    def finish(self, *arguments: str, script: str = "job.sql") -> None:
        """Let the job read all that there is, to its end."""
        self.run("run", script, *arguments)

    # -- what a job has done

    def version(self, job: str = "job") -> int:
        found = last_committed(self.warehouse.fs, self.warehouse.job(job))
        return -1 if found is None else found

    def status(self, job: str = "job") -> Status | None:
        return read_status(self.warehouse.fs, self.warehouse.job(job))

    def await_batches(self, process: Forked, count: int = 1, job: str = "job") -> None:
        """Wait until a process has committed so many batches of a job; meanwhile rows come."""
        first: list[int] = []

        def has_committed() -> bool:
            if process.poll() is not None:
                raise ProofError(f"it ended by itself: {process.communicate()[0][-3000:]}")
            status = self.status(job)
            if status is None or status.pid != process.pid:
                return False
            first.append(self.version(job))
            if first[-1] >= first[0] + count:
                return True
            if len(first) % 10 == 0:
                self.rows.put()
            return False

        wait_until(has_committed)

    def kill(self, process: Forked, job: str = "job", meanwhile: Callable[[], object] | None = None) -> None:
        """Kill a process at any moment after it has committed a batch, while rows wait for it."""
        self.await_batches(process, job=job)
        self.rows.put(_AHEAD)
        if meanwhile is not None:
            meanwhile()
        time.sleep(self.random.uniform(0, _LATEST))
        self.rows.put()
        if process.poll() is not None:
            raise ProofError(f"it ended by itself: {process.communicate()[0][-3000:]}")
        kill_group(process)
        self.kills += 1
        self.busy += self.rows_in(job) < self.rows.count

    def rows_in(self, job: str = "job") -> int:
        found = self.query(f"SELECT rows_in FROM sqlstream.jobs WHERE job = '{job}'")
        return int(found[0][0] or 0) if found else 0

    def query(self, sql: str) -> Answers:
        return open_query(self.warehouse, sql).fetchall()

    # -- what must be right

    def check(self, out: str = "out", read: Callable[[str], Answers] | None = None, rows: Rows | None = None) -> None:
        """Compare what the job has written with DuckDB's answer over all rows. Raises ProofError."""
        for sql, expected in (rows or self.rows).answers(self.work).items():
            compare(sql, sorted((read or self.query)(sql.replace("{out}", out)), key=repr), sorted(expected, key=repr))

    def check_files(self) -> None:
        """Look for damage in the warehouses of the scenario."""
        for project in self.parts or [self]:
            project.run("check")


def compare(name: str, rows: Answers, expected: Answers) -> None:
    """Raise ProofError where rows are not those that are expected."""
    if rows == expected:
        return
    lost = [row for row in expected if row not in rows][:3]
    strange = [row for row in rows if row not in expected][:3]
    raise ProofError(f"{name}: {len(rows)} rows in the place of {len(expected)}, lost {lost}, strange {strange}")
