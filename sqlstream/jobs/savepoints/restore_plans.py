"""Restores from savepoints: of a job itself, or of a fork, which is another job that begins with its state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as data_replace

from msgspec.structs import replace

from sqlstream.catalog import Table
from sqlstream.compiler.compiler import Compiled
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.connectors.guarantees import Rollback
from sqlstream.connectors.registry import source_of
from sqlstream.errors import UsageError, missing
from sqlstream.jobs.difference import difference
from sqlstream.jobs.identity import as_recorded, planned_identity, recorded_identity
from sqlstream.jobs.launch import check_only_writer
from sqlstream.jobs.savepoints import restored_files
from sqlstream.jobs.savepoints.restored_files import Restoring, StartOver
from sqlstream.jobs.savepoints.rollbacks import ahead, had_gone_on, has_gone_on, rollback
from sqlstream.jobs.upgrades.changes import Comparison
from sqlstream.jobs.upgrades.compared_tables import has_malformed_rows
from sqlstream.jobs.upgrades.upgrading import Upgrader, unpublish
from sqlstream.names import problem
from sqlstream.sql.nodes import head
from sqlstream.storage.joblog import JobLog
from sqlstream.units import ProcessingTime
from sqlstream.warehouse.commits import last_committed
from sqlstream.warehouse.jobs import TABLE, JobRecord, SinkRecord, read_record
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.savepoint_records import Savepoint, find_savepoint


@dataclass(frozen=True, slots=True)
class Restore:
    """The savepoint from which a job begins, by name or folder. With `is_fork` the job is a new one, not the savepoint's job.

    `overruled` has, by table in lower case, the options that say where to begin reading the table, in place of the position in
    the savepoint. A scan to which a hint gives other values of these options continues at its position nevertheless.
    """

    savepoint: str
    is_fork: bool = False
    overruled: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def overrules(self, table: Table) -> bool:
        """Return whether the options in `overruled` say where to begin reading a table; `table` has the options of one scan."""
        options = self.overruled.get(table.name.lower(), {})
        # An empty value has removed the option.
        return bool(options) and all(table.options.get(name, "") == value for name, value in options.items())


def plan_restore(
    compiled: Sequence[Compiled],
    warehouse: Warehouse,
    savepoint: str | None,
    name: str | None = None,
    overruled: Mapping[str, Mapping[str, str]] | None = None,
) -> tuple[list[Compiled], Mapping[str, Restore]]:
    """Return the statements of a script, and a Restore by the name of the job that begins from the savepoint, if there is one.

    Without `name` it is the job of the savepoint. With `name`, the script must have one job: it is renamed, and becomes a fork.
    For the tables `overruled` (see `Restore`) the caller has set options that say where to start. Raises UsageError when the
    script has no such job.
    """
    if savepoint is None:
        if name is not None:
            raise UsageError("--as names a job that begins from a savepoint", hint="Say from which one, with --from.")
        return list(compiled), {}
    jobs = [one for one in compiled if isinstance(one, PlannedJob) and not (one.appends or one.is_query)]
    if name is None:
        record = find_savepoint(warehouse, savepoint).record
        job_name = next((job.name for job in jobs if job.name.lower() == record.job.lower()), None)
        if job_name is None and len(jobs) != 1:
            names = [job.name for job in jobs]
            hint = missing("job", record.job, names) if names else None
            raise UsageError(f'the SQL has no job "{record.job}", of which savepoint "{savepoint}" is', hint=hint)
        return list(compiled), {job_name or jobs[0].name: Restore(savepoint, overruled=overruled or {})}
    if (wrong := problem(name)) is not None:
        raise UsageError(f"the name of a job {wrong}")
    if len(jobs) != 1:
        hint = "Leave one INSERT, or put all into a statement set."
        raise UsageError(f"a fork is one job, and the SQL has {len(jobs)}", hint=hint)
    forked = [data_replace(one, name=name) if one is jobs[0] else one for one in compiled]
    return forked, {name: Restore(savepoint, is_fork=True, overruled=overruled or {})}


class Restorer:
    """Restores a planned job, under its planned name. The caller holds the lock of the job.

    `make_record` makes the job's record from the record in the savepoint, `start_over` makes scans start where their options
    say, `notice` receives messages for people. With an `upgrader` the query may have changed.
    """

    def __init__(
        self,
        warehouse: Warehouse,
        planned: PlannedJob,
        make_record: Callable[[PlannedJob, JobRecord], JobRecord],
        start_over: StartOver,
        notice: Callable[[str], None],
        upgrader: Upgrader | None = None,
    ):
        self._warehouse, self._planned, self._make_record, self._notice = warehouse, planned, make_record, notice
        self._start_over, self._upgrader = start_over, upgrader

    def run(self, restore: Restore) -> None:
        """Restore the job; a job that is still at the savepoint's version stays as it is.

        Raises UsageError or DamageError, before it changes anything, when the job cannot continue from the savepoint.
        """
        savepoint = find_savepoint(self._warehouse, restore.savepoint)
        saved = _saved(savepoint)
        scans = [scan.table for scan in self._planned.physical.scans]
        overruled = [i for i, table in enumerate(scans) if restore.overrules(table)]
        comparison = self._check_plan(savepoint, saved, is_fork=restore.is_fork, overruled=bool(overruled))
        rules = saved if comparison is None else comparison
        record = self._make_record(self._planned.under(rules.ties, rules.semantics), saved)
        if restore.is_fork:
            self._check_fork(saved, record, is_changed=comparison is not None)
        elif comparison is None and self._is_there(savepoint, saved) and not overruled:
            # The job has committed nothing since, so it need not go back.
            return
        else:
            record = self._check_itself(savepoint, saved, record)
        if restore.is_fork or comparison is not None:
            check_only_writer(self._warehouse, self._planned, self._planned.name)
        restored_files.check(savepoint)
        if comparison is not None:
            self._restore_changed(savepoint, saved, record, comparison, restore, overruled)
            return
        pairs = zip(_results(saved.sinks), _results(record.sinks), strict=True)
        tables = {old.table.lower(): new.table for old, new in pairs if old.kind == new.kind == TABLE}
        if not restore.is_fork:
            # A fork stores malformed rows of its own; earlier ones belong to the first job.
            tables |= {one.table.lower(): one.table for one in saved.sinks if has_malformed_rows(one)}
        inside = savepoint.warehouse.root.startswith(f"{self._warehouse.root}/")
        location = savepoint.record.name if inside else savepoint.warehouse.root
        sink_indexes = () if restore.is_fork else self._going_on(savepoint, saved.sinks)
        plan = Restoring(location, record.to_json(), tables, sink_indexes, tuple(overruled))
        self._unpublish(record, is_fork=restore.is_fork)
        restored_files.restore(self._warehouse, savepoint, plan, self._start_over)
        self._tell(savepoint, record, sink_indexes, is_fork=restore.is_fork)
        self._tell_overruled(overruled)

    def _restore_changed(
        self,
        savepoint: Savepoint,
        saved: JobRecord,
        record: JobRecord,
        comparison: Comparison,
        restore: Restore,
        overruled: Sequence[int],
    ) -> None:
        """Restore the job from a copy of the savepoint, rewritten for the changed query."""
        assert self._upgrader is not None
        draft = self._upgrader.rewritten(savepoint, saved, record, comparison)
        going_on = () if restore.is_fork else self._going_on(savepoint, record.sinks)
        sink_indexes = tuple(i for i in going_on if comparison.sinks[i].was is not None)
        tables = {sink.table.lower(): sink.table for sink in record.sinks if sink.kind == TABLE}
        plan = Restoring(draft.location, record.to_json(), tables, sink_indexes, tuple(overruled))
        self._unpublish(record, is_fork=restore.is_fork)
        restored_files.restore(self._warehouse, draft, plan, self._start_over)
        draft.warehouse.fs.delete_tree(draft.warehouse.root)
        self._tell(savepoint, record, sink_indexes, is_fork=restore.is_fork)
        self._tell_overruled(overruled)

    def _unpublish(self, record: JobRecord, *, is_fork: bool) -> None:
        """Delete the published form of tables that the job has written and will not write any more."""
        current = read_record(self._warehouse.fs, self._warehouse.job(record.job))
        if current is not None and not is_fork:
            unpublish(self._warehouse, current, record)

    def _going_on(self, savepoint: Savepoint, sinks: Sequence[SinkRecord]) -> tuple[int, ...]:
        """Return the indexes of the sinks that continue. The other sinks see a new job.

        All continue if the job has written nothing since the savepoint. Otherwise numbers of batches repeat: only a sink that
        removes the rows of batches after the savepoint continues. Another one would take a repeated batch for one that it has.
        """
        gone_on = has_gone_on(self._warehouse, savepoint)
        return tuple(i for i, sink in enumerate(sinks) if rollback(sink.kind) is Rollback.ROWS_REMOVED or not gone_on)

    def _tell_overruled(self, overruled: Sequence[int]) -> None:
        for table in dict.fromkeys(self._planned.physical.scans[i].table.name for i in overruled):
            self._notice(
                f'warning: table "{table}" is read from where its options say, not'
                " from where the savepoint is: rows may be missing, or count twice"
            )

    def _check_plan(
        self, savepoint: Savepoint, saved: JobRecord, *, is_fork: bool, overruled: bool
    ) -> Comparison | None:
        """Return the changes of the query, None if it has not changed. Raises UsageError when it must not have changed."""
        planned = self._planned
        if not is_fork and planned.name.lower() != saved.job.lower():
            raise UsageError(
                f'savepoint "{savepoint.location}" is of job "{saved.job}", not of "{planned.name}"',
                head(planned.statement),
                hint="To run another job from it, beside that one, name it with --as.",
            )
        before, after = recorded_identity(saved), planned_identity(as_recorded(planned, saved))
        if is_fork:
            before, after = before.without_sinks, after.without_sinks
        if overruled:
            before, after = before.without_starts, after.without_starts
        is_same = before.is_same(after)
        if self._upgrader is not None and (not is_same or self._upgrader.may_change(saved)):
            comparison = self._upgrader.compared(saved, is_fork=is_fork, state=savepoint.warehouse)
            self._upgrader.check(comparison)
            if not is_same or self._upgrader.changes(saved, comparison):
                return comparison
        if not is_same:
            raise UsageError(
                f'savepoint "{savepoint.location}" is of a job with another query',
                head(planned.statement),
                detail=difference(before.text, after.text),
                hint="A job goes on from a savepoint with the query that it had, and a fork writes other tables. With "
                "--upgrade a changed query goes on with what it can use.",
            )
        return None

    def _check_fork(self, saved: JobRecord, record: JobRecord, *, is_changed: bool) -> None:
        """Raise UsageError when a job has the fork's name, or the fork would use a slot or write a table of the first job."""
        planned = self._planned
        self._check_slots()
        if planned.name.lower() == saved.job.lower():
            hint = "Give the fork another name with --as; without --as that job itself is taken back."
            raise UsageError(f'job "{planned.name}" is the job of the savepoint', hint=hint)
        paths = self._warehouse.job(planned.name)
        # A job whose restore was interrupted is restored again.
        if read_record(self._warehouse.fs, paths) is not None and not self._warehouse.fs.exists(paths.restoring):
            hint = f'Give the fork another name with --as, or drop that job first: sqlstream drop "{planned.name}".'
            raise UsageError(f'job "{planned.name}" exists already', hint=hint)
        for new in _results(record.sinks):
            if any(_is_same_location(one, new) for one in saved.sinks):
                where = "" if new.kind == TABLE else ", and change its options to another place"
                raise UsageError(
                    f'a fork of job "{saved.job}" cannot write where that job does: table "{new.table}"',
                    head(planned.statement),
                    hint=f"Rename the table in its CREATE TABLE and in INSERT INTO{where}.",
                )
        for old, new in () if is_changed else zip(_results(saved.sinks), _results(record.sinks), strict=True):
            if old.kind == new.kind == TABLE and _shape(old) != _shape(new):
                raise UsageError(
                    f'table "{new.table}" is not declared like "{old.table}", with whose rows the fork begins',
                    head(planned.statement),
                    hint="Declare it with the same columns and the same PRIMARY KEY.",
                )

    def _is_there(self, savepoint: Savepoint, saved: JobRecord) -> bool:
        """Return whether the job still has the version, query and files of the savepoint, and no restore is half done."""
        fs, paths = self._warehouse.fs, self._warehouse.job(savepoint.record.job)
        if fs.exists(paths.restoring):
            return False
        record = read_record(fs, paths)
        savepoint_record = savepoint.record
        if record is None or not record.has_written(savepoint_record.job_created_at, savepoint_record.version):
            return False
        if last_committed(fs, paths) != savepoint_record.version or not recorded_identity(record).is_same(
            recorded_identity(saved)
        ):
            return False
        return restored_files.has_rows_of(self._warehouse, savepoint)

    def _check_itself(self, savepoint: Savepoint, saved: JobRecord, record: JobRecord) -> JobRecord:
        """Return the record of a job that goes back. Raises UsageError where a sink or a source cannot."""
        half = restored_files.interrupted(self._warehouse, saved.job)
        paths = self._warehouse.job(saved.job)
        current = half.record if half is not None else read_record(self._warehouse.fs, paths)
        # From a new time of creation, readers of the job's tables learn that rows which they have read may be gone.
        record = replace(record, lives=_lives(saved, current, savepoint.record.version))
        gone_on = has_gone_on(self._warehouse, savepoint) if half is None else had_gone_on(half, savepoint)
        if current is None or (half is not None and not gone_on):
            return record
        self._check_rewinds(saved.job)
        declared = [s.table for s in self._planned.physical.sinks if s.table.connector is None]
        tables = ahead(self._warehouse, saved, declared)
        if tables and gone_on:
            raise UsageError(
                f'job "{saved.job}" cannot go back to savepoint "{savepoint.location}"',
                detail="What it wrote since would stay, and come again, in tables outside of the warehouse: "
                f"{', '.join(tables)}.",
                hint="Restore it beside the job, with --as and other tables. Or drop the job, take back by hand what it"
                f" wrote after version {savepoint.record.version}, and restore it then.",
            )
        return record

    def _check_slots(self) -> None:
        """Raise UsageError when a source of the fork would use a slot that the first job has on a server."""
        for scan in self._planned.physical.scans:
            if (slot := source_of(scan.table).slot) is not None:
                raise self._refusal("a fork cannot read", scan.table, f"Its {slot} is that of the first job.")

    def _check_rewinds(self, job: str) -> None:
        """Raise UsageError when a source cannot read again what the job has read."""
        for scan in self._planned.physical.scans:
            if not source_of(scan.table).rewinds:
                why = "What the job has read since the savepoint cannot be read again."
                raise self._refusal(f'job "{job}" cannot go back in', scan.table, why)

    def _refusal(self, what: str, table: Table, why: str) -> UsageError:
        message = f'{what} table "{table.name}" ({table.connector})'
        return UsageError(message, head(self._planned.statement), detail=why)

    def _tell(self, savepoint: Savepoint, record: JobRecord, sink_indexes: Collection[int], *, is_fork: bool) -> None:
        version = savepoint.record.version
        self._notice(f'job "{record.job}" goes on from savepoint "{savepoint.location}", version {version}')
        outside = [s for i, s in enumerate(record.sinks) if _is_outside(s) and i not in sink_indexes]
        if outside and is_fork:
            self._notice(f"tables outside of the warehouse begin without what was before: {_named(outside)}")
        elif outside:
            self._notice(
                "what the job wrote after the savepoint into these tables outside of the warehouse comes again:"
                f" {_named(outside)}"
            )


