"""State of whole rows per key: all rows of a key, or only its best ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.duck.sql import Relation, Relations, Select, names, quote_name, subquery
from sqlstream.duck.types import encoded
from sqlstream.operators.changelog.results import KeptState
from sqlstream.operators.groups import ComputedColumns, stored_columns
from sqlstream.operators.keyed_state import AT
from sqlstream.operators.keys import Keys
from sqlstream.operators.operator import Holds
from sqlstream.operators.windows.window_rows import Ranking
from sqlstream.storage.zsets import KEYS, WEIGHT, WEIGHT_COLUMN, repeated, summed

ROWS = "rows"


@dataclass(frozen=True)
class KeptRows(KeptState):
    """All rows of each key, as a Z-set. With `changing`, rows arrive with weights; otherwise every row is an addition."""

    keys: Keys
    columns: tuple[Column, ...]
    changing: bool

    @cached_property
    def own(self) -> ComputedColumns:
        """The stored columns of the rows, under internal names, each with the SQL that computes it from input rows."""
        return stored_columns(self.columns)

    @cached_property
    def stored(self) -> Mapping[str, tuple[Column, ...]]:
        return {ROWS: (*self.keys.stored, *(c for c, _ in self.own)), KEYS: (*self.keys.stored, AT)}

    @cached_property
    def deltas(self) -> Mapping[str, tuple[Column, ...]]:
        return {ROWS: (*self.stored[ROWS], WEIGHT_COLUMN)}

    @cached_property
    def parts(self) -> Mapping[str, Select]:
        weight = WEIGHT if self.changing else f"1 AS {WEIGHT}"
        items = ", ".join([*self.keys.items, *(f"{sql} AS {c.name}" for c, sql in self.own), weight])
        net_rows = summed(self.stored[ROWS], Relation(f"(SELECT {items} FROM _rows)"))
        return {ROWS: encoded(self.deltas[ROWS], subquery(net_rows))}

    @property
    def holds(self) -> Holds:
        names = (c.name for c in self.columns)
        return {name: {ROWS: (own.name,)} for name, (own, _) in zip(names, self.own, strict=True)}

    def advance(self, part: str, old: Relation, delta: Relation) -> Select:
        listed = f"{names(self.stored[part])}, {WEIGHT}"
        both = Select(f"SELECT {listed} FROM {old} UNION ALL SELECT {listed} FROM {delta}")
        rows = summed(self.stored[part], subquery(both))
        # A retraction for a key that has expired has nothing to retract.
        return Select(f"SELECT * FROM ({rows}) WHERE {WEIGHT} > 0") if self.keys.ttl else rows

    def named_rows(self, relations: Relations) -> Relation:
        """Return the stored rows, repeated by weight: the stored keys, and the columns under their own names."""
        return subquery(self.named(repeated(self.stored[ROWS], relations[ROWS])))

    def named(self, rows: Select) -> Select:
        """Return stored rows with the columns under their own names; the keys stay."""
        items = [*self.keys.names, *(f"{c.name} AS {sql}" for c, sql in self.own)]
        return Select(f"SELECT {', '.join(items)} FROM ({rows})")

    def ranked(self, ranking: Ranking, rows: Relation, *, new: bool = False) -> Select:
        """Return `named` rows with their rank, up to the ranking's limit; `new` ones arrive, and are not in state."""
        rank = quote_name(ranking.name)
        partition = ", ".join(self.keys.names) or "true"
        call = ranking.call_of_new if new else ranking.call
        ranked = Select(f"SELECT *, {call(partition, self.columns)} AS {rank} FROM {rows}")
        return ranked if ranking.limit is None else Select(f"SELECT * FROM ({ranked}) WHERE {rank} <= {ranking.limit}")


@dataclass(frozen=True)
class BestRows(KeptState):
    """The rows of each key up to the ranking's limit, of append-only input: a row beyond the limit can never come back."""

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

    @cached_property
    def parts(self) -> Mapping[str, Select]:
        """The rows of a batch up to the limit: what is beyond it in a part of the batch is beyond it in all rows."""
        rows, stored = self.rows, self.stored[ROWS]
        keyed = subquery(Select(f"SELECT {', '.join([*rows.keys.items, '*'])} FROM _rows"))
        items = [*rows.keys.names, *(f"{sql} AS {c.name}" for c, sql in rows.own)]
        best = rows.ranked(self.ranking, keyed, new=True)
        weighted = Select(f"SELECT {', '.join(items)}, CAST(1 AS {WEIGHT_COLUMN.type}) AS {WEIGHT} FROM ({best})")
        # Rows that differ in their places are no copies of each other.
        net_rows = weighted if self.ranking.is_total else summed(stored, subquery(weighted))
        return {ROWS: encoded(self.deltas[ROWS], subquery(net_rows))}

    def advance(self, part: str, old: Relation, delta: Relation) -> Select:
        state, stored = self.rows, self.stored[part]
        rows = repeated(stored, subquery(state.advance(part, old, delta)))
        ranked = state.ranked(self.ranking, subquery(state.named(rows)))
        items = [*state.keys.names, *(f"{sql} AS {c.name}" for c, sql in state.own)]
        return summed(stored, Relation(f"(SELECT {', '.join(items)}, 1 AS {WEIGHT} FROM ({ranked}))"))
