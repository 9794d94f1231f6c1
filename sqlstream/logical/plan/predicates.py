"""What conditions say of columns."""

from __future__ import annotations

from functools import lru_cache

from sqlglot import exp

from sqlstream.errors import SourceText
from sqlstream.sql.statements import parse_expression


def upper_bounds(condition: str) -> dict[str, int]:
    """Return the columns that a condition bounds from above by a number.

    >>> upper_bounds('"rn" <= 3 AND "x" > 1'), upper_bounds('"rn" = 1'), upper_bounds('4 > "a" OR "b" < 2')
    ({'rn': 3}, {'rn': 1}, {})
    """
    found = {}
    for part in _conjuncts(condition):
        match part:
            case exp.Between(this=exp.Column() as column):
                bound, less = part.args["high"], 0
            case (
                exp.LTE(this=exp.Column() as column, expression=bound)
                | exp.EQ(this=exp.Column() as column, expression=bound)
            ):
                less = 0
            case (
                exp.GTE(this=bound, expression=exp.Column() as column)
                | exp.EQ(this=bound, expression=exp.Column() as column)
            ):
                less = 0
            case (
                exp.LT(this=exp.Column() as column, expression=bound)
                | exp.GT(this=bound, expression=exp.Column() as column)
            ):
                less = 1
            case _:
                continue
        if isinstance(bound, exp.Literal) and not bound.is_string and bound.name.isdigit():
            found[column.name] = int(bound.name) - less
    return found


def only_bound(condition: str) -> tuple[str, int] | None:
    """Return the column that a condition bounds from above by a number, if it says nothing else.

    >>> only_bound('"rn" = 1'), only_bound('"rn" = 1 AND "x"')
    (('rn', 1), None)
    """
    found = list(upper_bounds(condition).items())
    return found[0] if found and len(_conjuncts(condition)) == 1 else None


def constants(condition: str) -> set[str]:
    """Return the columns that have one and the same value wherever a condition is true.

    >>> sorted(constants('"rn" = 1 AND ("x" = 7) AND "y" > 2')), constants('"a" = 1 OR "b" = 2')
    (['rn', 'x'], set())
    """
    found = set()
    for part in _conjuncts(condition):
        match part:
            case (
                exp.EQ(this=exp.Column() as column, expression=exp.Literal())
                | exp.EQ(this=exp.Literal(), expression=exp.Column() as column)
            ):
                found.add(column.name)
    return found


def never_null(condition: str) -> set[str]:
    """Return the columns that a condition demands not to be NULL, in so many words.

    >>> sorted(never_null('NOT "a" IS NULL AND "b" IS NOT NULL')), never_null('"x" = 1 OR ("x" = 2 AND NOT "a" IS NULL)')
    (['a', 'b'], set())
    """
    found = set()
    for part in _conjuncts(condition):
        match part:
            case exp.Not(this=exp.Is(this=exp.Column() as column, expression=exp.Null())):
                found.add(column.name)
    return found


@lru_cache(maxsize=1000)
def _conjuncts(condition: str) -> tuple[exp.Expr, ...]:
    """Return the conditions that are all true where one is."""
    whole = parse_expression(SourceText("condition", condition)).unnest()
    return tuple(part.unnest() for part in (whole.flatten() if isinstance(whole, exp.And) else [whole]))
