"""Results of rows that are kept, since rows that were given may be taken away: ranks, set operations, aggregates of changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.duck.aggregates.aggregate_call import AggregateCall
from sqlstream.duck.sql import names
from sqlstream.operators.aggregates.group_aggregate import ALL_KEY, grouped, is_inexact, opening_rows, result_columns
from sqlstream.operators.aggregates.grouped import Grouped
from sqlstream.operators.changelog.kept_rows import ROWS, BestRows, KeptRows
from sqlstream.operators.changelog.results import ChangingResult, KeptState
from sqlstream.operators.windows.assigners import PARTIALS
from sqlstream.operators.windows.assigners import ROWS as COUNT
from sqlstream.operators.windows.window_rows import Ranking
from sqlstream.storage.zsets import KEYS, WEIGHT


@dataclass(frozen=True)
class RecomputedAggregates(ChangingResult):
    """Aggregates over a changelog: those of a key are aggregated anew when it changes."""

    rows: KeptRows
    calls: tuple[tuple[str, AggregateCall], ...]

    @property
    def kept(self) -> KeptState:
        return self.rows

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return result_columns(self.rows.keys, self.calls)

    @property
    def keys_of_rows(self) -> tuple[str, ...]:
        return self.rows.keys.quoted

    @property
    def ordered(self) -> frozenset[str]:
        return frozenset({ROWS}) if any(is_inexact(c) for _, c in self.calls) else frozenset()

    @property
    def manner(self) -> str:
        return "groups that change are aggregated anew from their rows"

    @property
    def opening(self) -> Mapping[str, str]:
        return opening_rows(self.rows.keys, ROWS, self.rows.deltas[ROWS], {WEIGHT: "0"})

    @cached_property
    def _grouped(self) -> Grouped:
        return grouped(self.rows.keys, self.calls)

    @property
    def accumulators(self) -> tuple[Column, ...]:
        return tuple(column for column, _ in self._grouped.accumulators)

    def result(self, relations: Mapping[str, str]) -> str:
        return f"SELECT {names(self.columns)} FROM ({self._aggregated(relations)})"

    def shown(self, relations: Mapping[str, str]) -> str:
        columns = names((*self.columns, *self.accumulators))
        return f"SELECT {columns} FROM ({self._aggregated(relations, accumulators=True)})"

    def _aggregated(self, relations: Mapping[str, str], *, accumulators: bool = False) -> str:
        keys, aggregate = self.rows.keys, self._grouped
        rows = self.rows.named_rows(relations)
        parts = {part: f"(WITH _rows AS (FROM {rows}) {sql})" for part, sql in aggregate.computed.items()}
        if keys.lasting:
            listed = ", ".join(keys.names) or ", ".join(f"{value} AS {name}" for name, value in ALL_KEY.items())
            without_rows = f"SELECT {listed}, 0 AS {COUNT} FROM {relations[KEYS]} WHERE {keys.lasts}"
            parts[PARTIALS] = f"(FROM {parts[PARTIALS]} UNION ALL BY NAME {without_rows})"
        return aggregate.result(parts, accumulators=accumulators)


@dataclass(frozen=True)
class RankedRows(ChangingResult):
    """Ranks of rows among those of equal keys."""

    rows: KeptRows
    ranking: Ranking

    @cached_property
    def kept(self) -> KeptState:
        """The rows; of append-only ones, none beyond the limit."""
        if self.rows.changing or self.ranking.limit is None:
            return self.rows
        return BestRows(self.rows, self.ranking)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return (*self.rows.columns, Column(self.ranking.name, "BIGINT"))

    @property
    def keys_of_rows(self) -> tuple[str, ...]:
        return tuple(sql for _, sql in self.rows.keys.made)

    def result(self, relations: Mapping[str, str]) -> str:
        ranked = self.rows.ranked(self.ranking, self.rows.named_rows(relations))
        return f"SELECT {names(self.columns)} FROM ({ranked})"

    def emitted(self, relations: Mapping[str, str]) -> str:
        """Return the SELECT of all that is kept of append-only rows, also beyond a limit that an upgrade made smaller."""
        if self.rows.changing:
            return self.result(relations)
        return replace(self, ranking=replace(self.ranking, limit=None)).result(relations)


@dataclass(frozen=True)
class SetRows(ChangingResult):
    """INTERSECT and EXCEPT: how often a row is on either side says how often it is in the result.

    The keys are all columns of the result; the one column is 0 for rows of the left side and 1 for those of the right.
    """

    rows: KeptRows
    function: str
    distinct: bool

    @property
    def kept(self) -> KeptState:
        return self.rows

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.rows.keys.columns

    @property
    def keys_of_rows(self) -> tuple[str, ...]:
        return self.rows.keys.quoted

    def result(self, relations: Mapping[str, str]) -> str:
        left, right = (f"count(*) FILTER ({names(self.rows.columns)} = {n})" for n in (0, 1))
        if self.function == "intersect":
            times = f"least({left}, {right})"
        elif self.distinct:
            times = f"CASE WHEN {right} = 0 THEN {left} ELSE 0 END"
        else:
            times = f"{left} - {right}"
        if self.distinct:
            times = f"least({times}, 1)"
        by = ", ".join(self.rows.keys.names)
        counted = f"SELECT {by}, {times} AS _times FROM {self.rows.named_rows(relations)} GROUP BY {by}"
        copies = f"SELECT *, unnest(range(greatest(_times, 0))) FROM ({counted})"
        return f"SELECT {', '.join(self.rows.keys.named)} FROM ({copies})"
