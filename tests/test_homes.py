"""An operator is known in its own files: how many functions elsewhere ask which stateful node they hold."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import sqlstream
from sqlstream.logical.plan.nodes import Stateful

pytestmark = pytest.mark.slow

PACKAGE = Path(sqlstream.__file__).parent
NODES = {node.__name__ for node in get_args(Stateful)}
UNIONS = {
    *("Windowed", "Changing", "InOrder", "Joins", "Stateful"),
    *("WindowEndNode", "TimeOrderedNode", "Joining", "TimedJoin"),
}
# Operators, and the modules that declare the nodes.
HOMES = (
    "operators/",
    "physical/families/",
    "logical/plan/relational.py",
    *(f"logical/plan/{name}.py" for name in ("aggregates", "count_windows", "joining", "joins", "over")),
    *(f"logical/plan/{name}.py" for name in ("process", "ranks", "tables", "windows")),
)
# The number may only fall: a new kind of operator answers in its own files.
MOST = 27


def test_no_further_function_asks_which_stateful_node_it_holds() -> None:
    asking = Counter(file for file, _ in functions_that_ask())
    total = sum(asking.values())
    assert total <= MOST, f"{total} functions ask, {MOST} did: {dict(asking)}"
    assert total == MOST, f"fewer functions ask than the {MOST} recorded here: record {total}"


def functions_that_ask() -> Iterator[tuple[str, str]]:
    """Yield the files and names of the functions outside of operators that test a node for being a stateful one."""
    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE).as_posix()
        if file.startswith(HOMES):
            continue
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef) and asks(function):
                yield file, function.name


def asks(function: ast.FunctionDef) -> bool:
    """Whether a function has an `isinstance` or a `case` that names a stateful node, or a union of some."""
    for part in ast.walk(function):
        classes: list[ast.expr] = []
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == "isinstance":
            classes = part.args[1:]
        elif isinstance(part, ast.MatchClass):
            classes = [part.cls]
        if any(name in NODES | UNIONS for expression in classes for name in named(expression)):
            return True
    return False


def named(expression: ast.expr) -> Iterator[str]:
    for part in ast.walk(expression):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute) and not is_parsed(part):
            yield part.attr


def is_parsed(part: ast.Attribute) -> bool:
    """Whether a class is one of sqlglot's: `exp.SetOperation` is a node of the SQL, not of a plan."""
    return isinstance(part.value, ast.Name) and part.value.id == "exp"
