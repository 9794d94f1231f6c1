"""The keys of operators with state per key: their columns in state, and their time to live."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import INTERNAL
from sqlstream.duck.sql import Condition, all_of, quote_name
from sqlstream.operators.groups import ComputedColumns
from sqlstream.units import NO_TIME, Duration


@dataclass(frozen=True)
class Keys:
    """The key columns of an operator, `computed`, each with its SQL over input rows, and their time to live (0: for ever).

    `lasting` are keys that have a result even without rows, and never expire; each is a tuple of SQL values, one per column.
    """

    computed: ComputedColumns
    ttl: Duration = NO_TIME
    lasting: tuple[tuple[str, ...], ...] = ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the key columns in state: `__sqlstream_k0`, .."""
        return tuple(f"{INTERNAL}k{i}" for i in range(len(self.computed)))

    @cached_property
    def stored(self) -> tuple[Column, ...]:
        """The key columns in state: `names` with the types of the keys."""
        return tuple(Column(name, c.type) for name, (c, _) in zip(self.names, self.computed, strict=True))

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The key columns under the names that the query gives them."""
        return tuple(column for column, _ in self.computed)

    @cached_property
    def quoted(self) -> tuple[str, ...]:
        """The names that the query gives the keys, quoted."""
        return tuple(quote_name(column.name) for column in self.columns)

    @cached_property
    def items(self) -> list[str]:
        """The select items over input rows that compute the key columns in state."""
        return [f"{sql} AS {name}" for name, (_, sql) in zip(self.names, self.computed, strict=True)]

    @cached_property
    def named(self) -> list[str]:
        """The select items that rename the key columns in state to the names that the query gives them."""
        return [f"{name} AS {quoted}" for name, quoted in zip(self.names, self.quoted, strict=True)]

    @cached_property
    def lasts(self) -> Condition:
        """The condition over the key columns in state that a key is `lasting`."""
        same = (zip(self.names, values, strict=True) for values in self.lasting)
        all_same = (all_of(f"{k} IS NOT DISTINCT FROM {value}" for k, value in pairs) for pairs in same)
        return Condition(" OR ".join(f"({condition})" for condition in all_same) or "false")
