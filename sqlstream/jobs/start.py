"""Starting a job: its lock, whether it continues, its record, and its run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace as replace_spec

from msgspec.structs import replace

from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.connectors.warehouse.publishing import check_targets
from sqlstream.errors import DamageError, SqlStreamError, UsageError
from sqlstream.jobs import ending
from sqlstream.jobs.difference import difference
from sqlstream.jobs.identity import as_recorded, is_planned, planned_identity, recorded_identity
from sqlstream.jobs.job import Job
from sqlstream.jobs.launch import check_fresh, check_only_writer, job_record, job_spec, key_hash_of
from sqlstream.jobs.parallelism import SpreadProgress, begun_outside, newest_entry, spread
from sqlstream.jobs.read_positions import start_over
from sqlstream.jobs.restart_strategies import NoRestart, covered_errors, strategy_of
from sqlstream.jobs.restarting import RestartingRun
from sqlstream.jobs.savepoints.restore_plans import Restore, Restorer
from sqlstream.jobs.savepoints.restored_files import StartOver, complete, forget_completed, is_draft
from sqlstream.jobs.upgrades.upgrading import Upgrade, Upgrader, upgradable
from sqlstream.project import Project
from sqlstream.runtime.engine import Engine, Layout, Pace, Receivers, Resources, Run
from sqlstream.runtime.feed import check_input
from sqlstream.runtime.worker import JobSpec
from sqlstream.sql.nodes import head
from sqlstream.storage.joblog import labels_of
from sqlstream.storage.recovery import Versions
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.jobs import JobRecord, read_record, write_record
from sqlstream.warehouse.leases import lock_job
from sqlstream.warehouse.locks import SessionLock
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.status import DRAINED, FINISHED, read_status, restarts


class Starter:
    """Starts the jobs of one session; `notice` receives messages for its user."""

    def __init__(
        self,
        project: Project,
        warehouse: Warehouse,
        lock: Callable[[], SessionLock],
        notice: Callable[[str], None],
    ):
        self.project, self.warehouse, self.notice = project, warehouse, notice
        self._session_lock = lock
        # The jobs of INSERT .. VALUES: a second one must keep what the first one wrote, --fresh or not.
        self._appended: set[str] = set()

    def start(
        self,
        planned: PlannedJob,
        name: str,
        engine: Engine,
        receivers: Receivers,
        *,
        fresh: bool = False,
        restore: Restore | None = None,
        upgrade: Upgrade | None = None,
    ) -> Job:
        """Start a job under a name, or continue it; a job that has finished is skipped with a notice.

        With `fresh` the job starts from scratch, with `restore` from a savepoint; its earlier state and results are deleted.
        With `upgrade` its query may have changed. Raises UsageError when another process runs the job, or a job of this name has
        another plan, or `fresh` is beside one of the others, and DamageError.
        """
        # Before anything is discarded, or recorded.
        check_fresh(fresh, restores=restore is not None, upgrades=upgrade is not None)
        check_targets(self.warehouse, (sink.table for sink in planned.physical.sinks))
        paths = self.warehouse.job(name)
        lock = lock_job(self.warehouse.fs, paths, self._session_lock(), in_turn=planned.appends)
        try:
            # A stop request to an earlier process does not count; one from now on, while the job starts, does.
            self.warehouse.fs.delete(paths.stop)
            restarts(self.warehouse.fs, paths)
            if fresh and name not in self._appended:
                self._discard(name)
            forget_completed(self.warehouse, name)
            if restore is not None:
                self._restore(planned, name, restore, upgrade)
            else:
                self._complete(planned, name, upgrade)
            self._settle(name)
            if upgrade is not None and restore is None:
                self._upgrade(planned, upgrade)
            record = self._record(planned, name)
            planned = as_recorded(planned, record)
            if planned.appends:
                self._appended.add(name)
                _check_appended(planned, record)
            check_only_writer(self.warehouse, planned, name, is_new=record is None)
            ended = self._ended(planned, record) if record is not None and not planned.appends else None
            if ended is not None:
                lock.release()
                return Job(name, ended=ended, warehouse=self.warehouse)
            run = self._run(planned, name, record, engine, receivers)
            on_end = (lambda: self._discard(name, lock=True)) if planned.is_query else None
            job = Job(name, run, lock, on_end, warehouse=self.warehouse)
            run.start()
            if planned.is_immediate:
                # It has ended; the next INSERT .. VALUES may come before anybody waits for this one.
                job.release()
            return job
        except BaseException:
            lock.release()
            if planned.is_query:
                with contextlib.suppress(SqlStreamError):
                    self._discard(name, lock=True)
            raise

    def _complete(self, planned: PlannedJob, name: str, upgrade: Upgrade | None) -> None:
        """Complete an interrupted restore or upgrade of the job, if there is one."""
        savepoint = complete(self.warehouse, name, self._start_over(planned, name))
        if savepoint is None:
            return
        what = "it is upgraded" if is_draft(savepoint) else f'it is restored from savepoint "{savepoint}"'
        self.notice(f'job "{name}": {what}, which had been interrupted')
        if upgrade is not None and is_draft(savepoint) and upgrade.migrates(name):
            # Most likely by the same statements, which must not count twice.
            raise UsageError(
                f'job "{name}" has been upgraded now, as it was to be before that was interrupted',
                head(planned.statement),
                hint="Start it without --migrate. If these are other statements, run them once more.",
            )

    def _restore(self, planned: PlannedJob, name: str, restore: Restore, upgrade: Upgrade | None) -> None:
        if planned.appends or planned.is_query:
            raise UsageError("only a job that goes on can be restored", head(planned.statement))

        def make_record(job: PlannedJob, saved: JobRecord) -> JobRecord:
            spec = job_spec(
                job,
                self.project.warehouse,
                saved.bucket_labels,
                name=name,
                project=self.project.root,
                key_hash=key_hash_of(saved),
            )
            record = job_record(job, spec, saved.partitions)
            return replace(record, versions=saved.versions, upgraded_from=saved.upgraded_from)

        upgrader = self._upgrader(planned, upgrade) if upgrade is not None else None
        restorer = Restorer(
            self.warehouse, planned, make_record, self._start_over(planned, name), self.notice, upgrader
        )
        restorer.run(restore)

    def _upgrader(self, planned: PlannedJob, upgrade: Upgrade) -> Upgrader:
        return Upgrader(self.warehouse, planned, self.project.root, upgrade, self.notice)

    def _upgrade(self, planned: PlannedJob, upgrade: Upgrade) -> None:
        """Upgrade the job if its query has changed, or if migrations compute some of its state."""
        if (record := upgradable(self.warehouse, planned, upgrade)) is not None:
            self._upgrader(planned, upgrade).run(record)
        elif upgrade.migrates(planned.name):
            raise UsageError(f'job "{planned.name}" has no state to migrate', head(planned.statement))

    def _start_over(self, planned: PlannedJob, name: str) -> StartOver:
        paths, scans = self.warehouse.job(name), planned.physical.scans
        return lambda which: start_over(self.warehouse.fs, paths.splits, scans, which, self.project.root)

    def _settle(self, name: str) -> None:
        """Take the job back to its newest intact version, for example after a power failure. Raises DamageError without one."""
        versions = Versions(self.warehouse, name)
        if versions.newest < 0 and isinstance(record := versions.record(), DamageError) and record.torn:
            # The job died before its first commit.
            self._discard(name)
        newest = versions.newest
        if faults := versions.settle():
            first = versions.newest + 1
            batches = f"batch {first} is" if first == newest else f"batches {first} to {newest} are"
            self.notice(f'job "{name}": {batches} repeated, because of damage: {faults[0].message}')

    def _record(self, planned: PlannedJob, name: str) -> JobRecord | None:
        """Return the job's record. A job that never committed a batch is discarded if its query has changed."""
        fs, paths = self.warehouse.fs, self.warehouse.job(name)
        record = read_record(fs, paths)
        if record is None or is_planned(record, planned) or last_committed(fs, paths) is not None:
            return record
        status = read_status(fs, paths)
        if status is not None and status.version is not None:
            # The job has committed a batch, and the commit is gone.
            return record
        self._discard(name)
        return None

    def _ended(self, planned: PlannedJob, record: JobRecord) -> str | None:
        """Return FINISHED or DRAINED if the job has ended for good, else None. Raises UsageError if it has another query."""
        check_same_query(planned, record)
        ended = ended_for_good(self.warehouse, planned.name)
        if ended is None:
            return None
        state, notice = ended
        self.notice(notice)
        return state

    def _run(
        self, planned: PlannedJob, name: str, record: JobRecord | None, engine: Engine, receivers: Receivers
    ) -> Run:
        if record is None:
            # A job that continues may already have read all its input.
            check_input(planned.physical.scans, self.project.root)
        options = planned.options
        # The name of a SELECT is generated, and says nothing to people.
        known_as = {} if planned.is_query else {"name": name}
        engine.prepare(Resources(options.parallelism, options.spark, **known_as))
        new_layout = engine.layout(options.parallelism)
        spec = job_spec(
            planned,
            self.project.warehouse,
            new_layout.labels,
            name=name,
            project=self.project.root,
            key_hash=key_hash_of(record),
        )
        layout = new_layout if record is None else self._spread(spec, record, new_layout)
        spec = replace_spec(spec, labels=layout.labels)
        if record is None or not planned.appends:
            self._write_record(job_record(planned, spec, layout.partitions), record)
        pace = Pace(options.finish, options.duration("execution.checkpointing.interval"))
        strategy = strategy_of(options, bounded=planned.bounded)
        if not engine.can_run_again or planned.is_query or isinstance(strategy, NoRestart):
            return engine.run(spec, layout, pace, receivers)
        return RestartingRun(
            self.warehouse.fs,
            self.warehouse.job(name),
            lambda: engine.run(spec, layout, pace, receivers),
            strategy,
            covered_errors(options),
        )

    def _spread(self, spec: JobSpec, record: JobRecord, new_layout: Layout) -> Layout:
        """Spread the state of a job over its new number of tasks, if that has changed; return the layout that it runs with."""
        entry = newest_entry(self.warehouse, spec.name)
        before = labels_of(record, entry)
        if before == new_layout.labels:
            return new_layout
        number, now = len(before), len(new_layout.labels)
        if begun_outside(self.warehouse, spec, entry):
            self.notice(
                f'job "{spec.name}" goes on with {number} tasks, not {now}: a batch had begun, and what it writes must '
                "not change. Stop the job after that batch, and run it again."
            )
            return Layout(number, before)
        if entry is not None and spec.plan.stages:
            rows = sum(metrics.state_rows for metrics in entry.operators.values())
            self.notice(f'job "{spec.name}": spreading {rows:,} rows of state over {now} tasks, from {number} ...')
            spread(spec, entry, before, SpreadProgress(spec.name, self.notice))
        return new_layout

    def _write_record(self, record: JobRecord, before: JobRecord | None) -> None:
        """Write the job's record. A job that continues keeps its creation time, versions, lives and savepoint of its upgrade."""
        if before is not None:
            record = replace(
                record,
                created_at=before.created_at,
                versions=before.versions,
                lives=before.lives,
                upgraded_from=before.upgraded_from,
            )
        if record != before:
            write_record(self.warehouse.fs, self.warehouse.job(record.job), record)

    def _discard(self, name: str, *, lock: bool = False) -> None:
        ending.discard(self.warehouse, name, self.project.root, lock=lock)


