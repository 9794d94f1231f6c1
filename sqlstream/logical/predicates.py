"""What conditions say of columns."""

from __future__ import annotations

from sqlglot import exp, parse_one


def upper_bounds(condition: str) -> dict[str, int]:
    """Return the columns, as SQL, that a condition bounds from above by a number.

    >>> upper_bounds('"rn" <= 3 AND "x" > 1'), upper_bounds('"rn" = 1'), upper_bounds('4 > "a" OR "b" < 2')
    ({'"rn"': 3}, {'"rn"': 1}, {})
    """
    found = {}
    whole = parse_one(condition, dialect="duckdb").unnest()
    for part in whole.flatten() if isinstance(whole, exp.And) else [whole]:
        part = part.unnest()
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
            found[column.sql(dialect="duckdb")] = int(bound.name) - less
    return found
