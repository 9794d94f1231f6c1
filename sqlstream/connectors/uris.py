"""Paths and URIs of tables: which of them are local, and the file system of one that is not."""

from __future__ import annotations

import os
import re

from pyarrow import fs as arrow_fs


def is_remote(path: str) -> bool:
    """Whether a path is a URI with a scheme, `file://` included."""
    return re.match(r"[a-z][a-z0-9+.-]+://", path, re.IGNORECASE) is not None


def is_absolute(path: str) -> bool:
    """Whether a path does not depend on the project: a URI, or absolute once `~` is expanded."""
    return is_remote(path) or os.path.isabs(os.path.expanduser(path))


def local_path(path: str, project: str) -> str:
    """Return the absolute form of a local path or a `file://` URI; a relative one starts in the project."""
    path = path[7:] if path.lower().startswith("file://") else path
    return os.path.abspath(os.path.join(project, os.path.expanduser(path)))


def open_uri(uri: str) -> tuple[arrow_fs.FileSystem, str]:
    """Return pyarrow's file system of a URI, and the path in it."""
    filesystem, path = arrow_fs.FileSystem.from_uri(uri)
    return filesystem, path
