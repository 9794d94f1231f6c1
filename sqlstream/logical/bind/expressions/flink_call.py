"""A call of one of Flink's functions, as the functions that write its form see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from sqlglot import exp

from sqlstream.duck.sql import quote_text
from sqlstream.duck.types import INTEGERS
from sqlstream.logical.bind.expressions.java_patterns import UntranslatablePattern, strftime_pattern

_NUMBERS = INTEGERS | {"UHUGEINT", "FLOAT", "DOUBLE"}


class WrongArgument(Exception):
    """An argument that a form cannot take: its number, from 0 on, a message and a hint."""

    def __init__(self, number: int, message: str, hint: str | None = None):
        super().__init__(message)
        self.number, self.message, self.hint = number, message, hint


@dataclass(frozen=True, slots=True)
class FlinkCall:
    """A parsed call, with the function's name in upper case.

    `type_of` returns the DuckDB type of the argument of a number, None if it is not known. Arguments are numbered from 0 on.
    """

    name: str
    arguments: tuple[exp.Expr, ...]
    type_of: Callable[[int], str | None]

    def text(self, number: int, what: str) -> str:
        """Return the text of an argument that must be a text literal; `what` names it in the error. Raises WrongArgument."""
        node = self.arguments[number]
        if isinstance(node, exp.Literal) and node.is_string:
            return node.name
        raise WrongArgument(number, f"{self.name} needs its {what} as a literal", "Write it in quotes.")

    def pattern(self, number: int) -> str:
        """Return the SQL literal of strftime's pattern for an argument that is a Java pattern. Raises WrongArgument."""
        try:
            return quote_text(strftime_pattern(self.text(number, "pattern")))
        except UntranslatablePattern as error:
            hint = "Usable are yyyy, MM, dd, HH, hh, mm, ss, SSS, SSSSSS, a, E, EEEE, MMM, MMMM, D, and text in single quotes."
            raise WrongArgument(number, f'"{error}" in the pattern of {self.name} has no translation', hint) from error

    def is_number(self, number: int) -> bool:
        """Return whether an argument is known to have a numeric type."""
        type = self.type_of(number) or ""
        return type.startswith("DECIMAL") or type in _NUMBERS


Form: TypeAlias = str | Callable[[FlinkCall], str | None]
