"""A project: the folder that relative paths start from, with tables in `catalog/`, functions in `udfs/`, and `sqlstream.toml`."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from sqlstream.configuration import FILE, NOTHING, Configuration
from sqlstream.configuration import load as load_configuration
from sqlstream.errors import SourceText, UsageError
from sqlstream.storage_errors import storage_errors


@dataclass(frozen=True, slots=True)
class Project:
    """A project's root and its warehouse (a path, or a URI)."""

    root: str
    warehouse: str
    configuration: Configuration = NOTHING

    @property
    def catalog(self) -> str:
        """The folder of SQL files with declarations."""
        return self.configuration.folder("catalog") or os.path.join(self.root, "catalog")

    @property
    def udfs(self) -> str:
        """The folder of Python files with functions."""
        return self.configuration.folder("udfs") or os.path.join(self.root, "udfs")

    @property
    def log_file(self) -> str:
        """The file of Spark's log: in the warehouse, or in the project's root if the warehouse is a URI."""
        local = "://" not in self.warehouse
        return os.path.join(self.warehouse if local else self.root, "logs", "spark.log")


def find_project(project: str | None, warehouse: str | None) -> Project:
    """Return the project in the folder `project`.

    Without `project` it is the working directory, or the nearest folder above, that has `catalog/`, `udfs/` or `sqlstream.toml`;
    else the working directory. `warehouse` (a path or a URI) overrides the configuration's. Raises UsageError for a folder that
    does not exist, and the errors of a wrong configuration.
    """
    if project is not None:
        root = Path(project).resolve()
        with storage_errors(str(root)):
            if not root.is_dir():
                raise UsageError(f'project folder "{project}" does not exist')
    else:
        here = Path.cwd()
        root = next((p for p in (here, *here.parents) if _is_project(p)), here)
    configuration = load_configuration(str(root))
    if warehouse is None:
        return Project(str(root), configuration.folder("warehouse"), configuration)
    location = warehouse if "://" in warehouse else str(Path(warehouse).resolve())
    return Project(str(root), location, configuration)


def _is_project(folder: Path) -> bool:
    # Unlike pathlib's, these functions take a folder that this user must not look into for one without files.
    return any(os.path.isdir(folder / name) for name in ("catalog", "udfs")) or os.path.isfile(folder / FILE)


def read_text(path: str) -> str:
    """Return the text of a file in UTF-8, or of standard input for `-`. Raises UsageError if it cannot be read."""
    try:
        return sys.stdin.buffer.read().decode() if path == "-" else Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f'file "{path}" does not exist') from None
    except (OSError, UnicodeDecodeError) as e:
        what = "standard input" if path == "-" else f'file "{path}"'
        raise UsageError(f"{what} cannot be read", detail=str(e)) from e


def read_source(path: str, *, root: str | None = None) -> SourceText:
    """Return the text of a SQL file, or of standard input for `-`, as a source; its name is relative to `root` if it is in it.

    Raises UsageError if it cannot be read.
    """
    text = read_text(path)
    if path == "-":
        return SourceText("standard input", text)
    name = os.path.relpath(path, root) if root and os.path.abspath(path).startswith(root + os.sep) else path
    return SourceText(name, text)
