"""The parameters of commands that are the same on a warehouse and on a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import click

from sqlstream.cli.completion import job_names

Command: TypeAlias = Callable[..., Any]
# The value of --fresh without a value: no job has this name.
_ALL = "\0"


def with_parameters(*parameters: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return a decorator that gives a command some parameters, in this order."""

    def decorate(command: Command) -> Command:
        for parameter in reversed(parameters):
            command = parameter(command)
        return command

    return decorate


class RunCommand(click.Command):
    """The command `run`. Its --fresh has no value, or one behind `=`: it never takes the next word, a file's name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [f"--fresh={_ALL}" if word == "--fresh" else word for word in args])


def fresh_of(values: tuple[str, ...]) -> bool | tuple[str, ...]:
    """Return the jobs that --fresh names; True for all."""
    return True if _ALL in values else values


_SQL = "statements"
_VERSION = "a number, a time in UTC, or a savepoint."

with_run = with_parameters(
    click.argument("files", nargs=-1, metavar="[FILE.sql ...]"),
    click.option("-e", _SQL, multiple=True, metavar="SQL", help="SQL to run after the files."),
    click.option(
        "--fresh",
        multiple=True,
        metavar="[=JOB]",
        help="Delete the state and the results of all jobs, or of one with =JOB (can be repeated), and start anew.",
    ),
    click.option(
        "--from", "savepoint", metavar="SAVEPOINT", help="Let the job go on from a savepoint: a name, or a folder."
    ),
    click.option(
        "--as", "as_job", metavar="NAME", help="With --from: as another job, beside the one of the savepoint."
    ),
    click.option(
        "--upgrade", is_flag=True, help="Let jobs go on whose queries have changed, after showing what becomes of them."
    ),
    click.option("--yes", is_flag=True, help="With --upgrade or --migrate: do it without asking."),
    click.option(
        "--migrate",
        metavar="FILE",
        help="Upgrade with state that the MIGRATE STATE statements of a file make; also with --from.",
    ),
    click.option(
        "--job", "only", multiple=True, metavar="JOB", help="Run this job of the SQL alone (can be repeated)."
    ),
)

with_query = with_parameters(
    click.argument("sql", required=False),
    click.option("-f", "--file", metavar="FILE", help="Read the query from a file."),
)

with_explain = with_parameters(
    click.argument("files", nargs=-1, metavar="[FILE.sql]"),
    click.option("-e", _SQL, multiple=True, metavar="SQL", help="SQL to explain."),
    click.option("--verbose", is_flag=True, help="Show Spark's stages, internal names and the SQL of every step."),
    click.option(
        "--stage",
        type=click.Choice(["ast", "logical", "optimized", "physical", "state"]),
        help="Show the query on its way to the plan, or the state tables that it keeps.",
    ),
    click.option(
        "--batch",
        is_flag=True,
        help="Show the query as one batch in DuckDB, which `verify` compares with; also of JOB, or JOB FILE.sql.",
    ),
    click.option(
        "--against", metavar="JOB", help="Show what becomes of the state of a job that goes on with this query."
    ),
    click.option("--migrate", metavar="FILE", help="With --against: with the MIGRATE STATE statements of a file."),
)

with_stop = with_parameters(
    click.argument("names", nargs=-1, metavar="[JOB ...]", shell_complete=job_names),
    click.option("--all", "everything", is_flag=True, help="Stop every job of the warehouse that is running."),
    click.option(
        "--drain",
        is_flag=True,
        help="Read no more, close all windows as at the end of the input; the job cannot continue.",
    ),
    click.option(
        "--savepoint",
        is_flag=False,
        flag_value="",
        metavar="[NAME]",
        help="Take a savepoint of each job that has stopped; NAME is for one job.",
    ),
)

with_drop = with_parameters(
    click.argument("job", required=False, shell_complete=job_names),
    click.option("--savepoint", metavar="SAVEPOINT", help="Delete a savepoint, and no job."),
)

with_savepoint = with_parameters(
    click.argument("job", shell_complete=job_names),
    click.argument("name", required=False),
)

with_savepoints = with_parameters(click.argument("job", required=False))

with_diff = with_parameters(
    click.argument("state", metavar="JOB.OPERATOR"),
    click.argument("older"),
    click.argument("newer"),
    click.option("--limit", default=100, show_default=True, help="Print at most this many rows of the table; 0: all."),
)

with_why = with_parameters(
    click.argument("state", metavar="JOB.OPERATOR"),
    click.argument("key", nargs=-1, metavar="[VALUE | COLUMN=VALUE ...]"),
    click.option("--at", "version", metavar="VERSION", help=f"Explain an older version: {_VERSION}"),
)

with_verify = with_parameters(
    click.argument("job", shell_complete=job_names),
    click.argument("files", nargs=-1, metavar="[FILE.sql ...]"),
    click.option("-e", _SQL, multiple=True, metavar="SQL", help="SQL that declares the job, after the files."),
    click.option("--at", "version", metavar="VERSION", help=f"Verify an older version: {_VERSION}"),
)

with_ttl = with_parameters(
    click.argument("state", metavar="JOB[.OPERATOR]"),
    click.argument("ttls", nargs=-1, required=True, metavar="TTL ..."),
)
