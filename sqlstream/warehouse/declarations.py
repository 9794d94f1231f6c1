"""What a table of state is: its columns, and the times by which its rows are forgotten."""

from __future__ import annotations

from dataclasses import dataclass

from sqlstream.catalog import Column

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
