"""A project: the folder that relative paths start from, with tables in `catalog/`, functions in `udfs/`, and `sqlstream.toml`."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from sqlstream.configuration import FILE, NOTHING, Configuration
from sqlstream.configuration import load as load_configuration
from sqlstream.errors import SourceText, UsageError


@dataclass(frozen=True, slots=True)
class Project:
    """A project's root and its warehouse (a path, or a URI)."""

    root: str
    warehouse: str
    configuration: Configuration = NOTHING

    @property
    def catalog(self) -> str:
        """The folder of files with declarations."""
        return self.configuration.folder("catalog") or os.path.join(self.root, "catalog")

    @property
    def udfs(self) -> str:
        """The folder of functions."""
        return self.configuration.folder("udfs") or os.path.join(self.root, "udfs")

    @property
    def log_file(self) -> str:
        """Where Spark's own output goes; beside the working directory when the warehouse is not local."""
        local = "://" not in self.warehouse
        return os.path.join(self.warehouse if local else self.root, "logs", "spark.log")


def find_project(project: str | None, warehouse: str | None) -> Project:
    """Return the project: the given folder, else the nearest one above with `catalog/`, `udfs/` or `sqlstream.toml`, else this.

    A `warehouse` that is given goes over that of the configuration. Raises what is wrong with the configuration.
    """
    if project is not None:
        root = Path(project).resolve()
        if not root.is_dir():
            raise UsageError(f'project folder "{project}" does not exist')
    else:
        here = Path.cwd()
        root = next((p for p in (here, *here.parents) if _is_project(p)), here)
    configuration = load_configuration(str(root))
    if warehouse is None:
        return Project(str(root), configuration.folder("warehouse"), configuration)
    found = warehouse if "://" in warehouse else str(Path(warehouse).resolve())
    return Project(str(root), found, configuration)


def _is_project(folder: Path) -> bool:
    return (folder / "catalog").is_dir() or (folder / "udfs").is_dir() or (folder / FILE).is_file()


def read_text(path: str) -> str:
    """Return the text of a file, or for `-` what comes on standard input."""
    try:
        return sys.stdin.buffer.read().decode() if path == "-" else Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f'file "{path}" does not exist') from None
    except (OSError, UnicodeDecodeError) as e:
        what = "standard input" if path == "-" else f'file "{path}"'
        raise UsageError(f"{what} cannot be read", detail=str(e)) from e


def read_source(path: str, *, root: str | None = None) -> SourceText:
    """Return a SQL file as a source, named relative to the project where it lies in it; `-` is standard input."""
    text = read_text(path)
    if path == "-":
        return SourceText("standard input", text)
    name = os.path.relpath(path, root) if root and os.path.abspath(path).startswith(root + os.sep) else path
    return SourceText(name, text)
