"""Each module can be the first one that a process imports: no circle of imports waits for another order."""

from __future__ import annotations

import ast
import importlib
import os
import sys
from collections.abc import Iterable
from graphlib import TopologicalSorter
from pathlib import Path
from random import Random

import pytest

import sqlstream
from tests.seed import commit_seed

PACKAGE = Path(sqlstream.__file__).parent
PARTS = sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists())
# The registry of operators' plans, and what they are made of, know each other.
REGISTRY = "sqlstream.physical.families.registry"
# So many others `make test` takes, others for each commit.
SOME = 15


@pytest.mark.slow
def test_some_modules_are_imported_alone() -> None:
    modules = [module for part in PARTS for module in modules_of(part)]
    assert failures([REGISTRY, *Random(commit_seed()).sample(modules, SOME)]) == {}


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("part", PARTS)
def test_each_module_is_imported_alone(part: str) -> None:
    assert failures(modules_of(part)) == {}


def modules_of(part: str) -> list[str]:
    paths = (path.relative_to(PACKAGE.parent) for path in sorted((PACKAGE / part).rglob("*.py")))
    return [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths]


def failures(modules: Iterable[str]) -> dict[str, str]:
    """Return why modules cannot be imported first, by their names."""
    # What costs most is there before, as it is in the processes that are forked.
    for library in ("duckdb", "msgspec", "pyarrow", "sqlglot"):
        importlib.import_module(library)
    return {module: why for module in modules if (why := failure(module))}


def failure(module: str) -> str:
    """Return why a module cannot be imported in a process in which no other one of the package was."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        try:
            os.close(reading)
            import_alone(module, writing)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        why = pipe.read()
    os.waitpid(child, 0)
    return why


def import_alone(module: str, writing: int) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "sqlstream"]:
        del sys.modules[name]
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        # An extra that is not installed.
        if (error.name or "").startswith("sqlstream"):
            os.write(writing, repr(error).encode())
    except BaseException as error:
        os.write(writing, repr(error).encode())


def test_modules_of_process_functions_import_each_other_in_no_circle() -> None:
    # Imports for types, and in functions, count, too.
    package = "sqlstream.operators.process"
    imports: dict[str, set[str]] = {}
    for path in (PACKAGE / "operators" / "process").glob("*.py"):
        nodes = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom))
        modules = {node.module.rpartition(".") for node in nodes if node.module}
        imports[path.stem] = {name for folder, _, name in modules if folder == package}
    # It raises an error that names the modules of a circle.
    order = list(TopologicalSorter(imports).static_order())
    assert order.index("inputs") < order.index("keyed_run") < order.index("operator")
