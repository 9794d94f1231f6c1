"""The commands of `sqlstream --server URL`: those that a server answers."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from sqlstream.cli.arguments import format_of, parsed_settings, query_text, with_output
from sqlstream.errors import UsageError


@click.group()
def remote() -> None:
    """Hold the commands that a server answers."""


def _client() -> Any:
    from sqlstream.configuration import check_variables
    from sqlstream.server.client import Client

    check_variables(os.environ)
    return Client(click.get_current_context().find_root().params["server"])


def _script(files: tuple[str, ...], statements: tuple[str, ...]) -> str:
    """Return the SQL of files and of -e as one script. Raises UsageError when there is none."""
    from sqlstream.compiler.project import read_text

    texts = [*map(read_text, files), *statements]
    if not texts:
        raise UsageError("there is no SQL to run", hint="Name a file, or give SQL with -e.")
    # The last line may be a comment, in which a semicolon would be lost.
    return "\n;\n".join(text.rstrip().rstrip(";") for text in texts)


@remote.command(short_help="Submit SQL: its jobs run under the server.")
@click.argument("files", nargs=-1, metavar="[FILE.sql ...]")
@click.option("-e", "statements", multiple=True, metavar="SQL", help="SQL to run after the files.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set an option; goes over SET in the SQL.")
@click.option(
    "--fresh", multiple=True, metavar="JOB", help="Delete the state and the results of a job, and start anew."
)
@click.option("--from", "savepoint", metavar="SAVEPOINT", help="Let the job go on from a savepoint.")
@click.option("--as", "as_job", metavar="NAME", help="With --from: as another job, beside the one of the savepoint.")
@click.option("--upgrade", is_flag=True, help="Let jobs go on whose queries have changed.")
@click.option("--migrate", metavar="FILE", help="Upgrade with the MIGRATE STATE statements of a file.")
def run(
    files: tuple[str, ...],
    statements: tuple[str, ...],
    settings: tuple[str, ...],
    fresh: tuple[str, ...],
    savepoint: str | None,
    as_job: str | None,
    upgrade: bool,
    migrate: str | None,
) -> None:
    """Submit SQL to the server, which runs its jobs, and starts them again when they die."""
    from sqlstream.compiler.project import read_text
    from sqlstream.session.rendering import write_rows

    body: dict[str, Any] = {"sql": _script(files, statements), "upgrade": upgrade}
    body |= {"settings": parsed_settings(settings), "fresh": fresh, "savepoint": savepoint, "as_job": as_job}
    body["migrate"] = None if migrate is None else read_text(migrate)
    found = _client().post("jobs", body=body)
    for warning in found["warnings"]:
        click.echo(warning, err=True)
    for answer in found["answers"]:
        write_rows(answer["columns"], answer["rows"], sys.stdout)
    for job in found["jobs"]:
        click.echo(f'job "{job}" submitted', err=True)


def _show(sql: str, form: str, output: str | None) -> None:
    import duckdb

    from sqlstream.session.rendering import show_relation

    rows = _client().query(sql)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        show_relation(connection.from_arrow(rows), form, output)


@remote.command(short_help="Query state, results and sqlstream.*.")
@click.argument("sql", required=False)
@click.option("-f", "--file", metavar="FILE", help="Read the query from a file.")
@with_output
def query(sql: str | None, file: str | None, form: str | None, output: str | None) -> None:
    """Query state, results and sqlstream.* in the warehouse of the server."""
    _show(query_text(sql, file), form or format_of(output), output)


@remote.command(short_help="List the jobs of the warehouse.")
def jobs() -> None:
    """List the jobs of the server's warehouse, also those that other processes run."""
    from sqlstream.compiler.catalog_answers import JOBS

    _show(JOBS, "table", None)


@remote.command(short_help="List the savepoints of the warehouse.")
def savepoints() -> None:
    """List the savepoints of the server's warehouse."""
    from sqlstream.compiler.catalog_answers import SAVEPOINTS

    _show(f"{SAVEPOINTS} ORDER BY taken_at, savepoint", "table", None)


@remote.command(short_help="Stop jobs after their batch, or with --drain for good.")
@click.argument("names", nargs=-1, required=True, metavar="JOB ...")
@click.option("--drain", is_flag=True, help="Read no more, close all windows; the job cannot continue.")
@click.option(
    "--savepoint",
    is_flag=False,
    flag_value="",
    metavar="[NAME]",
    help="Take a savepoint of each job that has stopped; NAME is for one job.",
)
def stop(names: tuple[str, ...], drain: bool, savepoint: str | None) -> None:
    """Stop running jobs after their batch."""
    if savepoint and len(names) > 1:
        raise UsageError("a savepoint is of one job", hint="Leave out its name, and each gets one of its own.")
    for name in names:
        found = _client().post("jobs", name, "stop", body={"drain": drain, "savepoint": savepoint})
        click.echo(found["message"], err=True)


@remote.command(short_help="Take a savepoint of a job, running or not.")
@click.argument("job")
@click.argument("name", required=False)
def savepoint(job: str, name: str | None) -> None:
    """Take a savepoint of the newest version of a job."""
    found = _client().post("jobs", job, "savepoints", body={"name": name})
    click.echo(f'savepoint "{found["savepoint"]}" of job "{found["job"]}" at version {found["version"]}', err=True)


@remote.command(short_help="Delete a job, its state and its rows; or a savepoint.")
@click.argument("job", required=False)
@click.option("--savepoint", metavar="SAVEPOINT", help="Delete a savepoint, and no job.")
def drop(job: str | None, savepoint: str | None) -> None:
    """Delete a job: its state, its checkpoint, and the rows that it wrote."""
    if (job is None) == (savepoint is None):
        raise UsageError("drop takes the name of a job, or --savepoint and the name of a savepoint")
    path = ("jobs", job) if job is not None else ("savepoints", savepoint)
    click.echo(_client().delete(*path)["message"], err=True)


@remote.command(short_help="Show the plan of a query, or what becomes of a job with it.")
@click.argument("files", nargs=-1, metavar="[FILE.sql]")
@click.option("-e", "statements", multiple=True, metavar="SQL", help="SQL to explain.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set an option; goes over SET in the SQL.")
@click.option("--against", metavar="JOB", help="Show what becomes of the state of a job that goes on with this query.")
def explain(
    files: tuple[str, ...], statements: tuple[str, ...], settings: tuple[str, ...], against: str | None
) -> None:
    """Show the plan of a query as the server makes it."""
    body = {"sql": _script(files, statements), "settings": parsed_settings(settings)}
    path = ("plan",) if against is None else ("jobs", against, "upgrade-plan")
    click.echo(_client().post(*path, body=body)["plan"])
