"""The state tables of an operator as people see them: columns have the names that the query has for their values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sqlstream.catalog import Column
from sqlstream.duck.sql import Relation, Select, quote_name, quoted, subquery
from sqlstream.jobs.upgrades.arrival import BEFORE_ALL, is_arrival, without_arrival
from sqlstream.jobs.upgrades.forms import expression_form
from sqlstream.jobs.upgrades.older_settings import settings_of
from sqlstream.logical.plan.state_settings import OverState, ProcessState, StateSettings
from sqlstream.operators.keyed_state import AT
from sqlstream.operators.over.over import LAST
from sqlstream.operators.process.tables import ENTRY, POSITION
from sqlstream.operators.windows.assigners import ROWS
from sqlstream.storage.zsets import KEYS, WEIGHT, current
from sqlstream.units import EPOCH, MICROSECOND, Duration, ProcessingTime
from sqlstream.warehouse.declarations import MERGED
from sqlstream.warehouse.jobs import OperatorRecord, ShapeItem, TableRecord

# The tables of a regular join, each with the number of an input behind it.
ROWS_OF, _KEYS_OF, _ALONE_OF = "rows_", "keys_", "alone_"


@dataclass(frozen=True, slots=True)
class ShownColumn:
    """A column of a state table: its name for people, its stored name, its type, and a text about what it holds.

    `filled` is the SQL of its value if a migration leaves it out, None if a migration must have it. People do not see `hidden`
    ones, which have internal names: copies of keys, and positions in the order of arrival.
    """

    name: str
    stored: str
    type: str
    holds: str
    filled: str | None = None
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class ShownTable:
    """A state table without the weights of its rows: each row occurs as often as it counts.

    `time_unit` is the unit of the time when a row last came for a key, None if the table does not store that time.
    """

    record: TableRecord
    columns: tuple[ShownColumn, ...]
    time_unit: Duration | None = None

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def shown(self) -> tuple[ShownColumn, ...]:
        """The columns that people see."""
        return tuple(c for c in self.columns if not c.hidden)

    @property
    def is_weighted(self) -> bool:
        return any(name == WEIGHT for name, _ in self.record.columns)

    @property
    def has_one_row_a_key(self) -> bool:
        """Whether each key has one row: the table stores when a row last came for a key, and has no items of lists or maps."""
        return self.time_unit is not None and not any(name in (POSITION, ENTRY) for name, _ in self.record.columns)

    @property
    def follows(self) -> bool:
        """Whether its rows follow from other tables: it has only their keys, of all tables or of one input of a join."""
        is_named = self.name == KEYS or self.name.startswith(_KEYS_OF)
        return is_named and all(c.holds == "key" or c.filled is not None for c in self.columns)

    def followed(self, tables: Iterable[ShownTable]) -> list[ShownTable]:
        """Return the tables of the same operator from which its rows follow."""
        if not self.follows:
            return []
        if self.name == KEYS:
            return [t for t in tables if not t.follows]
        return [t for t in tables if t.name == f"{ROWS_OF}{self.name.removeprefix(_KEYS_OF)}"]

    @property
    def has_no_match(self) -> bool:
        """Whether it stores the rows of a join's input that were emitted without a match: they follow from no other table."""
        return self.name.startswith(_ALONE_OF)

    @property
    def stored_rows(self) -> Select:
        """The rows of the table, by its name, in stored columns, each row as often as it counts."""
        if not self.is_weighted:
            return Select(f"SELECT * FROM {quoted(self.name)}")
        return current([Column(c.stored, c.type) for c in self.columns], quoted(self.name))

    def selected(self, rows: Select) -> Select:
        """Return stored rows as people see them."""
        stored = [Column(c.stored, c.type) for c in self.columns]
        if self.is_weighted:
            rows = current(stored, subquery(rows))
        elif self.record.merge:
            rows = Select(f"WITH {MERGED} AS ({rows}) {self.record.merge}")
        listed = ", ".join(f"{quote_name(c.stored)} AS {quote_name(c.name)}" for c in self.shown)
        return Select(f"SELECT {listed} FROM ({rows})")

    def restored(self, rows: Relation, names: Mapping[str, str]) -> Select:
        """Return stored rows, made from `rows`; `names` maps columns of the table to columns of `rows`."""
        items = []
        for name, type in self.record.columns:
            column = next((c for c in self.columns if c.stored == name), None)
            value = "1" if column is None else quote_name(names[column.name]) if column.name in names else column.filled
            assert value is not None
            items.append(f"CAST({value} AS {type}) AS {quote_name(name)}")
        return Select(f"SELECT {', '.join(items)} FROM {rows}")


