"""Aggregates over a changelog that retract: counts, exact sums and averages, users' functions. No input row is stored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.duck.aggregates.aggregate_call import AggregateCall
from sqlstream.duck.sql import Relation, Relations, Select, names, quote_name, same_columns, subquery
from sqlstream.duck.types import encoded
from sqlstream.operators.aggregates.group_aggregate import opening_rows, result_columns
from sqlstream.operators.aggregates.kept_accumulator import KeptAccumulator, keeps_accumulator
from sqlstream.operators.changelog.results import ChangingResult, KeptState
from sqlstream.operators.keyed_state import AT
from sqlstream.operators.keys import Keys
from sqlstream.operators.operator import Holds
from sqlstream.storage.zsets import WEIGHT, repeated

SUMS = "sums"
# How many rows a group has.
_ROWS = Column("_rows", "BIGINT")
# Whether arrived rows were added or retracted.
_ADDED = Column("_added", "BOOLEAN")
_NARROW = {"TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT", "UINTEGER"}
_WIDE = {"BIGINT", "UBIGINT", "HUGEINT"}
_DECIMAL = re.compile(r"DECIMAL\(\d+,\s?(?P<scale>\d+)\)")
# The type and the SQL, over input rows with weights, of a stored column.
_Sum = tuple[str, str]


def is_linear(call: AggregateCall) -> bool:
    """Return whether a call is COUNT, or SUM or AVG of integers or decimals: those can subtract a retracted row exactly.

    Sums of floating-point numbers cannot: rounding cannot be undone. Neither can calls with DISTINCT or ORDER BY.
    """
    if call.distinct or call.order_by or len(call.arguments) > 1:
        return False
    if call.function == "count":
        return True
    return call.function in ("sum", "avg") and _total_type(call.argument_types[0]) is not None


def can_retract(call: AggregateCall) -> bool:
    """Return whether a call can retract rows from a stored sum or accumulator, without the rows themselves."""
    return is_linear(call) or keeps_accumulator(call)


@dataclass(frozen=True)
class RetractedAggregates(ChangingResult, KeptState):
    """Aggregates over a changelog from sums and accumulators per key; no rows are stored.

    The part SUMS has one row per key, with the sums of all linear calls. Each call of a user's function has a part of its own.
    """

    keys: Keys
    calls: tuple[tuple[str, AggregateCall], ...]

    @property
    def state(self) -> KeptState:
        return self

    @property
    def manner(self) -> str:
        return "rows that are taken away are taken out of what is kept of their group"

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return result_columns(self.keys, self.calls)

    @property
    def keys_of_rows(self) -> tuple[str, ...]:
        return self.keys.quoted

    @cached_property
    def _sums(self) -> dict[_Sum, Column]:
        """The stored columns that the linear calls need; they may share one."""
        sums = dict.fromkeys(one for _, call in self.calls if is_linear(call) for one in _sums_of(call))
        return {(type, sql): Column(f"s{i}", type) for i, (type, sql) in enumerate(sums)}

    @cached_property
    def _accumulators(self) -> dict[str, KeptAccumulator]:
        """The states of calls of users' functions, by output name."""
        own = [(name, call) for name, call in self.calls if not is_linear(call)]
        return {name: KeptAccumulator(f"accumulators_{i}", self.keys, call) for i, (name, call) in enumerate(own)}

    @property
    def holds(self) -> Holds:
        linear = {name: call for name, call in self.calls if is_linear(call)}
        state_columns = {
            name: {SUMS: tuple(self._sums[s].name for s in _sums_of(call))} for name, call in linear.items()
        }
        return {
            **state_columns,
            **{name: {one.part: ("number", "accumulator")} for name, one in self._accumulators.items()},
        }

    @cached_property
    def _by_part(self) -> dict[str, KeptAccumulator]:
        return {one.part: one for one in self._accumulators.values()}

    @cached_property
    def deltas(self) -> Mapping[str, tuple[Column, ...]]:
        sums = (*self.keys.stored, _ROWS, *self._sums.values(), _ADDED)
        return {SUMS: sums, **{part: one.deltas for part, one in self._by_part.items()}}

    @property
    def opening(self) -> Mapping[str, Select]:
        zero = dict.fromkeys((_ROWS.name, *(c.name for c in self._sums.values())), "0")
        return opening_rows(self.keys, SUMS, self.deltas[SUMS], {**zero, _ADDED.name: "true"})

    @cached_property
    def stored(self) -> Mapping[str, tuple[Column, ...]]:
        sums = (*self.keys.stored, _ROWS, *self._sums.values(), AT)
        return {SUMS: sums, **{part: one.stored for part, one in self._by_part.items()}}

    @cached_property
    def parts(self) -> dict[str, Select]:
        keys = self.keys.items
        sums = [f"CAST(sum({WEIGHT}) AS BIGINT) AS {_ROWS.name}"]
        sums += [f"CAST({sql} AS {type}) AS {c.name}" for (type, sql), c in self._sums.items()]
        by = ", ".join(str(i + 1) for i in range(len(keys) + 1))
        items = ", ".join([*keys, f"{WEIGHT} > 0 AS {_ADDED.name}", *sums])
        rows = Relation(f"(SELECT {items} FROM _rows GROUP BY {by})")
        selects = {SUMS: encoded(self.deltas[SUMS], rows)}
        return {**selects, **{part: one.arriving for part, one in self._by_part.items()}}

    def advance(self, part: str, old: Relation, delta: Relation) -> Select:
        return self._by_part[part].advance(old, delta) if part in self._by_part else self._summed(old, delta)

    def _summed(self, old: Relation, delta: Relation) -> Select:
        """Return the new sums, with weights."""
        sums = [_ROWS, *self._sums.values()]
        listed = names((*self.keys.stored, *sums))
        if self.keys.ttl:
            # A retraction for a key that has expired has nothing to retract.
            exists = f"EXISTS (FROM {old} _old_ WHERE {same_columns('_old_', '_delta_', self.keys.names)})"
            delta = Relation(f"(SELECT * FROM {delta} _delta_ WHERE {_ADDED.name} OR {exists})")
        both = f"(SELECT {listed} FROM {old} UNION ALL SELECT {listed} FROM {delta})"
        added = [f"CAST(sum({c.name}) AS {c.type}) AS {c.name}" for c in sums]
        by = f" GROUP BY {', '.join(self.keys.names)}" if self.keys.names else ""
        rows = f"SELECT {', '.join([*self.keys.names, *added])} FROM {both}{by}"
        # A retraction that arrives before its row leaves sums behind until the row arrives.
        some = " OR ".join(f"{c.name} <> 0" for c in sums)
        return Select(f"SELECT *, CAST(1 AS BIGINT) AS {WEIGHT} FROM ({rows}) WHERE {some} OR {self.keys.lasts}")

    def result(self, relations: Relations) -> Select:
        return self._selected(relations, [])

    @cached_property
    def accumulators(self) -> tuple[Column, ...]:
        functions = ((name, one.call.python) for name, one in self._accumulators.items())
        return tuple(Column(f"{name}_accumulator", function.accumulator) for name, function in functions if function)

    def shown(self, relations: Relations) -> Select:
        named = zip(self._by_part, self.accumulators, strict=True)
        return self._selected(relations, [f"{part} AS {quote_name(c.name)}" for part, c in named])

    def _selected(self, relations: Relations, further: list[str]) -> Select:
        """Return the results, and further items."""
        rows = subquery(repeated(self.stored[SUMS][:-1], relations[SUMS]))
        for one in self._by_part.values():
            rows = one.joined(rows, relations)
        items = [*self.keys.named]
        for name, call in self.calls:
            if name in self._accumulators:
                final = self._accumulators[name].final
            else:
                final = _final(call, [self._sums[one].name for one in _sums_of(call)])
            items.append(f"CAST({final} AS {call.result_type}) AS {quote_name(name)}")
        shown = f"{_ROWS.name} > 0 OR {self.keys.lasts}"
        return Select(f"SELECT {', '.join([*items, *further])} FROM {rows} WHERE {shown}")


