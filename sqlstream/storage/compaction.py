"""Compaction: which segments of a table become one, and the rows of that one.

Segments are compacted by size tiers, so a table has few of them however many batches have written into it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from duckdb import DuckDBPyConnection
from msgspec.structs import replace

from sqlstream.duck.sql import Condition, Select, names, over, quote_name, subquery
from sqlstream.duck.types import encoded, time_literal
from sqlstream.storage.manifests import Moment
from sqlstream.storage.segments import BATCH_COLUMN, ROW_GROUP_ROWS, Segment, scan, scan_stored, write_segment
from sqlstream.units import EventTime
from sqlstream.warehouse.declarations import MERGED, TableDeclaration
from sqlstream.warehouse.filesystem import Filesystem

# Size tiers: below 64 KiB, 512 KiB, 4 MiB. Eight segments of a tier become one; from 4 MiB on they stay, for to write them again
# would cost a batch more than it would save a query.
FAN = 8
TIERS = 3
SMALLEST_TIER = 64 << 10
LARGEST_MERGED: int = SMALLEST_TIER * FAN ** (TIERS - 1)
# Segments from 512 KiB on that only older versions read are not rewritten until there are this many: a burst is over by then.
LARGE_FORGOTTEN: int = SMALLEST_TIER * FAN
MOST_FORGOTTEN = 256


def segment_bound(bytes: int) -> int:
    """Return the most segments that a table of a bucket has after a commit; `bytes` is their total size.

    A commit leaves at most seven segments in each of three tiers, and segments that wait or have 4 MiB or more (see `_tier`).
    """
    return TIERS * (FAN - 1) + min(MOST_FORGOTTEN, bytes // LARGE_FORGOTTEN) + bytes // LARGEST_MERGED


@dataclass(frozen=True, slots=True)
class Compaction:
    """The compaction of one table of a bucket, whose segments are in the folder `data`."""

    fs: Filesystem
    data: str
    declaration: TableDeclaration

    def due(self, segments: Sequence[Segment]) -> list[Segment]:
        """Return the segments to compact next; none if nothing is due."""
        largest = None if self.declaration.replaces else LARGEST_MERGED
        return due(_without_waiting(self.declaration, segments), largest)

    def summed(self, con: DuckDBPyConnection, group: Sequence[Segment], batch: int) -> Segment | None:
        """Return a new segment of the batch with the rows of some segments, weights summed; None if no row is left."""
        rows = con.sql(merge(self.declaration, scan(self.fs, self.data, self.declaration.columns, group)))
        return write_segment(self.fs, self.data, self.declaration.name, batch, rows.to_arrow_reader(ROW_GROUP_ROWS))

    def merged(
        self, con: DuckDBPyConnection, group: Sequence[Segment], batch: int, bound: Moment | None
    ) -> Segment | None:
        """Return a segment with the rows of some segments that versions from `bound` on see; None if there are none."""
        declaration = self.declaration
        span = min(s.first_batch for s in group), max(s.last_batch for s in group)
        rows = con.sql(self._rows(group, span, bound)).to_arrow_reader(ROW_GROUP_ROWS)
        merged = write_segment(
            self.fs, self.data, declaration.name, batch, rows, time_column=declaration.time_column, batches=span
        )
        if merged is None or declaration.time_column is None:
            return merged
        if declaration.merge is not None and bound is not None:
            # Merging changed the number of live rows; where some are forgotten, the next `forget` counts them.
            return merged
        # Rows that are live were not dropped.
        lows = [s.live_low for s in group if s.live_low is not None]
        return replace(merged, live=sum(s.live for s in group), live_low=min(lows, default=None))

    def _rows(self, group: Sequence[Segment], span: tuple[int, int], bound: Moment | None) -> Select:
        """Return the stored rows of some segments that versions from `bound` on see, with `__sqlstream_batch`."""
        declaration = self.declaration
        stored = subquery(scan_stored(self.fs, self.data, declaration.columns, group))
        if bound is None:
            return Select(f"FROM {stored}")
        seen = Condition("true")
        if bound.watermark is not None and declaration.time_column is not None:
            seen = compare(declaration, ">", bound.watermark)
        if declaration.merge is None or span[0] > bound.batch:
            return Select(f"FROM {stored} WHERE {seen}")
        # No retained version can tell the rows up to the bound apart by their batch.
        old = [s for s in group if s.first_batch <= bound.batch]
        rows = scan(self.fs, self.data, declaration.columns, old, batch=True)
        seen_rows = f"FROM ({rows}) WHERE {BATCH_COLUMN} <= {bound.batch} AND {seen}"
        merged = merge(declaration, Select(f"SELECT {names(declaration.columns)} {seen_rows}"))
        select = Select(f"SELECT *, {min(span[1], bound.batch)}::BIGINT AS {BATCH_COLUMN} FROM ({merged})")
        if span[1] <= bound.batch:
            return select
        return Select(f"{select} UNION ALL FROM {stored} WHERE {BATCH_COLUMN} > {bound.batch} AND {seen}")


def merge(declaration: TableDeclaration, rows: Select) -> Select:
    """Apply a table's `merge` to rows; return them encoded for storage."""
    assert declaration.merge is not None
    return encoded(declaration.columns, subquery(over({MERGED: rows}, declaration.merge)))


def _without_waiting(declaration: TableDeclaration, segments: Sequence[Segment]) -> Sequence[Segment]:
    """Return the segments that compaction may rewrite now: all but the newest MOST_FORGOTTEN large ones without a live row."""
    if declaration.time_column is None or declaration.merge is not None:
        return segments
    forgotten = [s.name for s in segments if s.live_low is None and LARGE_FORGOTTEN <= s.bytes < LARGEST_MERGED]
    waiting = set(forgotten[-MOST_FORGOTTEN:])
    return [s for s in segments if s.name not in waiting]


def due(segments: Iterable[Segment], largest: int | None = LARGEST_MERGED) -> list[Segment]:
    """Return the segments to compact next: the lowest tier that is full, none when no tier is.

    Segments of `largest` bytes or more are left alone.
    """
    tiers: dict[int, list[Segment]] = {}
    for segment in segments:
        if largest is None or segment.bytes < largest:
            tiers.setdefault(_tier(segment.bytes), []).append(segment)
    return next((tier for _, tier in sorted(tiers.items()) if len(tier) >= FAN), [])


def _tier(bytes: int) -> int:
    tier, limit = 0, SMALLEST_TIER
    while bytes >= limit:
        tier, limit = tier + 1, limit * FAN
    return tier


def compare(declaration: TableDeclaration, operator: str, time: EventTime) -> Condition:
    """Return the condition that a table's time column is on one side of a time."""
    literal = time_literal(time, declaration.time_type)
    return Condition(f"{quote_name(declaration.time_column or '')} {operator} {literal}")
