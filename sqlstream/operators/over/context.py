"""The context that calls with OVER are computed over: rows with their positions in their partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import INTERNAL, internal
from sqlstream.duck.sql import Condition, Items, Select, quote_name
from sqlstream.operators.over.calls import AFTER, BEFORE, ID, POSITION, RANKS, OverCall, later, reach
from sqlstream.units import Duration

# A row's event time in microseconds.
AT = "_at"
# The batch that a row came in, if rows are ordered by processing time.
TURN = "_turn"
# Whether a row's position became final in this batch; how many rows its partition has in the context, and how many are older.
NEW, COUNT, OLD = internal("new"), internal("count"), internal("old")


@dataclass(frozen=True)
class OverContext:
    """Builds the SQL of a context: the keys of the partitions, the columns of rows, the order behind the time, and the calls.

    Rows in state have columns k0, c0, ..; rows of the context have the names of the query, which the SQL of calls and `order`
    uses. With `by_clock` rows are ordered by the processing time and the number of their batch. Rows that are equal in the order
    are peers; among each other they are in the order of the items `tie_breakers`, then of all columns.
    """

    keys: tuple[Column, ...]
    columns: tuple[Column, ...]
    order: tuple[str, ...]
    calls: tuple[OverCall, ...]
    by_clock: bool
    tie_breakers: tuple[str, ...] = ()

    @cached_property
    def stored(self) -> tuple[Column, ...]:
        """The columns of a row in state: keys, columns, AT, and TURN with `by_clock`."""
        columns = (Column(f"c{i}", c.type) for i, c in enumerate(self.columns))
        turn = (Column(TURN, "BIGINT"),) if self.by_clock else ()
        return (*self.keys, *columns, Column(AT, "BIGINT"), *turn)

    @property
    def following(self) -> int:
        """How many rows after a row must have final positions before it can be emitted: the most that a ROWS frame needs."""
        return max(0, max((c.frame.following for c in self.calls if c.frame.mode == "rows"), default=0))

    @property
    def later(self) -> Duration:
        """How far after a row's time its RANGE frames reach."""
        return Duration(max((c.frame.following for c in self.calls if c.frame.mode == "range"), default=0))

    @property
    def named(self) -> list[str]:
        """The select items that rename the columns of rows in state to the names of the query."""
        return [f"c{i} AS {quote_name(c.name)}" for i, c in enumerate(self.columns)]

    @property
    def restored(self) -> Items:
        """The columns of `stored` over the context: rows as they are in state."""
        keys = [f"{INTERNAL}{k.name} AS {k.name}" for k in self.keys]
        own = [f"{quote_name(c.name)} AS c{i}" for i, c in enumerate(self.columns)]
        turn = [f"{INTERNAL}turn AS {TURN}"] if self.by_clock else []
        return Items(", ".join([*keys, *own, f"{INTERNAL}at AS {AT}", *turn]))

    @property
    def partition_columns(self) -> list[str]:
        """The names of the key columns in the context."""
        return [f"{INTERNAL}{k.name}" for k in self.keys]

    @property
    def partition(self) -> str:
        """The SQL behind PARTITION BY over the context, `true` without keys."""
        return ", ".join(self.partition_columns) or "true"

    def of(self, rows: Select, *, is_total: bool = False) -> Select:
        """Return the context of `rows`, with the columns of `stored` and NEW; if `is_total`, `tie_breakers` leave none equal.

        Its columns are the keys, the rows' columns, the times, NEW, ID, POSITION, BEFORE, AFTER and, if a call needs them, COUNT,
        OLD and the columns of `reach` and `later`.
        """
        keys = [f"{k.name} AS {name}" for k, name in zip(self.keys, self.partition_columns, strict=True)]
        times = [internal("at"), *([internal("turn")] if self.by_clock else [])]
        turn = [f"{TURN} AS {INTERNAL}turn"] if self.by_clock else []
        named = f"SELECT {', '.join([*keys, *self.named, f'{AT} AS {INTERNAL}at', *turn, NEW])} FROM ({rows})"
        items = self._positions(", ".join([*times, *self.order]), is_total=is_total)
        return Select(f"SELECT *, {', '.join(self._bounds)} FROM (SELECT *, {', '.join(items)} FROM ({named}))")

    def _positions(self, order: str, *, is_total: bool) -> list[str]:
        """Return the select items of rows' positions; `order` is the SQL of an order in which rows can be peers."""
        columns = () if is_total else (quote_name(c.name) for c in self.columns)
        tie_breakers = "".join(f", {item}" for item in (*self.tie_breakers, *columns))
        among = f"PARTITION BY {self.partition}"
        items = [f"row_number() OVER ({among} ORDER BY {order}{tie_breakers}) AS {POSITION}"]
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
        """The select items, over the columns of `_positions`, of the columns that frames refer to."""
        number = f"row_number() OVER () AS {ID}"
        if not self._has_equals:
            return [number, f"0 AS {BEFORE}", f"0 AS {AFTER}"]
        equal = f"count(*) OVER (PARTITION BY {self.partition}, {INTERNAL}first)"
        reached = [f"{INTERNAL}in_{span} - 1 - {AFTER} AS {reach(span)}" for span in self._spans]
        reached += [f"{INTERNAL}until_{span} - 1 - {BEFORE} AS {later(span)}" for span in self._later]
        return [number, f"{POSITION} - {INTERNAL}first AS {BEFORE}", f"{equal} - 1 - {BEFORE} AS {AFTER}", *reached]

    @property
    def _has_equals(self) -> bool:
        return any(c.frame.mode == "range" or c.call.function in RANKS for c in self.calls)

    @property
    def _spans(self) -> Sequence[int]:
        """How far the RANGE frames reach back, in microseconds."""
        frames = [c.frame for c in self.calls if not c.runs and c.frame.mode == "range"]
        return sorted({f.preceding for f in frames if f.preceding is not None})

    @property
    def _later(self) -> Sequence[int]:
        return sorted({c.frame.following for c in self.calls if c.frame.mode == "range" and c.frame.following})

    def is_due(self, *, ends: bool) -> Condition:
        """Return the condition that a row of the context is emitted now; with `ends` no more rows come.

        A new row is emitted once `following` rows come after it in its partition, or at the end. So of the older rows, the last
        `following` ones are still to be emitted.
        """
        if not self.following:
            return Condition(NEW)
        waits = f"({NEW} OR {POSITION} > {OLD} - {self.following})"
        return Condition(waits if ends else f"{waits} AND {POSITION} <= {COUNT} - {self.following}")
