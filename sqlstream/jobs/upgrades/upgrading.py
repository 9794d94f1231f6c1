"""Jobs that go on with a changed query: what becomes of them, and doing it.

An upgrade is a restore: of a savepoint of the job, rewritten for the new query. So whoever is killed leaves the old job, or the
new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import replace as with_field

import duckdb
from msgspec.structs import replace

from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.connectors.guarantees import Rollback
from sqlstream.connectors.warehouse.publishing import PUBLISH, discard_published, find_published, is_published
from sqlstream.duck.key_hash import in_version
from sqlstream.errors import JobError, SqlStreamError, UsageError
from sqlstream.jobs.identity import is_planned, recorded_identity
from sqlstream.jobs.launch import check_only_writer, job_record, job_spec, key_hash_of
from sqlstream.jobs.savepoints import default_name, take_savepoint
from sqlstream.jobs.upgrades.adaptations.registry import Adapter
from sqlstream.jobs.upgrades.changes import Adapted, Comparison, Kept
from sqlstream.jobs.upgrades.comparing import compare
from sqlstream.jobs.upgrades.migrations import Migrations
from sqlstream.jobs.ways_back import may_have_begun, rollback, way_back
from sqlstream.operators.operator import Operator
from sqlstream.operators.process.tables import DUE, PROCESSING_TIMERS
from sqlstream.physical.plan import SinkPlan
from sqlstream.runtime.carrying_over import carry_over, carry_over_begun, received
from sqlstream.runtime.tasks import ROWS, bucket_metrics
from sqlstream.runtime.worker import connection
from sqlstream.sql.nodes import head
from sqlstream.storage import restoring, savepoints
from sqlstream.storage.begun import read_begun
from sqlstream.storage.joblog import JobLog, LogEntry
from sqlstream.storage.restoring import Restoring
from sqlstream.storage.rewriting import OperatorSource, Rewritten, SinkSource, rewrite
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.jobs import TABLE, JobRecord, read_record
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.savepoints import Savepoint, find_savepoint

_WAYS_ON = (
    "Say what becomes of the state with MIGRATE STATE in a file for --migrate, or start the job anew with --fresh."
)


@dataclass(frozen=True, slots=True)
class Upgrade:
    """That a job may go on with a changed query. `migrations` make the state of some operators, also of an unchanged one."""

    migrations: Migrations | None = None

    def migrates(self, job: str) -> bool:
        """Tell whether state of a job is made by migrations."""
        return self.migrations is not None and self.migrations.concern(job)

    def changes(self, record: JobRecord, planned: PlannedJob) -> bool:
        """Tell whether a job goes on otherwise as it is planned: with another query, or with state that is made for it."""
        if planned.is_query or planned.appends:
            return False
        return not is_planned(record, planned) or self.migrates(record.job)


class Upgrader:
    """Upgrades one job to the query that it is planned with, under that name. Whoever calls `run` holds the lock of the job."""

    def __init__(
        self,
        warehouse: Warehouse,
        planned: PlannedJob,
        project: str,
        upgrade: Upgrade,
        notice: Callable[[str], None] = lambda text: None,
    ):
        self._warehouse, self._planned, self._project = warehouse, planned, project
        self._upgrade, self._notice = upgrade, notice

    # -- what becomes of it

    def migrates(self, saved: JobRecord) -> bool:
        """Tell whether migrations make state of a job, or of its fork that is planned."""
        return self._upgrade.migrates(saved.job) or self._upgrade.migrates(self._planned.name)

    def compared(self, saved: JobRecord, *, is_fork: bool = False, state: Warehouse | None = None) -> Comparison:
        """Return what becomes of a job with a record; a savepoint of it is `state`. Raises what migrations raise."""
        made = self.made(saved)
        migrations: Mapping[str, Adapter] = {}
        if self._upgrade.migrations is not None:
            migrations = self._upgrade.migrations.adaptations(state or self._warehouse, saved, made)
        found = compare(saved, made, self._planned.physical.stages, migrations, is_fork=is_fork)
        refusals = [*found.refusals, *self._published(found)]
        if state is None and not is_fork:
            refusals += self._half_written(saved, found)
        return with_field(found, refusals=tuple(refusals))

    def _half_written(self, saved: JobRecord, comparison: Comparison) -> Iterator[str]:
        """Yield which tables may have rows of a batch that has begun, which the new query could not take back."""
        fs, paths, entry = self._warehouse.fs, self._warehouse.job(saved.job), newest(self._warehouse, saved.job)
        if entry is None or not may_have_begun(fs, paths, entry):
            return
        for change, sink in zip(comparison.sinks, self._planned.physical.sinks, strict=True):
            outside = sink.table.connector is not None and rollback(sink.kind) is not Rollback.NO_ROWS
            if change.was is not None and outside and sink.changing and not sink.table.primary_key:
                yield (
                    f'table "{change.table}": it may have rows of a batch that has begun, and the new query could not take them '
                    "back; start the job with the query that it has, and stop it after that batch"
                )

    def _published(self, comparison: Comparison) -> Iterator[str]:
        """Yield which tables have been published with other columns."""
        for change, sink in zip(comparison.sinks, self._planned.physical.sinks, strict=True):
            if (
                change.columns is not None
                and is_published(sink.table)
                and find_published(self._warehouse, change.table)
            ):
                ways = f"write another table, or leave out '{PUBLISH.name}'"
                yield f'table "{change.table}": it is published with other columns; {ways}'

    def made(self, saved: JobRecord) -> JobRecord:
        """Return the record of the job with the new query."""
        spec = job_spec(
            self._planned,
            self._warehouse.root,
            saved.bucket_labels,
            name=self._planned.name,
            project=self._project,
            key_hash=key_hash_of(saved),
        )
        made = job_record(self._planned, spec, saved.partitions)
        return replace(made, created_at=saved.created_at, versions=saved.versions, lives=saved.lives)

    def check(self, comparison: Comparison) -> None:
        """Raise UsageError when the query cannot go on with the state of the job."""
        if comparison.refused:
            raise UsageError(
                f'job "{self._planned.name}" cannot go on with this query',
                head(self._planned.statement),
                detail="\n".join(f"{reason}." for reason in comparison.refused) + "\nNothing was changed.",
                hint=_WAYS_ON,
            )

    # -- doing it

    def run(self, saved: JobRecord) -> None:
        """Upgrade the job, which is at its newest version. Raises UsageError, and changes nothing then."""
        paths = self._warehouse.job(saved.job)
        comparison = self.compared(saved)
        self.check(comparison)
        check_only_writer(self._warehouse, self._planned, saved.job)
        check_open(saved.job, newest(self._warehouse, saved.job))
        before = _kept_before(self._warehouse, saved)
        taken = before or take_savepoint(self._warehouse, saved.job)
        made = self.made(saved)
        if not self.migrates(saved):
            made = replace(made, upgraded_from=taken.record.name)
        try:
            draft = self.rewritten(taken, saved, made, comparison, goes_on=True)
            tables_read = [scan.table for scan in self._planned.physical.scans]
            kept = f'savepoint "{taken.place}" keeps job "{saved.job}" as it was'
            self._notice(f"{kept}: {way_back(self._warehouse, saved, tables_read)}")
            sinks = tuple(i for i, sink in enumerate(comparison.sinks) if sink.was is not None)
            tables = {sink.table.lower(): sink.table for sink in made.sinks if sink.kind == TABLE}
            plan = Restoring(draft.place, made.to_json(), tables, sinks)
        except BaseException:
            if before is None:
                savepoints.drop(self._warehouse, taken.record.name)
            raise
        # Should this process die now, the job publishes them anew with the query that it has.
        unpublish(self._warehouse, saved, made)
        restoring.restore(self._warehouse, draft, plan, lambda which: None)
        draft.warehouse.fs.delete_tree(draft.warehouse.root)
        assert paths.name == self._planned.name.lower()
        is_same = recorded_identity(saved).is_same(recorded_identity(made))
        what = "migrated state" if is_same else "the changed query"
        self._notice(f'job "{made.job}" goes on with {what} from version {taken.record.version}')

    def rewritten(
        self,
        savepoint: Savepoint,
        saved: JobRecord,
        made: JobRecord,
        comparison: Comparison,
        *,
        goes_on: bool = False,
    ) -> Savepoint:
        """Return a savepoint for the new query, made of one of the job, in a folder that goes once it is restored.

        The job that `goes_on` from where it is repeats a batch that it had begun, and its sinks pass on what waits there.
        """
        restoring.check(savepoint)
        folder = restoring.draft_folder(self._warehouse, made.job)
        spec = job_spec(self._planned, self._warehouse.root, saved.bucket_labels, name=made.job, project=self._project)
        wanted = self._wanted(savepoint, saved, made, comparison)
        if goes_on:
            wanted = self._with_begun(wanted, savepoint.record.version, [source.was for source in comparison.sources])
        try:
            with connection(spec) as con:
                return rewrite(savepoint, folder, wanted, con, bucket_metrics)
        except duckdb.Error as error:
            folder.fs.delete_tree(folder.root)
            raise JobError(
                f'the state of job "{made.job}" could not be adapted', detail=str(error), hint=_WAYS_ON
            ) from error
        except BaseException:
            folder.fs.delete_tree(folder.root)
            raise

    def _wanted(self, savepoint: Savepoint, saved: JobRecord, made: JobRecord, comparison: Comparison) -> Rewritten:
        plan = self._planned.physical
        stages = {stage.name: stage for stage in plan.stages}
        operators = []
        for one in comparison.operators:
            if isinstance(one, Kept | Adapted):
                operator = stages[one.operator].operator
                tables = one.tables if isinstance(one, Adapted) else {}
                timers = _clock_timers(operator)
                hashed = in_version(operator.hashed, made.key_hash)
                operators.append(OperatorSource(one.operator, one.was, operator.tables, hashed, tables, timers))
        paths, sinks, outputs = savepoint.warehouse.job(savepoint.record.job), list[SinkSource](), dict[int, int]()
        for place, (change, sink) in enumerate(zip(comparison.sinks, plan.sinks, strict=True)):
            if change.was is None:
                continue
            # Also of a table of the warehouse: where it is published, it says which batches are the job's.
            outputs[place] = change.was
            if sink.kind == TABLE:
                sinks.append(_sink_source(sink, saved.sinks[change.was].table, change.columns))
        was = [source.was for source in comparison.sources]
        names = [scan.name for scan in saved.scans]
        entry = JobLog(savepoint.warehouse.fs, paths.log).entry(savepoint.record.version)
        assert entry is not None
        positions = carry_over(savepoint.warehouse.fs, paths.splits, entry.sequence, plan.scans, was, self._project)
        scans = {scan.name: None if old is None else names[old] for scan, old in zip(plan.scans, was, strict=True)}
        return Rewritten(
            made,
            tuple(operators),
            tuple(sinks),
            scans,
            outputs,
            positions,
            received(plan.scans, was, names),
            by_clock=any(scan.by_clock for scan in plan.scans),
        )

    def _with_begun(self, wanted: Rewritten, version: int, was: Sequence[int | None]) -> Rewritten:
        """Add what a job has begun after its newest version, and what sinks have not passed on: it is in no savepoint."""
        fs, paths = self._warehouse.fs, self._warehouse.job(wanted.record.job)
        entry = JobLog(fs, paths.log).entry(version)
        assert entry is not None
        waiting = {}
        for place, old in wanted.outputs.items():
            folder = f"{paths.output}/{old}/"
            for path in fs.walk(folder.removesuffix("/")):
                # Those in the folder itself are in the savepoint, as of its version.
                if "/" in (name := path.removeprefix(folder)):
                    waiting[f"{place}/{name}"] = path
        return with_field(
            wanted,
            positions={**wanted.positions, **carry_over_begun(fs, paths.splits, entry.sequence, was)},
            begun=read_begun(fs, paths, version + 1),
            waiting=waiting,
        )


def _clock_timers(operator: Operator) -> tuple[str, str] | None:
    """Return the table and the column of an operator's timers of processing time, if it has any."""
    has_timers = any(table.name == PROCESSING_TIMERS for table in operator.tables)
    return (PROCESSING_TIMERS, DUE.name) if has_timers else None


