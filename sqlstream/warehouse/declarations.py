"""What a table of state is: its columns, and the times by which its rows are forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlstream.catalog import Column

# What the SQL that merges rows calls them.
MERGED = "merged_rows"


@dataclass(frozen=True, slots=True)
class TableDeclaration:
    """A named, typed table of an operator: rows are appended, and forgotten as the watermark passes their time.

    Without a `time_column` rows stay for ever. A time column is a TIMESTAMP, a TIMESTAMP WITH TIME ZONE, or a BIGINT
    of microseconds, and never NULL. `merge` is a SELECT over MERGED which combines rows of equal key and time and
    yields the same columns; compaction may apply it to any of the rows that no retained version tells apart. With
    `replaces`, it is applied to all rows of a segment, and older versions keep reading what was merged.
    """

    name: str
    columns: tuple[Column, ...]
    time_column: str | None = None
    merge: str | None = None
    replaces: bool = False

    @property
    def time_type(self) -> str:
        return next(c.type for c in self.columns if c.name == self.time_column)

    def to_dict(self) -> dict[str, Any]:
        columns = [[c.name, c.type] for c in self.columns]
        merge = {"merge": self.merge, "replaces": self.replaces}
        return {"name": self.name, "columns": columns, "time_column": self.time_column, **merge}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> TableDeclaration:
        columns = tuple(Column(name, type) for name, type in value["columns"])
        return cls(value["name"], columns, value["time_column"], value["merge"], value["replaces"])
