"""The rows of VALUES as a source: one split, which is all of them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlstream.catalog import VALUES, Column, Table
from sqlstream.connectors.filesystem.splits import Seen, Split
from sqlstream.duck.sql import quote_name

SPLIT = Split(VALUES, 1, 0, 1)


class ValuesDiscovery:
    """Hands out the rows once."""

    def __init__(self, seen: Seen):
        self.seen = seen
        self.changed: list[str] = []
        self.interval: float | None = None
        self.bounded = True

    def poll(self) -> int:
        return self.waiting

    @property
    def waiting(self) -> int:
        return 0 if self.seen.get(SPLIT.path) else 1

    @property
    def remaining(self) -> int:
        return self.waiting

    def close(self) -> None:
        pass

    def next_batch(self) -> list[Split] | None:
        """Return what the next batch reads, or None when the rows were handed out."""
        if not self.waiting:
            return None
        self.seen.add([SPLIT])
        return [SPLIT]


def values_sql(table: Table, columns: Sequence[Column]) -> str:
    """Return a SELECT of the rows of VALUES."""
    names = ", ".join(quote_name(c.name) for c in table.columns if c.metadata is None)
    # Of metadata there is the number of the row.
    values = {c.name: quote_name(c.name) if c.metadata is None else "row_number() OVER () - 1" for c in columns}
    items = ", ".join(f"CAST({values[c.name]} AS {c.type}) AS {quote_name(c.name)}" for c in columns) or "1"
    return f"SELECT {items} FROM (VALUES {table.options['rows']}) AS _values({names})"
