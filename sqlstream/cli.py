"""The command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from sqlstream.errors import SqlStreamError, UsageError, terminal_width

if TYPE_CHECKING:
    from sqlstream.compiler import Compiled
    from sqlstream.session import Session

EXAMPLES = """\b
Examples:
  sqlstream run -e "SELECT origin, dest FROM flights LIMIT 5"
  sqlstream run examples/flights/departures.sql
  sqlstream query "SELECT * FROM state.departures.by_hour LIMIT 5"
"""


def _folders(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option(
        "--project", metavar="DIR", help="Project folder (default: the nearest with catalog/ or udfs/)."
    )(command)
    return click.option(
        "--warehouse", metavar="DIR", help="Where state and results are (default: warehouse/ in the project)."
    )(command)


@click.group(
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


@cli.command()
@click.argument("files", nargs=-1, metavar="[FILE.sql ...]")
@click.option("-e", "statements", multiple=True, metavar="SQL", help="SQL to run after the files.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set an option before the first statement.")
@click.option("--fresh", is_flag=True, help="Discard the jobs' state and what they wrote, and start anew.")
@click.option("--debug", is_flag=True, help="Show what Spark and Python said when something fails.")
@_folders
def run(
    files: tuple[str, ...],
    statements: tuple[str, ...],
    settings: tuple[str, ...],
    fresh: bool,
    debug: bool,
    project: str | None,
    warehouse: str | None,
) -> None:
    """Run SQL: an INSERT is a job, a SELECT prints changes."""
    from sqlstream.running import run_jobs

    with _session(project, warehouse, settings) as session:
        planned = _compile(session, files, statements)
        if not planned:
            click.echo("nothing to run: the SQL has neither an INSERT nor a query", err=True)
        run_jobs(session, planned, fresh=fresh, debug=debug)


@cli.command()
@click.argument("sql")
@click.option(
    "--format", "form", type=click.Choice(["table", "csv", "json"]), help="Default: table, or as --output ends."
)
@click.option("--output", metavar="FILE", help="Write the result into a file (.csv or .json) instead of the terminal.")
@_folders
def query(sql: str, form: str | None, output: str | None, project: str | None, warehouse: str | None) -> None:
    """Query state, results and sqlstream.*, also of jobs that run."""
    from sqlstream.showing import show

    show(sql, form or _format_of(output), output, project, warehouse)


@cli.command()
@click.argument("files", nargs=-1, metavar="[FILE.sql]")
@click.option("-e", "statements", multiple=True, metavar="SQL", help="SQL to explain.")
@click.option("--verbose", is_flag=True, help="Show Spark's stages, internal names and the SQL of every step.")
@click.option(
    "--stage",
    type=click.Choice(["ast", "logical", "optimized", "physical"]),
    help="Show the query on its way to the plan.",
)
@_folders
def explain(
    files: tuple[str, ...],
    statements: tuple[str, ...],
    verbose: bool,
    stage: str | None,
    project: str | None,
    warehouse: str | None,
) -> None:
    """Show the plan of a query: operators, state, guarantees."""
    from sqlstream.compiler import PlannedJob
    from sqlstream.explaining import explained

    with _session(project, warehouse, ()) as session:
        for job in _compile(session, files, statements):
            if isinstance(job, PlannedJob):
                click.echo(explained(job, stage or ("physical" if verbose else "plan")))


@cli.command()
@_folders
def jobs(project: str | None, warehouse: str | None) -> None:
    """List jobs, with rows since they began."""
    from sqlstream.answering import JOBS
    from sqlstream.showing import show

    show(JOBS, "table", None, project, warehouse)


@cli.command()
@click.argument("job")
@_folders
def stop(job: str, project: str | None, warehouse: str | None) -> None:
    """Stop a job after its batch; its script goes on with it."""
    with _session(project, warehouse, (), load=False) as session:
        session.stop(job)
    click.echo(f'job "{job}" stopped', err=True)


@cli.command()
@click.argument("job")
@_folders
def drop(job: str, project: str | None, warehouse: str | None) -> None:
    """Delete a job: its state and the rows that it wrote."""
    with _session(project, warehouse, (), load=False) as session:
        session.drop(job)
    click.echo(f'job "{job}" dropped, with its state and the rows that it wrote', err=True)


def _format_of(output: str | None) -> str:
    """Return the format that a file's name asks for."""
    ending = os.path.splitext(output or "")[1].lower()
    if ending in (".csv", ".json"):
        return ending[1:]
    if ending not in ("", ".txt"):
        raise UsageError(f'no format is known for "{output}"', hint="Name it .csv or .json, or say --format.")
    return "table"


def _session(project: str | None, warehouse: str | None, settings: tuple[str, ...], *, load: bool = True) -> Session:
    from sqlstream.session import Session

    conf = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f'--set "{setting}" is not KEY=VALUE')
        conf[key.strip()] = value.strip()
    return Session(project, warehouse, conf, notice=lambda text: click.echo(text, err=True), load=load)


def _compile(session: Session, files: tuple[str, ...], statements: tuple[str, ...]) -> list[Compiled]:
    from sqlstream.errors import Source
    from sqlstream.project import read_source

    sources = [read_source(file, root=session.project.root) for file in files]
    sources += [Source("-e" if len(statements) == 1 else f"-e {i}", text) for i, text in enumerate(statements, 1)]
    if not sources:
        raise UsageError("there is no SQL to run", hint="Name a file, or give SQL with -e.")
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
    except BrokenPipeError:
        code = 1
    _exit(code)


def _exit(code: int) -> None:
    """End at once: DuckDB's and py4j's clean-up at the end of Python has nothing to do, and prints about it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (BrokenPipeError, ValueError):
            code = code or 1
    os._exit(code)
