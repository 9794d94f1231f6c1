"""Results that are computed from stored rows: aggregates of a changelog, ranks, INTERSECT and EXCEPT."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.duck.aggregates.aggregate_call import AggregateCall
from sqlstream.duck.internal_columns import ARRIVED
from sqlstream.duck.sql import Relation, Relations, Select, names
from sqlstream.operators.aggregates.group_aggregate import ALL_KEY, grouped, is_inexact, opening_rows, result_columns
from sqlstream.operators.aggregates.grouped import GroupedCalls
from sqlstream.operators.changelog.kept_rows import ROWS, BestRows, KeptRows
from sqlstream.operators.changelog.results import ChangingResult, KeptState
from sqlstream.operators.windows.assigners import PARTIALS
from sqlstream.operators.windows.assigners import ROWS as COUNT
from sqlstream.operators.windows.window_rows import Ranking
from sqlstream.storage.zsets import KEYS, WEIGHT


@dataclass(frozen=True)
class RecomputedAggregates(ChangingResult):
    """Aggregates over a changelog: when a key changes, they are computed anew from all of its rows."""

    rows: KeptRows
    calls: tuple[tuple[str, AggregateCall], ...]

    @property
    def state(self) -> KeptState:
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
    def opening(self) -> Mapping[str, Select]:
        return opening_rows(self.rows.keys, ROWS, self.rows.deltas[ROWS], {WEIGHT: "0"})

    @cached_property
    def _grouped(self) -> GroupedCalls:
        return grouped(self.rows.keys, self.calls)

    @property
    def accumulators(self) -> tuple[Column, ...]:
        return tuple(column for column, _ in self._grouped.accumulators)

    def result(self, relations: Relations) -> Select:
        return Select(f"SELECT {names(self.columns)} FROM ({self._aggregated(relations)})")

    def shown(self, relations: Relations) -> Select:
        columns = names((*self.columns, *self.accumulators))
        return Select(f"SELECT {columns} FROM ({self._aggregated(relations, accumulators=True)})")

    def _aggregated(self, relations: Relations, *, accumulators: bool = False) -> Select:
        keys, aggregate = self.rows.keys, self._grouped
        rows = self.rows.named_rows(relations)
        parts = {part: Relation(f"(WITH _rows AS (FROM {rows}) {sql})") for part, sql in aggregate.computed.items()}
        if keys.lasting:
            listed = ", ".join(keys.names) or ", ".join(f"{value} AS {name}" for name, value in ALL_KEY.items())
            without_rows = f"SELECT {listed}, 0 AS {COUNT} FROM {relations[KEYS]} WHERE {keys.lasts}"
            parts[PARTIALS] = Relation(f"(FROM {parts[PARTIALS]} UNION ALL BY NAME {without_rows})")
        return aggregate.result(parts, accumulators=accumulators)


@dataclass(frozen=True)
class RankedRows(ChangingResult):
    """Rows with their rank among the rows of equal keys.

    With `passes_arrival` the result has the column ARRIVED. Without, ARRIVED only decides ties, and rows that differ in nothing
    else are equal: if one takes the rank of the other, nothing is emitted.
    """

    rows: KeptRows
    ranking: Ranking
    passes_arrival: bool = False

    @cached_property
    def state(self) -> KeptState:
        """All rows; of append-only input, only rows up to the limit."""
        if self.rows.changing or self.ranking.limit is None:
            return self.rows
        return BestRows(self.rows, self.ranking)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        rows = (c for c in self.rows.columns if self.passes_arrival or c.name != ARRIVED.name)
        return (*rows, Column(self.ranking.name, "BIGINT"))

    @property
    def keys_of_rows(self) -> tuple[str, ...]:
        return tuple(sql for _, sql in self.rows.keys.computed)

    def result(self, relations: Relations) -> Select:
        ranked = self.rows.ranked(self.ranking, self.rows.named_rows(relations))
        return Select(f"SELECT {names(self.columns)} FROM ({ranked})")

    def emitted(self, relations: Relations) -> Select:
        """Return the rows emitted for a state: of append-only input all stored rows.

        An upgrade may have lowered the limit: stored rows beyond it were emitted, too.
        """
        if self.rows.changing:
            return self.result(relations)
        return replace(self, ranking=replace(self.ranking, limit=None)).result(relations)


@dataclass(frozen=True)
class SetRows(ChangingResult):
    """INTERSECT and EXCEPT: the numbers of copies of a row on both sides decide how many the result has.

    The keys are all columns of the result. The only column of the rows is 0 for the left side and 1 for the right side.
    """

    rows: KeptRows
    function: str
    distinct: bool

    @property
    def state(self) -> KeptState:
        return self.rows

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.rows.keys.columns

    @property
    def keys_of_rows(self) -> tuple[str, ...]:
        return self.rows.keys.quoted

    def result(self, relations: Relations) -> Select:
        left_count, right_count = (f"count(*) FILTER ({names(self.rows.columns)} = {n})" for n in (0, 1))
        if self.function == "intersect":
            times = f"least({left_count}, {right_count})"
        elif self.distinct:
            times = f"CASE WHEN {right_count} = 0 THEN {left_count} ELSE 0 END"
        else:
            times = f"{left_count} - {right_count}"
        if self.distinct:
            times = f"least({times}, 1)"
        by = ", ".join(self.rows.keys.names)
        counted = f"SELECT {by}, {times} AS _times FROM {self.rows.named_rows(relations)} GROUP BY {by}"
        copies = f"SELECT *, unnest(range(greatest(_times, 0))) FROM ({counted})"
        return Select(f"SELECT {', '.join(self.rows.keys.named)} FROM ({copies})")
