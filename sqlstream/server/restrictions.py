"""What SQL of the role `submit` may not do: run code of its own, and read or write files outside of declared paths.

The SQL of a job reads files through its tables alone. So what is checked are the options of the tables that it declares, or gives
other options; and statements that bring in code, settings of Spark, and variables of the server's environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from sqlstream.compiler.project import Project
from sqlstream.errors import SourceText, Span
from sqlstream.server.messages import SubmitRequest
from sqlstream.server.problems import HttpError
from sqlstream.sql.nodes import CreateFunction, SetOption
from sqlstream.sql.statements import parse_script
from sqlstream.sql.variables import with_variables

# Connectors that reach nothing outside, and those that reach what one path names.
_HARMLESS = ("blackhole", "datagen", "nexmark", "print", "values")
_BY_PATH = ("delta", "duckdb", "filesystem", "sqlite")
# Options that name something else outside.
_NAMES_PLACES = re.compile(
    r"(?:^|[.-])(?:path|file|location|url|uri|class|function|registry|directory|dir|bootstrap|servers)(?:$|[.-])"
)
_HINT = "Have an admin declare the table in the project's catalog, or use a token of the role admin."


def forbidden(message: str, span: Span | None = None, hint: str = _HINT) -> HttpError:
    """Return the error for what a token does not allow."""
    error = HttpError(403, message, hint=hint)
    error.span = span
    return error


class TableRestrictions:
    """Checks the options of tables that SQL of the role `submit` declares: it is called with name, options and place."""

    def __init__(self, project: Project, paths: Sequence[str]):
        self._root = project.root
        self._uris = [path for path in paths if "://" in path]
        self._folders = [self._real(path) for path in paths if "://" not in path]

    def _real(self, path: str) -> str:
        return os.path.realpath(os.path.join(self._root, path))

    def __call__(self, name: str, options: Mapping[str, str], span: Span | None) -> None:
        """Raise HttpError for a table that reaches what it must not."""
        connector = options.get("connector")
        if connector is None or connector in _HARMLESS:
            return
        if connector not in _BY_PATH:
            raise forbidden(f'table "{name}": SQL of the role submit cannot use the connector "{connector}"', span)
        for option, value in options.items():
            if option == "path":
                self._check_path(name, value, span)
            elif _NAMES_PLACES.search(option.lower()):
                raise forbidden(f'table "{name}": SQL of the role submit cannot set "{option}"', span)

    def _check_path(self, name: str, path: str, span: Span | None) -> None:
        plain = path.removeprefix("file://")
        if "://" in plain:
            inside = ".." not in plain.split("/") and any(
                plain == uri or plain.startswith(f"{uri.rstrip('/')}/") for uri in self._uris
            )
        else:
            # A link may lead elsewhere: the part before a pattern is followed, and a pattern does not go up.
            fixed = re.split(r"[*?\[{]", plain, maxsplit=1)[0]
            real = self._real(fixed)
            inside = ".." not in plain[len(fixed) :].split("/") and any(
                real == folder or real.startswith(f"{folder.rstrip('/')}/") for folder in self._folders
            )
        if not inside:
            raise forbidden(f'table "{name}": its path is outside of what SQL of the role submit can read', span)


def check_request(request: SubmitRequest, source: SourceText) -> None:
    """Raise HttpError for what a script of the role `submit` must not say, whatever its tables are."""
    if request.migrate is not None:
        raise forbidden("MIGRATE STATE can read any file", hint="Use a token of the role admin.")
    if request.savepoint is not None and ("/" in request.savepoint or os.sep in request.savepoint):
        raise forbidden("the role submit names savepoints of the warehouse", hint="Use a token of the role admin.")
    if request.tables:
        raise forbidden("the role submit cannot give tables other options", hint="Use a token of the role admin.")
    for key in request.settings:
        _check_option(key, None)
    written = with_variables(source, {})
    for one in written.replacements:
        if source.text[one.written_start : one.written_start + 2] == "${":
            place = Span(source, one.written_start, one.written_end)
            hint = "Tables of the project's catalog can use them."
            raise forbidden("SQL of the role submit cannot read variables of the environment", place, hint)
    for statement in parse_script(source):
        if isinstance(statement, CreateFunction):
            raise forbidden("SQL of the role submit cannot bring in functions", statement.reference_span)
        if isinstance(statement, SetOption):
            _check_option(statement.key.text, statement.key.span)


def _check_option(key: str, span: Span | None) -> None:
    if key.lower().startswith("spark."):
        raise forbidden(f'the role submit cannot set "{key}"', span, "Use a token of the role admin.")
