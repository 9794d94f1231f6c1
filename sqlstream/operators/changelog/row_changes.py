"""Operators that keep rows, since rows that they were given may be taken away: ranks, set operations, aggregates of changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.duck.sql import names, quote_name
from sqlstream.duck.types import encoded
from sqlstream.operators.aggregates.aggregate_call import AggregateCall
from sqlstream.operators.aggregates.group_aggregate import ALL_KEY, KeyAggregate, grouped, is_inexact
from sqlstream.operators.changelog.changes import ChangelogOperator
from sqlstream.operators.groups import stored_columns
from sqlstream.operators.keyed_state import AT, KEYS
from sqlstream.operators.windows.assigners import PARTIALS
from sqlstream.operators.windows.assigners import ROWS as COUNT
from sqlstream.operators.windows.window_rows import Ranking
from sqlstream.state.zsets import WEIGHT, WEIGHT_COLUMN, repeated, summed
from sqlstream.units import NO_TIME, Duration

ROWS = "rows"


class RowChanges(ChangelogOperator):
    """An operator that keeps the rows of each key. `changing` says that rows arrive with weights; else each is added."""

    columns: tuple[Column, ...]
    changing: bool

    @cached_property
    def _rows(self) -> tuple[tuple[Column, str], ...]:
        """The stored columns of the rows, under names of our own, with the SQL that makes them from input rows."""
        return stored_columns(self.columns)

    @cached_property
    def stored(self) -> Mapping[str, tuple[Column, ...]]:
        return {ROWS: (*self.key_columns, *(c for c, _ in self._rows)), KEYS: (*self.key_columns, AT)}

    @cached_property
    def deltas(self) -> Mapping[str, tuple[Column, ...]]:
        return {ROWS: (*self.stored[ROWS], WEIGHT_COLUMN)}

    @cached_property
    def parts(self) -> dict[str, str]:
        keys = [f"{sql} AS {c.name}" for c, (_, sql) in zip(self.key_columns, self.keys, strict=True)]
        weight = WEIGHT if self.changing else f"1 AS {WEIGHT}"
        items = ", ".join([*keys, *(f"{sql} AS {c.name}" for c, sql in self._rows), weight])
        made = f"({summed(self.stored[ROWS], f'(SELECT {items} FROM _rows)')})"
        return {ROWS: encoded(self.deltas[ROWS], made)}

    def advance(self, part: str, old: str, delta: str) -> str:
        listed = f"{names(self.stored[part])}, {WEIGHT}"
        rows = summed(self.stored[part], f"(SELECT {listed} FROM {old} UNION ALL SELECT {listed} FROM {delta})")
        # What is taken away of a key that was forgotten is not there.
        return f"SELECT * FROM ({rows}) WHERE {WEIGHT} > 0" if self.ttl else rows

    def rows(self, relations: Mapping[str, str]) -> str:
        """Return, to go behind FROM, the rows that are kept: the stored keys, and columns under their own names."""
        return f"({self.named(repeated(self.stored[ROWS], relations[ROWS]))})"

    def named(self, rows: str) -> str:
        """Return the SELECT of stored rows with their columns under their own names."""
        items = [*self.key_names, *(f"{c.name} AS {sql}" for c, sql in self._rows)]
        return f"SELECT {', '.join(items)} FROM ({rows})"


@dataclass(frozen=True)
class ChangingAggregate(KeyAggregate, RowChanges):
    """Aggregates of rows that come and go: those of a key are aggregated anew when it changes."""

    keys: tuple[tuple[Column, str], ...]
    columns: tuple[Column, ...]
    calls: tuple[tuple[str, AggregateCall], ...]
    changing: bool = True
    ttl: Duration = NO_TIME
    lasting: tuple[tuple[str, ...], ...] = ()

    @property
    def ordered(self) -> frozenset[str]:
        return frozenset({ROWS}) if any(is_inexact(c) for _, c in self.calls) else frozenset()

    @property
    def opening(self) -> Mapping[str, str]:
        return self.opening_rows(ROWS, {WEIGHT: "0"})

    def result(self, relations: Mapping[str, str]) -> str:
        rows, aggregate = self.rows(relations), grouped(self.keys, self.calls)
        parts = {part: f"(WITH _rows AS (FROM {rows}) {sql})" for part, sql in aggregate.computed.items()}
        if self.lasting:
            keys = ", ".join(self.key_names) or ", ".join(f"{value} AS {name}" for name, value in ALL_KEY.items())
            without_rows = f"SELECT {keys}, 0 AS {COUNT} FROM {relations[KEYS]} WHERE {self.lasts}"
            parts[PARTIALS] = f"(FROM {parts[PARTIALS]} UNION ALL BY NAME {without_rows})"
        return f"SELECT {names(self.columns_out)} FROM ({aggregate.result(parts)})"


@dataclass(frozen=True)
class TopN(RowChanges):
    """Ranks of rows among those of equal keys. Of rows that are only added, those beyond the limit are not kept."""

    keys: tuple[tuple[Column, str], ...]
    columns: tuple[Column, ...]
    ranking: Ranking
    changing: bool
    ttl: Duration = NO_TIME

    @property
    def kind(self) -> str:
        return "rank"

    @property
    def result_keys(self) -> tuple[str, ...]:
        return tuple(sql for _, sql in self.keys)

    @cached_property
    def columns_out(self) -> tuple[Column, ...]:
        return (*self.columns, Column(self.ranking.name, "BIGINT"))

    def _ranked(self, rows: str) -> str:
        rank = quote_name(self.ranking.name)
        partition = ", ".join(self.key_names) or "true"
        ranked = f"SELECT *, {self.ranking.call(partition, self.columns)} AS {rank} FROM {rows}"
        return (
            ranked if self.ranking.limit is None else f"SELECT * FROM ({ranked}) WHERE {rank} <= {self.ranking.limit}"
        )

    def advance(self, part: str, old: str, delta: str) -> str:
        rows = super().advance(part, old, delta)
        if self.changing or self.ranking.limit is None:
            return rows
        stored = self.stored[part]
        ranked = self._ranked(f"({self.named(repeated(stored, f'({rows})'))})")
        items = [*self.key_names, *(f"{sql} AS {c.name}" for c, sql in self._rows)]
        return summed(stored, f"(SELECT {', '.join(items)}, 1 AS {WEIGHT} FROM ({ranked}))")

    def result(self, relations: Mapping[str, str]) -> str:
        return f"SELECT {names(self.columns_out)} FROM ({self._ranked(self.rows(relations))})"


@dataclass(frozen=True)
class SetOperator(RowChanges):
    """INTERSECT and EXCEPT: how often a row is on either side says how often it is in the result.

    The keys are all columns of the result; the one column is 0 for rows of the left side and 1 for those of the right.
    """

    keys: tuple[tuple[Column, str], ...]
    columns: tuple[Column, ...]
    function: str
    distinct: bool
    changing: bool
    ttl: Duration = NO_TIME

    @property
    def kind(self) -> str:
        return self.function

    @property
    def result_keys(self) -> tuple[str, ...]:
        return tuple(quote_name(c.name) for c, _ in self.keys)

    @cached_property
    def columns_out(self) -> tuple[Column, ...]:
        return tuple(c for c, _ in self.keys)

    def result(self, relations: Mapping[str, str]) -> str:
        left, right = (f"count(*) FILTER ({names(self.columns)} = {n})" for n in (0, 1))
        if self.function == "intersect":
            times = f"least({left}, {right})"
        elif self.distinct:
            times = f"CASE WHEN {right} = 0 THEN {left} ELSE 0 END"
        else:
            times = f"{left} - {right}"
        if self.distinct:
            times = f"least({times}, 1)"
        by = ", ".join(self.key_names)
        counted = f"SELECT {by}, {times} AS _times FROM {self.rows(relations)} GROUP BY {by}"
        items = ", ".join(f"{k} AS {quote_name(c.name)}" for k, (c, _) in zip(self.key_names, self.keys, strict=True))
        copies = f"SELECT *, unnest(range(greatest(_times, 0))) FROM ({counted})"
        return f"SELECT {items} FROM ({copies})"
