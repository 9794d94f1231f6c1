"""Upgrades: jobs continue with changed queries.

An upgrade restores a savepoint of the job that was rewritten for the new query. So a process that is killed leaves the old job or
the new one.
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
from sqlstream.duck.errors import of_duckdb
from sqlstream.duck.key_hash import in_version
from sqlstream.errors import JobError, SqlStreamError, UsageError
from sqlstream.jobs.identity import is_planned
from sqlstream.jobs.launch import check_only_writer, job_record, job_spec, key_hash_of
from sqlstream.jobs.read_positions import carry_over, carry_over_begun, received
from sqlstream.jobs.savepoints import restored_files, savepoint_folders
from sqlstream.jobs.savepoints.named_savepoints import default_name, take_savepoint
from sqlstream.jobs.savepoints.restored_files import Restoring
from sqlstream.jobs.savepoints.rollbacks import may_have_begun, rollback, way_back
from sqlstream.jobs.upgrades.adaptations.registry import Adapter
from sqlstream.jobs.upgrades.changes import AdaptedOperator, Comparison, KeptOperator
from sqlstream.jobs.upgrades.comparing import compare
from sqlstream.jobs.upgrades.migrations import Migrations
from sqlstream.jobs.upgrades.rewriting import OperatorSource, RewritePlan, SinkSource, rewrite
from sqlstream.jobs.upgrades.widening import unfit
from sqlstream.logical.plan.state_settings import Semantics, Ties
from sqlstream.operators.operator import Operator
from sqlstream.operators.process.tables import DUE, PROCESSING_TIMERS
from sqlstream.physical.plan import CLOCK, SinkPlan
from sqlstream.runtime.tasks import ROWS, bucket_metrics
from sqlstream.runtime.worker import connection
from sqlstream.sql.nodes import head
from sqlstream.storage.begun import read_begun
from sqlstream.storage.joblog import JobLog, LogEntry
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.jobs import TABLE, JobRecord, read_record
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.savepoint_records import Savepoint, find_savepoint

_WAYS_ON = (
    "Say what becomes of the state with MIGRATE STATE in a file for --migrate, or start the job anew with --fresh."
)


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The permission to continue with changed queries. `migrations` compute state of operators, also for unchanged queries."""

    migrations: Migrations | None = None

    def migrates(self, job: str) -> bool:
        """Tell whether migrations compute state of a job."""
        return self.migrations is not None and self.migrations.concern(job)

    def may_change(self, record: JobRecord, planned: PlannedJob) -> bool:
        """Return whether the planned job may be an upgrade of the recorded one.

        It may be if its query differs, if migrations compute its state, or if the recorded job follows an older rule for ties or
        older semantics of expressions: an upgrade gives it the newer ones, where its state allows that.
        """
        if planned.is_query or planned.appends:
            return False
        return not is_planned(record, planned) or self.migrates(record.job) or keeps_rules(record, planned)


def keeps_columns(record: JobRecord, planned: PlannedJob) -> bool:
    """Return whether the recorded job decides ties by columns, and its plan would differ if the order of arrival did."""
    return record.ties != planned.ties and planned.depends_on_ties


def keeps_values(record: JobRecord, planned: PlannedJob) -> bool:
    """Return whether the recorded job has DuckDB's semantics, and its plan would differ under Flink's."""
    return record.semantics != planned.semantics and planned.has_semantics


def keeps_rules(record: JobRecord, planned: PlannedJob) -> bool:
    """Return whether the recorded job follows an older rule for ties, or older semantics, that makes its plan differ."""
    return keeps_columns(record, planned) or keeps_values(record, planned)


