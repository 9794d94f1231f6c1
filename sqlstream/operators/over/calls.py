"""Calls with OVER, and their SQL over the rows around a row.

It is over a *context*: rows with their columns under their own names, and what is known of their place among the rows of their
partition, in the columns that are named here. `running` goes on from what is known of all rows before.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlstream.duck.aggregates.aggregate_call import AggregateCall, row_of
from sqlstream.duck.aggregates.calls import strategy
from sqlstream.duck.aggregates.functions import FUNCTIONS, Kind, Shape
from sqlstream.duck.aggregates.partial_columns import Strategy
from sqlstream.duck.internal_columns import INTERNAL, internal
from sqlstream.logical.plan.over import OverFrame
from sqlstream.units import NO_TIME, Duration

# A number of the row among all of the context, and its place among the known rows of its partition, from 1.
ID, PLACE = internal("id"), internal("place")
# How many rows that are equal to it in the order come before it, and after it.
BEFORE, AFTER = internal("before"), internal("after")

RANKS = ("row_number", "rank", "dense_rank")
FIRST, LAST = ("first", "first_value", "any_value"), ("last", "last_value")
_NO_FRAME = ("lag", "lead")


@dataclass(frozen=True, slots=True)
class OverCall:
    """A call: its result's name, its function and arguments, the rows that it looks at."""

    name: str
    call: AggregateCall
    frame: OverFrame
    ignore_nulls: bool = False

    @property
    def runs(self) -> bool:
        """Whether a partial result is all that it needs of the rows before those of a batch."""
        call, function = self.call, self.call.function
        if function in RANKS:
            return True
        if self.frame.preceding is not None or self.frame.following or call.distinct or call.order_by:
            return False
        if function in (*FIRST, *LAST):
            return True
        if call.python is not None:
            return call.python.extends
        shape = self._shape
        if shape is None or shape.kind in (Kind.QUANTILE, Kind.PICK):
            return False
        return strategy(call) in (Strategy.PLAIN, Strategy.STATE)

    @property
    def rows_before(self) -> int | None:
        """How many rows before a row it needs, of those that it does not find by their time; None: all."""
        if self.runs or (self.frame.mode == "range" and self.frame.preceding is not None):
            return 0
        return None if self.frame.preceding is None else max(0, self.frame.preceding)

    @property
    def time_before(self) -> Duration:
        """The time before a row in which it needs rows."""
        return Duration(self.frame.preceding or 0) if self.frame.mode == "range" else NO_TIME

    def over_rows(self, partition: str) -> str:
        """Return the call over the rows of the context."""
        call, shape = self.call, self._shape
        given = (row_of(call.arguments),) if call.python is not None else call.arguments
        arguments = ("DISTINCT " if call.distinct else "") + (", ".join(given) or self._nothing())
        order = call.order_by
        if call.distinct and not order and shape is not None and shape.ordered:
            order = given[:1]
        arguments += f" ORDER BY {', '.join(order)}" if order else ""
        arguments += " IGNORE NULLS" if self.ignore_nulls else ""
        where = f" FILTER (WHERE {call.filter})" if call.filter else ""
        frame = "" if call.function in _NO_FRAME else f" {self._frame()}"
        over = f"OVER (PARTITION BY {partition} ORDER BY {PLACE}{frame})"
        if call.python is not None:
            return call.step("finish", call.step("accumulate", f"list({arguments}){where} {over}"))
        return f"CAST({call.function}({arguments}){where} {over} AS {call.result_type})"

    @property
    def _shape(self) -> Shape | None:
        """How the aggregate runs; None of what is none, such as lag."""
        if self.call.python is None and self.call.function not in FUNCTIONS:
            return None
        return self.call.shape

    def _nothing(self) -> str:
        return "*" if self.call.function == "count" else ""

    def _frame(self) -> str:
        """Return the frame in rows: in one of equal times, too, rows have an order."""
        before, after = self.frame.preceding, self.frame.following
        if self.frame.mode == "range":
            first = "UNBOUNDED" if before is None else reach(before)
            last = later(after) if after else AFTER
            return f"ROWS BETWEEN {first} PRECEDING AND {last} FOLLOWING"
        first = "UNBOUNDED PRECEDING" if before is None else _bound(-before)
        return f"ROWS BETWEEN {first} AND {_bound(after)}"


def _bound(place: int) -> str:
    return "CURRENT ROW" if place == 0 else f"{abs(place)} {'FOLLOWING' if place > 0 else 'PRECEDING'}"


def reach(micros: int) -> str:
    """Return the column that says how many rows of a partition come before a row within some time."""
    return f"{INTERNAL}reach_{micros}"


def later(micros: int) -> str:
    """Return the column that says how many rows of a partition come after a row within some time."""
    return f"{INTERNAL}later_{micros}"
