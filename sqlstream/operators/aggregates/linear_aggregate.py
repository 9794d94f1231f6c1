"""Counts and exact sums over a changelog: retracted rows are subtracted, so no row has to be kept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.duck.sql import names, quote_name
from sqlstream.duck.types import encoded
from sqlstream.operators.aggregates.aggregate_call import AggregateCall
from sqlstream.operators.aggregates.group_aggregate import opening_rows, result_columns
from sqlstream.operators.changelog.results import ChangingResult, KeptState
from sqlstream.operators.keyed_state import AT
from sqlstream.operators.keys import Keys
from sqlstream.storage.zsets import WEIGHT, repeated

SUMS = "sums"
# How many rows a group has.
_ROWS = Column("_rows", "BIGINT")
# Whether rows that have arrived were added, or taken away.
_ADDED = Column("_added", "BOOLEAN")
_NARROW = {"TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT", "UINTEGER"}
_WIDE = {"BIGINT", "UBIGINT", "HUGEINT"}
_DECIMAL = re.compile(r"DECIMAL\(\d+,\s?(?P<scale>\d+)\)")
# The type and the SQL, over input rows with weights, of a stored column.
_Sum = tuple[str, str]


def is_linear(call: AggregateCall) -> bool:
    """Tell whether a call's result follows from what it was before and from the rows that have come and gone since.

    That of floating-point numbers does not: their rounding cannot be undone.
    """
    if call.distinct or call.order_by or len(call.arguments) > 1:
        return False
    if call.function == "count":
        return True
    return call.function in ("sum", "avg") and _total_type(call.argument_types[0]) is not None


@dataclass(frozen=True)
class LinearAggregates(ChangingResult, KeptState):
    """Linear aggregates over a changelog: keeps the sums of every key, in a row."""

    keys: Keys
    calls: tuple[tuple[str, AggregateCall], ...]

    @property
    def kept(self) -> KeptState:
        return self

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return result_columns(self.keys, self.calls)

    @property
    def keys_of_rows(self) -> tuple[str, ...]:
        return self.keys.quoted

    @cached_property
    def _sums(self) -> dict[_Sum, Column]:
        """The stored columns that the calls need; they may share one."""
        found = dict.fromkeys(one for _, call in self.calls for one in _sums_of(call))
        return {(type, made): Column(f"s{i}", type) for i, (type, made) in enumerate(found)}

    @cached_property
    def deltas(self) -> Mapping[str, tuple[Column, ...]]:
        return {SUMS: (*self.keys.stored, _ROWS, *self._sums.values(), _ADDED)}

    @property
    def opening(self) -> Mapping[str, str]:
        zero = dict.fromkeys((_ROWS.name, *(c.name for c in self._sums.values())), "0")
        return opening_rows(self.keys, SUMS, self.deltas[SUMS], {**zero, _ADDED.name: "true"})

    @cached_property
    def stored(self) -> Mapping[str, tuple[Column, ...]]:
        return {SUMS: (*self.keys.stored, _ROWS, *self._sums.values(), AT)}

    @cached_property
    def parts(self) -> dict[str, str]:
        keys = self.keys.items
        sums = [f"CAST(sum({WEIGHT}) AS BIGINT) AS {_ROWS.name}"]
        sums += [f"CAST({made} AS {type}) AS {c.name}" for (type, made), c in self._sums.items()]
        by = ", ".join(str(i + 1) for i in range(len(keys) + 1))
        items = ", ".join([*keys, f"{WEIGHT} > 0 AS {_ADDED.name}", *sums])
        return {SUMS: encoded(self.deltas[SUMS], f"(SELECT {items} FROM _rows GROUP BY {by})")}

    def advance(self, part: str, old: str, delta: str) -> str:
        sums = [_ROWS, *self._sums.values()]
        listed = names((*self.keys.stored, *sums))
        if self.keys.ttl:
            # What is taken away of a key that was forgotten is not there.
            same = " AND ".join(f"_old_.{k} IS NOT DISTINCT FROM _delta_.{k}" for k in self.keys.names) or "true"
            delta = f"(SELECT * FROM {delta} _delta_ WHERE {_ADDED.name} OR EXISTS (FROM {old} _old_ WHERE {same}))"
        both = f"(SELECT {listed} FROM {old} UNION ALL SELECT {listed} FROM {delta})"
        added = [f"CAST(sum({c.name}) AS {c.type}) AS {c.name}" for c in sums]
        by = f" GROUP BY {', '.join(self.keys.names)}" if self.keys.names else ""
        rows = f"SELECT {', '.join([*self.keys.names, *added])} FROM {both}{by}"
        # Rows that are taken away before they come leave sums behind, for as long as that takes.
        some = " OR ".join(f"{c.name} <> 0" for c in sums)
        return f"SELECT *, CAST(1 AS BIGINT) AS {WEIGHT} FROM ({rows}) WHERE {some} OR {self.keys.lasts}"

    def result(self, relations: Mapping[str, str]) -> str:
        rows = repeated(self.stored[SUMS][:-1], relations[SUMS])
        items = [*self.keys.named]
        for name, call in self.calls:
            columns = [self._sums[one].name for one in _sums_of(call)]
            items.append(f"CAST({_final(call, columns)} AS {call.result_type}) AS {quote_name(name)}")
        return f"SELECT {', '.join(items)} FROM ({rows}) WHERE {_ROWS.name} > 0 OR {self.keys.lasts}"


def _total_type(type: str) -> str | None:
    """Return the type that holds sums of values of a type exactly, if there is one."""
    if type in _NARROW:
        return "BIGINT"
    if type in _WIDE:
        return "DECIMAL(38,0)"
    decimal = _DECIMAL.fullmatch(type)
    return f"DECIMAL(38,{decimal['scale']})" if decimal else None


def _sums_of(call: AggregateCall) -> list[_Sum]:
    """Return what a call is made of: how many values there are and, but for a count, their total."""
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
        # More may have been taken away than has come yet.
        return f"greatest({columns[0]}, 0)"
    count, total = columns
    value = total if call.function == "sum" else f"CAST({total} AS DOUBLE) / {count}"
    return f"CASE WHEN {count} > 0 THEN {value} END"
