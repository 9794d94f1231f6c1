"""Calls with OVER, and their SQL over the rows of a *context* (see `OverContext`).

A context has rows under the column names of the query, and columns with the position of each row in its partition, whose names
are constants here. Calls that need only a partial result of the older rows are computed by `running` instead.
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

# The number of a row in the context, and its index among the rows of its partition there, both from 1.
ID, POSITION = internal("id"), internal("place")
# How many of a row's peers, which are equal to it in the order, come before it, and after it.
BEFORE, AFTER = internal("before"), internal("after")

RANKS = ("row_number", "rank", "dense_rank")
FIRST, LAST = ("first", "first_value", "any_value"), ("last", "last_value")
_NO_FRAME = ("lag", "lead")


@dataclass(frozen=True, slots=True)
class OverCall:
    """A call with OVER: the name of its result column, the aggregate call, its frame, and whether it ignores NULLs."""

    name: str
    call: AggregateCall
    frame: OverFrame
    ignore_nulls: bool = False

    @property
    def runs(self) -> bool:
        """Whether the call can be computed from a partial result of the older rows, so that `Running` does it."""
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
        """How many rows before a row the frame needs, None for all; 0 if they are selected by time, or the call `runs`."""
        if self.runs or (self.frame.mode == "range" and self.frame.preceding is not None):
            return 0
        return None if self.frame.preceding is None else max(0, self.frame.preceding)

    @property
    def time_before(self) -> Duration:
        """How far before a row's time a RANGE frame reaches; 0 for other frames."""
        return Duration(self.frame.preceding or 0) if self.frame.mode == "range" else NO_TIME

    def over_rows(self, partition: str) -> str:
        """Return the SQL of the call over the rows of the context; `partition` is the SQL behind PARTITION BY."""
        call, shape = self.call, self._shape
        operands = (row_of(call.arguments),) if call.python is not None else call.arguments
        arguments = ("DISTINCT " if call.distinct else "") + (", ".join(operands) or self._nothing())
        order = call.order_by
        if call.distinct and not order and shape is not None and shape.ordered:
            order = operands[:1]
        elif order and not call.distinct and (shape is None or shape.kind is not Kind.QUANTILE):
            # Rows that are equal in the call's own order are in that of the frame.
            order = (*order, POSITION)
        arguments += f" ORDER BY {', '.join(order)}" if order else ""
        arguments += " IGNORE NULLS" if self.ignore_nulls else ""
        where = f" FILTER (WHERE {call.filter})" if call.filter else ""
        frame = "" if call.function in _NO_FRAME else f" {self._frame()}"
        over = f"OVER (PARTITION BY {partition} ORDER BY {POSITION}{frame})"
        if call.python is not None:
            return call.step("finish", call.step("accumulate", f"list({arguments}){where} {over}"))
        return f"CAST({call.function}({arguments}){where} {over} AS {call.result_type})"

    @property
    def _shape(self) -> Shape | None:
        """How the aggregate runs; None for a function that is no aggregate, such as lag."""
        if self.call.python is None and self.call.function not in FUNCTIONS:
            return None
        return self.call.shape

    def _nothing(self) -> str:
        return "*" if self.call.function == "count" else ""

    def _frame(self) -> str:
        """Return the frame in terms of ROWS, also for RANGE: aggregates then see peers in an order."""
        before, after = self.frame.preceding, self.frame.following
        if self.frame.mode == "range":
            first = "UNBOUNDED" if before is None else reach(before)
            last = later(after) if after else AFTER
            return f"ROWS BETWEEN {first} PRECEDING AND {last} FOLLOWING"
        first = "UNBOUNDED PRECEDING" if before is None else _bound(-before)
        return f"ROWS BETWEEN {first} AND {_bound(after)}"


def _bound(offset: int) -> str:
    return "CURRENT ROW" if offset == 0 else f"{abs(offset)} {'FOLLOWING' if offset > 0 else 'PRECEDING'}"


def reach(micros: int) -> str:
    """Return the name of the column with the number of rows before a row, in its partition, at most `micros` earlier."""
    return f"{INTERNAL}reach_{micros}"


def later(micros: int) -> str:
    """Return the name of the column with the number of rows after a row, in its partition, at most `micros` later."""
    return f"{INTERNAL}later_{micros}"
