"""Sums of small Z-sets, cached in memory: a batch adds what was written since, instead of summing everything again.

A Z-set is spread over segments until they are merged; its rows are their sum. A process that reads much of a Z-set caches the sum
of its segments. Segments never change, so a sum holds as long as all of its segments count; it is not stored, and losing it costs
one read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Lock

import pyarrow as pa

from sqlstream.storage.segments import Segment

# Sums may take one part in this many of the memory for indexes of segments.
SHARE = 4


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of some segments, by their names: rows as they are stored, weights summed."""

    segments: frozenset[str]
    rows: pa.Table


# The sums of this process by the paths of their tables, the most recently used one last.
_sums: dict[str, Sum] = {}
_lock = Lock()


def known_sum(path: str, segments: Sequence[Segment]) -> tuple[Sum | None, list[Segment]]:
    """Return the cached sum of a table, None if it contains other segments than these, and the segments to add to it."""
    with _lock:
        entry = _sums.get(path)
        if entry is None or not entry.segments <= {s.name for s in segments}:
            return None, list(segments)
        del _sums[path]
        _sums[path] = entry
    return entry, [s for s in segments if s.name not in entry.segments]


def keep_sum(path: str, segments: Iterable[Segment], rows: pa.Table, memory: int) -> None:
    """Cache the sum of some segments if it fits into `memory` bytes; the least recently used sums make way."""
    with _lock:
        _sums.pop(path, None)
        if rows.nbytes > memory:
            return
        total = rows.nbytes + sum(one.rows.nbytes for one in _sums.values())
        for other in list(_sums):
            if total <= memory:
                break
            total -= _sums.pop(other).rows.nbytes
        _sums[path] = Sum(frozenset(s.name for s in segments), rows)


def forget_sums(under: str = "") -> None:
    """Drop the sums of tables whose paths start with `under`."""
    with _lock:
        for path in [p for p in _sums if p.startswith(under)]:
            del _sums[path]
