"""Bound expressions, and what is made of them: columns, items of a select list, aggregate calls."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sqlstream.errors import Span

_QUOTED = re.compile(r'''"((?:[^"]|"")*)"''')
# The types that a time attribute can have.
TIMES = ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE")


@dataclass(frozen=True, slots=True)
class Expression:
    """A bound scalar expression: DuckDB SQL over the columns of one node, and its DuckDB type."""

    sql: str
    type: str
    span: Span | None = field(default=None, compare=False, repr=False)
    volatile: bool = False

    def __str__(self) -> str:
        return self.sql


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a node's output."""

    name: str
    type: str

    def __str__(self) -> str:
        return f"{self.name} {self.type}"


Schema = tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Item:
    """An output column of a projection: a name and the expression that makes it."""

    name: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class AggregateItem:
    """An aggregate call over the columns of the aggregate's input, and the name of its result.

    The SQL of an `order_by` says the direction, too.
    """

    name: str
    function: str
    arguments: tuple[Expression, ...]
    distinct: bool
    order_by: tuple[Expression, ...]
    filter: Expression | None
    type: str
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """All that is computed from a row of the input."""
        return (*self.arguments, *self.order_by, *((self.filter,) if self.filter else ()))

    def __str__(self) -> str:
        inside = ("DISTINCT " if self.distinct else "") + (", ".join(map(str, self.arguments)) or "*")
        inside += f" ORDER BY {', '.join(map(str, self.order_by))}" if self.order_by else ""
        where = f" FILTER (WHERE {self.filter})" if self.filter else ""
        return f"{self.function}({inside}){where} AS {self.name}"


def quote(name: str) -> str:
    """Return a name as a DuckDB identifier, its own quotes doubled.

    >>> print(quote("window start"))
    "window start"
    """
    return '"' + name.replace('"', '""') + '"'


def unquoted(sql: str) -> str:
    """Return SQL with its quoted names as people write them.

    >>> print(unquoted('"a""b" + c.d'))
    a"b + c.d
    """
    return _QUOTED.sub(lambda found: found[1].replace('""', '"'), sql)
