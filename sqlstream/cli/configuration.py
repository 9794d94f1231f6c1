"""`sqlstream config`: which settings a command has here, and where each comes from."""

from __future__ import annotations

import json

import click

from sqlstream.cli.arguments import with_folders


@click.command(short_help="Show the settings, and where each comes from.")
@click.option("--all", "everything", is_flag=True, help="Show what has its default, too.")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", help="Default: table.")
@with_folders
def config(everything: bool, form: str, project: str | None, warehouse: str | None) -> None:
    """Show the settings of the project, and where they come from: the file, a profile, the environment, or their default.

    Secrets are masked. A script may set options with SET, and --set goes over all of them.
    """
    from sqlstream.configuration import ARGUMENT, DEFAULT
    from sqlstream.project import find_project

    current_project = find_project(project, warehouse)
    settings = dict(current_project.configuration.settings)
    rows: list[tuple[str, str, str]] = [("project", current_project.root, ARGUMENT if project is not None else DEFAULT)]
    for name, one in settings.items():
        if name == "warehouse" and warehouse is not None:
            rows.append((name, current_project.warehouse, ARGUMENT))
        elif everything or one.origin != DEFAULT or not name.startswith(("options.", "server.")):
            rows.append((name, one.shown, one.origin))
    if form == "json":
        click.echo(json.dumps([dict(zip(("setting", "value", "origin"), row, strict=True)) for row in rows], indent=2))
        return
    widths = [max(len(row[index]) for row in rows) for index in (0, 1)]
    for name, value, origin in rows:
        click.echo(f"{name:<{widths[0]}}  {value:<{widths[1]}}  {origin}".rstrip())
