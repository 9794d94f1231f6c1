"""The keys of operators with state per key, under names of our own, and how long they are kept."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import INTERNAL
from sqlstream.duck.sql import quote_name
from sqlstream.operators.groups import Made
from sqlstream.units import NO_TIME, Duration


@dataclass(frozen=True)
class Keys:
    """Columns with the SQL that makes them from input rows. A `ttl` of 0 is for ever.

    `lasting` are keys that are there whatever rows are, each as the SQL of its values.
    """

    made: Made
    ttl: Duration = NO_TIME
    lasting: tuple[tuple[str, ...], ...] = ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{INTERNAL}k{i}" for i in range(len(self.made)))

    @cached_property
    def stored(self) -> tuple[Column, ...]:
        return tuple(Column(name, c.type) for name, (c, _) in zip(self.names, self.made, strict=True))

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The keys under their own names."""
        return tuple(column for column, _ in self.made)

    @cached_property
    def quoted(self) -> tuple[str, ...]:
        """The SQL of the keys over rows that have them under their own names."""
        return tuple(quote_name(column.name) for column in self.columns)

    @cached_property
    def items(self) -> list[str]:
        """The select items that make the stored keys from input rows."""
        return [f"{sql} AS {name}" for name, (_, sql) in zip(self.names, self.made, strict=True)]

    @cached_property
    def named(self) -> list[str]:
        """The select items that give stored keys their own names."""
        return [f"{name} AS {quoted}" for name, quoted in zip(self.names, self.quoted, strict=True)]

    @cached_property
    def lasts(self) -> str:
        """The condition, over stored keys, that a key is one of those that are always there."""
        same = (zip(self.names, values, strict=True) for values in self.lasting)
        all_same = (" AND ".join(f"{k} IS NOT DISTINCT FROM {value}" for k, value in pairs) or "true" for pairs in same)
        return " OR ".join(f"({condition})" for condition in all_same) or "false"
