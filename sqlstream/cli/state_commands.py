"""The commands that query, save and check the state of jobs."""

from __future__ import annotations

import click

from sqlstream.cli.arguments import (
    compile_all,
    format_of,
    naming_scripts,
    open_session,
    with_folders,
    with_output,
    with_settings,
)
from sqlstream.cli.parameters import with_diff, with_savepoint, with_savepoints, with_ttl, with_verify, with_why


@click.command(short_help="Show which rows of a state changed between two versions.")
@with_diff
@with_output
@with_folders
def diff(
    state: str,
    older: str,
    newer: str,
    limit: int,
    form: str | None,
    output: str | None,
    project: str | None,
    warehouse: str | None,
) -> None:
    """Show which rows of a state were added, removed and changed from version OLDER to version NEWER, and why.

    A version is a number, the name or the folder of a savepoint, or a time such as "2026-03-01 10:05:00", in UTC: the newest
    version that was committed by then.
    """
    from sqlstream.cli.state_tools import of_project, show_diff
    from sqlstream.session.state_tools import diff_sql

    changes = of_project(diff_sql(state, older, newer), (older, newer), project, warehouse)
    show_diff(changes, form or format_of(output), output, limit)


@click.command(short_help="Explain what a state holds for a key, and until when.")
@with_why
@with_output
@with_folders
def why(
    state: str,
    key: tuple[str, ...],
    version: str | None,
    form: str | None,
    output: str | None,
    project: str | None,
    warehouse: str | None,
) -> None:
    """Explain what a state holds for a key: rows, open windows and when they close, timers, when it is forgotten.

    The key has a value for each key column of the operator: in their order, or each as origin=EWR. The word NULL is NULL.
    """
    from sqlstream.cli.state_tools import key_of, of_project, show_why
    from sqlstream.session.state_tools import why_sql

    versions = () if version is None else (version,)
    explanation = of_project(why_sql(state, key_of(key), version), versions, project, warehouse)
    show_why(explanation, form or format_of(output), output)


@click.command(name="verify", short_help="Compare what a job wrote with a batch over what it read.")
@with_verify
@with_settings
@with_folders
def verify_(
    job: str,
    files: tuple[str, ...],
    statements: tuple[str, ...],
    version: str | None,
    settings: tuple[str, ...],
    tables: tuple[str, ...],
    project: str | None,
    warehouse: str | None,
) -> int:
    """Compute the query of a job as a batch in DuckDB, and explain every difference from what the job wrote.

    Files are the script of the job, where its tables are not in the catalog. Exit codes: 0 every difference is explained, 1 one
    is not, 2 the job cannot be verified.
    """
    with open_session(project, warehouse, settings, tables) as session:
        compiled = compile_all(session, files, statements) if files or statements else []
        with naming_scripts(job):
            verification = session.verify(job, at=version, compiled=compiled)
        click.echo(str(verification))
        return 0 if verification else 1


@click.command(short_help="Take a savepoint of a job, running or not.")
@with_savepoint
@click.option("--to", metavar="DIR", help="Write a folder that is whole in itself, and can be moved, instead.")
@with_folders
def savepoint(job: str, name: str | None, to: str | None, project: str | None, warehouse: str | None) -> None:
    """Take a savepoint of the newest version of a job, running or not: its state, its position in the input, its tables.

    Without a NAME it is called <job>-<version>.
    """
    from sqlstream.cli.savepoints import take

    with open_session(project, warehouse, (), load=False) as session:
        take(session, job, name, to)


@click.command(short_help="List the savepoints of the warehouse.")
@with_savepoints
@with_folders
def savepoints(job: str | None, project: str | None, warehouse: str | None) -> None:
    """List the savepoints of the warehouse, or those of one job."""
    from sqlstream.cli.savepoints import show_savepoints

    show_savepoints(job, project, warehouse)


@click.command(short_help="Show what a time to live would keep of a job's state.")
@with_ttl
@with_folders
def ttl(state: str, ttls: tuple[str, ...], project: str | None, warehouse: str | None) -> None:
    """Show what each time to live, such as 1h or 7d, would keep of a job's state, and how many keys came back after that long."""
    from sqlstream.cli.query import show
    from sqlstream.session.state_tools import ttl_listing

    show(ttl_listing(state, ttls), "table", None, project, warehouse)


COMMANDS = (diff, why, verify_, savepoint, savepoints, ttl)