def _sink_source(sink: SinkPlan, was: str, columns: Mapping[str, str] | None) -> SinkSource:
    return SinkSource(sink.table.name, was, with_field(sink.declaration, name=ROWS), columns)


def _kept_before(warehouse: Warehouse, saved: JobRecord) -> Savepoint | None:
    """Return the savepoint of a job as it is that an upgrade has taken which was killed, if there is one."""
    version = last_committed(warehouse.fs, warehouse.job(saved.job))
    name = default_name(warehouse, saved.job, version)
    for place in warehouse.savepoints():
        if place != name and not place.startswith(f"{name}-"):
            continue
        # One that is damaged keeps nothing.
        with suppress(SqlStreamError, FileNotFoundError):
            found = find_savepoint(warehouse, place)
            restoring.check_present(found)
            is_same = read_record(found.warehouse.fs, found.warehouse.job(saved.job)) == saved
            if not is_same or found.record.version != version or not restoring.has_rows_of(warehouse, found):
                continue
            # Also one that was taken while the job ran, which went on to receive rows, or to write into sinks.
            if savepoints.is_as_now(warehouse, found):
                return found
    return None


def unpublish(warehouse: Warehouse, before: JobRecord, after: JobRecord) -> None:
    """Delete what is published of the tables that a job does not write any more: its rows in them go, too."""
    for sink in before.sinks:
        if sink.kind == TABLE and after.sink(sink.table) is None:
            discard_published(warehouse, sink.table)


def newest(warehouse: Warehouse, job: str) -> LogEntry | None:
    """Return the log's entry of the newest version of a job, None before the first."""
    paths = warehouse.job(job)
    version = last_committed(warehouse.fs, paths)
    return None if version is None else JobLog(warehouse.fs, paths.log).entry(version)


def check_open(job: str, entry: LogEntry | None) -> None:
    """Raise UsageError when a job has come to the end of its input: all its windows are closed, and nothing follows."""
    if entry is not None and any(source.last for source in entry.sources.values()):
        raise UsageError(
            f'job "{job}" is at the end of its input, and does not go on',
            hint="Start it anew with --fresh. A job whose sources have no end goes on with a changed query.",
        )


def upgradable(warehouse: Warehouse, planned: PlannedJob, upgrade: Upgrade) -> JobRecord | None:
    """Return the record of the job that a changed query or migrations would upgrade, None where there is nothing to upgrade."""
    record = read_record(warehouse.fs, warehouse.job(planned.name))
    if record is None or not upgrade.changes(record, planned):
        return None
    return record if last_committed(warehouse.fs, warehouse.job(planned.name)) is not None else None
