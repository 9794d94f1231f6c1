"""Loads what a project declares into a compiler."""

from __future__ import annotations

from pathlib import Path

from sqlstream.compiler.compiler import Compiler
from sqlstream.compiler.project import Project, read_source
from sqlstream.errors import SqlStreamError
from sqlstream.functions.load import load


def load_project(project: Project, compiler: Compiler) -> None:
    """Load all functions and declarations of a project into a compiler.

    A file of functions that cannot be loaded is left out: whoever calls what it may define is told (`Catalog.broken`). So is
    what is wrong in a file of declarations: whoever uses what it would declare is told (`Catalog.faults`).
    """
    compiler.add_functions(load(project.udfs, compiler.catalog.broken))
    folder = Path(project.catalog)
    for file in sorted(folder.rglob("*.sql")):
        if any(part.startswith(".") for part in file.relative_to(folder).parts):
            # Kubernetes has each file of a ConfigMap twice: by its name, and in a folder `..2026_03_02` for each change.
            continue
        try:
            source = read_source(str(file), root=project.root)
        except SqlStreamError as error:
            compiler.catalog.leave_out(error)
            continue
        compiler.definitions(source, leave_out=True)
