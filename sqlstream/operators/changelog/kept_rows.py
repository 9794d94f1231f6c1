"""Rows that are kept per key: all of them, or the best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.duck.sql import names, quote_name
from sqlstream.duck.types import encoded
from sqlstream.operators.changelog.results import KeptState
from sqlstream.operators.groups import Made, stored_columns
from sqlstream.operators.keyed_state import AT
from sqlstream.operators.keys import Keys
from sqlstream.operators.operator import Holds
from sqlstream.operators.windows.window_rows import Ranking
from sqlstream.storage.zsets import KEYS, WEIGHT, WEIGHT_COLUMN, repeated, summed

ROWS = "rows"


@dataclass(frozen=True)
class KeptRows(KeptState):
    """The rows of each key. `changing` says that rows arrive with weights; else each is added."""

    keys: Keys
    columns: tuple[Column, ...]
    changing: bool

    @cached_property
    def own(self) -> Made:
        """The stored columns of the rows, under names of our own, with the SQL that makes them from input rows."""
        return stored_columns(self.columns)

    @cached_property
    def stored(self) -> Mapping[str, tuple[Column, ...]]:
        return {ROWS: (*self.keys.stored, *(c for c, _ in self.own)), KEYS: (*self.keys.stored, AT)}

    @cached_property
    def deltas(self) -> Mapping[str, tuple[Column, ...]]:
        return {ROWS: (*self.stored[ROWS], WEIGHT_COLUMN)}

    @cached_property
    def parts(self) -> Mapping[str, str]:
        weight = WEIGHT if self.changing else f"1 AS {WEIGHT}"
        items = ", ".join([*self.keys.items, *(f"{sql} AS {c.name}" for c, sql in self.own), weight])
        made = f"({summed(self.stored[ROWS], f'(SELECT {items} FROM _rows)')})"
        return {ROWS: encoded(self.deltas[ROWS], made)}

    @property
    def holds(self) -> Holds:
        names = (c.name for c in self.columns)
        return {name: {ROWS: (own.name,)} for name, (own, _) in zip(names, self.own, strict=True)}

    def advance(self, part: str, old: str, delta: str) -> str:
        listed = f"{names(self.stored[part])}, {WEIGHT}"
        rows = summed(self.stored[part], f"(SELECT {listed} FROM {old} UNION ALL SELECT {listed} FROM {delta})")
        # What is taken away of a key that was forgotten is not there.
        return f"SELECT * FROM ({rows}) WHERE {WEIGHT} > 0" if self.keys.ttl else rows

    def named_rows(self, relations: Mapping[str, str]) -> str:
        """Return, to go behind FROM, the rows that are kept: the stored keys, and columns under their own names."""
        return f"({self.named(repeated(self.stored[ROWS], relations[ROWS]))})"

    def named(self, rows: str) -> str:
        """Return the SELECT of stored rows with their columns under their own names."""
        items = [*self.keys.names, *(f"{c.name} AS {sql}" for c, sql in self.own)]
        return f"SELECT {', '.join(items)} FROM ({rows})"

    def ranked(self, ranking: Ranking, rows: str) -> str:
        """Return the SELECT of such rows, to go behind FROM, that have a rank which counts, with it."""
        rank = quote_name(ranking.name)
        partition = ", ".join(self.keys.names) or "true"
        ranked = f"SELECT *, {ranking.call(partition, self.columns)} AS {rank} FROM {rows}"
        return ranked if ranking.limit is None else f"SELECT * FROM ({ranked}) WHERE {rank} <= {ranking.limit}"


@dataclass(frozen=True)
class BestRows(KeptState):
    """The rows of each key that have a rank which counts: of append-only rows, others never will."""

    rows: KeptRows
    ranking: Ranking

    @property
    def stored(self) -> Mapping[str, tuple[Column, ...]]:
        return self.rows.stored

    @property
    def holds(self) -> Holds:
        return self.rows.holds

    @property
    def deltas(self) -> Mapping[str, tuple[Column, ...]]:
        return self.rows.deltas

    @property
    def parts(self) -> Mapping[str, str]:
        return self.rows.parts

    def advance(self, part: str, old: str, delta: str) -> str:
        kept, stored = self.rows, self.stored[part]
        rows = repeated(stored, f"({kept.advance(part, old, delta)})")
        ranked = kept.ranked(self.ranking, f"({kept.named(rows)})")
        items = [*kept.keys.names, *(f"{sql} AS {c.name}" for c, sql in kept.own)]
        return summed(stored, f"(SELECT {', '.join(items)}, 1 AS {WEIGHT} FROM ({ranked}))")
