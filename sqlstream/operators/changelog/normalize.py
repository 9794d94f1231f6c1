"""The rows that a table of changes has now, by its key: an update needs no row before it, a delete needs the key alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import ADDS, CHANGE, PLACE, last_of_keys
from sqlstream.duck.sql import names, quote_name
from sqlstream.duck.types import encoded
from sqlstream.operators.changelog.changes import ChangelogOperator
from sqlstream.operators.keyed_state import AT
from sqlstream.state.zsets import WEIGHT
from sqlstream.units import NO_TIME, Duration

ROWS = "rows"
ABSENT_DELETES = "absent_deletes"


@dataclass(frozen=True)
class ChangelogNormalize(ChangelogOperator):
    """Keeps the last row of every key, in the order of the source: batches, and their rows by PLACE.

    A row without a time, where there is a time attribute, is not there. A delete of a row that is not there is counted.
    """

    keys: tuple[tuple[Column, str], ...]
    columns: tuple[Column, ...]
    time_column: str | None
    # A table has its rows as long as the source has them.
    ttl: Duration = NO_TIME

    @property
    def kind(self) -> str:
        return "normalize"

    @cached_property
    def _stored(self) -> dict[str, Column]:
        """The stored column of each column, the keys first, under names of our own."""
        keys = {column.name: stored for (column, _), stored in zip(self.keys, self.key_columns, strict=True)}
        others = [c for c in self.columns if c.name not in keys]
        return {**keys, **{c.name: Column(f"c{i}", c.type) for i, c in enumerate(others)}}

    @cached_property
    def stored(self) -> Mapping[str, tuple[Column, ...]]:
        return {ROWS: (*self._stored.values(), AT)}

    @cached_property
    def deltas(self) -> Mapping[str, tuple[Column, ...]]:
        return {ROWS: (*self._stored.values(), CHANGE, *PLACE)}

    @property
    def result_keys(self) -> tuple[str, ...]:
        return tuple(quote_name(c.name) for c, _ in self.keys)

    @cached_property
    def parts(self) -> dict[str, str]:
        items = [f"{quote_name(name)} AS {c.name}" for name, c in self._stored.items()]
        rows = f"(SELECT {', '.join(items)}, {names((CHANGE, *PLACE))} FROM _rows)"
        return {ROWS: encoded(self.deltas[ROWS], rows)}

    @property
    def columns_out(self) -> tuple[Column, ...]:
        return self.columns

    def advance(self, part: str, old: str, delta: str) -> str:
        last = last_of_keys(self.key_names, delta)
        timed = f" AND isfinite({self._stored[self.time_column].name})" if self.time_column is not None else ""
        return f"SELECT {names(self._stored.values())}, 1 AS {WEIGHT} FROM ({last}) WHERE {ADDS}{timed}"

    def counters(self, old: Mapping[str, str], delta: Mapping[str, str]) -> Mapping[str, str]:
        """Count the deletes whose key has no row: before the batch, and after what came before them in it."""
        keys = ", ".join(self.key_names)
        order = f"PARTITION BY {keys} ORDER BY {names(PLACE)}"
        before = f"SELECT {keys}, {CHANGE.name}, lag({ADDS}) OVER ({order}) AS _there FROM {delta[ROWS]}"
        same = " AND ".join(f"_old.{k} IS NOT DISTINCT FROM _change.{k}" for k in self.key_names)
        known = f"EXISTS (FROM {old[ROWS]} _old WHERE {same})"
        deletes = f"SELECT count(*) FROM ({before}) _change WHERE {CHANGE.name} = 'D' AND NOT coalesce(_there, {known})"
        return {ABSENT_DELETES: deletes}

    def result(self, relations: Mapping[str, str]) -> str:
        items = ", ".join(f"{self._stored[c.name].name} AS {quote_name(c.name)}" for c in self.columns)
        return f"SELECT {items} FROM {relations[ROWS]}"
