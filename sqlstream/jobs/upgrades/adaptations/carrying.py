"""State tables made of older ones, column by column: what holds the same thing is copied, what is wider is cast.

A family of operators says what becomes of the columns that have no counterpart: see `Carrying`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from sqlstream.catalog import Column
from sqlstream.duck.sql import no_rows, quote_name
from sqlstream.jobs.upgrades.forms import expression_form, key_form, value_form
from sqlstream.jobs.upgrades.older_settings import settings_of
from sqlstream.jobs.upgrades.settings_words import changed_settings
from sqlstream.jobs.upgrades.widening import is_wider
from sqlstream.logical.plan.state_settings import AnyState
from sqlstream.warehouse.jobs import OperatorRecord, OperatorShape, ShapeItem, TableRecord


class CannotAdapt(Exception):
    """The state cannot be made of the old one; the message is the reason, a sentence in lower case without a full stop."""


# Tables of one item, or of items that share it: their numbers are others when the items are.
_OF_ONE = ("values_", "accumulators_", "list_", "map_", "value_")


@dataclass(frozen=True, slots=True)
class Pair:
    """An item of the new shape with the one of the old shape that holds the same."""

    new: ShapeItem
    old: ShapeItem


def _tables_of(pair: Pair) -> Iterator[tuple[str, str]]:
    """Yield the tables that hold an item with those that held it: of equal names, then the others."""
    common = [table for table in pair.new.columns if table in pair.old.columns]
    yield from ((table, table) for table in common)
    others = ([t for t in item.columns if t not in common] for item in (pair.new, pair.old))
    yield from zip(*others, strict=False)


@dataclass(frozen=True)
class Carrying:
    """From the state of an operator, as it was recorded, to the tables of another one of its kind.

    `made` is the SQL of columns of the new state over the rows of the old table, by table and column, where it is not that of
    the same name; `sources` is the old table of a new one, where it has another name.
    """

    old: OperatorRecord
    new: OperatorRecord
    made: Mapping[tuple[str, str], str] = field(default_factory=dict)
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
        """Raise CannotAdapt if settings differ in other fields than these."""
        for one in changed_settings(self.old_settings, self.new_settings):
            if one.field not in allowed:
                raise CannotAdapt(f"{one.name}: was {one.before or 'none'}, is {one.after or 'none'}")

    # -- what belongs together

    @cached_property
    def keys(self) -> tuple[Pair, ...]:
        """The keys, in their new order, with those of before. Raises CannotAdapt where they are others."""
        before = list(self.old_shape.keys)
        found = []
        for key in self.new_shape.keys:
            form = key_form(self.new_shape, key)
            old = next((k for k in before if key_form(self.old_shape, k) == form), None)
            if old is None:
                raise CannotAdapt(f'the key "{key.name}" is new, and rows of other keys have been put together')
            before.remove(old)
            found.append(Pair(key, old))
        if before:
            gone = ", ".join(f'"{key.name}"' for key in before)
            raise CannotAdapt(f"the key {gone} is gone, and what is kept of its values cannot be put together")
        return tuple(found)

    @cached_property
    def items(self) -> tuple[Pair, ...]:
        """The items that there were before, too: of equal value, else of equal name and equal text."""
        found = []
        for item in self.new_shape.items:
            like = [o for o in self.old_shape.items if (o.kind, o.input) == (item.kind, item.input)]
            named = [o for o in like if o.name == item.name]
            # The value of a state is what kind it is of: only its name tells it from others.
            same = [o for o in like if value_form(o) == value_form(item) and item.kind != "state"]
            old = next((o for o in same if o in named), None) or next(iter(same), None)
            if old is None:
                old = next((o for o in named if expression_form(o) == expression_form(item)), None)
            if old is not None:
                found.append(Pair(item, old))
        return tuple(found)

    @property
    def added(self) -> tuple[ShapeItem, ...]:
        paired = [pair.new for pair in self.items]
        return tuple(item for item in self.new_shape.items if item not in paired)

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
        """The old table and column of columns of the new state that hold keys and items."""
        found: dict[tuple[str, str], tuple[str, str]] = {}
        for pair in self.items:
            for table, source in _tables_of(pair):
                columns, before = pair.new.columns[table], pair.old.columns[source]
                # A state with a time to live has a column more, which says when it was written.
                if len(columns) != len(before) and pair.new.kind != "state":
                    raise CannotAdapt(f'"{pair.new.name}" is kept in another way')
                found |= {(table, new): (source, old) for new, old in zip(columns, before, strict=False)}
        return found

    def source_of(self, table: str) -> str | None:
        """Return the old table of which a new one is made, None where there is none."""
        if table in self.sources:
            return self.sources[table]
        found = {source for (name, _), (source, _) in self._held.items() if name == table}
        if found:
            return table if table in found else sorted(found)[0]
        # Another table of this name is of something else.
        return table if table in self._old_tables and not table.startswith(_OF_ONE) else None

    def tables(self) -> dict[str, str]:
        """Return the SELECTs of the tables of the new state that are not as they were. Raises CannotAdapt."""
        made = {table.name: self.select(table) for table in self.new.tables}
        return {table.name: made[table.name] for table in self.new.tables if not self._stays(table)}

    def _stays(self, table: TableRecord) -> bool:
        """Tell whether a table has the rows of the old one as they are, in the same buckets."""
        source = self.source_of(table.name)
        if source != table.name or self.old.hash_columns != self.new.hash_columns:
            return False
        if self._old_tables[source].columns != table.columns or any(name == table.name for name, _ in self.made):
            return False
        return all(self._old_name(table.name, source, name) == name for name, _ in table.columns)

    def select(self, table: TableRecord) -> str:
        """Return the SELECT of one table. Raises CannotAdapt."""
        columns = [Column(name, type) for name, type in table.columns]
        source = self.source_of(table.name)
        if source is None:
            return no_rows(columns)
        items = (f"{self._value(table.name, source, c)} AS {quote_name(c.name)}" for c in columns)
        return f"SELECT {', '.join(items)} FROM {quote_name(source)}"

    def _value(self, table: str, source: str, column: Column) -> str:
        """Return the SQL of a column of a new table over the rows of its old one."""
        if (table, column.name) in self.made:
            return f"CAST({self.made[table, column.name]} AS {column.type})"
        types = dict(self._old_tables[source].columns)
        name = self._old_name(table, source, column.name)
        if name is None:
            return f"CAST(NULL AS {column.type})"
        if name not in types:
            raise CannotAdapt(f'"{column.name}" of {table} was not kept')
        if not is_wider(types[name], column.type):
            what = self._called(table, column.name)
            raise CannotAdapt(f"{what} was {types[name]}, and {column.type} does not have all of its values")
        return quote_name(name) if types[name] == column.type else f"CAST({quote_name(name)} AS {column.type})"

    def _old_name(self, table: str, source: str, column: str) -> str | None:
        """Return the old name of a column; None where it holds something new."""
        for number, pair in enumerate(self.keys):
            if self._key_column(self.new, number) == column:
                place = self.old_shape.keys.index(pair.old)
                return self._key_column(self.old, place)
        if (table, column) in self._held:
            held_in, name = self._held[table, column]
            return name if held_in == source else None
        own = {c for item in self.new_shape.items for c in item.columns.get(table, ())}
        return None if column in own else column

    @staticmethod
    def _key_column(record: OperatorRecord, place: int) -> str | None:
        shape = record.shape
        assert shape is not None
        held = next(iter(shape.keys[place].columns.values()), ())
        return held[0] if held else None

    def _called(self, table: str, column: str) -> str:
        """Return what people call a column of state."""
        items = (*self.new_shape.keys, *self.new_shape.items)
        return next((f'"{item.name}"' for item in items if column in item.columns.get(table, ())), f'"{column}"')

    # -- what to say

    def widened(self) -> list[str]:
        """Return sentences about keys and items of other types or names."""
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
        """Return sentences about items whose text is the same, of columns that are computed otherwise."""
        pairs = (pair for pair in self.items if value_form(pair.new) != value_form(pair.old))
        return [
            f'"{pair.new.name}" goes on: rows so far were {pair.old.value}, from now on they are {pair.new.value}'
            for pair in pairs
        ]


def listed(items: Iterable[ShapeItem]) -> str:
    """Return the names of items, for people."""
    return ", ".join(f'"{item.name}"' for item in items)
