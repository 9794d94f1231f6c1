"""Restrictions of the role `submit`: its SQL cannot run code of its own, nor read or write files outside of declared paths.

The SQL of a job accesses files through its tables only. So the checks are about options of tables that it declares or changes,
and about statements that bring in code, Spark's settings, and variables of the server's environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from sqlstream.connectors.confined_files import is_within, outside
from sqlstream.connectors.filesystem.listing import PathPattern
from sqlstream.connectors.interface import Reach
from sqlstream.connectors.registry import find
from sqlstream.errors import SourceText, Span
from sqlstream.options import stored_name
from sqlstream.project import Project
from sqlstream.server.messages import SubmitRequest
from sqlstream.server.problems import HttpError
from sqlstream.sql.nodes import CreateFunction, Insert, SetOption, StatementSet
from sqlstream.sql.statements import parse_script
from sqlstream.sql.variables import variables_in
from sqlstream.warehouse.uris import may_set_options, split_options

# The prefix of options that say how a store is reached: the server's credentials must not be used for another store.
_STORAGE = "storage."
# Options that name something else outside of the warehouse.
_NAMES_LOCATIONS = re.compile(
    r"(?:^|[.-])(?:path|file|location|url|uri|class|function|registry|directory|dir|bootstrap|servers)(?:$|[.-])"
)
_HINT = "Have an admin declare the table in the project's catalog, or use a token of the role admin."


def forbidden(message: str, span: Span | None = None, hint: str = _HINT) -> HttpError:
    """Return the error for something that a token does not allow, with the status 403."""
    error = HttpError(403, message, hint=hint)
    error.span = span
    return error


class TableRestrictions:
    """Checks the tables that SQL of the role `submit` declares. Call it with a table's name, options and position.

    Their local files must be in the `folders`, now and later.
    """

    def __init__(self, project: Project, paths: Sequence[str]):
        self._root = project.root
        self._uris = [path for path in paths if "://" in path]
        self.folders = [self._real(path) for path in paths if "://" not in path]

    def _real(self, path: str) -> str:
        return os.path.realpath(os.path.join(self._root, path))

    def __call__(self, name: str, options: Mapping[str, str], span: Span | None) -> None:
        """Raise HttpError if a table can read or write something that the role may not."""
        connector = options.get("connector")
        reach = _reach(connector)
        if reach is Reach.NOTHING:
            return
        if reach is Reach.ELSEWHERE:
            raise forbidden(f'table "{name}": SQL of the role submit cannot use the connector "{connector}"', span)
        for option, value in options.items():
            if option == "path":
                self._check_path(name, reach, value, span)
            elif option.lower().startswith(_STORAGE) or _NAMES_LOCATIONS.search(option.lower()):
                raise forbidden(f'table "{name}": SQL of the role submit cannot set "{option}"', span)

    def _check_path(self, name: str, reach: Reach, path: str, span: Span | None) -> None:
        takes_uris = reach is Reach.STORE
        plain = path[7:] if takes_uris and path.lower().startswith("file://") else path
        is_uri = "://" in plain
        if not (takes_uris and self._is_in_uri(plain) if is_uri else self._is_in_folder(plain, in_home=takes_uris)):
            raise forbidden(f'table "{name}": its path is outside of what SQL of the role submit can read', span)
        if takes_uris and not is_uri and (outside := self._outside(path)) is not None:
            message = f'table "{name}": the link "{outside}" leads outside of what SQL of the role submit can read'
            raise forbidden(message, span)

    def _is_in_uri(self, path: str) -> bool:
        """Return whether a URI is below an allowed one, and reaches the same store: options behind "?" can name another."""
        location, options = split_options(path)
        # Some libraries read `%2e%2e` as `..`.
        decoded = location
        while (further := unquote(decoded)) != decoded:
            decoded = further
        if ".." in re.split(r"[/\\]", decoded) or may_set_options(location):
            return False
        for uri in self._uris:
            allowed, same = split_options(uri)
            if options == same and (location == allowed or location.startswith(f"{allowed.rstrip('/')}/")):
                return True
        return False

    def _is_in_folder(self, path: str, *, in_home: bool) -> bool:
        # A link may lead elsewhere: the folder before a pattern is resolved, and a pattern cannot go up.
        folder, pattern = _without_pattern(path)
        real = self._real(os.path.expanduser(folder) if in_home else folder)
        return ".." not in pattern.split("/") and is_within(real, self.folders)

    def _outside(self, path: str) -> str | None:
        """Return a file of a path, or its folder, that a symbolic link puts outside of `folders`; None if there is none."""
        try:
            location = PathPattern(path, self._root)
            files = [file.path for file in location.files() or ()]
        except OSError:
            # An unreadable file is not read.
            return None
        return outside(files, self.folders)


def _reach(connector: str | None) -> Reach:
    """Return what tables of a connector can reach; ELSEWHERE for an unknown connector."""
    if connector is None:
        return Reach.NOTHING
    declared = find(connector)
    if declared is None:
        return Reach.ELSEWHERE
    # Options of formats may name files.
    return Reach.FILE if declared.reach is Reach.NOTHING and declared.formats else declared.reach


def _without_pattern(path: str) -> tuple[str, str]:
    """Return (folder before a pattern, the pattern), or (the path, "") without a pattern.

    >>> _without_pattern("in/a*/x"), _without_pattern("in*"), _without_pattern("/x?"), _without_pattern("in/x")
    (('in', 'a*/x'), ('.', 'in*'), ('/', 'x?'), ('in/x', ''))
    """
    fixed = re.split(r"[*?\[{]", path, maxsplit=1)[0]
    if fixed == path:
        return path, ""
    folder, slash, _ = fixed.rpartition("/")
    return folder or slash or ".", path[len(folder + slash) :]


def check_request(request: SubmitRequest, source: SourceText, parallelism: int) -> None:
    """Raise HttpError for anything in a script that the role `submit` does not allow, apart from its tables.

    `parallelism` is the highest that its jobs may have.
    """
    if request.migrate is not None:
        raise forbidden("MIGRATE STATE can read any file", hint="Use a token of the role admin.")
    if request.savepoint is not None and ("/" in request.savepoint or os.sep in request.savepoint):
        raise forbidden("the role submit names savepoints of the warehouse", hint="Use a token of the role admin.")
    if request.tables:
        raise forbidden("the role submit cannot give tables other options", hint="Use a token of the role admin.")
    for key, value in request.settings.items():
        _check_option(key, value, None, parallelism)
    for location in variables_in(source):
        hint = "Tables of the project's catalog can use them."
        raise forbidden("SQL of the role submit cannot read variables of the environment, or files", location, hint)
    for statement in parse_script(source):
        if isinstance(statement, CreateFunction):
            raise forbidden("SQL of the role submit cannot bring in functions", statement.reference_span)
        inserts = statement.inserts if isinstance(statement, StatementSet) else (statement,)
        for insert in inserts:
            if isinstance(insert, Insert) and insert.overwrites:
                hint = "Write INSERT INTO, or use a token of the role admin."
                raise forbidden("SQL of the role submit cannot overwrite what others wrote", insert.target.span, hint)
        if isinstance(statement, SetOption):
            _check_option(statement.key.text, statement.value.value, statement.key.span, parallelism)


def _check_option(key: str, value: str, span: Span | None, parallelism: int) -> None:
    if stored_name(key) == "parallelism.default" and not _is_up_to(value, parallelism):
        hint = f"Write a number up to {parallelism}, or use a token of the role admin."
        raise forbidden(f'the role submit cannot set "{key}" to "{value}"', span, hint)
    if key.lower().startswith("spark."):
        raise forbidden(f'the role submit cannot set "{key}"', span, "Use a token of the role admin.")


def _is_up_to(value: str, most: int) -> bool:
    digits = value.strip().lstrip("+0")
    return not digits.isdecimal() or (len(digits) <= 9 and int(digits) <= most)
