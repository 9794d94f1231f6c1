"""The root of a table's files, and their names below it, so that a job recognizes files that were moved.

Descriptors and positions store a file by its name below the root of its table, the folder of the table's path. The root itself is
stored relative to the project, if it is inside: a project may be moved or copied.
"""

from __future__ import annotations

import os
import posixpath
import re
from dataclasses import dataclass

from sqlstream.connectors.filesystem.listing import without_glob
from sqlstream.connectors.uris import is_remote, local_path
from sqlstream.warehouse.uris import split_options


@dataclass(frozen=True, slots=True)
class Root:
    """The folder of a table's files, or its only file.

    `path` is its absolute local path, or a URI; `options` are the `?options` of the URI. `project` is the path of the project.
    """

    path: str
    project: str
    options: str = ""

    @classmethod
    def of(cls, path: str, project: str) -> Root:
        """Return the root of a table's path or glob."""
        if is_remote(path) and not path.lower().startswith("file://"):
            path, options = split_options(path)
            return cls(without_glob(path).rstrip("/"), project, options)
        # Wildcards are only in the table's path: the name of the project's folder may contain their characters.
        path = path[7:] if path.lower().startswith("file://") else path
        return cls(local_path(without_glob(os.path.join(".", path)), project), project)

    @property
    def text(self) -> str:
        """The root as it is stored, see `remembered`."""
        return remembered(self.path, self.project)

    def name(self, path: str) -> str:
        """Return the name of a file below the root, from its path or URI; outside of the root, it begins with `..`.

        >>> Root("/data/in", "/p").name("/data/in/day=1/x.json")
        'day=1/x.json'
        """
        path = path[: len(path) - len(self.options)]
        folder = self.path.rstrip("/") + "/"
        return path[len(folder) :] if path.startswith(folder) else _relative(path, self.path)

    def file(self, name: str) -> str:
        """Return the path, or the URI, of a file by its name below the root."""
        return _joined(self.path, name) + self.options

    def renamed(self, name: str, before: str) -> str:
        """Return the name below this root of a file that is stored with a name below another one, `before`.

        If one of the roots is inside the other, the table's path has changed, and the file has not moved. Otherwise the files
        have moved with their root, and the file keeps its name.

        >>> Root("/p/in/a", "/p").renamed("a/x", "in"), Root("/other/in", "/p").renamed("a/x", "in")
        ('x', 'a/x')
        """
        if before == self.text or self.is_elsewhere(before):
            return name
        return self.name(_joined(self._now(before), name) + self.options)

    def is_elsewhere(self, before: str) -> bool:
        """Whether neither this root nor the stored one is inside the other, so that the files must have moved."""
        was = self._now(before)
        return not (_lies_in(was, self.path) or _lies_in(self.path, was))

    def _now(self, root: str) -> str:
        return root if is_remote(root) else os.path.normpath(os.path.join(self.project, root))


def remembered(path: str, project: str) -> str:
    """Return a path as it is stored: relative to the project, if it is inside, otherwise unchanged.

    >>> remembered("/p/in", "/p"), remembered("/p", "/p"), remembered("/q/in", "/p"), remembered("s3://b/in", "/p")
    ('in', '.', '/q/in', 's3://b/in')
    """
    return _relative(path, project) if not is_remote(path) and _lies_in(path, project) else path


def _lies_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _relative(path: str, folder: str) -> str:
    # Both are local, or URIs with the same scheme, which falls away.
    return posixpath.relpath(_plain(path), _plain(folder))


def _joined(folder: str, name: str) -> str:
    scheme = folder[: len(folder) - len(_plain(folder))]
    return scheme + posixpath.normpath(posixpath.join(_plain(folder), name))


def _plain(path: str) -> str:
    return re.sub(r"^[A-Za-z][A-Za-z0-9+.-]+://", "/", path)
