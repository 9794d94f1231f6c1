"""What small Z-sets amount to, kept in memory: a batch adds what was written since, and does not sum up everything again.

A Z-set stays in some segments until they are merged, and its rows are what these amount to. A process that reads much of one
keeps the sum of its segments. Segments do not change, so a sum is right for as long as all of its segments count; nothing of it
is stored, and losing it costs one reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Lock

import pyarrow as pa

from sqlstream.storage.segments import Segment

# Sums may take one part in so many of what indexes of segments may.
SHARE = 4


@dataclass(frozen=True, slots=True)
class Sum:
    """The rows, as they are stored, that the segments of some names amount to."""

    segments: frozenset[str]
    rows: pa.Table


# Those of this process by the paths of their tables, the one that was asked for last at the end.
_sums: dict[str, Sum] = {}
_lock = Lock()


def known_sum(path: str, segments: Sequence[Segment]) -> tuple[Sum | None, list[Segment]]:
    """Return what is known of the sum of some segments of a table, and the segments that are to be added to it."""
    with _lock:
        found = _sums.get(path)
        if found is None or not found.segments <= {s.name for s in segments}:
            return None, list(segments)
        del _sums[path]
        _sums[path] = found
    return found, [s for s in segments if s.name not in found.segments]


def keep_sum(path: str, segments: Iterable[Segment], rows: pa.Table, memory: int) -> None:
    """Keep the sum of some segments if it fits into so much memory; those that nobody has asked for the longest make way."""
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
    """Forget the sums of tables whose paths begin so."""
    with _lock:
        for path in [p for p in _sums if p.startswith(under)]:
            del _sums[path]
