"""Upgrades of jobs in a session: files with MIGRATE STATE statements, and what upgrades would do, as text.

The SELECTs of such a file can read what state queries read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import duckdb

from sqlstream.compiler.compiler import Compiled, Compiler
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import SourceText, UsageError, missing
from sqlstream.jobs.identity import is_planned
from sqlstream.jobs.savepoints.restore_plans import Restore
from sqlstream.jobs.savepoints.restored_files import interrupted
from sqlstream.jobs.upgrades.comparison_text import explanation
from sqlstream.jobs.upgrades.migrations import Given, Migrations
from sqlstream.jobs.upgrades.upgrading import Upgrade, Upgrader, check_open, newest, upgradable
from sqlstream.project import Project
from sqlstream.session.state_queries import query
from sqlstream.session.verifying import existing_record
from sqlstream.sql.migrations import only_migrations
from sqlstream.sql.statements import parse_script
from sqlstream.warehouse.jobs import read_record
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.savepoint_records import find_savepoint

if TYPE_CHECKING:
    from sqlstream.session.session import Session


def upgrade_with(
    project: Project,
    compiler: Compiler,
    compiled: Sequence[Compiled],
    source: SourceText,
    restored: Iterable[Restore] = (),
) -> Upgrade:
    """Return the upgrade of compiled jobs with the MIGRATE STATE statements in `source`. Raises errors that point into it.

    The statements may name a job of `restored` by its name in the savepoint, too.
    """
    names = [one.name for one in compiled if isinstance(one, PlannedJob) and not (one.appends or one.is_query)]
    names += [find_savepoint(Warehouse(project.warehouse), one.savepoint).record.job for one in restored]
    migrations = _migrations(project, compiler, source)
    migrations.check_jobs(names)
    return Upgrade(migrations)


def _migrations(project: Project, compiler: Compiler, source: SourceText) -> Migrations:
    def read(sql: str, relations: Given, state: Warehouse) -> duckdb.DuckDBPyRelation:
        return query(project, compiler, sql, {"": state}, relations)

    return Migrations(only_migrations(source, parse_script(source)), read)


def compared_with(
    session: Session, compiled: Sequence[Compiled], against: str, migrations: SourceText | None = None
) -> str:
    """Return, as text, what an upgrade of the job `against` to the job of some SQL would do. Raises UsageError.

    `migrations` has MIGRATE STATE statements.
    """
    record = existing_record(session.warehouse, against)
    jobs = [one for one in compiled if isinstance(one, PlannedJob) and not (one.appends or one.is_query)]
    matches = [one for one in jobs if one.name.lower() == record.job.lower()] or jobs
    if len(matches) != 1:
        names = [one.name for one in jobs]
        hint = missing("job", record.job, names) if names else "Write an INSERT."
        raise UsageError(f'the SQL has no job "{record.job}"', hint=hint)
    entry = newest(session.warehouse, record.job)
    if entry is None:
        raise UsageError(f'job "{record.job}" has no version yet', hint="It has one once it has committed a batch.")
    upgrade = Upgrade()
    if migrations is not None:
        upgrade = upgrade_with(session.project, session.compiler, matches, migrations)
    upgrader = Upgrader(session.warehouse, matches[0], session.project.root, upgrade)
    return explanation(upgrader.compared(record), record.job, entry.version)


def upgrade_texts(
    session: Session,
    compiled: Sequence[Compiled],
    restored: Mapping[str, Restore],
    upgrade: Upgrade,
    show: Callable[[str], None],
) -> list[str]:
    """Return a text for each job of some SQL whose query has changed: what its upgrade would do.

    If a job cannot be upgraded, its text goes to `show`, and UsageError is raised.
    """
    jobs = [one for one in compiled if isinstance(one, PlannedJob)]
    texts = (_explained(session, one, restored.get(one.name), upgrade, show) for one in jobs)
    return [text for text in texts if text is not None]


def _explained(
    session: Session, planned: PlannedJob, restore: Restore | None, upgrade: Upgrade, show: Callable[[str], None]
) -> str | None:
    upgrader = Upgrader(session.warehouse, planned, session.project.root, upgrade)
    if restore is not None:
        savepoint = find_savepoint(session.warehouse, restore.savepoint)
        saved = read_record(savepoint.warehouse.fs, savepoint.warehouse.job(savepoint.record.job))
        is_same = saved is not None and is_planned(saved, planned)
        if saved is None or (is_same and not upgrader.may_change(saved)):
            return None
        comparison = upgrader.compared(saved, is_fork=restore.is_fork, state=savepoint.warehouse)
        text = explanation(comparison, saved.job, savepoint.record.version)
    elif (half := interrupted(session.warehouse, planned.name)) is not None and half.savepoint is not None:
        # The next start completes the interrupted one first; only what the query changes after that needs the user's consent.
        saved, savepoint = half.record, half.savepoint
        if not upgrade.may_change(saved, planned):
            return None
        check_open(saved.job, newest(savepoint.warehouse, savepoint.record.job))
        comparison = upgrader.compared(saved, state=savepoint.warehouse)
        text = explanation(comparison, saved.job, savepoint.record.version)
    else:
        saved = upgradable(session.warehouse, planned, upgrade)
        entry = newest(session.warehouse, planned.name)
        if saved is None or entry is None:
            return None
        check_open(saved.job, entry)
        comparison = upgrader.compared(saved)
        text = explanation(comparison, saved.job, entry.version)
    if comparison.refused:
        show(text)
    upgrader.check(comparison)
    return text if upgrader.changes(saved, comparison) else None
