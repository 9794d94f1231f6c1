"""The grouping columns of an operator: its keys, and the columns of its windows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Protocol, TypeAlias, TypeVar

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import INTERNAL
from sqlstream.duck.sql import Items, Relation, quote_name

# The rows of a batch, over which operators compute what they store.
ROWS_OF_BATCH = Relation("_rows")
# Columns, each with the SQL expression over input rows that computes it.
ComputedColumns: TypeAlias = tuple[tuple[Column, str], ...]


def stored_columns(columns: Iterable[Column]) -> ComputedColumns:
    """Map each input column to a state column c0, c1, .. of the same type; its SQL is the quoted name of the input column."""
    return tuple((Column(f"c{i}", c.type), quote_name(c.name)) for i, c in enumerate(columns))


class Grouping(Protocol):
    """The window columns by which rows are grouped, beside the keys: the part of a WindowAssigner that aggregates need."""

    @property
    def columns(self) -> ComputedColumns:
        """The state columns behind the keys, each with its SQL in a SELECT that groups the rows of `source` by `group_by`."""

    @property
    def value_columns(self) -> ComputedColumns:
        """The same state columns, each with its SQL over single rows of `source`, for a SELECT without GROUP BY."""

    @property
    def group_by(self) -> tuple[str, ...]:
        """The SQL expressions over rows of `source` that follow the keys in GROUP BY."""

    @property
    def bounds(self) -> tuple[str, ...]:
        """The names of the TIMESTAMP columns that identify a window, once each row carries its window."""

    @property
    def start(self) -> str:
        """The SQL of a window's start, a TIMESTAMP, over the columns of `bounds`."""

    @property
    def mergeable(self) -> bool:
        """Whether compaction may merge stored rows of equal keys and `columns` into one row."""

    def source(self, keys: Sequence[str]) -> Relation:
        """Return the rows of the batch with what `group_by` needs; `keys` is the SQL of the keys."""


W_co = TypeVar("W_co", bound=Grouping, covariant=True)


@dataclass(frozen=True)
class Groups(Generic[W_co]):
    """Groups of rows with equal keys in the same window; `keys` are columns, each with its SQL over input rows."""

    keys: ComputedColumns
    windows: W_co

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        """The names of the key columns in state: `__sqlstream_k0`, .., which no column of a user can have."""
        return tuple(f"{INTERNAL}k{i}" for i in range(len(self.keys)))

    @cached_property
    def key_columns(self) -> tuple[Column, ...]:
        """The key columns in state: `key_names` with the types of the keys."""
        return tuple(Column(name, c.type) for name, (c, _) in zip(self.key_names, self.keys, strict=True))

    @cached_property
    def key_items(self) -> list[str]:
        """The select items over input rows that compute the key columns in state."""
        return [f"{sql} AS {name}" for name, (_, sql) in zip(self.key_names, self.keys, strict=True)]

    @cached_property
    def source(self) -> Relation:
        """The rows of a batch with the columns that their windows are computed from."""
        return self.windows.source([sql for _, sql in self.keys])

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The columns of a group in state: the keys, then the window columns."""
        return (*self.key_columns, *(column for column, _ in self.windows.columns))

    @cached_property
    def window_keys(self) -> tuple[Column, ...]:
        """The columns that identify a group in the result: the keys, then the window bounds, TIMESTAMPs."""
        return (*self.key_columns, *(Column(name, "TIMESTAMP") for name in self.windows.bounds))

    @cached_property
    def names(self) -> Items:
        """The names of the columns of `window_keys`."""
        return Items(", ".join(c.name for c in self.window_keys))
