"""Tables whose files must lie in some folders, whatever symbolic links say: whoever declared them may read nothing else.

Where a table's files are is checked before its SQL is accepted. A file may be replaced by a link later, so it is checked again
when it is chosen to be read, and when it is opened.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from sqlstream.catalog import Table
from sqlstream.connectors.uris import is_remote
from sqlstream.errors import DataError


def is_within(path: str, folders: Iterable[str]) -> bool:
    """Tell whether a path without links in it is that of one of some folders, or lies below one.

    >>> is_within("/in/a", ["/in"]), is_within("/in-private/a", ["/in"]), is_within("/a", ["/"])
    (True, False, True)
    """
    return any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in folders)


def outside(files: Iterable[str], folders: Iterable[str]) -> str | None:
    """Return the first of some files, or the folder of one, that lies elsewhere by a symbolic link; None if there is none."""
    allowed, known = tuple(folders), dict[str, bool]()
    for file in files:
        folder = os.path.dirname(file)
        if folder not in known:
            known[folder] = is_within(os.path.realpath(folder), allowed)
        # A file that is no link lies where its folder does; what is allowed may be the file itself.
        if (os.path.islink(file) or not known[folder]) and not is_within(os.path.realpath(file), allowed):
            return file if os.path.islink(file) else folder
    return None


def check_files(table: Table, files: Iterable[str]) -> None:
    """Raise DataError for a local file of a table that leads outside of where its files may be."""
    if not table.within:
        return
    if (found := outside((file for file in files if not is_remote(file)), table.within)) is not None:
        raise DataError(
            f'"{found}" of table "{table.name}" leads outside of where its files may be',
            table.span,
            hint="Put a copy there instead of a link, or have an admin declare the table in the project's catalog.",
        )