def _total_type(type: str) -> str | None:
    """Return the type that holds sums of values of a type exactly, if there is one."""
    if type in _NARROW:
        return "BIGINT"
    if type in _WIDE:
        return "DECIMAL(38,0)"
    decimal = _DECIMAL.fullmatch(type)
    return f"DECIMAL(38,{decimal['scale']})" if decimal else None


def linear_parts(call: AggregateCall) -> list[str]:
    """Return the SQL of each stored sum of a linear call, over input rows with weights; none for another call."""
    return [sql for _, sql in _sums_of(call)] if is_linear(call) else []


def _sums_of(call: AggregateCall) -> list[_Sum]:
    """Return the (type, SQL) of each sum of a linear call: the number of values and, unless it is COUNT, their total."""
    conditions = [f"({c})" for c in (call.filter, *(f"{a} IS NOT NULL" for a in call.arguments)) if c]
    where = f" FILTER (WHERE {' AND '.join(conditions)})" if conditions else ""
    count: _Sum = ("BIGINT", f"coalesce(sum({WEIGHT}){where}, 0)")
    if call.function == "count":
        return [count]
    [argument], [type] = call.arguments, call.argument_types
    total = _total_type(type)
    assert total is not None
    value = argument if _DECIMAL.fullmatch(type) else f"CAST({argument} AS HUGEINT)"
    return [count, (total, f"coalesce(sum({value} * {WEIGHT}){where}, 0)")]


def _final(call: AggregateCall, columns: list[str]) -> str:
    if call.function == "count":
        # Retractions may arrive before their rows.
        return f"greatest({columns[0]}, 0)"
    count, total = columns
    value = total if call.function == "sum" else f"CAST({total} AS DOUBLE) / {count}"
    return f"CASE WHEN {count} > 0 THEN {value} END"