def ended_for_good(warehouse: Warehouse, name: str) -> tuple[str, str] | None:
    """Return FINISHED or DRAINED, and a notice for people, if a job has ended for good; None if it can continue."""
    status = read_status(warehouse.fs, warehouse.job(name))
    if status is None or status.state not in (FINISHED, DRAINED):
        return None
    why = (
        " To read new files in later runs, set 'execution.end-of-input' = 'wait' before it finishes,"
        " or 'source.monitor-interval' on its tables; to run it anew, use --fresh."
    )
    if status.state == DRAINED:
        why = " All its windows were closed, so it cannot continue; to run it anew, use --fresh."
    return status.state, f'job "{name}" is {status.state.lower()} and was skipped.{why}'


def check_same_query(planned: PlannedJob, record: JobRecord) -> None:
    """Raise UsageError when a job in the warehouse has another query than the planned job."""
    before, now = recorded_identity(record), planned_identity(as_recorded(planned, record))
    if not before.is_same(now):
        raise UsageError(
            f'job "{planned.name}" exists with another query',
            head(planned.statement),
            detail=difference(before.text, now.text),
            hint="See what becomes of its state with sqlstream explain --against, and let it go on with run --upgrade. "
            "Or give it another name with SET 'pipeline.name', or start it anew with --fresh.",
        )


def _check_appended(planned: PlannedJob, record: JobRecord | None) -> None:
    """Raise UsageError when a job of this name is not of INSERT .. VALUES, or writes other columns."""
    [sink] = planned.physical.sinks
    if record is None:
        return
    [written] = record.sinks
    if written.columns == sink.columns and all(s.is_values for s in record.scans):
        return
    raise UsageError(
        f'job "{planned.name}" exists, and writes other columns',
        head(planned.statement),
        detail=f"It writes {', '.join(f'{name} {type}' for name, type in written.columns)}.",
        hint=f'Delete it and the rows that it wrote: sqlstream drop "{planned.name}".',
    )