def state_tables(operator: OperatorRecord, time: ProcessingTime = EPOCH) -> tuple[ShownTable, ...]:
    """Return the state tables of an operator; `time` is when keys were last seen, if a migration does not say that."""
    return tuple(
        ShownTable(table, tuple(_columns(operator, table, time)), _clock(operator, table)) for table in operator.tables
    )


def _clock(operator: OperatorRecord, table: TableRecord) -> Duration | None:
    """Return the unit of the time when a row last came for a key, None if a table does not store that time."""
    columns = {name for name, _ in table.columns}
    settings = _settings(operator)
    # The last rows of OVER have their own time in a column of this name.
    if not columns.issuperset((WEIGHT, AT.name)) or (isinstance(settings, OverState) and table.name == LAST):
        return None
    return settings.time_unit


def _settings(operator: OperatorRecord) -> StateSettings:
    """Return the settings of an operator; if its record has no shape, the defaults of its kind."""
    if operator.shape is not None:
        return settings_of(operator.shape)
    return {"over": OverState(), "process": ProcessState()}.get(operator.kind, StateSettings())


def _columns(operator: OperatorRecord, table: TableRecord, time: ProcessingTime) -> Iterator[ShownColumn]:
    named = dict(_named(operator, table))
    used_names = {name.lower() for name, _ in named.values()}
    copies = _copies(operator, table)
    positions = {c for i in _items(operator, table) if is_arrival(i) for c in i.columns.get(table.name, ())}
    for stored, type in table.columns:
        if stored == WEIGHT:
            continue
        name, holds = named.get(stored, (stored, ""))
        if stored not in named:
            while name.lower() in used_names:
                name += "_"
            used_names.add(name.lower())
        if key := copies.get(stored):
            yield ShownColumn(name, stored, type, f"key {key}", quote_name(key), hidden=True)
        elif stored in positions:
            yield ShownColumn(name, stored, type, "the order of arrival", BEFORE_ALL, hidden=True)
        else:
            time_unit = _clock(operator, table) if stored == AT.name else None
            filled = None if time_unit is None else str(time // time_unit)
            yield ShownColumn(name, stored, type, holds or _own(stored, table, time_unit), filled)


def _named(operator: OperatorRecord, table: TableRecord) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the stored columns whose values have names in the query, each with that name and a text about what it holds."""
    columns = {name for name, _ in table.columns}
    used_names: set[str] = set()
    done: set[str] = set()
    for item in _items(operator, table):
        held = [c for c in item.columns.get(table.name, ()) if c in columns]
        for number, stored in enumerate(held, 1):
            name = item.name if len(held) == 1 else f"{item.name}_{number}"
            if stored in done or name.lower() in used_names:
                continue
            done.add(stored)
            used_names.add(name.lower())
            part = f", part {number} of {len(held)}" if len(held) > 1 else ""
            what = "key" if item.kind == "key" else f"{item.kind} {without_arrival(item.expression)}{part}"
            yield stored, (name, what)


def _copies(operator: OperatorRecord, table: TableRecord) -> Mapping[str, str]:
    """Return the stored columns that repeat a key as a column of stored rows, each with the name of the key."""
    keys = {k.name.lower(): k for k in operator.shape.keys} if operator.shape is not None else {}
    return {
        stored: keys[item.name.lower()].name
        for item in (operator.shape.items if operator.shape is not None else ())
        for stored in item.columns.get(table.name, ())
        if item.name.lower() in keys
        and expression_form(item) == expression_form(keys[item.name.lower()])
        and stored not in keys[item.name.lower()].columns.get(table.name, ())
    }


def _items(operator: OperatorRecord, table: TableRecord) -> tuple[ShapeItem, ...]:
    if operator.shape is not None:
        return (*operator.shape.keys, *operator.shape.items)
    # Records of earlier versions have no shape.
    pairs = zip(operator.key_columns, operator.hash_columns, strict=False)
    columns = {name for name, _ in table.columns}
    return tuple(ShapeItem(key, key, "", "key", columns={table.name: (h,)}) for key, h in pairs if h in columns)


def _own(stored: str, table: TableRecord, time_unit: Duration | None) -> str:
    """Return a text about a column without a name in the query; `time_unit` is the unit of the time of a key, None elsewhere."""
    if time_unit is not None:
        unit = "microseconds" if time_unit == MICROSECOND else "milliseconds"
        return f"when the last row came for the key, in {unit}"
    if stored == ROWS:
        return "how many rows there are"
    return "the time by which rows are forgotten" if stored == table.time_column else "internal"
