"""The parts that the connectors of generated rows share: splits by row number, and a rate per second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sqlstream.connectors.discovery import Discovery, DiscoveryContext, Offsets
from sqlstream.connectors.interface import TableSource
from sqlstream.duck.internal_columns import ROW
from sqlstream.units import NO_TIME, Duration

# The most rows of a batch, and the fewest for which another task is worth it.
BATCH_ROWS = 1_000_000
TASK_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class RowRange:
    """A split of a generator: the rows numbered [first, end). `base` is the time of row 0, in milliseconds since 1970."""

    first: int
    end: int
    base: int = 0

    @property
    def bytes(self) -> int:
        """The number of rows."""
        return self.end - self.first

    @property
    def reached(self) -> tuple[str, Any]:
        return "", self.end

    def to_list(self) -> list[Any]:
        return [self.first, self.end, self.base]


class NumberedSource(TableSource):
    """A source whose splits are ranges of the numbers of rows."""

    order = (ROW,)
    numbering = (ROW,)
    split_type = RowRange

    def most_rows(self, split: RowRange) -> int:
        return split.end - split.first

    def first_row(self, split: RowRange) -> tuple[str, int]:
        return "", split.first


class RowDiscovery(Discovery):
    """Hands out the rows numbered [0, `total`) (None: without end), at most `rate` per second (None: without limit).

    After a restart it continues at the same rate; it does not catch up on the time in between. `base` is the time of row 0, in
    milliseconds since 1970.
    """

    backlog_unit = "rows"
    interval: Duration | None = NO_TIME

    def __init__(
        self,
        position: Offsets,
        context: DiscoveryContext,
        *,
        total: int | None,
        rate: float | None,
        base: int = 0,
    ):
        super().__init__()
        self.bounded = total is not None
        self._position, self._context, self._total, self._base = position, context, total, base
        self._rate = rate if context.paced else None
        self._opened = context.clock()
        self._first = self._next
        self._due = 0

    @property
    def _next(self) -> int:
        return int(self._position.get("", 0))

    @property
    def waiting(self) -> int:
        return self._due

    @property
    def remaining(self) -> int:
        return 1 if self._total is None else self._total - self._next

    def poll(self) -> int:
        """Return how many rows are due."""
        due = BATCH_ROWS
        if self._rate is not None:
            passed = self._context.clock() - self._opened
            due = min(due, self._first + int(passed * self._rate) - self._next)
        self._due = max(0, due if self._total is None else min(due, self._total - self._next))
        return self._due

    def next_batch(self) -> Sequence[RowRange] | None:
        """Return the rows that were due at the last `poll`, in ranges of about equal length, at most one per task."""
        if not self._due:
            return None
        first, count = self._next, self._due
        pieces = max(1, min(self._context.parallelism, count // TASK_ROWS))
        bounds = [first + count * i // pieces for i in range(pieces + 1)]
        splits = [RowRange(a, b, self._base) for a, b in pairwise(bounds)]
        self._position.add(splits)
        self._due = 0
        return splits
