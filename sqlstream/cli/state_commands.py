"""The commands that look at the state of jobs, keep it, and check it."""

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
from sqlstream.cli.completion import job_names


@click.command(short_help="Show which rows of a state changed between two versions.")
@click.argument("state", metavar="JOB.OPERATOR")
@click.argument("older")
@click.argument("newer")
@click.option("--limit", default=100, show_default=True, help="Print so many rows of the table at most; 0: all.")
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
    from sqlstream.cli.state_tools import show_diff

    show_diff(state, (older, newer), form or format_of(output), output, limit, project, warehouse)


@click.command(short_help="Explain what a state holds for a key, and until when.")
@click.argument("state", metavar="JOB.OPERATOR")
@click.argument("key", nargs=-1, metavar="[COLUMN=VALUE ...]")
@click.option(
    "--at", "version", metavar="VERSION", help="Explain an older version: a number, a time in UTC, or a savepoint."
)
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

    The key has a value for each key column of the operator, as origin=EWR; the value NULL is none.
    """
    from sqlstream.cli.state_tools import show_why

    show_why(state, key, version, form or format_of(output), output, project, warehouse)


@click.command(name="verify", short_help="Compare what a job wrote with a batch over what it read.")
@click.argument("job", shell_complete=job_names)
@click.argument("files", nargs=-1, metavar="[FILE.sql ...]")
@click.option("-e", "statements", multiple=True, metavar="SQL", help="SQL that declares the job, after the files.")
@click.option(
    "--at", "version", metavar="VERSION", help="Verify an older version: a number, a time in UTC, or a savepoint."
)
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
            found = session.verify(job, at=version, compiled=compiled)
        click.echo(str(found))
        return 0 if found else 1


@click.command(short_help="Take a savepoint of a job, running or not.")
@click.argument("job", shell_complete=job_names)
@click.argument("name", required=False)
@click.option("--to", metavar="DIR", help="Write a folder that is whole in itself, and can be moved, instead.")
@with_folders
def savepoint(job: str, name: str | None, to: str | None, project: str | None, warehouse: str | None) -> None:
    """Take a savepoint of the newest version of a job, running or not: its state, its place in the input, its tables.

    Without a NAME it is called <job>-<version>.
    """
    from sqlstream.cli.savepoints import take

    with open_session(project, warehouse, (), load=False) as session:
        take(session.warehouse, job, name, to)


@click.command(short_help="List the savepoints of the warehouse.")
@click.argument("job", required=False)
@with_folders
def savepoints(job: str | None, project: str | None, warehouse: str | None) -> None:
    """List the savepoints of the warehouse, or those of one job."""
    from sqlstream.cli.savepoints import show_savepoints

    show_savepoints(job, project, warehouse)


@click.command(short_help="Show what a time to live would keep of a job's state.")
@click.argument("state", metavar="JOB[.OPERATOR]")
@click.argument("ttls", nargs=-1, required=True, metavar="TTL ...")
@with_folders
def ttl(state: str, ttls: tuple[str, ...], project: str | None, warehouse: str | None) -> None:
    """Show what each time to live, such as 1h or 7d, would keep of a job's state, and how many keys came back after that long."""
    from sqlstream.cli.query import show
    from sqlstream.duck.sql import quote_text

    listed = ", ".join(map(quote_text, (state, *ttls)))
    columns = (
        "concat(operator, ' (' || state || ')') AS operator, ttl, concat(keys, ' of ', keys_now) AS keys, "
        "concat(rows, ' of ', rows_now) AS rows, format_bytes(bytes) AS bytes, returned_keys, exact"
    )
    show(f"SELECT {columns} FROM sqlstream.ttl({listed})", "table", None, project, warehouse)


COMMANDS = (diff, why, verify_, savepoint, savepoints, ttl)
