"""What becomes of jobs whose queries have changed: shown, and asked about."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

import click

from sqlstream.compiler.compiler import Compiled
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.compiler.project import read_text
from sqlstream.errors import SourceText, SqlStreamError, UsageError, terminal_width
from sqlstream.jobs.launch import planned_text, recorded_text
from sqlstream.jobs.restoring import Restore
from sqlstream.jobs.upgrades.text import explanation
from sqlstream.jobs.upgrades.upgrading import Upgrade, Upgrader, check_open, newest, upgradable
from sqlstream.session.migrating import upgrade_with
from sqlstream.session.session import Session
from sqlstream.storage.restoring import interrupted
from sqlstream.warehouse.jobs import read_record
from sqlstream.warehouse.savepoints import find_savepoint


def asked_upgrade(
    session: Session,
    compiled: Sequence[Compiled],
    restored: Iterable[Restore] = (),
    *,
    upgrade: bool,
    migrate: str | None,
) -> Upgrade | None:
    """Return what is asked for: an upgrade, also by the migrations of a file. Raises errors that point into it."""
    if migrate is None:
        return Upgrade() if upgrade else None
    source = SourceText(migrate, read_text(migrate))
    return upgrade_with(session.project, session.compiler, compiled, source, restored)


def confirm(
    session: Session,
    planned: Sequence[Compiled],
    restored: Mapping[str, Restore],
    upgrade: Upgrade,
    *,
    yes: bool,
    warn: Callable[[str, SqlStreamError], None],
) -> bool:
    """Show what becomes of the jobs whose queries have changed, and ask whether to go on; return whether there are any.

    Then the warnings about jobs have been given to `warn`, before, so that what is asked about is the last that is shown.
    Raises UsageError where that cannot be, or where there is nobody to ask, and Abort when the answer is no.
    """
    jobs = [one for one in planned if isinstance(one, PlannedJob)]
    texts = [text for one in jobs if (text := _explained(session, one, restored.get(one.name), upgrade)) is not None]
    if not texts:
        return False
    for one in jobs:
        for warning in one.warnings:
            warn(one.name, warning)
    for text in texts:
        click.echo(text, err=True)
    if yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError(
            "an upgrade has to be confirmed, and there is no terminal to ask on",
            hint="Say --yes to do it without asking.",
        )
    if not click.confirm("Go on like this?", err=True):
        click.echo("nothing was changed", err=True)
        raise click.Abort
    return True


def warn_people(job: str, warning: SqlStreamError) -> None:
    """Show a warning about a job in the terminal."""
    click.echo(warning.render(terminal_width(sys.stderr)), err=True)


def _explained(session: Session, planned: PlannedJob, restore: Restore | None, upgrade: Upgrade) -> str | None:
    upgrader = Upgrader(session.warehouse, planned, session.project.root, upgrade)
    if restore is not None:
        savepoint = find_savepoint(session.warehouse, restore.savepoint)
        saved = read_record(savepoint.warehouse.fs, savepoint.warehouse.job(savepoint.record.job))
        is_same = saved is not None and recorded_text(saved) == planned_text(planned)
        if saved is None or (is_same and not upgrader.migrates(saved)):
            return None
        comparison = upgrader.compared(saved, is_fork=restore.is_fork, state=savepoint.warehouse)
        text = explanation(comparison, saved.job, savepoint.record.version)
    elif (half := interrupted(session.warehouse, planned.name)) is not None and half.savepoint is not None:
        # That is completed first, and is no question any more; what the query changes then is one.
        saved, savepoint = half.record, half.savepoint
        if not upgrade.changes(saved, planned):
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
        click.echo(text, err=True)
    upgrader.check(comparison)
    return text
