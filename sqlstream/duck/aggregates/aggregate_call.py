"""Calls of aggregate functions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlstream.catalog import AggregateFunction
from sqlstream.duck.aggregates.functions import FUNCTIONS, REFUSED, Kind, Shape
from sqlstream.duck.internal_columns import ARRIVED
from sqlstream.duck.sql import quote_name
from sqlstream.duck.types import stored_type
from sqlstream.errors import UnsupportedError


class NotIncremental(ValueError):
    """A call that cannot run incrementally; the message is the reason, as a phrase."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key of an ORDER BY inside a call."""

    expression: str
    type: str
    direction: str


_DIRECTION = re.compile(r"(?P<key>.*?)(?:\s+(?P<way>ASC|DESC))?(?:\s+NULLS\s+(?P<nulls>FIRST|LAST))?", re.I | re.S)


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """A bound call. All texts are DuckDB SQL over the input's columns, all types are as DuckDB's `typeof` prints them.

    `function` is lower case with `ALIASES` resolved; `arguments` is () for count(*). `order_by` holds texts such as
    `expr DESC NULLS LAST`, `order_types` the type of each expression (needed where it is none of the arguments). Write
    `percentile_cont(q) WITHIN GROUP (ORDER BY x DESC)` as quantile_cont with arguments (x, q) and order_by ("x DESC",).
    `result_type` must be set. `python` is the declaration of a user's function, whose arguments have the types of its parameters.
    """

    function: str
    arguments: tuple[str, ...]
    argument_types: tuple[str, ...]
    distinct: bool = False
    order_by: tuple[str, ...] = ()
    filter: str | None = None
    result_type: str = ""
    order_types: tuple[str, ...] = ()
    python: AggregateFunction | None = None

    @property
    def shape(self) -> Shape:
        """How the function runs. Raises NotIncremental if it cannot run incrementally."""
        if self.python is not None:
            return Shape(Kind.PYTHON if self.python.merges else Kind.VALUES, ordered=True)
        if self.function in REFUSED:
            raise NotIncremental(REFUSED[self.function])
        if self.function not in FUNCTIONS:
            raise NotIncremental(f"there is no incremental form of the aggregate {self.function}")
        return FUNCTIONS[self.function]

    def step(self, name: str, argument: str) -> str:
        """Return the SQL of a step of a user's function, such as `merge`, over an argument."""
        assert self.python is not None
        return f"{quote_name(self.python.step(name))}({argument})"

    @property
    def limited(self) -> bool:
        """Whether the call has a count n, as in max(x, n), and returns the n extreme values."""
        return len(self.arguments) > {Kind.FOLD: 1, Kind.PICKS: 1, Kind.ARG: 2}.get(self.shape.kind, 9)

    @property
    def keys(self) -> list[Key]:
        """The keys of ORDER BY inside the call, with explicit directions."""
        types = dict(zip(self.arguments, self.argument_types, strict=True))
        keys = []
        for i, text in enumerate(self.order_by):
            item = _DIRECTION.fullmatch(text.strip())
            assert item is not None
            direction = f"{(item['way'] or 'ASC').upper()} NULLS {(item['nulls'] or 'LAST').upper()}"
            keys.append(Key(item["key"], types.get(item["key"]) or self.order_types[i], direction))
        return keys

    @property
    def by_arrival(self) -> bool:
        """Whether ORDER BY inside the call has one key, the order of arrival. It is never NULL, and differs between rows."""
        return self._keys_by_arrival == 1

    @property
    def by_arrival_and_value(self) -> bool:
        """Whether ORDER BY inside the call has the order of arrival and, after it, at most the first argument."""
        return self._keys_by_arrival == 1 or (
            self._keys_by_arrival == 2 and self.keys[1].expression == self.arguments[0]
        )

    @property
    def _keys_by_arrival(self) -> int:
        """The number of keys of ORDER BY if the first one is the order of arrival, else 0."""
        keys = self.keys
        return len(keys) if keys and keys[0].expression == quote_name(ARRIVED.name) else 0

    @property
    def latest_first(self) -> bool:
        """Whether the first key of ORDER BY descends."""
        return self.keys[0].direction.startswith("DESC")

    def where(self, *conditions: str) -> str:
        """Return the FILTER clause of the call's filter and further conditions; empty without any."""
        terms = [f"({c})" for c in (*conditions, self.filter) if c]
        return f" FILTER (WHERE {' AND '.join(terms)})" if terms else ""


def row_of(arguments: Sequence[str]) -> str:
    """Return the SQL of a row for the steps of a user's function: the only argument, or a struct of all."""
    if len(arguments) == 1:
        return arguments[0]
    return f"struct_pack({', '.join(f'p{i} := {a}' for i, a in enumerate(arguments))})"


def kept_type(type_: str) -> str:
    """Return `type_` if values of it can be stored. Raises NotIncremental for the type of NULL, UNION and VARIANT."""
    if '"NULL"' in type_:
        raise NotIncremental("a value that is always NULL has no type; write CAST(NULL AS INTEGER)")
    try:
        stored_type(type_)
    except UnsupportedError as error:
        raise NotIncremental(error.message) from None
    return type_