class Upgrader:
    """Upgrades one job to a planned query, under the plan's name. The caller of `run` holds the lock of the job."""

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

    # -- the comparison

    def migrates(self, saved: JobRecord) -> bool:
        """Tell whether migrations compute state of a recorded job, or of the planned job, which may be a fork of it."""
        return self._upgrade.migrates(saved.job) or self._upgrade.migrates(self._planned.name)

    def may_change(self, saved: JobRecord) -> bool:
        """Return whether an upgrade may change a recorded job although its query is the same: see `changes`."""
        return self.migrates(saved) or keeps_rules(saved, self._planned)

    def changes(self, saved: JobRecord, comparison: Comparison) -> bool:
        """Return whether an upgrade changes anything of a recorded job: query, state, rule for ties, semantics of expressions."""
        is_same = is_planned(saved, self._planned) and comparison.ties == comparison.ties_before
        is_same = is_same and comparison.semantics == comparison.semantics_before
        return not is_same or self.migrates(saved)

    def compared(self, saved: JobRecord, *, is_fork: bool = False, state: Warehouse | None = None) -> Comparison:
        """Return the changes of a recorded job under the planned query. Raises the errors of migrations.

        `state` is the savepoint that the state comes from; without it, the job's newest version. The new plan follows the newest
        rule for ties and Flink's semantics. It keeps the job's older rule, or semantics, if the state could not continue
        otherwise: then `keeps_ties` or `keeps_semantics` are the reasons.
        """
        in_flinks = self._by_ties(saved, self._planned, is_fork=is_fork, state=state)
        if not keeps_values(saved, self._planned):
            return in_flinks
        planned = self._planned.under(self._planned.ties, saved.semantics)
        before = self._by_ties(saved, planned, is_fork=is_fork, state=state)
        in_flinks, before = (with_field(one, semantics_before=saved.semantics) for one in (in_flinks, before))
        reasons = _reasons_against(in_flinks, before)
        return with_field(before, keeps_semantics=reasons) if reasons else in_flinks

    def _by_ties(self, saved: JobRecord, planned: PlannedJob, *, is_fork: bool, state: Warehouse | None) -> Comparison:
        """Return the changes of a recorded job if the order of arrival decides ties; if its state forbids that, by columns."""
        by_arrival = self._compared(saved, planned, is_fork=is_fork, state=state)
        if not keeps_columns(saved, planned):
            return by_arrival
        before = self._compared(saved, planned.decided_by(saved.ties), is_fork=is_fork, state=state)
        by_arrival, before = (with_field(one, ties_before=saved.ties) for one in (by_arrival, before))
        reasons = _reasons_against(by_arrival, before)
        return with_field(before, keeps_ties=reasons) if reasons else by_arrival

    def _compared(self, saved: JobRecord, planned: PlannedJob, *, is_fork: bool, state: Warehouse | None) -> Comparison:
        record = self._new_record(saved, planned.ties, planned.semantics)
        migrations: Mapping[str, Adapter] = {}
        if self._upgrade.migrations is not None:
            migrations = self._upgrade.migrations.adaptations(state or self._warehouse, saved, record)
        comparison = compare(saved, record, planned.physical.stages, migrations, is_fork=is_fork)
        refusals = [*comparison.refusals, *self._published(comparison)]
        if state is None and not is_fork:
            refusals += self._half_written(saved, comparison)
        return with_field(comparison, refusals=tuple(refusals), ties=planned.ties, semantics=planned.semantics)

    def _half_written(self, saved: JobRecord, comparison: Comparison) -> Iterator[str]:
        """Yield a refusal for each table that may have rows of a batch that has begun: the new query could not retract them."""
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
        """Yield a refusal for each table that has been published with other columns."""
        for change, sink in zip(comparison.sinks, self._planned.physical.sinks, strict=True):
            if (
                change.columns is not None
                and is_published(sink.table)
                and find_published(self._warehouse, change.table)
            ):
                ways = f"write another table, or leave out '{PUBLISH.name}'"
                yield f'table "{change.table}": it is published with other columns; {ways}'

    def _new_record(self, saved: JobRecord, ties: Ties, semantics: Semantics) -> JobRecord:
        """Return the record of the job with the new query, under this rule for ties and these semantics of expressions."""
        planned = self._planned.under(ties, semantics)
        spec = job_spec(
            planned,
            self._warehouse.root,
            saved.bucket_labels,
            name=planned.name,
            project=self._project,
            key_hash=key_hash_of(saved),
        )
        record = job_record(planned, spec, saved.partitions)
        return replace(record, created_at=saved.created_at, versions=saved.versions, lives=saved.lives)

    def check(self, comparison: Comparison) -> None:
        """Raise UsageError if the job cannot continue with the query."""
        if comparison.refused:
            raise UsageError(
                f'job "{self._planned.name}" cannot go on with this query',
                head(self._planned.statement),
                detail="\n".join(f"{reason}." for reason in comparison.refused) + "\nNothing was changed.",
                hint=_WAYS_ON,
            )

    # -- the upgrade

    def run(self, saved: JobRecord) -> None:
        """Upgrade the job from its newest version. Raises UsageError, before it changes anything."""
        paths = self._warehouse.job(saved.job)
        comparison = self.compared(saved)
        self.check(comparison)
        for reason in comparison.keeps_ties:
            self._notice(f'job "{saved.job}": columns go on to decide ties, not the order of arrival: {reason}')
        for reason in comparison.keeps_semantics:
            self._notice(f"job \"{saved.job}\": expressions go on to have DuckDB's values, not Flink's: {reason}")
        if not self.changes(saved, comparison):
            return
        check_only_writer(self._warehouse, self._planned, saved.job)
        check_open(saved.job, newest(self._warehouse, saved.job))
        before = _earlier_savepoint(self._warehouse, saved)
        savepoint = before or take_savepoint(self._warehouse, saved.job)
        record = self._new_record(saved, comparison.ties, comparison.semantics)
        if not self.migrates(saved):
            record = replace(record, upgraded_from=savepoint.record.name)
        try:
            draft = self.rewritten(savepoint, saved, record, comparison, goes_on=True)
            tables_read = [scan.table for scan in self._planned.physical.scans]
            sentence = f'savepoint "{savepoint.location}" keeps job "{saved.job}" as it was'
            self._notice(f"{sentence}: {way_back(self._warehouse, saved, tables_read)}")
            sinks = tuple(i for i, sink in enumerate(comparison.sinks) if sink.was is not None)
            tables = {sink.table.lower(): sink.table for sink in record.sinks if sink.kind == TABLE}
            plan = Restoring(draft.location, record.to_json(), tables, sinks)
        except BaseException:
            if before is None:
                savepoint_folders.drop(self._warehouse, savepoint.record.name)
            raise
        # Should this process die now, the job publishes them anew with the query that it has.
        unpublish(self._warehouse, saved, record)
        restored_files.restore(self._warehouse, draft, plan, lambda which: None)
        draft.warehouse.fs.delete_tree(draft.warehouse.root)
        assert paths.name == self._planned.name.lower()
        values = "Flink's values of expressions" if comparison.semantics != comparison.semantics_before else ""
        what = "migrated state" if self.migrates(saved) else values or "ties by arrival"
        what = what if is_planned(saved, self._planned) else "the changed query"
        self._notice(f'job "{record.job}" goes on with {what} from version {savepoint.record.version}')

    def rewritten(
        self,
        savepoint: Savepoint,
        saved: JobRecord,
        record: JobRecord,
        comparison: Comparison,
        *,
        goes_on: bool = False,
    ) -> Savepoint:
        """Rewrite a savepoint of the job for the new query, in a folder that the caller deletes once it is restored; return it.

        With `goes_on` the job continues from its newest version: it repeats a batch that has begun, and its sinks pass on the
        rows that wait there. Raises DamageError, UsageError for a value that its new type does not hold, and JobError if the
        state cannot be computed for another reason.
        """
        restored_files.check(savepoint)
        folder = restored_files.draft_folder(self._warehouse, record.job)
        planned = self._planned.under(record.ties, record.semantics)
        spec = job_spec(planned, self._warehouse.root, saved.bucket_labels, name=record.job, project=self._project)
        target = self._target(savepoint, saved, record, comparison)
        if goes_on:
            target = self._with_begun(target, savepoint.record.version, [source.was for source in comparison.sources])
        try:
            with connection(spec) as con:
                return rewrite(savepoint, folder, target, con, bucket_metrics)
        except (duckdb.Error, OSError) as error:
            folder.fs.delete_tree(folder.root)
            failure = of_duckdb(error)
            if failure is None:
                raise
            raise self._not_rewritten(record.job, failure) from error
        except BaseException:
            folder.fs.delete_tree(folder.root)
            raise

    def _not_rewritten(self, job: str, failure: duckdb.Error) -> SqlStreamError:
        """Return the error for a failure of SQL that computes state or rows: a value that its new type does not hold, or else."""
        fault = unfit(failure)
        if fault is None:
            return JobError(f'the state of job "{job}" could not be adapted', detail=str(failure), hint=_WAYS_ON)
        return UsageError(
            f'job "{job}" cannot go on with this query',
            head(self._planned.statement),
            detail=f"{fault[:1].upper()}{fault[1:]}.\nNothing was changed.",
            hint=f"Leave the type of the column as it is. {_WAYS_ON}",
        )

    def _target(self, savepoint: Savepoint, saved: JobRecord, record: JobRecord, comparison: Comparison) -> RewritePlan:
        plan = self._planned.under(record.ties, record.semantics).physical
        stages = {stage.name: stage for stage in plan.stages}
        operators = []
        for one in comparison.operators:
            if isinstance(one, KeptOperator | AdaptedOperator):
                operator = stages[one.operator].operator
                tables = one.tables if isinstance(one, AdaptedOperator) else {}
                timers = _processing_timers(operator)
                hashed = in_version(operator.hashed, record.key_hash)
                operators.append(OperatorSource(one.operator, one.was, operator.tables, hashed, tables, timers))
        paths, sinks, outputs = savepoint.warehouse.job(savepoint.record.job), list[SinkSource](), dict[int, int]()
        for index, (change, sink) in enumerate(zip(comparison.sinks, plan.sinks, strict=True)):
            if change.was is None:
                continue
            # Also of a table of the warehouse: where it is published, it says which batches are the job's.
            outputs[index] = change.was
            if sink.kind == TABLE:
                sinks.append(_sink_source(sink, saved.sinks[change.was].table, change.columns))
        was = [source.was for source in comparison.sources]
        names = [scan.name for scan in saved.scans]
        entry = JobLog(savepoint.warehouse.fs, paths.log).entry(savepoint.record.version)
        assert entry is not None
        positions = carry_over(savepoint.warehouse.fs, paths.splits, entry.sequence, plan.scans, was, self._project)
        scans = {scan.name: None if old is None else names[old] for scan, old in zip(plan.scans, was, strict=True)}
        return RewritePlan(
            record,
            tuple(operators),
            tuple(sinks),
            scans,
            outputs,
            positions,
            received(plan.scans, was, names),
            by_clock=any(scan.by_clock for scan in plan.scans),
            operators_by_clock=frozenset(stage.name for stage in plan.stages if stage.timed_by == (CLOCK,)),
        )

    def _with_begun(self, target: RewritePlan, version: int, was: Sequence[int | None]) -> RewritePlan:
        """Add what no savepoint has: a batch that has begun after the newest version, and rows that sinks have not sent yet."""
        fs, paths = self._warehouse.fs, self._warehouse.job(target.record.job)
        entry = JobLog(fs, paths.log).entry(version)
        assert entry is not None
        waiting = {}
        for index, old in target.outputs.items():
            folder = f"{paths.output}/{old}/"
            for path in fs.walk(folder.removesuffix("/")):
                # The files in the folder itself are in the savepoint, as of its version.
                if "/" in (name := path.removeprefix(folder)):
                    waiting[f"{index}/{name}"] = path
        return with_field(
            target,
            positions={**target.positions, **carry_over_begun(fs, paths.splits, entry.sequence, was)},
            begun=read_begun(fs, paths, version + 1),
            waiting=waiting,
        )


