"""What tells groups apart: keys, and the windows that rows are in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Protocol

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import INTERNAL
from sqlstream.duck.sql import quote_name


def stored_columns(columns: Iterable[Column]) -> tuple[tuple[Column, str], ...]:
    """Return the columns in which rows are stored, under names of our own, with the SQL that makes them from input rows."""
    return tuple((Column(f"c{i}", c.type), quote_name(c.name)) for i, c in enumerate(columns))


class Grouping(Protocol):
    """What tells groups of equal keys apart: see Windowing, of which this is a part."""

    @property
    def columns(self) -> tuple[tuple[Column, str], ...]: ...

    @property
    def value_columns(self) -> tuple[tuple[Column, str], ...]: ...

    @property
    def group_by(self) -> tuple[str, ...]: ...

    @property
    def bounds(self) -> tuple[str, ...]: ...

    @property
    def start(self) -> str: ...

    @property
    def mergeable(self) -> bool: ...

    def source(self, keys: Sequence[str]) -> str: ...


class Groups:
    """Groups of rows of equal keys and windows; the keys are columns with the SQL that makes them from input rows."""

    keys: tuple[tuple[Column, str], ...]
    windows: Grouping

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        """The stored keys, under names of our own: a user's name could be one of ours."""
        return tuple(f"{INTERNAL}k{i}" for i in range(len(self.keys)))

    @cached_property
    def group(self) -> tuple[Column, ...]:
        """The stored columns that tell groups apart."""
        keys = (Column(name, column.type) for name, (column, _) in zip(self.key_names, self.keys, strict=True))
        return (*keys, *(column for column, _ in self.windows.columns))

    @cached_property
    def names(self) -> str:
        """The columns that tell the groups of a result apart."""
        return ", ".join([*self.key_names, *self.windows.bounds])
