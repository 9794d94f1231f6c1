"""What conditions imply about single columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sqlglot import exp


@dataclass(frozen=True, slots=True)
class Claims:
    """What holds for columns in all rows for which a condition is true, as far as its operands of AND state it directly.

    `at_most` are upper bounds of columns, integers. `constants` are columns that equal a literal, `numbers` the columns among
    them whose literal is a number: a text equals 7 if it is '7', and if it is '07'. `never_null` are columns with IS NOT NULL.
    `parts` is the number of operands of AND.
    """

    at_most: Mapping[str, int] = field(default_factory=dict)
    constants: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()
    never_null: frozenset[str] = frozenset()
    parts: int = 1

    def __and__(self, other: Claims) -> Claims:
        return Claims(
            _least((*self.at_most.items(), *other.at_most.items())),
            self.constants | other.constants,
            self.numbers | other.numbers,
            self.never_null | other.never_null,
            self.parts + other.parts,
        )

    @property
    def only_bound(self) -> tuple[str, int] | None:
        """The column and its upper bound, if the condition is a single comparison; None for any other condition."""
        return next(iter(self.at_most.items()), None) if self.parts == 1 else None

    @classmethod
    def of(cls, bound: exp.Expr) -> Claims:
        """Return the claims of a bound condition.

        >>> from sqlstream.errors import SourceText
        >>> from sqlstream.sql.statements import parse_expression
        >>> def parsed(text): return parse_expression(SourceText("condition", text))
        >>> claims = Claims.of(parsed('"rn" <= 3 AND ("x" = 7) AND 4 > "a" AND NOT "b" IS NULL AND "y" > 1'))
        >>> claims.at_most, sorted(claims.constants), sorted(claims.numbers), sorted(claims.never_null), claims.parts
        ({'rn': 3, 'x': 7, 'a': 3}, ['x'], ['x'], ['b'], 5)
        >>> Claims.of(parsed('"a" = 1 OR "b" = 2 AND NOT "c" IS NULL')) == Claims()
        True
        >>> Claims.of(parsed('"rn" = 1')).only_bound, Claims.of(parsed('"rn" = 1 AND "x"')).only_bound
        (('rn', 1), None)
        """
        parts = list(_conjuncts(bound))
        equal = [pair for part in parts if (pair := _constant(part)) is not None]
        return cls(
            _least(limit for part in parts if (limit := _upper_bound(part)) is not None),
            frozenset(name for name, _ in equal),
            frozenset(name for name, value in equal if not value.is_string),
            frozenset(name for part in parts if (name := _never_null(part)) is not None),
            len(parts),
        )


def _least(bounds: Iterable[tuple[str, int]]) -> dict[str, int]:
    least: dict[str, int] = {}
    for name, bound in bounds:
        least[name] = min(bound, least.get(name, bound))
    return least


def _conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the operands of AND, or the condition itself."""
    whole = condition.unnest()
    yield from (part.unnest() for part in (whole.flatten() if isinstance(whole, exp.And) else [whole]))


def _upper_bound(part: exp.Expr) -> tuple[str, int] | None:
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
            return None
    if isinstance(bound, exp.Literal) and not bound.is_string and bound.name.isdigit():
        return column.name, int(bound.name) - less
    return None


def _constant(part: exp.Expr) -> tuple[str, exp.Literal] | None:
    match part:
        case (
            exp.EQ(this=exp.Column() as column, expression=exp.Literal() as value)
            | exp.EQ(this=exp.Literal() as value, expression=exp.Column() as column)
        ):
            return column.name, value
        case _:
            return None


def _never_null(part: exp.Expr) -> str | None:
    match part:
        case exp.Not(this=exp.Is(this=exp.Column() as column, expression=exp.Null())):
            return column.name
        case _:
            return None