def _processing_timers(operator: Operator) -> tuple[str, str] | None:
    """Return the table and the column of an operator's timers of processing time, if it has any."""
    has_timers = any(table.name == PROCESSING_TIMERS for table in operator.tables)
    return (PROCESSING_TIMERS, DUE.name) if has_timers else None


def _sink_source(sink: SinkPlan, was: str, columns: Mapping[str, str] | None) -> SinkSource:
    return SinkSource(sink.table.name, was, with_field(sink.declaration, name=ROWS), columns)


def _reasons_against(new: Comparison, before: Comparison) -> tuple[str, ...]:
    """Return why a job must keep an older rule; empty if the new rule is not refused, and the same operators keep their state.

    `new` and `before` are the comparisons under the new and the old rule.
    """
    if not new.refused and new.begins_anew == before.begins_anew:
        return ()
    reasons = [reason for reason in new.refused if reason not in before.refused]
    return tuple(reasons or ["operators would not go on with the state that they have"])


def _earlier_savepoint(warehouse: Warehouse, saved: JobRecord) -> Savepoint | None:
    """Return a savepoint of the job as it is now, such as an interrupted upgrade has existing, if there is one."""
    version = last_committed(warehouse.fs, warehouse.job(saved.job))
    name = default_name(warehouse, saved.job, version)
    for existing in warehouse.savepoints():
        if existing != name and not existing.startswith(f"{name}-"):
            continue
        # A damaged savepoint cannot be used.
        with suppress(SqlStreamError, FileNotFoundError):
            savepoint = find_savepoint(warehouse, existing)
            restored_files.check_present(savepoint)
            is_same = read_record(savepoint.warehouse.fs, savepoint.warehouse.job(saved.job)) == saved
            if (
                not is_same
                or savepoint.record.version != version
                or not restored_files.has_rows_of(warehouse, savepoint)
            ):
                continue
            # Also one that was taken while the job ran, which went on to receive rows, or to write into sinks.
            if savepoint_folders.is_as_now(warehouse, savepoint):
                return savepoint
    return None


