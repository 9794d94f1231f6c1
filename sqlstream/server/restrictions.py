"""What SQL of the role `submit` may not do: run code of its own, and read or write files outside of declared paths.

The SQL of a job reads files through its tables alone. So what is checked are the options of the tables that it declares, or gives
other options; and statements that bring in code, settings of Spark, and variables of the server's environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from sqlstream.compiler.project import Project
from sqlstream.errors import SourceText, Span
from sqlstream.server.messages import SubmitRequest
from sqlstream.server.problems import HttpError
from sqlstream.sql.nodes import CreateFunction, SetOption
from sqlstream.sql.statements import parse_script
from sqlstream.sql.variables import variables_in

# Connectors that reach nothing outside, and those that reach what one path names.
_HARMLESS = ("blackhole", "datagen", "nexmark", "print", "values")
_BY_PATH = ("delta", "duckdb", "filesystem", "sqlite")
# Those of them whose path may be a URI, or begin with the home folder.
_BY_URI = ("delta", "filesystem")
# How options begin that say how a store is reached: with the server's credentials, another one must not be.
_STORAGE = "storage."
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
                self._check_path(name, connector, value, span)
            elif option.lower().startswith(_STORAGE) or _NAMES_PLACES.search(option.lower()):
                raise forbidden(f'table "{name}": SQL of the role submit cannot set "{option}"', span)

    def _check_path(self, name: str, connector: str, path: str, span: Span | None) -> None:
        takes_uris = connector in _BY_URI
        plain = path[7:] if takes_uris and path.lower().startswith("file://") else path
        is_uri = "://" in plain
        if not (takes_uris and self._is_in_uri(plain) if is_uri else self._is_in_folder(plain, in_home=takes_uris)):
            raise forbidden(f'table "{name}": its path is outside of what SQL of the role submit can read', span)

    def _is_in_uri(self, path: str) -> bool:
        """Tell whether a URI lies below one that is allowed, and reaches the same store: options behind "?" name it, too."""
        place, options = _without_options(path)
        # Some libraries take `%2e%2e` for `..`.
        decoded = place
        while (further := unquote(decoded)) != decoded:
            decoded = further
        if ".." in re.split(r"[/\\]", decoded):
            return False
        for uri in self._uris:
            allowed, same = _without_options(uri)
            if options == same and (place == allowed or place.startswith(f"{allowed.rstrip('/')}/")):
                return True
        return False

    def _is_in_folder(self, path: str, *, in_home: bool) -> bool:
        # A link may lead elsewhere: the part before a pattern is followed, and a pattern does not go up.
        fixed = re.split(r"[*?\[{]", path, maxsplit=1)[0]
        real = self._real(os.path.expanduser(fixed) if in_home else fixed)
        return ".." not in path[len(fixed) :].split("/") and any(
            real == folder or real.startswith(f"{folder.rstrip('/')}/") for folder in self._folders
        )


def _without_options(uri: str) -> tuple[str, str]:
    """Return a URI without the options behind it, and these.

    >>> _without_options("s3://b/in/x?region=r"), _without_options("s3://b/?.csv")
    (('s3://b/in/x', 'region=r'), ('s3://b/?.csv', ''))
    """
    place, _, options = uri.partition("?") if "=" in uri else (uri, "", "")
    return place, options


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
    for place in variables_in(source):
        hint = "Tables of the project's catalog can use them."
        raise forbidden("SQL of the role submit cannot read variables of the environment, or files", place, hint)
    for statement in parse_script(source):
        if isinstance(statement, CreateFunction):
            raise forbidden("SQL of the role submit cannot bring in functions", statement.reference_span)
        if isinstance(statement, SetOption):
            _check_option(statement.key.text, statement.key.span)


def _check_option(key: str, span: Span | None) -> None:
    if key.lower().startswith("spark."):
        raise forbidden(f'the role submit cannot set "{key}"', span, "Use a token of the role admin.")
