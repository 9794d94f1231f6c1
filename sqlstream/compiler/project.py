"""A project: the folder that relative paths start from, its tables in `catalog/`, its functions in `udfs/`."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from sqlstream.compiler.compiler import Compiler
from sqlstream.errors import SourceText, UsageError
from sqlstream.functions.load import load

WAREHOUSE = "warehouse"


@dataclass(frozen=True, slots=True)
class Project:
    """A project's root and its warehouse (a path, or a URI)."""

    root: str
    warehouse: str

    @property
    def log_file(self) -> str:
        """Where Spark's own output goes; beside the working directory when the warehouse is not local."""
        local = "://" not in self.warehouse
        return os.path.join(self.warehouse if local else self.root, "logs", "spark.log")


def find_project(project: str | None, warehouse: str | None) -> Project:
    """Return the project: the given folder, else the nearest one above with `catalog/` or `udfs/`, else this folder."""
    if project is not None:
        root = Path(project).resolve()
        if not root.is_dir():
            raise UsageError(f'project folder "{project}" does not exist')
    else:
        here = Path.cwd()
        marked = (p for p in (here, *here.parents) if (p / "catalog").is_dir() or (p / "udfs").is_dir())
        root = next(marked, here)
    if warehouse is None:
        return Project(str(root), str(root / WAREHOUSE))
    return Project(str(root), warehouse if "://" in warehouse else str(Path(warehouse).resolve()))


def load_project(project: Project, compiler: Compiler) -> None:
    """Load all functions and declarations of a project into a compiler.

    A file of functions that cannot be loaded is left out: whoever calls what it may define is told (`Catalog.broken`).
    """
    root = Path(project.root)
    compiler.add_functions(load(str(root / "udfs"), compiler.catalog.broken))
    for file in sorted((root / "catalog").rglob("*.sql")):
        compiler.definitions(read_source(str(file), root=str(root)))


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
