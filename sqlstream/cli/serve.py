"""`sqlstream serve`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from sqlstream.cli.arguments import with_folders
from sqlstream.distribution import install_command
from sqlstream.errors import UsageError

if TYPE_CHECKING:
    from sqlstream.project import Project
    from sqlstream.server.settings import Limits, ServerSettings


@click.command(short_help="Serve jobs and their state over HTTP, and supervise jobs.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Listen on this address.")
@click.option("--port", default=8642, show_default=True, help="Listen on this port; 0: on any that is free.")
@click.option("--postgres", type=int, metavar="PORT", help="Let PostgreSQL's clients query state on this port.")
@click.option("--flight", metavar="[HOST:]PORT", help="Let clients of Arrow Flight SQL query state on this port.")
@click.option("--tokens", metavar="FILE", help="Let in who has a token of this file: lines of a role and a token.")
@click.option("--tls-cert", metavar="FILE", help="Serve HTTPS with this certificate (PEM).")
@click.option("--tls-key", metavar="FILE", help="The key of the certificate (PEM).")
@click.option("--insecure", is_flag=True, help="Listen on other addresses than loopback without tokens or TLS.")
@click.option(
    "--host-name", "names", multiple=True, metavar="NAME", help="A name by which clients know the server (repeatable)."
)
@click.option(
    "--allow-path",
    "paths",
    multiple=True,
    metavar="PATH",
    help="A folder or URI whose files SQL of the role submit may read and write (repeatable).",
)
@click.option("--query-seconds", default=60.0, show_default=True, help="End queries after so long.")
@click.option("--compile-seconds", default=60.0, show_default=True, help="Compile SQL that is submitted for so long.")
@click.option("--verify-seconds", default=600.0, show_default=True, help="Verify a job for so long.")
@click.option("--query-memory", default="1 GB", show_default=True, help="The most memory of a query.")
@click.option("--queries", default=4, show_default=True, help="The most queries at a time.")
@click.option("--max-body", default="1 MB", show_default=True, help="The largest body of a request.")
@with_folders
def serve(project: str | None, warehouse: str | None, **arguments: Any) -> None:
    """Serve jobs and their state over HTTP, and supervise the jobs that are submitted.

    A second server on the same warehouse answers, too, and supervises when the first one is gone.
    """
    from sqlstream.project import find_project

    try:
        from sqlstream.server.serve import serve as serve_until_stopped
    except ImportError as error:
        hint = f"Install it: {install_command('server')}."
        raise UsageError(f"the server needs a library that cannot be imported: {error}", hint=hint) from error
    limits = _limits(arguments)
    settings = _settings(find_project(project, warehouse), arguments, limits)
    serve_until_stopped(settings, lambda text: click.echo(text, err=True))


def _settings(project: Project, arguments: Mapping[str, Any], limits: Limits) -> ServerSettings:
    """Return the settings of the server: an argument overrides the configuration, which overrides the default."""
    from sqlstream.server.access import read_tokens
    from sqlstream.server.settings import ServerSettings, parse_address

    configuration = {name: value for name, value in project.configuration.server.items() if not _is_argument(name)}
    values = {**arguments, **{name.replace("-", "_"): value for name, value in configuration.items()}}
    return ServerSettings(
        project=project,
        host=values["host"],
        port=values["port"],
        tokens=read_tokens(values["tokens"]) if values["tokens"] is not None else None,
        certificate=values["tls_cert"],
        key=values["tls_key"],
        insecure=values["insecure"],
        names=tuple(values["names"]),
        paths=tuple(values["paths"]),
        limits=limits,
        postgres=values["postgres"],
        flight=parse_address(values["flight"]) if values["flight"] is not None else None,
    )


def _limits(arguments: Mapping[str, Any]) -> Limits:
    from sqlstream.server.settings import Limits, limits_of_query

    return Limits(
        body=_size("--max-body", arguments["max_body"]),
        query_seconds=arguments["query_seconds"],
        compile_seconds=arguments["compile_seconds"],
        verify_seconds=arguments["verify_seconds"],
        queries=arguments["queries"],
        query=limits_of_query(_size("--query-memory", arguments["query_memory"])),
    )


def _size(option: str, text: str) -> int:
    """Return the number of bytes in the text of an option. Raises UsageError if it is none."""
    from sqlstream.units import parse_bytes

    try:
        return parse_bytes(text, unit=None)
    except ValueError as error:
        raise UsageError(f'{option} "{text}" is no number of bytes', hint="Such as '1 GB'.") from error


def _is_argument(setting: str) -> bool:
    """Return whether a setting of the server is an argument of the command."""
    source = click.get_current_context().get_parameter_source(setting.replace("-", "_"))
    return source is ParameterSource.COMMANDLINE
