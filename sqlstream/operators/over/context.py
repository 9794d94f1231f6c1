"""Rows with what is known of their place among the rows of their partition: what calls with OVER are computed over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import INTERNAL, internal
from sqlstream.duck.sql import quote_name
from sqlstream.operators.over.calls import AFTER, BEFORE, ID, PLACE, RANKS, OverCall, later, reach
from sqlstream.units import Duration

# A row's time in microseconds.
AT = "_at"
# The batch that a row came in, where rows are in the order of the clock.
TURN = "_turn"
# Whether a row has become final in this batch; how many rows of its partition are known, and how many were before.
NEW, COUNT, OLD = internal("new"), internal("count"), internal("old")


@dataclass(frozen=True)
class OverContext:
    """The columns of keys and rows, the order behind the time, and the calls.

    Stored rows have names of ours (k0, c0, ..), those of the context their own: expressions of calls are over them.
    """

    keys: tuple[Column, ...]
    columns: tuple[Column, ...]
    order: tuple[str, ...]
    calls: tuple[OverCall, ...]
    by_clock: bool

    @cached_property
    def stored(self) -> tuple[Column, ...]:
        columns = (Column(f"c{i}", c.type) for i, c in enumerate(self.columns))
        turn = (Column(TURN, "BIGINT"),) if self.by_clock else ()
        return (*self.keys, *columns, Column(AT, "BIGINT"), *turn)

    @property
    def following(self) -> int:
        """How many rows after a row must be final before it is."""
        return max(0, max((c.frame.following for c in self.calls if c.frame.mode == "rows"), default=0))

    @property
    def later(self) -> Duration:
        """How long after a row later ones are in its frames."""
        return Duration(max((c.frame.following for c in self.calls if c.frame.mode == "range"), default=0))

    @property
    def named(self) -> list[str]:
        """The select items that give the columns of stored rows their own names."""
        return [f"c{i} AS {quote_name(c.name)}" for i, c in enumerate(self.columns)]

    @property
    def restored(self) -> str:
        """The select items that make stored rows of those of the context."""
        keys = [f"{INTERNAL}{k.name} AS {k.name}" for k in self.keys]
        own = [f"{quote_name(c.name)} AS c{i}" for i, c in enumerate(self.columns)]
        turn = [f"{INTERNAL}turn AS {TURN}"] if self.by_clock else []
        return ", ".join([*keys, *own, f"{INTERNAL}at AS {AT}", *turn])

    @property
    def partition_columns(self) -> list[str]:
        return [f"{INTERNAL}{k.name}" for k in self.keys]

    @property
    def partition(self) -> str:
        return ", ".join(self.partition_columns) or "true"

    def of(self, rows: str) -> str:
        """Return the SELECT of the context over a SELECT of stored rows with the column NEW."""
        keys = [f"{k.name} AS {name}" for k, name in zip(self.keys, self.partition_columns, strict=True)]
        times = [internal("at"), *([internal("turn")] if self.by_clock else [])]
        turn = [f"{TURN} AS {INTERNAL}turn"] if self.by_clock else []
        named = f"SELECT {', '.join([*keys, *self.named, f'{AT} AS {INTERNAL}at', *turn, NEW])} FROM ({rows})"
        items = self._places(", ".join([*times, *self.order]))
        return f"SELECT *, {', '.join(self._bounds)} FROM (SELECT *, {', '.join(items)} FROM ({named}))"

    def _places(self, order: str) -> list[str]:
        """Return the select items that say where rows are in their partition; `order` leaves rows equal."""
        ties = "".join(f", {quote_name(c.name)}" for c in self.columns)
        among = f"PARTITION BY {self.partition}"
        items = [f"row_number() OVER ({among} ORDER BY {order}{ties}) AS {PLACE}"]
        if self._has_equals:
            items.append(f"rank() OVER ({among} ORDER BY {order}) AS {INTERNAL}first")
        for span in self._spans:
            frame = f"RANGE BETWEEN {span} PRECEDING AND CURRENT ROW"
            items.append(f"count(*) OVER ({among} ORDER BY {INTERNAL}at {frame}) AS {INTERNAL}in_{span}")
        for span in self._later:
            frame = f"RANGE BETWEEN CURRENT ROW AND {span} FOLLOWING"
            items.append(f"count(*) OVER ({among} ORDER BY {INTERNAL}at {frame}) AS {INTERNAL}until_{span}")
        if not all(c.runs for c in self.calls):
            items.append(f"count(*) OVER ({among}) AS {COUNT}")
        if self.following:
            items.append(f"count(*) FILTER (NOT {NEW}) OVER ({among}) AS {OLD}")
        return items

    @property
    def _bounds(self) -> list[str]:
        """The select items over places that calls name in their frames."""
        number = f"row_number() OVER () AS {ID}"
        if not self._has_equals:
            return [number, f"0 AS {BEFORE}", f"0 AS {AFTER}"]
        equal = f"count(*) OVER (PARTITION BY {self.partition}, {INTERNAL}first)"
        reached = [f"{INTERNAL}in_{span} - 1 - {AFTER} AS {reach(span)}" for span in self._spans]
        reached += [f"{INTERNAL}until_{span} - 1 - {BEFORE} AS {later(span)}" for span in self._later]
        return [number, f"{PLACE} - {INTERNAL}first AS {BEFORE}", f"{equal} - 1 - {BEFORE} AS {AFTER}", *reached]

    @property
    def _has_equals(self) -> bool:
        return any(c.frame.mode == "range" or c.call.function in RANKS for c in self.calls)

    @property
    def _spans(self) -> Sequence[int]:
        """The lengths of the frames of time."""
        frames = [c.frame for c in self.calls if not c.runs and c.frame.mode == "range"]
        return sorted({f.preceding for f in frames if f.preceding is not None})

    @property
    def _later(self) -> Sequence[int]:
        return sorted({c.frame.following for c in self.calls if c.frame.mode == "range" and c.frame.following})

    def is_due(self, *, ends: bool) -> str:
        """Return the condition under which a row of the context leaves now; `ends` says that no row will come any more.

        Of the rows that were known before, the last ones of a partition have waited for those after them, and no others.
        """
        if not self.following:
            return NEW
        waits = f"({NEW} OR {PLACE} > {OLD} - {self.following})"
        return waits if ends else f"{waits} AND {PLACE} <= {COUNT} - {self.following}"
