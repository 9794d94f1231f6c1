"""Aggregates per key, for ever: a batch changes the results of the keys that its rows have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import names, quote_name
from sqlstream.duck.types import encoded
from sqlstream.operators.aggregates.aggregate_call import AggregateCall
from sqlstream.operators.aggregates.grouped import Grouped
from sqlstream.operators.changelog.changes import ChangelogOperator
from sqlstream.operators.groups import Groups
from sqlstream.operators.keyed_state import AT
from sqlstream.operators.windows.assigners import PARTIALS, ROWS
from sqlstream.state.zsets import WEIGHT, repeated, summed
from sqlstream.units import NO_TIME, Duration

# The one group of an aggregate without keys, and the stored column that says so.
_ALL = (Column("_all", "BOOLEAN"), "true")
ALL_KEY = {internal("k0"): "true"}


@dataclass(frozen=True, slots=True)
class Always:
    """One window that never closes, with all rows in it."""

    columns: tuple[tuple[Column, str], ...] = ()
    value_columns: tuple[tuple[Column, str], ...] = ()
    group_by: tuple[str, ...] = ()
    bounds: tuple[str, ...] = ()
    start: str = "NULL"
    mergeable: bool = True

    def source(self, keys: Sequence[str]) -> str:
        return "_rows"


def grouped(keys: tuple[tuple[Column, str], ...], calls: tuple[tuple[str, AggregateCall], ...]) -> Grouped:
    return Grouped(Groups(keys or (_ALL,), Always()), (None, None, None), calls)


def is_inexact(call: AggregateCall) -> bool:
    """Tell whether a call's result may depend on the order of its rows by as much as a rounding."""
    return "DOUBLE" in call.result_type or "FLOAT" in call.result_type


class KeyAggregate(ChangelogOperator):
    """What aggregates per key share: output columns are the keys and one per call.

    Of `lasting` keys there is a result from the first batch on, also when they have no rows: without keys there is one such.
    """

    calls: tuple[tuple[str, AggregateCall], ...]

    def opening_rows(self, part: str, values: Mapping[str, str]) -> Mapping[str, str]:
        """Return `opening` with a row for each lasting key, which has some values, and NULL in all other columns."""
        if not self.lasting:
            return {}
        columns, rows = self.deltas[part], []
        for key in self.lasting:
            known = {**dict(zip(self.key_names, key, strict=True)), **values}
            items = (f"CAST({known.get(c.name, 'NULL')} AS {c.type}) AS {quote_name(c.name)}" for c in columns)
            rows.append(f"SELECT {', '.join(items)}")
        return {part: encoded(columns, f"({' UNION ALL '.join(rows)})")}

    @property
    def kind(self) -> str:
        return "aggregate"

    @property
    def result_keys(self) -> tuple[str, ...]:
        return tuple(quote_name(c.name) for c, _ in self.keys)

    @cached_property
    def columns_out(self) -> tuple[Column, ...]:
        return (*(c for c, _ in self.keys), *(Column(name, call.result_type) for name, call in self.calls))


@dataclass(frozen=True)
class GroupAggregate(KeyAggregate):
    """Aggregates of rows that are only added: keeps partial results, and the values of what cannot be merged."""

    keys: tuple[tuple[Column, str], ...]
    calls: tuple[tuple[str, AggregateCall], ...]
    ttl: Duration = NO_TIME
    lasting: tuple[tuple[str, ...], ...] = ()

    @cached_property
    def _grouped(self) -> Grouped:
        return grouped(self.keys, self.calls)

    @property
    def ordered(self) -> frozenset[str]:
        return frozenset(self._grouped.value_tables) if any(is_inexact(c) for _, c in self.calls) else frozenset()

    @property
    def parts(self) -> dict[str, str]:
        return {t.name: encoded(t.columns, f"({self._grouped.computed[t.name]})") for t in self._grouped.tables}

    @cached_property
    def deltas(self) -> Mapping[str, tuple[Column, ...]]:
        return {t.name: t.columns for t in self._grouped.tables}

    @property
    def opening(self) -> Mapping[str, str]:
        return self.opening_rows(PARTIALS, {ROWS: "0"} if self.keys else {ROWS: "0", **ALL_KEY})

    @cached_property
    def stored(self) -> Mapping[str, tuple[Column, ...]]:
        return {part: (*columns, AT) if part == PARTIALS else columns for part, columns in self.deltas.items()}

    def advance(self, part: str, old: str, delta: str) -> str:
        columns, rows = self.deltas[part], self._grouped
        listed = names(columns)
        if part == PARTIALS:
            both = f"(SELECT {listed} FROM {old} UNION ALL SELECT {listed} FROM {delta})"
            by = rows.groups.names
            return f"SELECT {by}, {', '.join(rows.merged())}, 1 AS {WEIGHT} FROM {both} GROUP BY {by}"
        both = f"(SELECT {listed}, {WEIGHT} FROM {old} UNION ALL SELECT {listed}, 1 FROM {delta})"
        if rows.value_tables[part].distinct:
            return f"SELECT DISTINCT {listed}, 1 AS {WEIGHT} FROM {both}"
        return summed(columns, both)

    def result(self, relations: Mapping[str, str]) -> str:
        plain = {part: f"({repeated(self.deltas[part], rows)})" for part, rows in relations.items()}
        return f"SELECT {names(self.columns_out)} FROM ({self._grouped.result(plain)})"
