"""Shows the upgrade plans of jobs whose queries have changed, and asks for confirmation."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import click

from sqlstream.cli.json_log import JsonLog
from sqlstream.compiler.compiler import Compiled
from sqlstream.compiler.planned_job import PlannedJob
from sqlstream.errors import SourceText, SqlStreamError, UsageError, terminal_width
from sqlstream.jobs.savepoints.restore_plans import Restore
from sqlstream.jobs.upgrades.upgrading import Upgrade
from sqlstream.project import read_text
from sqlstream.session.session import Session
from sqlstream.session.upgrades import upgrade_texts, upgrade_with


def asked_upgrade(
    session: Session,
    compiled: Sequence[Compiled],
    restored: Iterable[Restore] = (),
    *,
    upgrade: bool,
    migrate: str | None,
) -> Upgrade | None:
    """Return the upgrade that was requested, with the migrations of a file; None if none was. Errors point into the file."""
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
    log: JsonLog | None,
) -> bool:
    """Show the upgrade plans of jobs whose queries have changed, and ask for confirmation; return whether there are any.

    If there are, it first shows the warnings about all jobs, so that the question comes last. With a `log` nothing is asked.
    Raises UsageError if an upgrade is impossible, or cannot be confirmed, and Abort if the answer is no.
    """
    texts = upgrade_texts(session, planned, restored, upgrade, partial(click.echo, err=True))
    if not texts:
        return False
    warn = warn_people if log is None else log.warn
    for one in (one for one in planned if isinstance(one, PlannedJob)):
        for warning in one.warnings:
            warn(one.name, warning)
    ask(texts, yes=yes, asks=log is None)
    return True


def ask(texts: Sequence[str], *, yes: bool, asks: bool = True) -> None:
    """Show upgrade plans, and ask for confirmation unless `yes`. Without `asks`, standard error has lines of JSON only.

    Raises UsageError where nobody can be asked, and Abort if the answer is no.
    """
    for text in texts:
        click.echo(text, err=True)
    if yes:
        return
    if not (asks and sys.stdin.isatty()):
        why = "there is no terminal to ask on" if asks else "lines of JSON ask no questions"
        raise UsageError(
            f"an upgrade has to be confirmed, and {why}",
            hint="Say --yes to do it without asking.",
        )
    if not click.confirm("Go on like this?", err=True):
        click.echo("nothing was changed", err=True)
        raise click.Abort


def warn_people(job: str, warning: SqlStreamError) -> None:
    """Show a warning about a job in the terminal."""
    click.echo(f"{job}: {warning.render(terminal_width(sys.stderr))}", err=True)
