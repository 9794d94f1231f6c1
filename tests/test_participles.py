"""A name is a noun: bare participles that are names in the code are counted by folder, and may only become fewer."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import sqlstream

pytestmark = pytest.mark.slow

PACKAGE = Path(sqlstream.__file__).parent
# What each folder may have; `pytest tests/test_participles.py --update` lowers it to what is there.
LIMITS = Path(__file__).with_name("participles.json")
PARTICIPLES = {"found", "told", "said", "asked", "made", "known", "given", "kept", "wanted", "taken", "left"}
# In a function of so few lines a reader sees what a name stands for.
FEW_LINES = 3


def test_participles_as_names_become_fewer(pytestconfig: pytest.Config) -> None:
    folders = participles()
    now = {folder: names.total() for folder, names in sorted(folders.items())}
    limits: dict[str, int] = json.loads(LIMITS.read_text())
    if pytestconfig.getoption("update"):
        limits = {folder: min(count, limits.get(folder, 0)) for folder, count in now.items()}
        LIMITS.write_text(json.dumps(limits, indent=2) + "\n")
    more = {
        folder: f"{count}, where {limits.get(folder, 0)} may be: {dict(folders[folder].most_common())}"
        for folder, count in now.items()
        if count > limits.get(folder, 0)
    }
    assert not more, "name what a value is, not what happened to it"


def test_what_is_counted() -> None:
    text = '''
def long(given):
    """Return what was found."""
    found = given.made
    found += call(kept=1, is_found=2)
    _told = "said"
    return found, _told

def short(left):
    found = left
    # Found.
    return found
'''
    assert Counter(names_of(text)) == Counter({"found": 3, "given": 2, "told": 2, "made": 1, "kept": 1})
    sides = "def join(left, right):\n    left = left.made\n    right += 1\n    right -= 1\n    return left, right\n"
    assert Counter(names_of(sides)) == Counter({"made": 1})


def participles() -> dict[str, Counter[str]]:
    """Return how often each folder of the package has each of them as a name."""
    counts: dict[str, Counter[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        folder = path.relative_to(PACKAGE).parts[0] if path.parent != PACKAGE else "."
        counts.setdefault(folder, Counter()).update(names_of(path.read_text("utf-8")))
    return counts


def names_of(text: str) -> Iterator[str]:
    """Yield the participles that are names of variables, attributes, parameters or functions, outside of short functions.

    Beside a name `right` the name `left` is a side.
    """
    nodes = (n for n in outside_short_functions(ast.parse(text)) if not isinstance(n, ast.Constant))
    names = [value.strip("_") for n in nodes for _, value in ast.iter_fields(n) if isinstance(value, str)]
    sides = {"left"} if "right" in names else set[str]()
    yield from (name for name in names if name in PARTICIPLES - sides)


def outside_short_functions(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a tree, without functions whose bodies have few lines, the docstring aside."""
    parts = [tree]
    while parts:
        part = parts.pop()
        if not is_short(part):
            yield part
            parts += ast.iter_child_nodes(part)


def is_short(node: ast.AST) -> bool:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
    return not body or (node.end_lineno or 0) - body[0].lineno < FEW_LINES
