"""Loads the functions and declarations of a project into a compiler."""

from __future__ import annotations

from pathlib import Path

from sqlstream.compiler.compiler import Compiler
from sqlstream.errors import SqlStreamError
from sqlstream.functions.load import load
from sqlstream.project import Project, read_source


def load_project(project: Project, compiler: Compiler) -> None:
    """Load all functions and declarations of a project into a compiler.

    Errors do not stop it. A file of functions that cannot be loaded is left out; its error is in `Catalog.broken`, for statements
    that call a missing function. A wrong declaration is left out, too; its error is in `Catalog.faults`, for statements that use
    what it would declare.
    """
    compiler.add_functions(load(project.udfs, compiler.catalog.broken))
    folder = Path(project.catalog)
    for file in sorted(folder.rglob("*.sql")):
        if any(part.startswith(".") for part in file.relative_to(folder).parts):
            # Kubernetes mounts each file of a ConfigMap twice: by its name, and in a hidden folder such as `..2026_03_02`.
            continue
        try:
            source = read_source(str(file), root=project.root)
        except SqlStreamError as error:
            compiler.catalog.leave_out(error)
            continue
        compiler.definitions(source, leave_out=True)
