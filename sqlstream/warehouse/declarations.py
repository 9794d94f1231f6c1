"""What a table of state is: its columns, the times by which its rows are forgotten, and what a time to live forgets of it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from sqlstream.catalog import Column
from sqlstream.units import NO_TIME, Duration

# What the SQL that merges rows calls them.
MERGED = "merged_rows"


@dataclass(frozen=True, slots=True)
class TableDeclaration:
    """A named, typed table of an operator: rows are appended, and forgotten as the watermark passes their time.

    Without a `time_column` rows stay for ever. A time column is a TIMESTAMP, a TIMESTAMP WITH TIME ZONE, or a BIGINT
    of microseconds, and never NULL. `merge` is a SELECT over MERGED which combines rows of equal key and time and
    yields the same columns; compaction may apply it to any of the rows that no retained version tells apart. With
    `replaces`, it is applied to all rows of a segment, and older versions keep reading what was merged. Of a `replicated` table
    every bucket has all rows: whoever reads the state of all buckets reads one of them.
    """

    name: str
    columns: tuple[Column, ...]
    time_column: str | None = None
    merge: str | None = None
    replaces: bool = False
    replicated: bool = False

    @property
    def time_type(self) -> str:
        return next(c.type for c in self.columns if c.name == self.time_column)


class Remembered(msgspec.Struct, frozen=True, omit_defaults=True):
    """State that a time to live bounds: a key is forgotten with its rows when none came for it for `ttl` (0: never).

    `name` is the input or the state that it is about, where an operator has several. The rows are those of Z-sets, `tables`,
    which have the columns `keys`. The table `clocked` says in the column `at`, a processing time in units of so many
    microseconds, when a row last came for a key; without that column a row came in each batch that changed the table. Of it
    only the rows count for which the SQL `holds` is true. Keys for which `lasts` is true are never forgotten. Rows that come
    for a key in the tables `asks` look at what is kept of it. A write that changes nothing may leave no trace where it
    `misses_writes`. The rows of a `bare` clocked table are keys alone, and are not counted.
    """

    tables: tuple[str, ...]
    clocked: str
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
