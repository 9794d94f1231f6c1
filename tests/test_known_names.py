"""Names that SQL and options accept are read somewhere: one that nobody reads would be accepted, and ignored."""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import sqlstream
from sqlstream.compiler.compiler import Compiler
from sqlstream.errors import SourceText, SqlStreamError
from sqlstream.options import OPTIONS
from sqlstream.sql.hints import KNOWN

PACKAGE = Path(sqlstream.__file__).parent
# Where a block of a query can stand.
PLACES = {
    "query": "{}",
    "subquery": "SELECT k FROM ({})",
    "cte": "WITH w AS ({}) SELECT k FROM w",
    "union": "SELECT k FROM t UNION ALL {}",
    "condition": "SELECT k FROM t WHERE k IN ({})",
    "exists": "SELECT k FROM t WHERE EXISTS ({} AS u WHERE u.k = t.k)",
    "join": "SELECT t.k FROM t JOIN ({}) AS u ON t.k = u.k",
}


@pytest.mark.parametrize("hint", KNOWN)
@pytest.mark.parametrize("place", PLACES)
def test_a_hint_is_read_wherever_it_stands(hint: str, place: str) -> None:
    # No hint says anything without a value, so whoever reads it refuses it.
    query = PLACES[place].format(f"SELECT /*+ {hint}() */ k FROM t")
    script = f"CREATE TABLE t (k BIGINT); CREATE TABLE o (k BIGINT); INSERT INTO o {query}"
    compiler = Compiler()
    try:
        with pytest.raises(SqlStreamError, match=hint):
            compiler.scripts([SourceText("test", script)])
    finally:
        compiler.close()


@pytest.fixture(scope="module")
def package() -> Iterator[list[ast.Module]]:
    """The syntax trees of the package: nearly a million objects, which go before tests whose garbage is collected."""
    gc.disable()
    yield [ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))]
    gc.enable()


def declarations(tree: ast.AST, kind: str) -> Iterator[ast.expr]:
    """Yield the first arguments of calls of a class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == kind and node.args:
            yield node.args[0]


def unread(package: Sequence[ast.Module], kind: str) -> set[str]:
    """Return the names with which options of a class are declared that stand nowhere else in the package."""
    declared = [name for tree in package for name in declarations(tree, kind)]
    names = {id(node): str(node.value) for node in declared if isinstance(node, ast.Constant)}
    # Variables that hold an option, and those whose name is asked for, or which are given to a function.
    variables: dict[str, str] = {}
    used: set[str] = set()
    constants: set[str] = set()
    composed: list[re.Pattern[str]] = []
    for node in (node for tree in package for node in ast.walk(tree)):
        match node:
            case ast.Assign(targets=[ast.Name(id=variable)], value=ast.Call(args=[first, *_])) if id(first) in names:
                variables[names[id(first)]] = variable
            case ast.Attribute(attr="name", value=ast.Name(id=variable) | ast.Attribute(attr=variable)):
                used.add(variable)
            case ast.Call(args=arguments):
                used |= {argument.id for argument in arguments if isinstance(argument, ast.Name)}
            case ast.Constant(value=str(text)) if id(node) not in names:
                constants.add(text)
            case ast.JoinedStr(values=parts):
                texts = [str(part.value) if isinstance(part, ast.Constant) else None for part in parts]
                if sum(len(text) for text in texts if text is not None) >= 5:
                    composed.append(re.compile("".join(".+" if text is None else re.escape(text) for text in texts)))

    def is_read(name: str) -> bool:
        # An option of several formats is read by its name behind that of the format.
        spelled = name in constants or name.partition(".")[2] in constants
        return spelled or variables.get(name) in used or any(pattern.fullmatch(name) for pattern in composed)

    return {name for name in names.values() if not is_read(name)}


@pytest.mark.slow
def test_an_option_of_a_session_is_read(package: list[ast.Module]) -> None:
    # The list is in one file, as literals.
    tree = ast.parse((PACKAGE / "options.py").read_text())
    assert {name.value for name in declarations(tree, "Option") if isinstance(name, ast.Constant)} == {*OPTIONS}
    assert unread(package, "Option") == set()


@pytest.mark.slow
def test_an_option_of_a_table_is_read(package: list[ast.Module]) -> None:
    assert unread(package, "TableOption") == set()
