"""What becomes of a job of the warehouse that goes on with another query: shown, and nothing done."""

from __future__ import annotations

from collections.abc import Sequence

from sqlstream.compiler.compiler import Compiled
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import SourceText, UsageError, missing
from sqlstream.jobs.upgrades.text import explanation
from sqlstream.jobs.upgrades.upgrading import Upgrade, Upgrader, newest
from sqlstream.session.migrating import upgrade_with
from sqlstream.session.session import Session
from sqlstream.session.verifying import existing_record


def compared_with(
    session: Session, compiled: Sequence[Compiled], against: str, migrations: SourceText | None = None
) -> str:
    """Return what becomes of a job of the warehouse that goes on with the job of some SQL. Raises UsageError.

    `migrations` are MIGRATE STATE statements.
    """
    record = existing_record(session.warehouse, against)
    jobs = [one for one in compiled if isinstance(one, PlannedJob) and not (one.appends or one.is_query)]
    found = [one for one in jobs if one.name.lower() == record.job.lower()] or jobs
    if len(found) != 1:
        names = [one.name for one in jobs]
        hint = missing("job", record.job, names) if names else "Write an INSERT."
        raise UsageError(f'the SQL has no job "{record.job}"', hint=hint)
    entry = newest(session.warehouse, record.job)
    if entry is None:
        raise UsageError(f'job "{record.job}" has no version yet', hint="It has one once it has committed a batch.")
    upgrade = Upgrade()
    if migrations is not None:
        upgrade = upgrade_with(session.project, session.compiler, found, migrations)
    upgrader = Upgrader(session.warehouse, found[0], session.project.root, upgrade)
    return explanation(upgrader.compared(record), record.job, entry.version)
