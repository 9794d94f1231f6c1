"""Computes state tables from older ones, column by column: a column with the same contents is copied, or cast to a wider type.

Adaptations add the expressions of columns that have no counterpart: see `StateTransfer`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.duck.sql import Select, no_rows, quote_name
from sqlstream.jobs.upgrades.adaptations.positions import ArrivalPositions, gains_position
from sqlstream.jobs.upgrades.arrival import BEFORE_ALL, is_arrival, reads_arrival, without_arrival
from sqlstream.jobs.upgrades.forms import expression_form, key_form, text_form, value_form
from sqlstream.jobs.upgrades.older_settings import settings_of
from sqlstream.jobs.upgrades.settings_words import changed_settings
from sqlstream.jobs.upgrades.widening import is_wider, widened
from sqlstream.logical.plan.state_settings import AnyState
from sqlstream.warehouse.jobs import OperatorRecord, OperatorShape, ShapeItem, TableRecord


class CannotAdapt(Exception):
    """The state cannot be computed from the old state. The message says why, in lower case and without a full stop."""


# Prefixes of tables of one item, or of items that share it. The numbers behind them depend on the other items.
_OF_ONE = ("values_", "accumulators_", "list_", "map_", "value_")


@dataclass(frozen=True, slots=True)
class Pair:
    """An item of the new shape, and the item of the old shape that it continues."""

    new: ShapeItem
    old: ShapeItem


def _tables_of(pair: Pair) -> Iterator[tuple[str, str]]:
    """Yield pairs of the new and the old tables that hold an item: tables of the same name, then the others in order."""
    common = [table for table in pair.new.columns if table in pair.old.columns]
    yield from ((table, table) for table in common)
    others = ([t for t in item.columns if t not in common] for item in (pair.new, pair.old))
    yield from zip(*others, strict=False)


@dataclass(frozen=True)
class StateTransfer:
    """Computes the state tables of an operator from the tables of a recorded operator of its kind.

    `expressions` has the SQL of new columns over the rows of the old table, by table and column; columns without one are copied.
    `sources` has the old table of a new table, if its name differs.
    """

    old: OperatorRecord
    new: OperatorRecord
    expressions: Mapping[tuple[str, str], str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def old_shape(self) -> OperatorShape:
        assert self.old.shape is not None
        return self.old.shape

    @property
    def new_shape(self) -> OperatorShape:
        assert self.new.shape is not None
        return self.new.shape

    @property
    def old_settings(self) -> AnyState:
        return settings_of(self.old_shape)

    @property
    def new_settings(self) -> AnyState:
        return settings_of(self.new_shape)

    def check_settings(self, allowed: Iterable[str] = ()) -> None:
        """Raise CannotAdapt if settings differ in fields that are not `allowed`."""
        for one in changed_settings(self.old_settings, self.new_settings):
            # Rows that are kept get a position in the order of arrival: see `_positions`.
            if one.field not in allowed and not one.gains_arrival:
                raise CannotAdapt(f"{one.name}: was {one.before or 'none'}, is {one.after or 'none'}")

    # -- pairs of keys and items

    @cached_property
    def keys(self) -> tuple[Pair, ...]:
        """The keys, in their new order, each with its old key. Raises CannotAdapt if a key is new or gone."""
        before = list(self.old_shape.keys)
        pairs = []
        for key in self.new_shape.keys:
            form = key_form(self.new_shape, key)
            old = next((k for k in before if key_form(self.old_shape, k) == form), None)
            if old is None:
                raise CannotAdapt(f'the key "{key.name}" is new, and rows of other keys have been put together')
            before.remove(old)
            pairs.append(Pair(key, old))
        if before:
            gone = ", ".join(f'"{key.name}"' for key in before)
            raise CannotAdapt(f"the key {gone} is gone, and what is kept of its values cannot be put together")
        return tuple(pairs)

    @cached_property
    def items(self) -> tuple[Pair, ...]:
        """The items that the old shape has, too: with equal values, else with equal names and expressions.

        A call that reads the order of arrival may continue an old call that does not, if they are equal otherwise.
        """
        pairs = []
        for item in self.new_shape.items:
            like = [o for o in self.old_shape.items if (o.kind, o.input) == (item.kind, item.input)]
            named = [o for o in like if o.name == item.name]
            # The value of a state is what kind it is of: only its name tells it from others.
            same = [o for o in like if value_form(o) == value_form(item) and item.kind != "state"]
            if not same and reads_arrival(item.value):
                own = text_form(without_arrival(item.value))
                same = [o for o in like if value_form(o) == own]
            old = next((o for o in same if o in named), None) or next(iter(same), None)
            if old is None:
                old = next((o for o in named if expression_form(o) == expression_form(item)), None)
            if old is not None:
                pairs.append(Pair(item, old))
        return tuple(pairs)

    @property
    def gains_arrival(self) -> bool:
        """Whether the order of arrival decides ties, and columns did before."""
        before, after = (
            any(is_arrival(item) or reads_arrival(item.value) for item in shape.items)
            for shape in (self.old_shape, self.new_shape)
        )
        changed = changed_settings(self.old_settings, self.new_settings)
        return (after and not before) or any(one.gains_arrival for one in changed)

    @property
    def added(self) -> tuple[ShapeItem, ...]:
        paired = [pair.new for pair in self.items]
        return tuple(item for item in self.new_shape.items if item not in paired and not is_arrival(item))

    @property
    def removed(self) -> tuple[ShapeItem, ...]:
        paired = [pair.old for pair in self.items]
        return tuple(item for item in self.old_shape.items if item not in paired)

    # -- tables

    @cached_property
    def _old_tables(self) -> dict[str, TableRecord]:
        return {table.name: table for table in self.old.tables}

    @cached_property
    def _held(self) -> dict[tuple[str, str], tuple[str, str]]:
        """The old table and column of each column of the new state that holds an item of both shapes."""
        origins: dict[tuple[str, str], tuple[str, str]] = {}
        for pair in self.items:
            for table, source in _tables_of(pair):
                columns, before = pair.new.columns[table], pair.old.columns[source]
                if gains_position(pair.new, pair.old):
                    continue
                # A state with a time to live has a column more, which says when it was written.
                if len(columns) != len(before) and pair.new.kind != "state":
                    raise CannotAdapt(f'"{pair.new.name}" is kept in another way')
                origins |= {(table, new): (source, old) for new, old in zip(columns, before, strict=False)}
        for positioned in self._positioned:
            origins |= {(positioned.table, new): (positioned.source, old) for new, old in positioned.held()}
        return origins

    @cached_property
    def _positioned(self) -> tuple[ArrivalPositions, ...]:
        """The calls that read the order of arrival and continue calls that do not, once for each table that stores them."""
        types = {t.name: dict(t.columns) for t in self.new.tables}
        pairs = [pair for pair in self.items if gains_position(pair.new, pair.old)]
        return tuple(
            ArrivalPositions(pair.new, pair.old, table, source, types[table])
            for pair in pairs
            for table, source in _tables_of(pair)
        )

    @cached_property
    def _positions(self) -> Mapping[tuple[str, str], str]:
        """The SQL, over the old table, of new columns with positions in the order of arrival, by new table and column.

        Raises CannotAdapt for a call whose old state does not tell them.
        """
        positions = {
            (table, column): BEFORE_ALL
            for item in self.new_shape.items
            if is_arrival(item) and self.gains_arrival
            for table, columns in item.columns.items()
            for column in columns
        }
        for positioned in self._positioned:
            own = positioned.positions()
            if not own:
                raise CannotAdapt(f'"{positioned.new.name}" does not keep which of its rows came first')
            for column, sql in own.items():
                # Calls over the same rows share a position.
                before = positions.get((positioned.table, column), sql)
                positions[positioned.table, column] = sql if before == sql else f"coalesce({before}, {sql})"
        return positions

    def source_of(self, table: str) -> str | None:
        """Return the old table from which a new table is computed, None if there is none."""
        if table in self.sources:
            return self.sources[table]
        old_tables = {source for (name, _), (source, _) in self._held.items() if name == table}
        if old_tables:
            return table if table in old_tables else sorted(old_tables)[0]
        # Another table of this name is of something else.
        return table if table in self._old_tables and not table.startswith(_OF_ONE) else None

    def tables(self) -> dict[str, Select]:
        """Return the tables of the new state, without tables that stay unchanged. Raises CannotAdapt."""
        selects = {table.name: self.select(table) for table in self.new.tables}
        return {table.name: selects[table.name] for table in self.new.tables if not self._stays(table)}

    def _stays(self, table: TableRecord) -> bool:
        """Tell whether a table has the same rows as the old one, in the same buckets."""
        source = self.source_of(table.name)
        if source != table.name or self.old.hash_columns != self.new.hash_columns:
            return False
        if self._old_tables[source].columns != table.columns or any(name == table.name for name, _ in self.expressions):
            return False
        return all(self._old_name(table.name, source, name) == name for name, _ in table.columns)

    def select(self, table: TableRecord) -> Select:
        """Return one table, computed from its old table. Raises CannotAdapt."""
        columns = [Column(name, type) for name, type in table.columns]
        source = self.source_of(table.name)
        if source is None:
            return no_rows(columns)
        items = (f"{self._value(table.name, source, c)} AS {quote_name(c.name)}" for c in columns)
        return Select(f"SELECT {', '.join(items)} FROM {quote_name(source)}")

    def _value(self, table: str, source: str, column: Column) -> str:
        """Return the SQL of a column of a new table over the rows of its old table."""
        types = dict(self._old_tables[source].columns)
        if (table, column.name) in self.expressions:
            expression = self.expressions[table, column.name]
            name = next((n for n in types if expression in (n, quote_name(n))), None)
            if name is None:
                return f"CAST({expression} AS {column.type})"
        elif (table, column.name) in self._positions:
            return f"CAST({self._positions[table, column.name]} AS {column.type})"
        else:
            name = self._old_name(table, source, column.name)
            if name is None:
                return f"CAST(NULL AS {column.type})"
            if name not in types:
                raise CannotAdapt(f'"{column.name}" of {table} was not kept')
        if types[name] == column.type:
            return quote_name(name)
        what = self._called(table, column.name)
        if not is_wider(types[name], column.type):
            raise CannotAdapt(f"{what} was {types[name]}, and {column.type} does not have all of its values")
        return widened(quote_name(name), types[name], column.type, f'operator "{self.new.name}": {what}')

    def _old_name(self, table: str, source: str, column: str) -> str | None:
        """Return the old name of a column; None where it holds something new."""
        for number, pair in enumerate(self.keys):
            if self._key_column(self.new, number) == column:
                position = self.old_shape.keys.index(pair.old)
                return self._key_column(self.old, position)
        if (table, column) in self._held:
            held_in, name = self._held[table, column]
            return name if held_in == source else None
        own = {c for item in self.new_shape.items for c in item.columns.get(table, ())}
        return None if column in own else column

    @staticmethod
    def _key_column(record: OperatorRecord, position: int) -> str | None:
        shape = record.shape
        assert shape is not None
        held = next(iter(shape.keys[position].columns.values()), ())
        return held[0] if held else None

    def _called(self, table: str, column: str) -> str:
        """Return the name of a column of state for people."""
        items = (*self.new_shape.keys, *self.new_shape.items)
        return next((f'"{item.name}"' for item in items if column in item.columns.get(table, ())), f'"{column}"')

    # -- notes

    def widened(self) -> list[str]:
        """Return notes about keys and items with other names or types."""
        notes = []
        for pair in (*self.keys, *self.items):
            what = "key" if pair.new.kind == "key" else "column" if pair.new.kind == "column" else "result"
            if pair.new.kind == "state":
                what = "state"
            if pair.new.name != pair.old.name:
                notes.append(f'{what} "{pair.old.name}" is called "{pair.new.name}" now')
            if pair.new.type != pair.old.type:
                notes.append(f'{what} "{pair.new.name}" becomes {pair.new.type}, and was {pair.old.type}')
        return notes

    def recomputed_below(self) -> list[str]:
        """Return notes about items with the same text, over columns that are computed differently now."""
        pairs = (pair for pair in self.items if value_form(pair.new) != value_form(pair.old))
        values = ((pair.new.name, *map(without_arrival, (pair.old.value, pair.new.value))) for pair in pairs)
        return [
            f'"{name}" goes on: rows so far were {before}, from now on they are {after}'
            for name, before, after in values
            if before != after
        ]


def listed(items: Iterable[ShapeItem]) -> str:
    """Return the names of items, for people."""
    return ", ".join(f'"{item.name}"' for item in items)
