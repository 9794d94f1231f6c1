"""Adds positions in the order of arrival to the state of aggregate calls, for jobs in which the values of columns decided ties.

A call stores a position beside its value, in the struct with its keys, or beside each of its values (see
`duck.aggregates.builders`). State of such a job has no positions: it gets a position before all rows that come, BEFORE_ALL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from duckdb.sqltypes import DuckDBPyType

from sqlstream.duck.sql import quote_name
from sqlstream.duck.types import element_of, kind_of
from sqlstream.jobs.upgrades.arrival import BEFORE_ALL, decides_alone, is_latest_first, reads_arrival
from sqlstream.jobs.upgrades.forms import call_form
from sqlstream.operators.windows.assigners import ROWS
from sqlstream.warehouse.jobs import ShapeItem

# The position in the struct of a row that arg_min or arg_max has chosen.
_CHOSEN = "o"


@dataclass(frozen=True, slots=True)
class ArrivalPositions:
    """Computes the state of a call that reads the order of arrival from the state of a call of the job that did not, `old`.

    `table` is the new state table, with column types `types`; `source` is the job's table that stores `old`.
    """

    new: ShapeItem
    old: ShapeItem
    table: str
    source: str
    types: Mapping[str, str]

    def held(self) -> Iterator[tuple[str, str]]:
        """Yield the columns of the new call whose values the job has, each with the job's column."""
        after, before = self.new.columns[self.table], self.old.columns[self.source]
        if len(after) == len(before) + 1:
            yield from zip(after[1:] if self._is_value else after[:-1], before, strict=True)

    def positions(self) -> Mapping[str, str]:
        """Return the SQL, over the old table, of the columns with positions; empty if the rows need different positions."""
        after, before = self.new.columns[self.table], self.old.columns[self.source]
        if not decides_alone(self.new.value):
            return {}
        if len(after) == len(before) + 1:
            return {after[0]: self._position_of(before[0])} if self._is_value else {after[-1]: BEFORE_ALL}
        if len(after) == len(before) == 1:
            return self._in_struct(after[0], before[0])
        return {}

    @property
    def _is_value(self) -> bool:
        """Whether the call stores one value per group, and its position in the column before that."""
        return ROWS in self.types

    def _position_of(self, value: str) -> str:
        """Return the SQL of the position of a stored value; NULL if the call has seen no row."""
        call = call_form(self.new.value)
        skips = " FILTER (" in self.new.value or (call is not None and call.function == "any_value")
        return f"CASE WHEN {f'{quote_name(value)} IS NOT NULL' if skips else f'{ROWS} > 0'} THEN {BEFORE_ALL} END"

    def _in_struct(self, column: str, before: str) -> Mapping[str, str]:
        """Return the SQL of a stored struct, or of a stored list of structs, with a position added to each struct."""
        type = self.types[column]
        if kind_of(type) == "list":
            packed = self._packed(element_of(type), "r")
            return {column: f"list_transform({quote_name(before)}, lambda r: {packed})"} if packed else {}
        packed = self._packed(type, quote_name(before))
        return {column: f"CASE WHEN {quote_name(before)} IS NOT NULL THEN {packed} END"} if packed else {}

    def _packed(self, type: str, struct: str) -> str:
        """Return the SQL of a struct of `type`, with the fields of `struct` and a position; empty if `type` has no position."""
        fields = [name for name, _ in DuckDBPyType(type).children] if kind_of(type) == "struct" else []
        orders = [name for name in fields if name.startswith("o")]
        if not orders:
            return ""
        # The fields of the other keys of ORDER BY are before it.
        position = {orders[-1]: self._chosen_position if orders[-1] == _CHOSEN else BEFORE_ALL}
        items = (f"{name} := {position.get(name, f'{struct}.{name}')}" for name in fields)
        return f"struct_pack({', '.join(items)})"

    @property
    def _chosen_position(self) -> str:
        """The position with the sign that the call stores: negated if arg_max takes the first arrival, or arg_min the last."""
        call = call_form(self.new.value)
        takes_greatest = call is not None and call.function.startswith("arg_max")
        return BEFORE_ALL if takes_greatest == is_latest_first(self.new.value) else f"-({BEFORE_ALL})"


def gains_position(new: ShapeItem, old: ShapeItem) -> bool:
    """Return whether an aggregate call reads the order of arrival, while the call `old` that it continues does not."""
    return new.kind == "aggregate" and reads_arrival(new.value) and not reads_arrival(old.value)
