"""Parameters that several commands share, and the values that they stand for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from sqlstream.configuration import CONFIG, PROFILE
from sqlstream.errors import UsageError
from sqlstream.options import ENGINES

if TYPE_CHECKING:
    from sqlstream.compiler.compiler import Compiled
    from sqlstream.session.session import Session


_LOG_FORMAT = "SQLSTREAM_LOG_FORMAT"


def with_folders(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command --project, --warehouse, --config and --profile."""
    command = click.option(
        "--profile",
        metavar="NAME",
        expose_value=False,
        callback=_chosen(PROFILE),
        help="Profile of the configuration, such as prod (SQLSTREAM_PROFILE).",
    )(command)
    command = click.option(
        "--config",
        metavar="FILE",
        expose_value=False,
        callback=_chosen(CONFIG),
        help="Configuration (SQLSTREAM_CONFIG; default: sqlstream.toml in the project).",
    )(command)
    command = click.option(
        "--project", metavar="DIR", help="Project folder (default: the nearest with catalog/ or udfs/)."
    )(command)
    return click.option(
        "--warehouse",
        metavar="DIR",
        help="Where state and results are (default: warehouse/ in the project, or as the configuration says).",
    )(command)


def _chosen(variable: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    """Return a callback that sets a variable of the environment while a command runs, also for processes that it starts."""

    def choose(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
        if value is None:
            return
        before = os.environ.get(variable)
        os.environ[variable] = os.path.abspath(value) if variable == CONFIG else value
        context.call_on_close(lambda: _restore(variable, before))

    return choose


def _restore(variable: str, before: str | None) -> None:
    if before is None:
        os.environ.pop(variable, None)
    else:
        os.environ[variable] = before


def with_settings(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command --set and --set-table."""
    command = click.option(
        "--set-table",
        "tables",
        multiple=True,
        metavar="TABLE.OPTION=VALUE",
        help="Replace an option of a table's CREATE TABLE; without VALUE, remove it.",
    )(command)
    return click.option(
        "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set an option; goes over SET in the SQL."
    )(command)


def with_engine(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command that has --set an --engine, which sets the option execution.engine."""

    @wraps(command)
    def with_set(*, engine: str | None, settings: tuple[str, ...], **others: Any) -> Any:
        return command(settings=settings if engine is None else (*settings, f"execution.engine={engine}"), **others)

    return click.option(
        "--engine",
        type=click.Choice(ENGINES),
        help="What runs the jobs: Spark, or this process alone, without Java (--set execution.engine=local).",
    )(with_set)


def with_monitoring(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command --trace, --metrics and --log-format."""
    command = click.option(
        "--metrics",
        metavar="[HOST:]PORT",
        help="Serve metrics of the jobs for Prometheus meanwhile (extra metrics; default host: 127.0.0.1).",
    )(command)
    command = click.option(
        "--trace",
        metavar="FILE",
        help="Profile the jobs: show where their time went, and write a trace for Perfetto (FILE.json).",
    )(command)
    return click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        envvar=_LOG_FORMAT,
        help="With json a line of JSON on standard error for every event, in place of what people read.",
    )(command)


def logs_json(words: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return whether the words of a command line ask for lines of JSON, before they are parsed.

    >>> logs_json(["run", "a.sql", "--log-format", "json"], {}), logs_json(["query", "--format", "json", "FROM t"], {})
    (True, False)
    >>> logs_json(["run", "--log-format=text", "a.sql"], {"SQLSTREAM_LOG_FORMAT": "json"})
    False
    """
    form = environment.get(_LOG_FORMAT)
    for word, after in pairwise([*words, ""]):
        name, equals, value = word.partition("=")
        if name == "--log-format":
            form = value if equals else after
    return [*words][:1] == ["run"] and form == "json"


def with_output(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command --format (`form`) and --output, for its rows."""
    command = click.option(
        "--output", metavar="FILE", help="Write the rows into a file (.csv or .json) instead of the terminal."
    )(command)
    return click.option(
        "--format", "form", type=click.Choice(["table", "csv", "json"]), help="Default: table, or as --output ends."
    )(command)


def format_of(output: str | None) -> str:
    """Return the format of an output file by its ending: csv, json or table. Raises UsageError for another ending."""
    ending = os.path.splitext(output or "")[1].lower()
    if ending in (".csv", ".json"):
        return ending[1:]
    if ending not in ("", ".txt"):
        raise UsageError(f'no format is known for "{output}"', hint="Name it .csv or .json, or say --format.")
    return "table"


def open_session(
    project: str | None,
    warehouse: str | None,
    settings: tuple[str, ...],
    tables: tuple[str, ...] = (),
    *,
    load: bool = True,
    fixed: bool = True,
    notice: Callable[[str], None] | None = None,
) -> Session:
    """Return the session of a command; without `load` it does not read the project's catalog.

    If the settings are `fixed`, SET does not change them. Notices go to `notice` (default: standard error).
    """
    from sqlstream.session.session import Session

    conf = parsed_settings(settings)
    session = Session(
        project,
        warehouse,
        conf,
        table_options=parsed_table_options(tables),
        notice=notice or (lambda text: click.echo(text, err=True)),
        load=load,
    )
    if fixed:
        session.options.fix(conf)
    return session


def parsed_settings(texts: tuple[str, ...]) -> dict[str, str]:
    """Return the options of --set, by name. Raises UsageError for a text that is not KEY=VALUE."""
    settings = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f'--set "{text}" is not KEY=VALUE')
        settings[key.strip()] = value.strip()
    return settings


def parsed_table_options(texts: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Return the options of --set-table, by table and name. Raises UsageError for a text that is not TABLE.OPTION=VALUE."""
    options: dict[str, dict[str, str]] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        table, dot, option = key.strip().partition(".")
        if not (equals and table and dot and option):
            hint = "Write --set-table orders.source.monitor-interval='1 s'."
            raise UsageError(f'--set-table "{text}" is not TABLE.OPTION=VALUE', hint=hint)
        options.setdefault(table, {})[option] = value.strip()
    return options


def query_text(sql: str | None, file: str | None) -> str:
    """Return a command's query: its argument, a file, or standard input (-). Raises UsageError unless there is exactly one."""
    from sqlstream.project import read_text

    if (sql is None) == (file is None):
        hint = "Write it behind the command, name a file with -f, or write - to have it read from standard input."
        raise UsageError("there is no query" if sql is None else "there are two queries", hint=hint)
    if sql is None or sql == "-":
        return read_text(file or "-")
    return sql


def view_of_plan(stage: str | None, against: str | None, migrate: str | None, *, verbose: bool, batch: bool) -> str:
    """Return which view of a plan `explain` shows, "plan" unless the options say otherwise.

    Raises UsageError for options that ask for two views, and for --migrate without --against.
    """
    options = {"--batch": batch, "--stage": stage is not None, "--verbose": verbose, "--against": against is not None}
    chosen = [option for option, is_set in options.items() if is_set]
    if len(chosen) > 1:
        raise UsageError(
            f"{chosen[0]} and {chosen[1]} show different things", hint="Give one of them, and call explain twice."
        )
    if migrate is not None and against is None:
        raise UsageError("--migrate is for a job that goes on", hint="Name the job with --against.")
    return "batch" if batch else stage or ("physical" if verbose else "plan")


def is_job(word: str) -> bool:
    """Return whether a word of the command line is a job's name, not a file of SQL."""
    return word != "-" and not word.endswith(".sql") and not os.path.exists(word)


def compile_all(session: Session, files: tuple[str, ...], statements: tuple[str, ...]) -> list[Compiled]:
    """Compile files, then statements. Raises UsageError if there are none, and the errors of the SQL."""
    from sqlstream.errors import SourceText
    from sqlstream.project import read_source

    sources = [read_source(file, root=session.project.root) for file in files]
    sources += [SourceText("-e" if len(statements) == 1 else f"-e {i}", text) for i, text in enumerate(statements, 1)]
    if not sources:
        raise UsageError("there is no SQL to run", hint="Name a file, give SQL with -e, or name - for standard input.")
    return session.compiler.scripts(sources)


@contextmanager
def naming_scripts(job: str) -> Iterator[None]:
    """Add to the error of a job with undeclared tables a hint that says how the command line declares them."""
    from sqlstream.session.verifying import NotDeclared

    try:
        yield
    except NotDeclared as error:
        error.hint = f"Name the script that declares them: sqlstream verify {job} FILE.sql."
        raise
