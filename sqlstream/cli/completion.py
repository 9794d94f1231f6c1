"""Completion in bash, zsh and fish: the script that a shell loads, and the names of jobs."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from sqlstream.errors import SqlStreamError

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "sqlstream"


def completion_script(shell: str, cli: click.Command) -> str:
    """Return the script that lets one of the SHELLS complete our commands."""
    completion = get_completion_class(shell)
    assert completion is not None
    return completion(cli, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source()


def job_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the jobs of the warehouse whose names begin with a text, for click; none with --server."""
    from sqlstream.project import find_project
    from sqlstream.warehouse.paths import Warehouse

    if context.find_root().params.get("server"):
        return []
    try:
        project = find_project(context.params.get("project"), context.params.get("warehouse"))
        names = Warehouse(project.warehouse).jobs()
    except (SqlStreamError, OSError):
        return []
    return [name for name in names if name.startswith(incomplete.lower())]
