"""Calls with OVER as SQL: over the rows around a row, or going on from the partial result of all rows before.

Both are over a *context*: rows with their columns under their own names, and what is known of their place among the rows of
their partition, in the columns that are named here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from sqlstream.duck.internal_columns import INTERNAL, internal
from sqlstream.duck.sql import quote_name
from sqlstream.logical.plan.over import OverFrame
from sqlstream.operators.aggregates.aggregate_call import AggregateCall, row_of
from sqlstream.operators.aggregates.calls import partials, strategy
from sqlstream.operators.aggregates.functions import FUNCTIONS, Kind, Shape
from sqlstream.operators.aggregates.partial_columns import FRAME, Strategy
from sqlstream.units import NO_TIME, Duration

# A number of the row among all of the context, and its place among the known rows of its partition, from 1.
ID, PLACE = internal("id"), internal("place")
# How many rows that are equal to it in the order come before it, and after it.
BEFORE, AFTER = internal("before"), internal("after")

RANKS = ("row_number", "rank", "dense_rank")
_FIRST, _LAST = ("first", "first_value", "any_value"), ("last", "last_value")
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
        if function in (*_FIRST, *_LAST):
            return True
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


@dataclass(frozen=True, slots=True)
class RunningColumn:
    """A stored column of partial results: its type, the SQL that makes it from rows, merges it, and merges it row by row."""

    type: str
    made: str
    merge: str
    running: str


@dataclass(frozen=True)
class Running:
    """Calls over all rows up to the current one (and those equal to it): what is kept of each partition, and the results."""

    calls: tuple[OverCall, ...]

    @cached_property
    def _partials(self) -> dict[str, tuple[dict[str, RunningColumn], str]]:
        """The columns of each call and the SQL of its result over them, by its name."""
        found: dict[str, tuple[dict[str, RunningColumn], str]] = {}
        merging = [c for c in self.calls if c.call.function not in (*_FIRST, *_LAST)]
        for call, made in zip(merging, partials([_counted(c.call) for c in merging], internal("p")), strict=True):
            texts = zip(made.columns, made.partial, made.merge, made.running, strict=True)
            columns = {name: RunningColumn(type, *rest) for (name, type), *rest in texts}
            found[call.name] = (columns, f"{made.final} - {BEFORE}" if call.call.function == "rank" else made.final)
        edges: dict[tuple[str, str], str] = {}
        for call in (c for c in self.calls if c not in merging):
            column = _edge(call)
            name = edges.setdefault((column.made, column.running), f"{INTERNAL}e_{len(edges)}")
            named = replace(column, merge=column.merge.format(name), running=column.running.format(name))
            found[call.name] = ({name: named}, f"struct_extract({name}, 'v')")
        return found

    @cached_property
    def columns(self) -> dict[str, RunningColumn]:
        """The stored columns, by name; calls may share one."""
        return {name: column for columns, _ in self._partials.values() for name, column in columns.items()}

    @property
    def merged(self) -> str:
        """The select items that merge rows of one partition into one."""
        return ", ".join(f"{column.merge} AS {name}" for name, column in self.columns.items())

    @property
    def made(self) -> str:
        """The select items that make the stored columns from rows."""
        return ", ".join(f"{column.made} AS {name}" for name, column in self.columns.items())

    @property
    def finals(self) -> list[str]:
        """The select items of the results over rows of the stored columns."""
        return [f"{final} AS {quote_name(name)}" for name, (_, final) in self._partials.items()]

    def results(self, partition: str, rows: str) -> Sequence[str]:
        """Return SELECTs of the results by the rows' number, over rows of the stored columns that begin with what is kept."""
        selects = []
        for mode, last in (("rows", "CURRENT ROW"), ("range", f"{AFTER} FOLLOWING")):
            calls = [c for c in self.calls if ("rows" if c.call.function in RANKS else c.frame.mode) == mode]
            if not calls:
                continue
            used = {n: column for c in calls for n, column in self._partials[c.name][0].items()}
            running = ", ".join(f"{column.running} AS {name}" for name, column in used.items())
            window = (
                f"{FRAME} AS (PARTITION BY {partition} ORDER BY {PLACE} ROWS BETWEEN UNBOUNDED PRECEDING AND {last})"
            )
            inner = f"SELECT {ID}, {BEFORE}, {running} FROM {rows} WINDOW {window}"
            finals = ", ".join(f"{self._partials[c.name][1]} AS {quote_name(c.name)}" for c in calls)
            selects.append(f"SELECT {ID}, {finals} FROM ({inner}) WHERE {ID} IS NOT NULL")
        return selects


def _counted(call: AggregateCall) -> AggregateCall:
    """Return a rank as the number of rows, or of different times, that it is."""
    if call.function not in RANKS:
        return call
    first = f"{BEFORE} = 0" if call.function == "dense_rank" else None
    return AggregateCall("count", (), (), filter=first, result_type="BIGINT")


def _edge(call: OverCall) -> RunningColumn:
    """Return the column, whose name goes into `{0}`, of the first or the last value: in a struct, for it may be NULL."""
    value, type = call.call.arguments[0], call.call.argument_types[0]
    conditions = [f"({call.call.filter})"] if call.call.filter else []
    if call.ignore_nulls or call.call.function == "any_value":
        conditions.append(f"({value}) IS NOT NULL")
    made = f"struct_pack(v := {value})"
    made = f"CASE WHEN {' AND '.join(conditions)} THEN {made} END" if conditions else made
    way = "last" if call.call.function in _LAST else "first"
    return RunningColumn(
        f"STRUCT(v {type})",
        f"any_value({made})",
        f"{way}({{0}} ORDER BY {PLACE}) FILTER (WHERE {{0}} IS NOT NULL)",
        f"{way}_value({{0}} IGNORE NULLS) OVER {FRAME}",
    )
