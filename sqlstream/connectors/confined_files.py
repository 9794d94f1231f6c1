"""Tables confined to some folders (`Table.within`): their files must be inside, once symbolic links are resolved.

The user who declared such a table may read nothing else. The paths are checked before the table's SQL is accepted. As a file may
be replaced by a link later, it is checked again when a batch takes it, and when a worker opens it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from sqlstream.catalog import Table
from sqlstream.connectors.uris import is_remote
from sqlstream.errors import DataError


def is_within(path: str, folders: Iterable[str]) -> bool:
    """Whether a path is one of some folders, or below one. The path must be resolved, without symbolic links.

    >>> is_within("/in/a", ["/in"]), is_within("/in-private/a", ["/in"]), is_within("/a", ["/"])
    (True, False, True)
    """
    return any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in folders)


def outside(files: Iterable[str], folders: Iterable[str]) -> str | None:
    """Return the first file, or folder of a file, that a link puts outside of `folders`; None if all files are inside."""
    allowed, is_inside = tuple(folders), dict[str, bool]()
    for file in files:
        folder = os.path.dirname(file)
        if folder not in is_inside:
            is_inside[folder] = is_within(os.path.realpath(folder), allowed)
        # A file that is no link is where its folder is. `folders` may also contain the file itself.
        if (os.path.islink(file) or not is_inside[folder]) and not is_within(os.path.realpath(file), allowed):
            return file if os.path.islink(file) else folder
    return None


def check_files(table: Table, files: Iterable[str]) -> None:
    """Raise DataError if a local file of a table is outside of `table.within`, once links are resolved."""
    if not table.within:
        return
    if (path := outside((file for file in files if not is_remote(file)), table.within)) is not None:
        raise leads_outside(table, path)


def leads_outside(table: Table, path: str) -> DataError:
    """Return the error for a file of a table, `path`, that is outside of `table.within`."""
    return DataError(
        f'"{path}" of table "{table.name}" leads outside of where its files may be',
        table.span,
        hint="Put a copy there instead of a link, or have an admin declare the table in the project's catalog.",
    )
