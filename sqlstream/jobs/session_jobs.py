"""The jobs of one session: the session's lock, its engines, and starting, dropping and repairing jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import DamageError, SqlStreamError
from sqlstream.jobs import ending
from sqlstream.jobs.file_checks import repair_job
from sqlstream.jobs.job import Job
from sqlstream.jobs.savepoints.named_savepoints import take_savepoint
from sqlstream.jobs.savepoints.restore_plans import Restore
from sqlstream.jobs.start import Starter
from sqlstream.jobs.upgrades.upgrading import Upgrade
from sqlstream.local.engine import LocalEngine
from sqlstream.project import Project
from sqlstream.runtime.engine import Engine, Receivers
from sqlstream.spark.engine import SparkEngine
from sqlstream.units import now, to_millis
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.jobs import JobRecord
from sqlstream.warehouse.leases import lock_job
from sqlstream.warehouse.locks import SessionLock
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.status import RESTARTING, RUNNING


class SessionJobs:
    """Starts the jobs of a session, and drops and repairs jobs of the warehouse.

    It opens each engine, and the session's lock, when a job first needs it.
    """

    def __init__(self, project: Project, warehouse: Warehouse, notice: Callable[[str], None]):
        self.started: list[Job] = []
        self._project, self._warehouse, self._notice = project, warehouse, notice
        self._open_lock: SessionLock | None = None
        self.spark = SparkEngine(project, lambda: self._lock().descriptor, notice)
        self._local = LocalEngine()
        self._starter = Starter(project, warehouse, self._lock, notice)
        self._queries = 0

    def start(
        self,
        planned: PlannedJob,
        receivers: Receivers,
        *,
        fresh: bool = False,
        engine: Engine | None = None,
        restore: Restore | None = None,
        upgrade: Upgrade | None = None,
    ) -> Job:
        """Start a job, or continue it, on `engine`: by default that of its options; this process if all its rows are literals.

        `fresh`, `restore` and `upgrade` are as in `Starter.start`. Raises UsageError when another process runs the job, or a job
        of this name has another plan.
        """
        if planned.is_query:
            self._queries += 1
        name = f"select_{to_millis(now())}_{self._queries}" if planned.is_query else planned.name
        engine = engine or (self._local if planned.is_immediate or planned.options.is_local else self.spark)
        if engine is self._local and not planned.is_immediate and planned.options.spark:
            settings = ", ".join(planned.options.spark)
            self._notice(f'job "{name}" runs without Spark: {settings} has no effect')
        job = self._starter.start(planned, name, engine, receivers, fresh=fresh, restore=restore, upgrade=upgrade)
        self.started.append(job)
        return job

    def drop(self, name: str) -> None:
        """Delete a job: its state, its checkpoint, and the rows that it wrote. Raises UsageError when a process runs it."""
        for job in self.started:
            if job.name.lower() == name.lower() and job.status not in (RUNNING, RESTARTING):
                # The error has been reported, or nobody needs it any more.
                with suppress(SqlStreamError):
                    job.wait()
        ending.drop(self._warehouse, self._lock(), name, self._project.root, before=self._retain)

    def _retain(self, record: JobRecord) -> None:
        """Take a savepoint of a job before it is dropped, if its options ask for one and it has a version."""
        paths = self._warehouse.job(record.job)
        if not record.retains_state or last_committed(self._warehouse.fs, paths) is None:
            return
        try:
            name = take_savepoint(self._warehouse, record.job).record.name
        except DamageError as error:
            # A job that is damaged can be dropped all the same.
            self._notice(f'no savepoint keeps the state of job "{record.job}": {error.message}')
            return
        self._notice(f'savepoint "{name}" keeps the last version of job "{record.job}"; drop it with --savepoint')

    def repair(self, name: str) -> list[str]:
        """Take a job back to its newest intact version; return sentences about what was done.

        Raises UsageError when there is no such job, or a process runs it, and JobError when no version is intact.
        """
        paths = ending.existing(self._warehouse, name)
        lock = lock_job(self._warehouse.fs, paths, self._lock())
        try:
            return repair_job(self._warehouse, paths.name)
        finally:
            lock.release()

    def wait(self, jobs: Iterable[Job] | None = None) -> None:
        """Wait for jobs (all by default); raise the first error."""
        for job in jobs if jobs is not None else self.started:
            job.wait()

    def close(self) -> None:
        """Stop the running jobs after their batches, wait for their ends, and close the engines and the session's lock."""
        for job in self.started:
            job.stop()
        for job in self.started:
            try:
                job.wait()
            except SqlStreamError:
                # `wait` has raised it to the caller of the session.
                continue
        for engine in (self.spark, self._local):
            engine.close()
        if self._open_lock is not None:
            self._open_lock.close()
            self._open_lock = None

    def _lock(self) -> SessionLock:
        if self._open_lock is None:
            self._open_lock = SessionLock.open(self._warehouse)
        return self._open_lock
