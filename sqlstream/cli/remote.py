"""The commands of `sqlstream --server URL`, with the parameters that they have on a warehouse."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from sqlstream.cli.arguments import (
    format_of,
    is_job,
    parsed_settings,
    parsed_table_options,
    query_text,
    view_of_plan,
    with_engine,
    with_output,
    with_settings,
)
from sqlstream.cli.parameters import (
    RunCommand,
    fresh_of,
    with_diff,
    with_drop,
    with_explain,
    with_query,
    with_run,
    with_savepoint,
    with_savepoints,
    with_stop,
    with_ttl,
    with_verify,
    with_why,
)
from sqlstream.errors import UsageError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

# Commands that a server does not have, with the reason.
LOCAL_COMMANDS: Mapping[str, str] = {
    "check": "It reads the files of a warehouse.",
    "completion": "It asks no server.",
    "config": "It shows the configuration of a project.",
    "docs": "It asks no server.",
    "init": "It asks no server.",
    "port": "It asks no server.",
    "serve": "It is the server.",
    "shell": "It runs jobs in its own process.",
}
# Parameters that commands do not have with a server, with the reason: of all commands, and of some.
FOLDERS: Mapping[str, str] = dict.fromkeys(
    ("project", "warehouse", "config", "profile"), "The server has the project and the warehouse."
)
LOCAL_PARAMETERS: Mapping[str, Mapping[str, str]] = {
    "run": {
        "debug": "The job runs in a process of the server's: its output is in server/output of the warehouse.",
        "files_within": "The server says where files of its clients' tables may lie.",
        "metrics": "The server has the metrics of all jobs, at /metrics.",
        "trace": "The job runs in a process of the server's, and goes on.",
        "log_format": "The job runs in a process of the server's.",
    },
    "savepoint": {"to": "The folder would be on the server's machine."},
}


class _Command(click.Command):
    """A command that says why it lacks an option of its local counterpart."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name.lstrip("-").replace("-", "_")
            why = {**FOLDERS, **LOCAL_PARAMETERS.get(self.name or "", {})}.get(name)
            if why is None:
                raise
            raise UsageError(f'option "{error.option_name}" is not for a server', hint=why) from None


class _RunCommand(RunCommand, _Command):
    """The command that runs SQL."""


class _Group(click.Group):
    command_class = _Command


@click.group(cls=_Group)
def remote() -> None:
    """Hold the commands that a server answers."""


def command_of(context: click.Context, name: str) -> click.Command:
    """Return a command as a server has it. Raises UsageError for a command that only works on a warehouse."""
    command = remote.get_command(context, name)
    if command is None:
        raise UsageError(
            f'"{name}" works on a warehouse, and not on a server',
            detail=LOCAL_COMMANDS.get(name),
            hint=f"A server answers {', '.join(remote.list_commands(context))}.",
        )
    return command


def _client() -> Any:
    from sqlstream.configuration import check_variables
    from sqlstream.server.client import Client

    check_variables(os.environ)
    return Client(click.get_current_context().find_root().params["server"])


def _script(files: Sequence[str], statements: Sequence[str]) -> str:
    """Return the SQL of files and of -e as one script. Raises UsageError if there is none."""
    from sqlstream.project import read_text

    texts = [*map(read_text, files), *statements]
    if not texts:
        raise UsageError("there is no SQL to run", hint="Name a file, or give SQL with -e.")
    # The last line may be a comment, in which a semicolon would be lost.
    return "\n;\n".join(text.rstrip().rstrip(";") for text in texts)


def _options(settings: tuple[str, ...], tables: tuple[str, ...]) -> dict[str, Any]:
    return {"settings": parsed_settings(settings), "tables": parsed_table_options(tables)}


@remote.command(cls=_RunCommand, short_help="Submit SQL: its jobs run under the server.")
@with_run
@with_engine
@with_settings
def run(
    files: tuple[str, ...],
    statements: tuple[str, ...],
    fresh: tuple[str, ...],
    savepoint: str | None,
    as_job: str | None,
    upgrade: bool,
    yes: bool,
    migrate: str | None,
    only: tuple[str, ...],
    settings: tuple[str, ...],
    tables: tuple[str, ...],
) -> None:
    """Submit SQL to the server, which runs its jobs, and starts them again when they die."""
    from sqlstream.cli.upgrades import ask
    from sqlstream.project import read_text
    from sqlstream.session.rendering import write_rows

    body = {"sql": _script(files, statements), "upgrade": upgrade, **_options(settings, tables)}
    body |= {"fresh": fresh_of(fresh), "savepoint": savepoint, "as_job": as_job, "only": only}
    body["migrate"] = None if migrate is None else read_text(migrate)
    client = _client()
    if (upgrade or migrate is not None) and (plans := client.post("upgrade-plans", body=body)["plans"]):
        ask(plans, yes=yes)
    response = client.post("jobs", body=body)
    for warning in response["warnings"]:
        click.echo(warning, err=True)
    for answer in response["answers"]:
        write_rows(answer["columns"], answer["rows"], sys.stdout)
    for job in response["jobs"]:
        click.echo(f'job "{job}" submitted', err=True)


@contextmanager
def _relation(rows: pa.Table) -> Iterator[duckdb.DuckDBPyRelation]:
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection.from_arrow(rows)


def _show(sql: str, form: str, output: str | None) -> None:
    from sqlstream.session.rendering import show_relation

    with _relation(_client().query(sql)) as rows:
        show_relation(rows, form, output)


