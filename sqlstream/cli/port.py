"""`sqlstream port`: what of a Flink script runs, what is noticed about it, and what to write instead."""

from __future__ import annotations

from pathlib import Path

import click

from sqlstream.cli.arguments import open_session, with_folders
from sqlstream.errors import UsageError


@click.command("port", short_help="Say what of a Flink script runs, and what to write instead.")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Default: text.")
@click.option("--write", "target", metavar="FILE", type=click.Path(dir_okay=False), help="Write a script that runs.")
@with_folders
def port_script(file: str, form: str, target: str | None, project: str | None, warehouse: str | None) -> int:
    """Say which statements of a Flink script run, what is noticed, and what to write instead. Nothing starts or is created.

    --write writes a script that runs: refused statements become comments with their reason, and tables of connectors that do
    not exist here lose them. Exit codes: 0 all runs as it is, 1 something does not. The file - is standard input.
    """
    from sqlstream.project import read_source

    if target is not None and file != "-" and Path(target).resolve() == Path(file).resolve():
        raise UsageError("--write names the script itself", hint="Give the new script another name.")
    with open_session(project, warehouse, ()) as session:
        script = session.port(read_source(file, root=session.project.root))
    click.echo(script.json if form == "json" else script.text)
    if target is not None:
        Path(target).write_text(script.script)
    return 0 if script.count("runs") == len(script.statements) else 1
