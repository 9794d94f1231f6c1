"""The command line."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from sqlstream.errors import SqlStreamError, UsageError, terminal_width

if TYPE_CHECKING:
    from sqlstream.compiler.compiler import Compiled
    from sqlstream.session.session import Session

EXAMPLES = """\b
Examples:
  sqlstream run -e "SELECT origin, dest FROM flights LIMIT 5"
  sqlstream run examples/flights/departures.sql
  sqlstream query "SELECT * FROM state.departures.by_hour LIMIT 5"
"""

# What a shell says of a command that wrote into a pipe which nobody reads any more.
_BROKEN_PIPE = 128 + signal.SIGPIPE
# A value of --fresh that no job has as its name.
_ALL = "\0"


def _folders(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option(
        "--project", metavar="DIR", help="Project folder (default: the nearest with catalog/ or udfs/)."
    )(command)
    return click.option(
        "--warehouse", metavar="DIR", help="Where state and results are (default: warehouse/ in the project)."
    )(command)


def _settings(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option(
        "--set-table",
        "tables",
        multiple=True,
        metavar="TABLE.OPTION=VALUE",
        help="Replace an option of a table's CREATE TABLE; without VALUE, remove it.",
    )(command)
    return click.option(
        "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set an option before the first statement."
    )(command)


class _Run(click.Command):
    """The command whose --fresh stands alone or has a value behind `=`: it never takes the word after it, a file's name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [f"--fresh={_ALL}" if word == "--fresh" else word for word in args])


class _Cli(click.Group):
    """The commands; one whose reader has gone ends as a shell expects, and without a word."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise click.exceptions.Exit(_BROKEN_PIPE) from None


@click.group(
    cls=_Cli,
    epilog=EXAMPLES,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="sqlstream", prog_name="sqlstream")
@click.pass_context
def cli(context: click.Context) -> None:
    """Run streaming SQL on Spark, and query its running state with SQL."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@cli.command(cls=_Run, short_help="Run SQL: an INSERT is a job, a SELECT prints changes.")
@click.argument("files", nargs=-1, metavar="[FILE.sql ...]")
@click.option("-e", "statements", multiple=True, metavar="SQL", help="SQL to run after the files.")
@_settings
@click.option(
    "--fresh",
    multiple=True,
    metavar="[=JOB]",
    help="Delete the state and the results of the jobs, and start anew; with =JOB those of one job (can be repeated).",
)
@click.option(
    "--from", "savepoint", metavar="SAVEPOINT", help="Let the job go on from a savepoint: a name, or a folder."
)
@click.option("--as", "as_job", metavar="NAME", help="With --from: as another job, beside the one of the savepoint.")
@click.option("--debug", is_flag=True, help="Show what Spark and Python said when something fails.")
@_folders
def run(
    files: tuple[str, ...],
    statements: tuple[str, ...],
    settings: tuple[str, ...],
    tables: tuple[str, ...],
    fresh: tuple[str, ...],
    savepoint: str | None,
    as_job: str | None,
    debug: bool,
    project: str | None,
    warehouse: str | None,
) -> None:
    """Run SQL: every INSERT is a job, a bare SELECT prints its changes. The file - is standard input."""
    from sqlstream.cli.run import run_jobs
    from sqlstream.jobs.launch import fresh_jobs
    from sqlstream.jobs.restoring import plan_restore

    with _session(project, warehouse, settings, tables) as session:
        planned = _compile(session, files, statements)
        if not planned:
            click.echo("nothing to run: the SQL has neither an INSERT nor a query", err=True)
        anew = fresh_jobs(planned, True if _ALL in fresh else fresh)
        if anew and savepoint is not None:
            raise UsageError("a job begins anew, or from a savepoint", hint="Leave out --fresh, or --from.")
        planned, restored = plan_restore(
            planned, session.warehouse, savepoint, as_job, session.compiler.table_options.starting
        )
        run_jobs(session, planned, fresh=anew, restored=restored, debug=debug)
        if session.is_unread:
            raise BrokenPipeError