@remote.command(short_help="Query state, results and sqlstream.*.")
@with_query
@with_output
def query(sql: str | None, file: str | None, form: str | None, output: str | None) -> None:
    """Query state, results and sqlstream.* in the warehouse of the server."""
    _show(query_text(sql, file), form or format_of(output), output)


@remote.command(short_help="List the jobs of the warehouse.")
def jobs() -> None:
    """List the jobs of the server's warehouse, also those that other processes run."""
    from sqlstream.compiler.listings import JOBS

    _show(JOBS, "table", None)


@remote.command(short_help="List the savepoints of the warehouse.")
@with_savepoints
def savepoints(job: str | None) -> None:
    """List the savepoints of the server's warehouse, or those of one job."""
    from sqlstream.compiler.listings import savepoints_of

    _show(savepoints_of(job), "table", None)


@remote.command(short_help="Show which rows of a state changed between two versions.")
@with_diff
@with_output
def diff(state: str, older: str, newer: str, limit: int, form: str | None, output: str | None) -> None:
    """Show which rows of a state were added, removed and changed from version OLDER to version NEWER, and why."""
    from sqlstream.cli.state_tools import show_diff

    request = {"state": state, "older": older, "newer": newer}
    with _relation(_client().rows("diff", body=request)) as changes:
        show_diff(changes, form or format_of(output), output, limit)


@remote.command(short_help="Explain what a state holds for a key, and until when.")
@with_why
@with_output
def why(state: str, key: tuple[str, ...], version: str | None, form: str | None, output: str | None) -> None:
    """Explain what a state holds for a key: rows, open windows and when they close, timers, when it is forgotten."""
    from sqlstream.cli.state_tools import key_of, show_why

    request = {"state": state, "key": key_of(key), "version": version}
    with _relation(_client().rows("why", body=request)) as explanation:
        show_why(explanation, form or format_of(output), output)


@remote.command(short_help="Show what a time to live would keep of a job's state.")
@with_ttl
def ttl(state: str, ttls: tuple[str, ...]) -> None:
    """Show what each time to live would keep of a job's state, and how many keys came back after that long."""
    from sqlstream.session.state_tools import ttl_listing

    _show(ttl_listing(state, ttls), "table", None)


@remote.command(short_help="Compare what a job wrote with a batch over what it read.")
@with_verify
@with_settings
def verify(
    job: str,
    files: tuple[str, ...],
    statements: tuple[str, ...],
    version: str | None,
    settings: tuple[str, ...],
    tables: tuple[str, ...],
) -> int:
    """Compute the query of a job as a batch on the server, and explain every difference from what the job wrote."""
    sql = _script(files, statements) if files or statements else None
    body = {"version": version, "sql": sql, **_options(settings, tables)}
    response = _client().post("jobs", job, "verify", body=body)
    click.echo(response["text"])
    return 0 if response["explained"] else 1


@remote.command(short_help="Stop jobs after their batch, or with --drain for good.")
@with_stop
def stop(names: tuple[str, ...], everything: bool, drain: bool, savepoint: str | None) -> None:
    """Stop running jobs after their batch."""
    if everything == bool(names):
        raise UsageError("stop takes the names of jobs, or --all", hint="See what is running with: sqlstream jobs")
    client = _client()
    if everything:
        running = ("RUNNING", "RESTARTING")
        names = tuple(one["job"] for one in client.get("jobs")["jobs"] if one["status"] in running)
    if savepoint and len(names) > 1:
        raise UsageError("a savepoint is of one job", hint="Leave out its name, and each gets one of its own.")
    for name in names:
        response = client.post("jobs", name, "stop", body={"drain": drain, "savepoint": savepoint})
        click.echo(response["message"], err=True)
    if not names:
        click.echo("no job is running", err=True)


@remote.command(short_help="Take a savepoint of a job, running or not.")
@with_savepoint
def savepoint(job: str, name: str | None) -> None:
    """Take a savepoint of the newest version of a job."""
    response = _client().post("jobs", job, "savepoints", body={"name": name})
    click.echo(
        f'savepoint "{response["savepoint"]}" of job "{response["job"]}" at version {response["version"]}', err=True
    )


@remote.command(short_help="Delete a job, its state and its rows; or a savepoint.")
@with_drop
def drop(job: str | None, savepoint: str | None) -> None:
    """Delete a job: its state, its checkpoint, and the rows that it wrote."""
    if (job is None) == (savepoint is None):
        raise UsageError("drop takes the name of a job, or --savepoint and the name of a savepoint")
    path = ("jobs", job) if job is not None else ("savepoints", savepoint)
    click.echo(_client().delete(*path)["message"], err=True)


@remote.command(short_help="Show the plan of a query, or what becomes of a job with it.")
@with_explain
@with_settings
def explain(
    files: tuple[str, ...],
    statements: tuple[str, ...],
    verbose: bool,
    stage: str | None,
    batch: bool,
    against: str | None,
    migrate: str | None,
    settings: tuple[str, ...],
    tables: tuple[str, ...],
) -> None:
    """Show the plan of a query as the server makes it."""
    from sqlstream.project import read_text

    view = view_of_plan(stage, against, migrate, verbose=verbose, batch=batch)
    body: dict[str, Any] = _options(settings, tables)
    if batch and files and is_job(files[0]):
        name, *rest = files
        body["sql"] = _script(rest, statements) if rest or statements else ""
        click.echo(_client().post("jobs", name, "batch-query", body=body)["plan"])
        return
    body["sql"] = _script(files, statements)
    body["stage"] = view
    body["migrate"] = None if migrate is None else read_text(migrate)
    path = ("plan",) if against is None else ("jobs", against, "upgrade-plan")
    click.echo(_client().post(*path, body=body)["plan"])
