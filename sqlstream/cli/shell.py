"""`sqlstream shell`: SQL at a prompt, from files, or from standard input."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import click

from sqlstream.cli.arguments import open_session, with_engine, with_folders, with_settings

if TYPE_CHECKING:
    from sqlstream.errors import SourceText
    from sqlstream.shell.shell import Shell


@click.command(short_help="Enter SQL at a prompt; changes are shown live.")
@click.option("-f", "--file", "files", multiple=True, metavar="FILE", help="Run a file, and end; - is standard input.")
@click.option("-c", "--command", "texts", multiple=True, metavar="SQL", help="Run statements or a \\command, and end.")
@with_engine
@with_settings
@with_folders
def shell(
    files: tuple[str, ...],
    texts: tuple[str, ...],
    settings: tuple[str, ...],
    tables: tuple[str, ...],
    project: str | None,
    warehouse: str | None,
) -> None:
    """Enter SQL at a prompt. Files run before the statements of -c; \\? lists the commands of the shell.

    Without a terminal, and with -f and -c, it ends at the first error, and waits at the end for the jobs that it started.
    """
    from sqlstream.errors import SourceText
    from sqlstream.project import read_source
    from sqlstream.shell.output import ShellOutput, StandardStream
    from sqlstream.shell.shell import Shell

    types = not (files or texts) and sys.stdin.isatty() and sys.stdout.isatty()
    output = ShellOutput(interactive=types)
    # A SET at the prompt overrides --set.
    with open_session(project, warehouse, settings, tables, fixed=not types) as session:
        session.output, session.notice = StandardStream("stdout"), output.say
        opened = Shell(session, output)
        if types:
            _interact(opened)
        else:
            sources = [read_source(file, root=session.project.root) for file in files]
            sources += [SourceText("-c", text) for text in texts]
            _run_all(opened, sources or [read_source("-")])


def _interact(opened: Shell) -> None:
    from sqlstream.shell.history import history_file
    from sqlstream.shell.prompt import Prompt, interact

    project = opened.session.project
    opened.output.say(f"sqlstream, project {project.root}\n\\? lists the commands, Ctrl-D ends the shell.", "dim")
    prompt = Prompt(opened.session, history_file())
    with opened.ended_by_sigterm(prompt.leave), opened.interrupted_by_ctrl_c(), closing(opened):
        interact(opened, prompt)


def _run_all(opened: Shell, sources: Sequence[SourceText]) -> None:
    from sqlstream.shell.commands import run

    with opened.ended_by_sigterm(), closing(opened):
        for source in sources:
            run(opened, source)
        if not opened.is_over:
            opened.finish()