def _lives(saved: JobRecord, current: JobRecord | None, version: int) -> tuple[tuple[ProcessingTime, int], ...]:
    """Return the earlier lives of a job that goes back to a version: the creation time and the last remaining version of each."""
    lives = {saved.created_at: version}
    for created_at, last in saved.lives:
        lives[created_at] = min(last, version)
    if current is not None and current.created_at not in lives:
        # The versions that it shares with the life of the savepoint.
        common = min(dict(current.lives).get(saved.created_at, -1), version)
        for created_at, last in ((current.created_at, common), *current.lives):
            lives[created_at] = max(lives.get(created_at, -1), min(last, common))
    return tuple((created_at, last) for created_at, last in lives.items() if last >= 0)


def _named(sinks: list[SinkRecord]) -> str:
    return ", ".join(f'"{sink.table}" ({sink.kind})' for sink in sinks)


def _saved(savepoint: Savepoint) -> JobRecord:
    """Return the record of the job in a savepoint. Raises UsageError when no job can continue from it, and DamageError."""
    fs, paths = savepoint.warehouse.fs, savepoint.warehouse.job(savepoint.record.job)
    restored_files.check_present(savepoint)
    record, entry = read_record(fs, paths), JobLog(fs, paths.log).entry(savepoint.record.version)
    assert record is not None
    assert entry is not None
    if any(source.last for source in entry.sources.values()):
        raise UsageError(
            f'savepoint "{savepoint.location}" was taken at the end of the input of job "{record.job}"',
            detail="All windows were closed, so no job can go on from it.",
            hint=f"Its state can be queried, as savepoint.{savepoint.record.name}.<operator>.",
        )
    return record


def _results(sinks: Sequence[SinkRecord]) -> list[SinkRecord]:
    """Return the sinks of the query, without the tables of malformed rows."""
    return [sink for sink in sinks if not has_malformed_rows(sink)]


def _is_outside(sink: SinkRecord) -> bool:
    """Return whether a sink stores rows outside of the warehouse."""
    return sink.kind != TABLE and rollback(sink.kind) is not Rollback.NO_ROWS


def _is_same_location(old: SinkRecord, new: SinkRecord) -> bool:
    if rollback(old.kind) is Rollback.NO_ROWS or old.kind != new.kind:
        return False
    return old.table.lower() == new.table.lower() or (bool(old.location) and old.location == new.location)


def _shape(sink: SinkRecord) -> object:
    return sink.columns, sink.changing, sink.key, sink.upserts, sink.order
