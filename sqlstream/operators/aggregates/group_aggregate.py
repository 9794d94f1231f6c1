"""GROUP BY without windows: a batch updates the results of the keys that its rows contain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.duck.aggregates.aggregate_call import AggregateCall
from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import Relation, Relations, Select, names, quote_name, subquery, union_all
from sqlstream.duck.types import encoded
from sqlstream.operators.aggregates.grouped import GroupedCalls
from sqlstream.operators.changelog.results import ChangingResult, KeptState
from sqlstream.operators.groups import ROWS_OF_BATCH, Groups
from sqlstream.operators.keyed_state import AT
from sqlstream.operators.keys import Keys
from sqlstream.operators.operator import Holds
from sqlstream.operators.windows.assigners import PARTIALS, ROWS
from sqlstream.storage.zsets import WEIGHT, repeated, summed

# The one group of an aggregate without keys, and the stored column that says so.
_ALL = (Column("_all", "BOOLEAN"), "true")
ALL_KEY = {internal("k0"): "true"}


@dataclass(frozen=True, slots=True)
class GlobalWindow:
    """A single window that holds all rows and never closes: the grouping of an aggregate without windows."""

    columns: tuple[tuple[Column, str], ...] = ()
    value_columns: tuple[tuple[Column, str], ...] = ()
    group_by: tuple[str, ...] = ()
    bounds: tuple[str, ...] = ()
    start: str = "NULL"
    mergeable: bool = True

    def source(self, keys: Sequence[str]) -> Relation:
        return ROWS_OF_BATCH


def grouped(keys: Keys, calls: tuple[tuple[str, AggregateCall], ...]) -> GroupedCalls:
    """Return aggregates per key as a `GroupedCalls` over one endless window. Without keys, all rows form one group."""
    return GroupedCalls(Groups(keys.computed or (_ALL,), GlobalWindow()), (None, None, None), calls)


def result_columns(keys: Keys, calls: tuple[tuple[str, AggregateCall], ...]) -> tuple[Column, ...]:
    """Return the output columns of an aggregate without windows: the keys, then one column per call."""
    return (*keys.columns, *(Column(name, call.result_type) for name, call in calls))


def opening_rows(keys: Keys, part: str, columns: tuple[Column, ...], values: Mapping[str, str]) -> Mapping[str, Select]:
    """Return, by part, rows that arrive before the first batch: one per lasting key, none without such keys.

    A row holds the key, `values` (SQL by column name), and NULL in all other columns. So a lasting key emits a result from the
    first batch on, even if no input row has it, as SQL demands of an aggregate without keys.
    """
    if not keys.lasting:
        return {}
    rows = []
    for key in keys.lasting:
        sql_by_name = {**dict(zip(keys.names, key, strict=True)), **values}
        items = (f"CAST({sql_by_name.get(c.name, 'NULL')} AS {c.type}) AS {quote_name(c.name)}" for c in columns)
        rows.append(Select(f"SELECT {', '.join(items)}"))
    return {part: encoded(columns, subquery(union_all(rows)))}


def is_inexact(call: AggregateCall) -> bool:
    """Return whether the order of rows may change a call's result: sums of floats round, users' functions may do anything."""
    return call.python is not None or "DOUBLE" in call.result_type or "FLOAT" in call.result_type


@dataclass(frozen=True)
class MergedAggregates(ChangingResult, KeptState):
    """Aggregates of append-only rows. State per key: partial aggregates, and the input values of calls that cannot be merged."""

    keys: Keys
    calls: tuple[tuple[str, AggregateCall], ...]

    @property
    def state(self) -> KeptState:
        return self

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return result_columns(self.keys, self.calls)

    @property
    def accumulators(self) -> tuple[Column, ...]:
        return tuple(column for column, _ in self._grouped.accumulators)

    @property
    def keys_of_rows(self) -> tuple[str, ...]:
        return self.keys.quoted

    @property
    def holds(self) -> Holds:
        return self._grouped.holds

    @cached_property
    def _grouped(self) -> GroupedCalls:
        return grouped(self.keys, self.calls)

    @property
    def ordered(self) -> frozenset[str]:
        return frozenset(self._grouped.value_tables) if any(is_inexact(c) for _, c in self.calls) else frozenset()

    @property
    def parts(self) -> dict[str, Select]:
        return {t.name: encoded(t.columns, subquery(self._grouped.computed[t.name])) for t in self._grouped.tables}

    @cached_property
    def deltas(self) -> Mapping[str, tuple[Column, ...]]:
        return {t.name: t.columns for t in self._grouped.tables}

    @property
    def counts_rows(self) -> bool:
        return not self._grouped.value_tables

    @property
    def opening(self) -> Mapping[str, Select]:
        zero = {ROWS: "0"} if self.keys.names else {ROWS: "0", **ALL_KEY}
        return opening_rows(self.keys, PARTIALS, self.deltas[PARTIALS], zero)

    @cached_property
    def stored(self) -> Mapping[str, tuple[Column, ...]]:
        return {part: (*columns, AT) if part == PARTIALS else columns for part, columns in self.deltas.items()}

    def advance(self, part: str, old: Relation, delta: Relation) -> Select:
        columns, rows = self.deltas[part], self._grouped
        listed = names(columns)
        if part == PARTIALS:
            both = Relation(f"(SELECT {listed} FROM {old} UNION ALL SELECT {listed} FROM {delta})")
            by = rows.groups.names
            return Select(f"SELECT {by}, {', '.join(rows.merged())}, 1 AS {WEIGHT} FROM {both} GROUP BY {by}")
        both = Relation(f"(SELECT {listed}, {WEIGHT} FROM {old} UNION ALL SELECT {listed}, 1 FROM {delta})")
        if rows.value_tables[part].distinct:
            return Select(f"SELECT DISTINCT {listed}, 1 AS {WEIGHT} FROM {both}")
        return summed(columns, both)

    def result(self, relations: Relations) -> Select:
        return self._aggregated(relations)

    def shown(self, relations: Relations) -> Select:
        return self._aggregated(relations, accumulators=True)

    def _aggregated(self, relations: Relations, *, accumulators: bool = False) -> Select:
        if self.counts_rows:
            rows = self._grouped.result_of_merged(relations[PARTIALS], accumulators=accumulators)
        else:
            copies = {part: subquery(repeated(self.deltas[part], rows)) for part, rows in relations.items()}
            rows = self._grouped.result(copies, accumulators=accumulators)
        return Select(f"SELECT {names((*self.columns, *(self.accumulators if accumulators else ())))} FROM ({rows})")
