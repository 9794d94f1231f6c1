"""Declarations of state tables: their columns, when rows are forgotten, and the state that a time to live bounds."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from sqlstream.catalog import Column
from sqlstream.duck.sql import Relation, Select
from sqlstream.units import NO_TIME, Duration

# The rows to be merged, in the SQL that merges them.
MERGED = Relation("merged_rows")


@dataclass(frozen=True, slots=True)
class TableDeclaration:
    """A named, typed state table of an operator: rows are appended, and forgotten when the watermark passes their time.

    Without a `time_column`, rows stay for ever. The time column is a TIMESTAMP, a TIMESTAMP WITH TIME ZONE, or a BIGINT of
    microseconds, and never NULL. `merge`, a SELECT over MERGED, combines rows of equal key and time and returns the same columns.
    Compaction may apply it to rows that either all retained versions see, or none. With `replaces`, compaction may apply it to
    any rows: older versions then keep reading the segments from before. Every bucket has all rows of a `replicated` table, so a
    reader of the whole state reads one bucket only.
    """

    name: str
    columns: tuple[Column, ...]
    time_column: str | None = None
    merge: Select | None = None
    replaces: bool = False
    replicated: bool = False

    @property
    def time_type(self) -> str:
        """The type of the time column; the table must have one."""
        return next(c.type for c in self.columns if c.name == self.time_column)


class ExpiringState(msgspec.Struct, frozen=True, omit_defaults=True):
    """State that a time to live bounds: a key is forgotten, with its rows, when no row has come for it for `ttl` (0: never).

    `name` is the input or the part of the state, if the operator has several. The rows are in the Z-sets `tables`, which have the
    columns `keys`. The table `last_row_times` tells when the last row of a key came: its column `at` has that processing time, in
    units of `unit` microseconds; without the column, the key's last row came in the last batch that changed the key's rows there.
    Only rows of `last_row_times` for which the SQL `holds` is true count. Keys for which the SQL `lasts` is true are never
    forgotten.

    The other fields are for `sqlstream.ttl`, which estimates the effect of a time to live. A row that arrives in one of the
    tables `asks` reads this state, too, without extending the life of the key. With `misses_writes`, a write that changes nothing
    may not be recorded, so times are not exact. A `bare` table of these times stores only keys: its rows are not counted as
    state.
    """

    tables: tuple[str, ...]
    last_row_times: str = msgspec.field(name="clocked")
    keys: tuple[str, ...] = ()
    at: str = ""
    unit: Duration = NO_TIME
    ttl: Duration = NO_TIME
    name: str = ""
    holds: str = "true"
    lasts: str = "false"
    asks: tuple[str, ...] = ()
    misses_writes: bool = False
    bare: bool = False
