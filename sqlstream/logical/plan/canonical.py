"""The canonical form of expressions: SQL that differs only in spelling has the same form.

Jobs are compared by these forms, which their records keep for years. So this module prints them, and not sqlglot, which only
parses the SQL: every operator and function is printed before its operands, in parentheses.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from importlib.metadata import version
from typing import Any, ClassVar

from sqlglot import exp, parse_one
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError
from sqlglot.parsers.duckdb import DuckDBParser

# Only forms with an equal PRINTER can be compared: another release of sqlglot may parse the same SQL into another tree.
PRINTER = f"1, sqlglot {version('sqlglot')}"
# SQL that is nested more deeply is not parsed: whether that succeeds would depend on the depth of the stack.
_DEEPEST = 16
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")
_NESTING = re.compile(r"[(\[{]|\bCASE\b|(?P<closes>[)\]}]|\bEND\b)", re.IGNORECASE)
# Operators whose operands may be swapped.
_SYMMETRIC = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ)
_MIRRORED: dict[type[exp.Expr], str] = {exp.GT: exp.LT.key, exp.GTE: exp.LTE.key}
_BEFORE = "SELECT x ORDER BY "


class _Expressions(DuckDB):
    """DuckDB's expressions, in which every function keeps its name, even if sqlglot has a class for it."""

    # Indexes of lists stay as they are written.
    INDEX_OFFSET = 0

    class Parser(DuckDBParser):
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        # The functions whose arguments are not a plain list.
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: DuckDBParser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST", "EXTRACT")
        }


@lru_cache(maxsize=10_000)
def canonical(sql: str) -> str:
    """Return the canonical form of an expression, or of an item of ORDER BY.

    It does not depend on spaces, needless parentheses, the case of functions, the order of operands of AND and OR, or the side on
    which the operands of a comparison stand. For SQL that sqlglot cannot parse, or that is nested deeply, it is the SQL itself
    after `sql `.

    >>> canonical('("a" > 1) AND lower("b") = "c"') == canonical('"c" = LOWER("b") AND 1 < "a"')
    True
    >>> canonical('"a" - 1')
    'sub(this="a", expression=1)'
    """
    if _depth(sql) > _DEEPEST:
        return f"sql {sql}"
    try:
        tree = parse_one(_BEFORE + sql, dialect=_Expressions)
    except (SqlglotError, RecursionError):
        return f"sql {sql}"
    order = tree.args.get("order") if isinstance(tree, exp.Select) else None
    clauses = [name for name, value in tree.args.items() if value and name not in ("expressions", "order")]
    if order is None or clauses or len(order.expressions) != 1:
        return f"sql {sql}"
    [item] = order.expressions
    plain = isinstance(item, exp.Ordered) and not re.search(r"\b(ASC|DESC|NULLS)\b", sql, re.IGNORECASE)
    return _printed(item.this if plain else item)


def _depth(sql: str) -> int:
    """Return the depth to which parentheses, brackets and CASE are nested."""
    depth = deepest = 0
    for bracket in _NESTING.finditer(_QUOTED.sub("", sql)):
        depth += -1 if bracket["closes"] else 1
        deepest = max(deepest, depth)
    return deepest


class _Chain:
    """The forms of the operands of a chain of AND, or of OR, whose order does not matter."""

    def __init__(self, kind: str, parts: list[str]):
        self.kind, self.parts = kind, parts

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(sorted(self.parts))})"


def _printed(tree: exp.Expr) -> str:
    """Return the form of a tree, without recursion: a sum of hundreds of values is hundreds of nodes deep."""
    forms: dict[int, _Chain | str] = {}
    for node in reversed(list(tree.dfs())):
        forms[id(node)] = _form(node, forms)
    return str(forms[id(tree)])


def _form(node: exp.Expr, forms: dict[int, _Chain | str]) -> _Chain | str:
    if isinstance(node, exp.Paren):
        return forms[id(node.this)]
    if isinstance(node, exp.And | exp.Or):
        parts: list[str] = []
        for side in (node.this, node.expression):
            form = forms[id(side)]
            if not isinstance(form, _Chain) or form.kind != node.key:
                parts.append(str(form))
            elif parts:
                parts += form.parts
            else:
                # Its list can be reused: no other node reads it.
                parts = form.parts
        return _Chain(node.key, parts)
    if isinstance(node, exp.Identifier):
        return '"' + str(node.this).replace('"', '""') + '"'
    if isinstance(node, exp.Literal):
        return "'" + str(node.this).replace("'", "''") + "'" if node.is_string else str(node.this)
    if isinstance(node, exp.Column):
        return ".".join(str(forms[id(part)]) for part in node.parts)
    if isinstance(node, exp.Anonymous) and isinstance(node.this, str):
        return f"{node.this.lower()}({', '.join(str(forms[id(argument)]) for argument in node.expressions)})"
    if isinstance(node, _SYMMETRIC):
        first, second = sorted((str(forms[id(node.this)]), str(forms[id(node.expression)])))
        return f"{node.key}(this={first}, expression={second})"
    if (mirrored := _MIRRORED.get(type(node))) is not None:
        return f"{mirrored}(this={forms[id(node.expression)]}, expression={forms[id(node.this)]})"
    arguments = (
        (name, value) for name, value in node.args.items() if value is not None and value is not False and value != []
    )
    parts = [f"{name}={_value(value, forms)}" for name, value in sorted(arguments, key=_sort_key)]
    return f"{node.key}({', '.join(parts)})"


def _sort_key(argument: tuple[str, object]) -> tuple[bool, str]:
    """Return the sort key of an argument: `this` comes first, then the others by name."""
    return argument[0] != "this", argument[0]


def _value(value: object, forms: dict[int, _Chain | str]) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_value(one, forms) for one in value)}]"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(forms.get(id(value), value))