def unpublish(warehouse: Warehouse, before: JobRecord, after: JobRecord) -> None:
    """Delete the published form of tables that a job does not write any more; its rows in them are deleted with the upgrade."""
    for sink in before.sinks:
        if sink.kind == TABLE and after.sink(sink.table) is None:
            discard_published(warehouse, sink.table)


def newest(warehouse: Warehouse, job: str) -> LogEntry | None:
    """Return the log entry of the newest version of a job, None before the first version."""
    paths = warehouse.job(job)
    version = last_committed(warehouse.fs, paths)
    return None if version is None else JobLog(warehouse.fs, paths.log).entry(version)


def check_open(job: str, entry: LogEntry | None) -> None:
    """Raise UsageError if a job has reached the end of its input: all its windows are closed, so it cannot continue."""
    if entry is not None and any(source.last for source in entry.sources.values()):
        raise UsageError(
            f'job "{job}" is at the end of its input, and does not go on',
            hint="Start it anew with --fresh. A job whose sources have no end goes on with a changed query.",
        )


def upgradable(warehouse: Warehouse, planned: PlannedJob, upgrade: Upgrade) -> JobRecord | None:
    """Return the record of the job that an upgrade may change, None if there is nothing to upgrade."""
    record = read_record(warehouse.fs, warehouse.job(planned.name))
    if record is None or not upgrade.may_change(record, planned):
        return None
    return record if last_committed(warehouse.fs, warehouse.job(planned.name)) is not None else None
