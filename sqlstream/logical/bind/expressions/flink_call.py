"""A call of one of Flink's functions, as the functions that write its form see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from sqlglot import exp

from sqlstream import java_patterns
from sqlstream.duck.types import INTEGERS
from sqlstream.java_patterns import UntranslatablePattern

T = TypeVar("T")
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

    def formatted(self, number: int, local: str, instant: str | None = None) -> str:
        """Return the SQL of a time as text by an argument that is a Java pattern; see `java_patterns.formatted`.

        Raises WrongArgument.
        """
        return self._translated(number, lambda pattern: java_patterns.formatted(pattern, local, instant))

    def parsed(self, number: int, text: str = "_0") -> str:
        """Return the SQL of the TIMESTAMP of a text by an argument that is a Java pattern. Raises WrongArgument."""
        return self._translated(number, lambda pattern: java_patterns.parsed(text, pattern))

    def parsed_instant(self, number: int, text: str = "_0") -> str | None:
        """Return the SQL of the TIMESTAMP_LTZ of a text by such an argument; None if that has no zone. Raises WrongArgument."""
        return self._translated(number, lambda pattern: java_patterns.parsed_instant(text, pattern))

    def _translated(self, number: int, translate: Callable[[str], T]) -> T:
        try:
            return translate(self.text(number, "pattern"))
        except UntranslatablePattern as error:
            hint = (
                "Usable are yyyy, MM, dd, HH, hh, mm, ss, SSS, SSSSSS, a, E, EEEE, MMM, MMMM, D, the zones Z, X, XXX, x, z and "
                "VV, text in single quotes, and, where a time is written, the weeks YYYY, ww and w."
            )
            raise WrongArgument(number, f'"{error}" in the pattern of {self.name} has no translation', hint) from error

    def is_number(self, number: int) -> bool:
        """Return whether an argument is known to have a numeric type."""
        type = self.type_of(number) or ""
        return type.startswith("DECIMAL") or type in _NUMBERS


Form: TypeAlias = str | Callable[[FlinkCall], str | None]
