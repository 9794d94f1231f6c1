"""Forms: DuckDB SQL in which `_0`, `_1`, .. stand for expressions, as trees with these in their places."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from sqlglot import exp

from sqlstream.errors import SourceText
from sqlstream.sql.statements import parse_expression

# The placeholder of an argument in a form.
_PARAMETER = re.compile(r"_\d+")


def like(old: exp.Expr, new: exp.Expr) -> exp.Expr:
    """Return the node `new` with the position in the text of the node that it replaces."""
    new.meta.update(old.meta)
    return new


def filled(form: str, call: exp.Expr, argument: Callable[[int], exp.Expr] | None = None) -> exp.Expr:
    """Return the tree of a form with arguments for `_0`, `_1`, ..; all nodes have the call's position in the text."""
    filled = exp.Paren(this=_parsed(form).copy())
    for node in filled.walk():
        node.meta.update(call.meta)
    for column in list(filled.find_all(exp.Column)):
        if argument is not None and _PARAMETER.fullmatch(column.name):
            value = argument(int(column.name[1:])).copy()
            # DISTINCT and ORDER BY stand in a call, and in no parentheses.
            plain = isinstance(value, exp.Column | exp.Literal | exp.Anonymous | exp.Paren | exp.Distinct | exp.Order)
            column.replace(value if plain else exp.Paren(this=value))
    inner: exp.Expr = filled.this
    return inner.pop() if isinstance(inner, exp.Anonymous | exp.Cast | exp.Case) else filled


@cache
def _parsed(sql: str) -> exp.Expr:
    return parse_expression(SourceText("form", sql))
