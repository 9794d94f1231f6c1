"""The command line."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from typing import Any

import click

from sqlstream.cli.arguments import (
    compile_all,
    format_of,
    is_job,
    logs_json,
    naming_scripts,
    open_session,
    query_text,
    view_of_plan,
    with_engine,
    with_folders,
    with_monitoring,
    with_output,
    with_settings,
)
from sqlstream.cli.completion import SHELLS, completion_script, job_names
from sqlstream.cli.configuration import config
from sqlstream.cli.parameters import RunCommand, fresh_of, with_drop, with_explain, with_query, with_run, with_stop
from sqlstream.cli.port import port_script
from sqlstream.cli.serve import serve
from sqlstream.cli.shell import shell
from sqlstream.cli.state_commands import COMMANDS
from sqlstream.distribution import VERSION, namesake_warning
from sqlstream.duck.interrupts import keyboard_interrupts
from sqlstream.errors import SqlStreamError, UsageError, terminal_width

EXAMPLES = """\b
Examples:
  sqlstream run -e "SELECT origin, dest FROM flights LIMIT 5"
  sqlstream run examples/flights/departures.sql
  sqlstream query "SELECT * FROM state.departures.by_hour LIMIT 5"
"""

# The exit code that a shell expects of a command that writes into a pipe without a reader.
_BROKEN_PIPE = 128 + signal.SIGPIPE


class _Cli(click.Group):
    """The commands, or with --server those that a server has. A command whose reader is gone exits as a shell expects."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        own = super().get_command(ctx, cmd_name)
        if own is None or not ctx.params.get("server"):
            return own
        from sqlstream.cli.remote import command_of

        return command_of(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise click.exceptions.Exit(_BROKEN_PIPE) from None


def _show_version(context: click.Context, _: click.Parameter, flag: bool) -> None:
    if flag:
        click.echo(f"sqlstream, version {VERSION}")
        context.exit()


@click.group(
    cls=_Cli,
    epilog=EXAMPLES,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--server", metavar="URL", help="Let a server do it; a token is taken from SQLSTREAM_TOKEN.")
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
@click.pass_context
def cli(context: click.Context, server: str | None) -> None:
    """Run streaming SQL on Spark, and query its running state with SQL."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@cli.command(cls=RunCommand, short_help="Run SQL: an INSERT is a job, a SELECT prints changes.")
@with_run
@with_engine
@with_settings
@click.option("--debug", is_flag=True, help="Show what Spark and Python said when something fails.")
@click.option("--files-within", multiple=True, hidden=True, help="Where files of declared tables must lie.")
@with_monitoring
@with_folders
def run(
    files: tuple[str, ...],
    statements: tuple[str, ...],
    settings: tuple[str, ...],
    tables: tuple[str, ...],
    fresh: tuple[str, ...],
    savepoint: str | None,
    as_job: str | None,
    upgrade: bool,
    yes: bool,
    migrate: str | None,
    only: tuple[str, ...],
    debug: bool,
    files_within: tuple[str, ...],
    metrics: str | None,
    trace: str | None,
    log_format: str,
    project: str | None,
    warehouse: str | None,
) -> int:
    """Run SQL: every INSERT is a job, a bare SELECT prints its changes. The file - is standard input."""
    from sqlstream.cli.json_log import reporting
    from sqlstream.cli.profile import profiled, show_profile
    from sqlstream.cli.run import compiled_to_run, run_jobs, served
    from sqlstream.cli.upgrades import asked_upgrade, confirm
    from sqlstream.jobs.launch import check_fresh, fresh_jobs, only_jobs
    from sqlstream.jobs.savepoints.restore_plans import plan_restore

    with (
        reporting(log_format) as log,
        open_session(project, warehouse, settings, tables, notice=None if log is None else log.notice) as session,
    ):
        session.compiler.table_options.within = files_within
        planned = compiled_to_run(session, files, statements)
        check_fresh(fresh_of(fresh), restores=savepoint is not None, upgrades=upgrade or migrate is not None)
        planned, restored = plan_restore(
            planned, session.warehouse, savepoint, as_job, session.compiler.table_options.starting
        )
        if only:
            planned = only_jobs(planned, only, restored)
        anew = fresh_jobs(planned, fresh_of(fresh))
        job_upgrade = asked_upgrade(session, planned, restored.values(), upgrade=upgrade, migrate=migrate)
        warned = job_upgrade is not None and confirm(session, planned, restored, job_upgrade, yes=yes, log=log)
        with profiled(trace, show_profile if log is None else None), served(session, planned, metrics):
            run_jobs(
                session,
                planned,
                fresh=anew,
                restored=restored,
                upgrade=job_upgrade,
                debug=debug,
                log=log,
                warned=warned,
            )
        if session.is_unread:
            raise BrokenPipeError
    return 0 if log is None else log.exit_code


@cli.command(short_help="Query state, results and sqlstream.*, also of jobs that run.")
@with_query
@with_output
@with_folders
def query(
    sql: str | None, file: str | None, form: str | None, output: str | None, project: str | None, warehouse: str | None
) -> None:
    """Query state, results and sqlstream.* with SQL; the jobs may be running or not. The query - is on standard input."""
    from sqlstream.cli.query import show

    show(query_text(sql, file), form or format_of(output), output, project, warehouse)


@cli.command(short_help="Show the plan of a query: operators, state, guarantees.")
@with_explain
@with_settings
@with_folders
def explain(
    files: tuple[str, ...],
    statements: tuple[str, ...],
    settings: tuple[str, ...],
    tables: tuple[str, ...],
    verbose: bool,
    stage: str | None,
    batch: bool,
    against: str | None,
    migrate: str | None,
    project: str | None,
    warehouse: str | None,
) -> None:
    """Show the plan of a query: operators, state, guarantees."""
    from sqlstream.compiler.planned_job import PlannedJob
    from sqlstream.errors import SourceText
    from sqlstream.project import read_text
    from sqlstream.session.explaining import as_it_goes_on, explained
    from sqlstream.session.upgrades import compared_with
    from sqlstream.session.verifying import existing_record, planned_job

    view = view_of_plan(stage, against, migrate, verbose=verbose, batch=batch)
    with open_session(project, warehouse, settings, tables) as session:
        if batch and files and is_job(files[0]):
            name, *rest = files
            script = compile_all(session, tuple(rest), statements) if rest or statements else ()
            with naming_scripts(name):
                planned = planned_job(session.compiler, existing_record(session.warehouse, name), script)
            click.echo(explained(planned, "batch"))
            return
        compiled = compile_all(session, files, statements)
        if against is not None:
            migrations = None if migrate is None else SourceText(migrate, read_text(migrate))
            click.echo(compared_with(session, compiled, against, migrations))
            return
        for job in compiled:
            if isinstance(job, PlannedJob):
                click.echo(explained(as_it_goes_on(job, session.warehouse), view))


@cli.command(short_help="List the jobs of the warehouse.")
@with_folders
def jobs(project: str | None, warehouse: str | None) -> None:
    """List the jobs of the warehouse; rows are counted since a job began."""
    from sqlstream.cli.query import show
    from sqlstream.compiler.listings import JOBS

    show(JOBS, "table", None, project, warehouse)


@cli.command(short_help="Stop jobs after their batch, or with --drain for good.")
@with_stop
@with_folders
def stop(
    names: tuple[str, ...],
    everything: bool,
    drain: bool,
    savepoint: str | None,
    project: str | None,
    warehouse: str | None,
) -> None:
    """Stop running jobs after their batch; the same script continues them.

    With --drain their input ends instead: all windows that are open are emitted, and the jobs are over for good.
    With --savepoint a savepoint is taken of each, once it has stopped.
    """
    from sqlstream.cli.savepoints import take
    from sqlstream.jobs import ending

    if everything == bool(names):
        raise UsageError("stop takes the names of jobs, or --all", hint="See what is running with: sqlstream jobs")
    with open_session(project, warehouse, (), load=False) as session:
        targets = tuple(ending.running(session.warehouse)) if everything else names
        if savepoint and len(targets) > 1:
            raise UsageError("a savepoint is of one job", hint="Leave out its name, and each gets one of its own.")
        if savepoint and savepoint.lower() in session.warehouse.savepoints():
            raise UsageError(f'savepoint "{savepoint}" exists already', hint="Give it another name.")
        for name in targets:
            ending.ask(session.warehouse, name, drain=drain)
        for name in targets:
            ending.await_end(session.warehouse, name, drain=drain)
            click.echo(f'job "{name}" {"drained: all its windows are closed" if drain else "stopped"}', err=True)
            if savepoint is not None:
                take(session, name, savepoint or None, None)
    if not targets:
        click.echo("no job is running", err=True)


@cli.command(short_help="Delete a job, its state and its rows; or a savepoint.")
@with_drop
@with_folders
def drop(job: str | None, savepoint: str | None, project: str | None, warehouse: str | None) -> None:
    """Delete a job: its state, its checkpoint, and the rows that it wrote. Its savepoints stay."""
    from sqlstream.jobs.savepoints.named_savepoints import drop_savepoint

    if (job is None) == (savepoint is None):
        raise UsageError("drop takes the name of a job, or --savepoint and the name of a savepoint")
    with open_session(project, warehouse, (), load=False) as session:
        if savepoint is not None:
            drop_savepoint(session.warehouse, savepoint)
            click.echo(f'savepoint "{savepoint}" dropped', err=True)
        elif job is not None:
            if job.lower() not in session.warehouse.jobs() and job.lower() in session.warehouse.savepoints():
                hint = f'There is a savepoint of this name: sqlstream drop --savepoint "{job}".'
                raise UsageError(f'job "{job}" does not exist', hint=hint)
            session.drop(job)
            click.echo(f'job "{job}" dropped, with its state and the rows that it wrote', err=True)


@cli.command()
@click.argument("job", required=False, shell_complete=job_names)
@click.option(
    "--repair",
    is_flag=True,
    help="Take damaged jobs back to an intact version; complete savepoints.",
)
@with_folders
def check(job: str | None, repair: bool, project: str | None, warehouse: str | None) -> int:
    """Find damaged files of jobs and savepoints; --repair them.

    Exit codes: 0 all is intact, 1 damage remains, 2 no damage was found, but something could not be checked.
    """
    from sqlstream.cli.check import checked

    with open_session(project, warehouse, (), load=False) as session:
        return checked(session, job, repair=repair, write=click.echo)


@cli.command(short_help="Read the manual: list its pages, show one, or search.")
@click.argument("page", required=False)
@click.option(
    "--search",
    "words",
    metavar="WORD",
    help="Show the lines that have a word, or several: whole words first.",
)
def docs(page: str | None, words: str | None) -> None:
    """Read the manual: without PAGE the list of its pages. Into a pipe or a file a page is written as Markdown."""
    from sqlstream.cli.docs import show_contents, show_matches, show_page

    if words is not None:
        if page is not None:
            raise UsageError("--search goes through all pages", hint="Leave out the page, or the search.")
        show_matches(words)
    elif page is not None:
        show_page(page)
    else:
        show_contents()


@cli.command(short_help="Make a new project: a table, a function, a job, a test.")
@click.argument("name")
def init(name: str) -> None:
    """Make a folder NAME with a project that runs: a table, a function, a job, rows, and a test."""
    from sqlstream.cli.init import make_project

    folder = make_project(name)
    click.echo(f'project "{folder}" made; try it:\n\n  cd {shlex.quote(name)}\n  sqlstream run revenue.sql')
    click.echo('  sqlstream query "SELECT * FROM revenue"\n  pytest    # needs: pip install pytest')


@cli.command(short_help="Print the script that lets your shell complete commands.")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a script for your shell: `source <(sqlstream completion bash)` in ~/.bashrc lets Tab complete commands and jobs."""
    click.echo(completion_script(shell, cli))


for command in (shell, *COMMANDS, config, port_script, serve):
    cli.add_command(command)


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 failed while running, 2 wrong SQL or arguments, 130 interrupted."""
    _exit(_json_command() if logs_json(sys.argv[1:], os.environ) else _command())


def _command() -> int:
    """Run the command, with texts for people on standard error; return the exit code."""
    # A shell reads the output of a completion.
    if "_SQLSTREAM_COMPLETE" not in os.environ and (warning := namesake_warning()):
        click.echo(warning, err=True)
    try:
        return _invoked()
    except SqlStreamError as e:
        click.echo(e.render(terminal_width(sys.stderr)), err=True)
        return e.exit_code
    except click.ClickException as e:
        e.show()
        return 2


def _json_command() -> int:
    """Run the command, with lines of JSON on standard error; return the exit code."""
    from sqlstream.cli.json_log import JsonLog

    log = JsonLog(sys.stderr)
    if warning := namesake_warning():
        log.notice(warning)
    try:
        return _invoked()
    except SqlStreamError as e:
        log.error(e)
        return log.exit_code
    except click.ClickException as e:
        log.error(UsageError(e.format_message()))
        return log.exit_code
    except Exception as e:
        log.fault(e)
        return 1


def _invoked() -> int:
    try:
        with keyboard_interrupts():
            result = cli.main(prog_name="sqlstream", standalone_mode=False)
    except (click.Abort, KeyboardInterrupt):
        return 130
    return result if isinstance(result, int) else 0


def _exit(code: int) -> None:
    """End the process at once, because DuckDB and py4j would print messages while Python shuts down."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            code = code or _BROKEN_PIPE
        except ValueError:
            code = code or 1
    os._exit(code)
