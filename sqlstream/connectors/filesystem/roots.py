"""Where the files of a table are, and what they are called below it, so that a job finds them again in another place.

Files are remembered by their names below the root of their table, the folder of its path. The root itself is remembered relative
to the project, if it lies in it: a project may be moved or copied.
"""

from __future__ import annotations

import os
import posixpath
import re
from dataclasses import dataclass

from sqlstream.connectors.filesystem.listing import without_glob
from sqlstream.connectors.uris import is_remote, local_path


@dataclass(frozen=True, slots=True)
class Root:
    """The folder (or the one file) of a table: `path` is where it is, a local path or a URI without its `?options`."""

    path: str
    project: str
    options: str = ""

    @classmethod
    def of(cls, path: str, project: str) -> Root:
        """Return the root of a table's path or glob."""
        if is_remote(path) and not path.lower().startswith("file://"):
            path, question, options = path.partition("?") if "=" in path else (path, "", "")
            return cls(without_glob(path).rstrip("/"), project, question + options)
        # Only the path has a pattern in it: a project's own folder may have any name.
        path = path[7:] if path.lower().startswith("file://") else path
        return cls(local_path(without_glob(os.path.join(".", path)), project), project)

    @property
    def text(self) -> str:
        """The root as it is remembered."""
        return remembered(self.path, self.project)

    def name(self, path: str) -> str:
        """Return what a file is called below the root; what lies outside begins with `..`.

        >>> Root("/data/in", "/p").name("/data/in/day=1/x.json")
        'day=1/x.json'
        """
        path = path[: len(path) - len(self.options)]
        folder = self.path.rstrip("/") + "/"
        return path[len(folder) :] if path.startswith(folder) else _relative(path, self.path)

    def file(self, name: str) -> str:
        """Return the path, or the URI, of a file."""
        return _joined(self.path, name) + self.options

    def renamed(self, name: str, before: str) -> str:
        """Return the name of a file that was remembered below another root, `before`.

        Where one of the two lies in the other, the table's path was changed, and the file is where it was; else the files have
        moved along with their root.

        >>> Root("/p/in/a", "/p").renamed("a/x", "in"), Root("/other/in", "/p").renamed("a/x", "in")
        ('x', 'a/x')
        """
        if before == self.text or self.is_elsewhere(before):
            return name
        return self.name(_joined(self._now(before), name) + self.options)

    def is_elsewhere(self, before: str) -> bool:
        """Whether this root and the one that is remembered have nothing in common, so that the files must have moved."""
        was = self._now(before)
        return not (_lies_in(was, self.path) or _lies_in(self.path, was))

    def _now(self, root: str) -> str:
        return root if is_remote(root) else os.path.normpath(os.path.join(self.project, root))


def remembered(path: str, project: str) -> str:
    """Return a path as it is remembered: relative to the project, if it lies in it.

    >>> remembered("/p/in", "/p"), remembered("/p", "/p"), remembered("/q/in", "/p"), remembered("s3://b/in", "/p")
    ('in', '.', '/q/in', 's3://b/in')
    """
    return _relative(path, project) if not is_remote(path) and _lies_in(path, project) else path


def _lies_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _relative(path: str, folder: str) -> str:
    # Both are local, or URIs of one kind: what they begin with in common falls away.
    return posixpath.relpath(_plain(path), _plain(folder))


def _joined(folder: str, name: str) -> str:
    scheme = folder[: len(folder) - len(_plain(folder))]
    return scheme + posixpath.normpath(posixpath.join(_plain(folder), name))


def _plain(path: str) -> str:
    return re.sub(r"^[A-Za-z][A-Za-z0-9+.-]+://", "/", path)
