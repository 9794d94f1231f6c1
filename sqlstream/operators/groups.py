"""What tells groups apart: keys, and the windows that rows are in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Protocol, TypeAlias, TypeVar

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import INTERNAL
from sqlstream.duck.sql import quote_name

# Columns with the SQL that makes them from input rows.
Made: TypeAlias = tuple[tuple[Column, str], ...]


def stored_columns(columns: Iterable[Column]) -> Made:
    """Return the columns in which rows are stored, under names of our own, with the SQL that makes them from input rows."""
    return tuple((Column(f"c{i}", c.type), quote_name(c.name)) for i, c in enumerate(columns))


class Grouping(Protocol):
    """What tells groups of equal keys apart: see WindowAssigner, of which this is a part."""

    @property
    def columns(self) -> Made: ...

    @property
    def value_columns(self) -> Made: ...

    @property
    def group_by(self) -> tuple[str, ...]: ...

    @property
    def bounds(self) -> tuple[str, ...]: ...

    @property
    def start(self) -> str: ...

    @property
    def mergeable(self) -> bool: ...

    def source(self, keys: Sequence[str]) -> str: ...


W_co = TypeVar("W_co", bound=Grouping, covariant=True)


@dataclass(frozen=True)
class Groups(Generic[W_co]):
    """Groups of rows of equal keys and windows; the keys are columns with the SQL that makes them from input rows."""

    keys: Made
    windows: W_co

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        """The stored keys, under names of our own: a user's name could be one of ours."""
        return tuple(f"{INTERNAL}k{i}" for i in range(len(self.keys)))

    @cached_property
    def key_columns(self) -> tuple[Column, ...]:
        return tuple(Column(name, c.type) for name, (c, _) in zip(self.key_names, self.keys, strict=True))

    @cached_property
    def made_keys(self) -> list[str]:
        """The select items that make the stored keys from input rows."""
        return [f"{sql} AS {name}" for name, (_, sql) in zip(self.key_names, self.keys, strict=True)]

    @cached_property
    def source(self) -> str:
        """The rows of a batch, to go behind FROM, with what makes their windows."""
        return self.windows.source([sql for _, sql in self.keys])

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The stored columns that tell groups apart."""
        return (*self.key_columns, *(column for column, _ in self.windows.columns))

    @cached_property
    def place(self) -> tuple[Column, ...]:
        """The columns that tell the groups of a result apart: once rows are in windows."""
        return (*self.key_columns, *(Column(name, "TIMESTAMP") for name in self.windows.bounds))

    @cached_property
    def names(self) -> str:
        """The names of these."""
        return ", ".join(c.name for c in self.place)