@cli.command(short_help="Query state, results and sqlstream.*, also of jobs that run.")
@click.argument("sql", required=False)
@click.option("-f", "--file", metavar="FILE", help="Read the query from a file.")
@click.option(
    "--format", "form", type=click.Choice(["table", "csv", "json"]), help="Default: table, or as --output ends."
)
@click.option("--output", metavar="FILE", help="Write the result into a file (.csv or .json) instead of the terminal.")
@_folders
def query(
    sql: str | None, file: str | None, form: str | None, output: str | None, project: str | None, warehouse: str | None
) -> None:
    """Query state, results and sqlstream.* with SQL; the jobs may be running or not. The query - is on standard input."""
    from sqlstream.cli.query import show
    from sqlstream.compiler.project import read_text

    if (sql is None) == (file is None):
        hint = "Write it behind the command, name a file with -f, or write - to have it read from standard input."
        raise UsageError("there is no query" if sql is None else "there are two queries", hint=hint)
    if file is not None or sql == "-":
        sql = read_text(file or "-")
    assert sql is not None
    show(sql, form or _format_of(output), output, project, warehouse)


@cli.command(short_help="Show which rows of a state differ between two versions, and why.")
@click.argument("state", metavar="JOB.OPERATOR")
@click.argument("older")
@click.argument("newer")
@click.option("--limit", default=100, show_default=True, help="Print so many rows of the table at most; 0: all.")
@click.option(
    "--format", "form", type=click.Choice(["table", "csv", "json"]), help="Default: table, or as --output ends."
)
@click.option("--output", metavar="FILE", help="Write the rows into a file (.csv or .json) instead of the terminal.")
@_folders
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

    A version is a number, or a time such as "2026-03-01 10:05:00", in UTC: the newest version that was committed by then.
    """
    from sqlstream.cli.state_tools import show_diff

    show_diff(state, (older, newer), form or _format_of(output), output, limit, project, warehouse)


@cli.command(short_help="Explain what a state holds for a key, and what becomes of it when.")
@click.argument("state", metavar="JOB.OPERATOR")
@click.argument("key", nargs=-1, metavar="[COLUMN=VALUE ...]")
@click.option("--at", "version", metavar="VERSION", help="Explain an older version: a number, or a time in UTC.")
@click.option(
    "--format", "form", type=click.Choice(["table", "csv", "json"]), help="Default: table, or as --output ends."
)
@click.option(
    "--output", metavar="FILE", help="Write what is found into a file (.csv or .json) instead of the terminal."
)
@_folders
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

    show_why(state, key, version, form or _format_of(output), output, project, warehouse)


@cli.command(short_help="Show the plan of a query: operators, state, guarantees.")
@click.argument("files", nargs=-1, metavar="[FILE.sql]")
@click.option("-e", "statements", multiple=True, metavar="SQL", help="SQL to explain.")
@_settings
@click.option("--verbose", is_flag=True, help="Show Spark's stages, internal names and the SQL of every step.")
@click.option(
    "--stage",
    type=click.Choice(["ast", "logical", "optimized", "physical"]),
    help="Show the query on its way to the plan.",
)
@click.option(
    "--batch", is_flag=True, help="Show the query as one batch in DuckDB, which `verify` compares with; also of JOB."
)
@_folders
def explain(
    files: tuple[str, ...],
    statements: tuple[str, ...],
    settings: tuple[str, ...],
    tables: tuple[str, ...],
    verbose: bool,
    stage: str | None,
    batch: bool,
    project: str | None,
    warehouse: str | None,
) -> None:
    """Show the plan of a query: operators, state, guarantees."""
    from sqlstream.compiler.compiler import PlannedJob
    from sqlstream.session.explaining import explained
    from sqlstream.session.verifying import existing_record, planned_job

    with _session(project, warehouse, settings, tables) as session:
        if batch and len(files) == 1 and not statements and files[0] != "-" and not os.path.exists(files[0]):
            planned = planned_job(session.compiler, existing_record(session.warehouse, files[0]))
            click.echo(explained(planned, "batch"))
            return
        for job in _compile(session, files, statements):
            if isinstance(job, PlannedJob):
                click.echo(explained(job, "batch" if batch else stage or ("physical" if verbose else "plan")))


@cli.command(name="verify", short_help="Compare what a job wrote with a batch over what it read.")
@click.argument("job")
@click.argument("files", nargs=-1, metavar="[FILE.sql ...]")
@click.option("-e", "statements", multiple=True, metavar="SQL", help="SQL that declares the job, after the files.")
@click.option("--at", "version", type=int, metavar="VERSION", help="A version of the job (default: its newest).")
@_settings
@_folders
def verify_(
    job: str,
    files: tuple[str, ...],
    statements: tuple[str, ...],
    version: int | None,
    settings: tuple[str, ...],
    tables: tuple[str, ...],
    project: str | None,
    warehouse: str | None,
) -> int:
    """Compute the query of a job as a batch in DuckDB, and explain every difference from what the job wrote.

    Files are the script of the job, where its tables are not in the catalog. Exit codes: 0 every difference is explained, 1 one
    is not, 2 the job cannot be verified.
    """
    with _session(project, warehouse, settings, tables) as session:
        compiled = _compile(session, files, statements) if files or statements else []
        found = session.verify(job, version, compiled=compiled)
        click.echo(str(found))
        return 0 if found else 1


@cli.command(short_help="List the jobs of the warehouse.")
@_folders
def jobs(project: str | None, warehouse: str | None) -> None:
    """List the jobs of the warehouse; rows are counted since a job began."""
    from sqlstream.cli.query import show
    from sqlstream.compiler.catalog_answers import JOBS

    show(JOBS, "table", None, project, warehouse)


@cli.command(short_help="Take a savepoint of a job, running or not.")
@click.argument("job")
@click.argument("name", required=False)
@click.option("--to", metavar="DIR", help="Write a folder that is whole in itself, and can be moved, instead.")
@_folders
def savepoint(job: str, name: str | None, to: str | None, project: str | None, warehouse: str | None) -> None:
    """Take a savepoint of the newest version of a job, running or not: its state, its place in the input, its tables.

    Without a NAME it is called <job>-<version>.
    """
    from sqlstream.cli.savepoints import take

    with _session(project, warehouse, (), load=False) as session:
        take(session.warehouse, job, name, to)


@cli.command(short_help="List the savepoints of the warehouse.")
@click.argument("job", required=False)
@_folders
def savepoints(job: str | None, project: str | None, warehouse: str | None) -> None:
    """List the savepoints of the warehouse, or those of one job."""
    from sqlstream.cli.savepoints import show_savepoints

    show_savepoints(job, project, warehouse)


@cli.command(short_help="Show what a time to live would keep of a job's state.")
@click.argument("state", metavar="JOB[.OPERATOR]")
@click.argument("ttls", nargs=-1, required=True, metavar="TTL ...")
@_folders
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


@cli.command(short_help="Stop jobs after their batch, or with --drain for good.")
@click.argument("names", nargs=-1, metavar="[JOB ...]")
@click.option("--all", "everything", is_flag=True, help="Stop every job of the warehouse that is running.")
@click.option(
    "--drain", is_flag=True, help="Read no more, close all windows as at the end of the input; the job cannot continue."
)
@click.option(
    "--savepoint",
    is_flag=False,
    flag_value="",
    metavar="[NAME]",
    help="Take a savepoint of each job that has stopped; NAME is for one job.",
)
@_folders
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
    with _session(project, warehouse, (), load=False) as session:
        asked = tuple(ending.running(session.warehouse)) if everything else names
        if savepoint and len(asked) > 1:
            raise UsageError("a savepoint is of one job", hint="Leave out its name, and each gets one of its own.")
        if savepoint and savepoint.lower() in session.warehouse.savepoints():
            raise UsageError(f'savepoint "{savepoint}" exists already', hint="Give it another name.")
        for name in asked:
            ending.ask(session.warehouse, name, drain=drain)
        for name in asked:
            ending.await_end(session.warehouse, name, drain=drain)
            click.echo(f'job "{name}" {"drained: all its windows are closed" if drain else "stopped"}', err=True)
            if savepoint is not None:
                take(session.warehouse, name, savepoint or None, None)
    if not asked:
        click.echo("no job is running", err=True)


@cli.command(short_help="Delete a job: its state and the rows that it wrote; or a savepoint.")
@click.argument("job", required=False)
@click.option("--savepoint", metavar="SAVEPOINT", help="Delete a savepoint, and no job.")
@_folders
def drop(job: str | None, savepoint: str | None, project: str | None, warehouse: str | None) -> None:
    """Delete a job: its state, its checkpoint, and the rows that it wrote. Its savepoints stay."""
    from sqlstream.jobs.savepoints import drop_savepoint

    if (job is None) == (savepoint is None):
        raise UsageError("drop takes the name of a job, or --savepoint and the name of a savepoint")
    with _session(project, warehouse, (), load=False) as session:
        if savepoint is not None:
            drop_savepoint(session.warehouse, savepoint)
            click.echo(f'savepoint "{savepoint}" dropped', err=True)
        elif job is not None:
            session.drop(job)
            click.echo(f'job "{job}" dropped, with its state and the rows that it wrote', err=True)


@cli.command()
@click.argument("job", required=False)
@click.option("--repair", is_flag=True, help="Take damaged jobs back to their newest intact version.")
@_folders
def check(job: str | None, repair: bool, project: str | None, warehouse: str | None) -> int:
    """Find damaged files; --repair: back to an intact version."""
    from sqlstream.cli.check import checked

    with _session(project, warehouse, (), load=False) as session:
        return 0 if checked(session, job, repair=repair, write=click.echo) else 1


@cli.command(short_help="Read the manual: list its pages, show one, or search.")
@click.argument("page", required=False)
@click.option("--search", "words", metavar="WORD", help="Show the lines of all pages that have a word, or several.")
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


def _format_of(output: str | None) -> str:
    """Return the format that a file's name asks for."""
    ending = os.path.splitext(output or "")[1].lower()
    if ending in (".csv", ".json"):
        return ending[1:]
    if ending not in ("", ".txt"):
        raise UsageError(f'no format is known for "{output}"', hint="Name it .csv or .json, or say --format.")
    return "table"


