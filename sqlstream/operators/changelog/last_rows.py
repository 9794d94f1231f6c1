"""The current rows of an upsert source, by key: an update comes without the row before it, a delete with the key alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import ADDS, CHANGE, FILE_ORDER, last_of_keys
from sqlstream.duck.sql import Relation, Relations, Select, names, quote_name, same_columns
from sqlstream.duck.types import encoded
from sqlstream.operators.changelog.results import ChangingResult, KeptState
from sqlstream.operators.keyed_state import AT
from sqlstream.operators.keys import Keys
from sqlstream.operators.operator import Holds
from sqlstream.storage.zsets import WEIGHT

ROWS = "rows"
ABSENT_DELETES = "absent_deletes"


@dataclass(frozen=True)
class LastRows(ChangingResult, KeptState):
    """Keeps the last row of every key, in the order of the source: by batch, and within a batch by FILE_ORDER.

    Where there is a time attribute, a row without a finite time counts as absent. ABSENT_DELETES counts deletes of absent rows.
    """

    keys: Keys
    row: tuple[Column, ...]
    time_column: str | None

    @property
    def state(self) -> KeptState:
        return self

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.row

    @property
    def keys_of_rows(self) -> tuple[str, ...]:
        return self.keys.quoted

    @cached_property
    def _stored(self) -> dict[str, Column]:
        """The stored column of each column, under an internal name, the keys first."""
        keys = {column.name: stored for column, stored in zip(self.keys.columns, self.keys.stored, strict=True)}
        others = [c for c in self.row if c.name not in keys]
        return {**keys, **{c.name: Column(f"c{i}", c.type) for i, c in enumerate(others)}}

    @property
    def holds(self) -> Holds:
        return {name: {ROWS: (c.name,)} for name, c in self._stored.items()}

    @cached_property
    def stored(self) -> Mapping[str, tuple[Column, ...]]:
        return {ROWS: (*self._stored.values(), AT)}

    @cached_property
    def deltas(self) -> Mapping[str, tuple[Column, ...]]:
        return {ROWS: (*self._stored.values(), CHANGE, *FILE_ORDER)}

    @cached_property
    def parts(self) -> dict[str, Select]:
        items = [f"{quote_name(name)} AS {c.name}" for name, c in self._stored.items()]
        rows = Relation(f"(SELECT {', '.join(items)}, {names((CHANGE, *FILE_ORDER))} FROM _rows)")
        return {ROWS: encoded(self.deltas[ROWS], rows)}

    def advance(self, part: str, old: Relation, delta: Relation) -> Select:
        last = last_of_keys(self.keys.names, delta)
        timed = f" AND isfinite({self._stored[self.time_column].name})" if self.time_column is not None else ""
        return Select(f"SELECT {names(self._stored.values())}, 1 AS {WEIGHT} FROM ({last}) WHERE {ADDS}{timed}")

    def counters(self, old: Relations, delta: Relations) -> Mapping[str, Select]:
        """Count deletes of absent rows: absent before the batch, and after earlier changes in it."""
        keys = ", ".join(self.keys.names)
        order = f"PARTITION BY {keys} ORDER BY {names(FILE_ORDER)}"
        before = f"SELECT {keys}, {CHANGE.name}, lag({ADDS}) OVER ({order}) AS _there FROM {delta[ROWS]}"
        exists = f"EXISTS (FROM {old[ROWS]} _old WHERE {same_columns('_old', '_change', self.keys.names)})"
        absent = f"{CHANGE.name} = 'D' AND NOT coalesce(_there, {exists})"
        return {ABSENT_DELETES: Select(f"SELECT count(*) FROM ({before}) _change WHERE {absent}")}

    def result(self, relations: Relations) -> Select:
        items = ", ".join(f"{self._stored[c.name].name} AS {quote_name(c.name)}" for c in self.row)
        return Select(f"SELECT {items} FROM {relations[ROWS]}")
