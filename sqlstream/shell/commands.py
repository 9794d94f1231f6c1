"""The commands of the shell, which begin with a backslash, with psql's names for those that psql has."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from rich.console import RenderableType
from rich.live import Live

from sqlstream.compiler.catalog_answers import WarehouseQuery
from sqlstream.compiler.listings import JOBS
from sqlstream.errors import SourceText, Span, UsageError, nearest, plainly
from sqlstream.project import read_source
from sqlstream.session.answers import write_answer
from sqlstream.session.known_names import described, relations
from sqlstream.session.rendering import text_table, write_rows
from sqlstream.session.routing import Route
from sqlstream.shell.charts import chart
from sqlstream.shell.entries import Command, parts
from sqlstream.shell.shell import Shell

# Six digits are more seconds than a day has, and fewer than the longest possible wait.
_WATCH = re.compile(r"(?:(?P<seconds>\d{1,6}(?:\.\d+)?)(?=\s|$)\s*)?(?:c=(?P<count>\d{1,9})(?=\s|$)\s*)?")
_WATCH_SECONDS = 2.0
# A file that runs itself would never end.
_MOST_INCLUDED = 20


@dataclass(frozen=True, slots=True)
class _ShellCommand:
    """A command: its usage, its effect in words, and the function that runs it with the text behind its name."""

    usage: str
    about: str
    run: Callable[[Shell, Span], None]


def run(shell: Shell, source: SourceText) -> None:
    """Run the statements and commands of a text one after the other, until one fails. Raises its error."""
    for part in parts(source):
        if shell.is_over:
            return
        began = time.monotonic()
        with plainly():
            if isinstance(part, Command):
                run_command(shell, part)
            else:
                shell.execute(part)
        if shell.shows_time:
            shell.output.say(f"Time: {(time.monotonic() - began) * 1000:,.1f} ms", "dim")


def run_command(shell: Shell, command: Command) -> None:
    """Run a command. Raises UsageError if it does not exist, and its own errors."""
    if command.name not in COMMANDS:
        near = nearest(command.name, COMMANDS) if command.name else None
        hint = "\\? lists the commands." if near is None else f"did you mean \\{near}? \\? lists them all."
        raise UsageError(f"command \\{command.name} does not exist", command.span, hint=hint)
    COMMANDS[command.name].run(shell, command.rest)


def _help(shell: Shell, rest: Span) -> None:
    width = max(len(command.usage) for command in COMMANDS.values())
    for command in COMMANDS.values():
        shell.output.stream.write(f"{command.usage:{width}}  {command.about}\n")
    shell.output.stream.write("\nA semicolon ends a statement. Ctrl-C ends what is shown, Ctrl-D the shell.\n")


def _quit(shell: Shell, rest: Span) -> None:
    shell.is_over = True


def _jobs(shell: Shell, rest: Span) -> None:
    write_answer(shell.session, WarehouseQuery(JOBS), shell.output.stream)


def _describe(shell: Shell, rest: Span) -> None:
    listing = described(shell.session, rest) if rest.text else relations(shell.session)
    write_rows(listing.columns, listing.rows, shell.output.stream)


def _timing(shell: Shell, rest: Span) -> None:
    words = {"": not shell.shows_time, "on": True, "off": False}
    if rest.text.lower() not in words:
        raise UsageError("\\timing is on or off", rest)
    shell.shows_time = words[rest.text.lower()]
    shell.output.say(f"Timing is {'on' if shell.shows_time else 'off'}.")


def _output(shell: Shell, rest: Span) -> None:
    shell.output.redirect(rest.text or None)


def _include(shell: Shell, rest: Span) -> None:
    if not rest.text:
        raise UsageError("\\i needs the name of a file", rest)
    if len(shell.included) >= _MOST_INCLUDED:
        raise UsageError(f"\\i: files are in one another more than {_MOST_INCLUDED} deep", rest)
    shell.included.append(rest.text)
    try:
        run(shell, read_source(rest.text, root=shell.session.project.root))
    finally:
        shell.included.pop()


def _stop(shell: Shell, rest: Span) -> None:
    name = _job_name(rest, "stop")
    shell.session.stop(name)
    if all(job.name.lower() != name.lower() for job in shell.session.jobs):
        shell.output.say(f'job "{name}" stopped')


def _drop(shell: Shell, rest: Span) -> None:
    name = _job_name(rest, "drop")
    shell.session.drop(name)
    shell.output.say(f'job "{name}" dropped, with its state and the rows that it wrote')


def _job_name(rest: Span, command: str) -> str:
    if not rest.text:
        raise UsageError(f"\\{command} needs the name of a job", rest, hint="\\jobs lists them.")
    return rest.text.strip('"')


def _stream(shell: Shell, rest: Span) -> None:
    shell.execute(_query(shell, rest), Route.SESSION)


def _duckdb(shell: Shell, rest: Span) -> None:
    shell.execute(_query(shell, rest), Route.QUERY)


def _query(shell: Shell, rest: Span) -> Span:
    """Return the query behind a command, or the last one that was run. Raises UsageError if there is neither."""
    if rest.text.strip():
        return rest
    if shell.last_query is None:
        raise UsageError("there is no query", rest, hint="Write it behind the command.")
    return shell.last_query


def _watch(shell: Shell, rest: Span) -> None:
    head = _WATCH.match(rest.text)
    assert head is not None
    seconds = float(head["seconds"] or _WATCH_SECONDS)
    shell.last_query = query = _query(shell, Span(rest.source, rest.start + head.end(), rest.end))
    # Counts down to 0; without COUNT it starts below.
    remaining = int(head["count"] or -1)
    console, stopping = shell.output.console, threading.Event()

    def frame() -> RenderableType:
        with shell.answered(query) as relation:
            return text_table(relation, console.height - 3)

    with shell.stopped_by_signals(stopping), ExitStack() as stack:
        live = None
        while remaining != 0:
            remaining -= 1
            if not shell.output.can_redraw:
                shell.execute(query, Route.QUERY)
            elif live is None:
                live = stack.enter_context(Live(frame(), console=console, auto_refresh=False, vertical_overflow="crop"))
            else:
                live.update(frame(), refresh=True)
            if remaining == 0 or stopping.wait(seconds):
                return


def _plot(shell: Shell, rest: Span) -> None:
    shell.last_query = query = _query(shell, rest)
    with shell.answered(query) as relation:
        if len(relation.columns) != 2:
            hint = "The first column is drawn from left to right, the second from bottom to top."
            raise UsageError(f"a chart is of two columns, and this query has {len(relation.columns)}", query, hint=hint)
        for line in chart(relation, min(shell.output.console.width, 100)):
            shell.output.stream.write(f"{line}\n")


COMMANDS: Mapping[str, _ShellCommand] = {
    "d": _ShellCommand("\\d [NAME]", "list tables, views and state, or the columns of one", _describe),
    "jobs": _ShellCommand("\\jobs", "list the jobs of the warehouse", _jobs),
    "stop": _ShellCommand("\\stop JOB", "stop a job after its batch", _stop),
    "drop": _ShellCommand("\\drop JOB", "delete a job, its state and its rows", _drop),
    "watch": _ShellCommand("\\watch [SECONDS] [c=COUNT] [SELECT ..]", "run a state query again and again", _watch),
    "plot": _ShellCommand("\\plot [SELECT ..]", "draw a result of two columns", _plot),
    "stream": _ShellCommand(
        "\\stream [SELECT ..]", "show the changes of a query, also of tables of the warehouse", _stream
    ),
    "query": _ShellCommand("\\query [SELECT ..]", "let DuckDB answer at once, also over declared files", _duckdb),
    "timing": _ShellCommand("\\timing [on|off]", "show how long each statement takes", _timing),
    "o": _ShellCommand(
        "\\o [FILE]", "write results into a file (.csv, .json or text), or to the terminal again", _output
    ),
    "i": _ShellCommand("\\i FILE", "run the statements of a file", _include),
    "?": _ShellCommand("\\?", "list these commands", _help),
    "q": _ShellCommand("\\q", "stop the jobs of this shell, and leave it", _quit),
}