def _session(
    project: str | None,
    warehouse: str | None,
    settings: tuple[str, ...],
    tables: tuple[str, ...] = (),
    *,
    load: bool = True,
) -> Session:
    from sqlstream.session.session import Session

    conf = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f'--set "{setting}" is not KEY=VALUE')
        conf[key.strip()] = value.strip()
    return Session(
        project,
        warehouse,
        conf,
        table_options=_table_options(tables),
        notice=lambda text: click.echo(text, err=True),
        load=load,
    )


def _table_options(given: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Return what --set-table says, by table."""
    found: dict[str, dict[str, str]] = {}
    for text in given:
        key, equals, value = text.partition("=")
        table, dot, option = key.strip().partition(".")
        if not (equals and table and dot and option):
            hint = "Write --set-table orders.source.monitor-interval='1 s'."
            raise UsageError(f'--set-table "{text}" is not TABLE.OPTION=VALUE', hint=hint)
        found.setdefault(table, {})[option] = value.strip()
    return found


def _compile(session: Session, files: tuple[str, ...], statements: tuple[str, ...]) -> list[Compiled]:
    from sqlstream.compiler.project import read_source
    from sqlstream.errors import SourceText

    sources = [read_source(file, root=session.project.root) for file in files]
    sources += [SourceText("-e" if len(statements) == 1 else f"-e {i}", text) for i, text in enumerate(statements, 1)]
    if not sources:
        raise UsageError("there is no SQL to run", hint="Name a file, give SQL with -e, or name - for standard input.")
    return session.compiler.scripts(sources)


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 failed while running, 2 the SQL or the arguments are wrong."""
    code = 0
    try:
        result = cli.main(prog_name="sqlstream", standalone_mode=False)
        code = result if isinstance(result, int) else 0
    except SqlStreamError as e:
        click.echo(e.render(terminal_width(sys.stderr)), err=True)
        code = e.exit_code
    except click.ClickException as e:
        e.show()
        code = 2
    except (click.Abort, KeyboardInterrupt):
        code = 130
    _exit(code)


def _exit(code: int) -> None:
    """End at once: DuckDB's and py4j's clean-up at the end of Python has nothing to do, and prints about it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            code = code or _BROKEN_PIPE
        except ValueError:
            code = code or 1
    os._exit(code)
