"""The state tables of a process function, with their views: one row per key, a table per list and map, and timers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from msgspec.structs import replace

from sqlstream.catalog import Column, StateDeclaration
from sqlstream.duck.internal_columns import EXPIRES_AT, UPDATED_AT
from sqlstream.duck.sql import (
    TRUE,
    Condition,
    Items,
    Relation,
    Relations,
    Rows,
    Select,
    quote_name,
    quote_text,
    same_columns,
    subquery,
    union_all,
)
from sqlstream.duck.time_variables import NOW
from sqlstream.storage.zsets import WEIGHT_COLUMN, summed, zset
from sqlstream.units import MICROSECOND, NO_TIME, Duration
from sqlstream.warehouse.declarations import MERGED, ExpiringState, TableDeclaration

KEYS, EVENT_TIMERS, PROCESSING_TIMERS = "keys", "event_timers", "processing_timers"
# The table of the row that each key has in a result of upserts.
RESULT = "result"
# The column of when a key or an item was last written (microseconds of processing time).
AT = Column("_at", "BIGINT")
# The columns of an item's position in a list, of an entry's key in a map, and of the item or value there.
POSITION, ENTRY, ITEM = "position", "entry", "item"
# The columns of a timer's name (empty: none), and of the time at which it is due (microseconds).
TIMER_NAME, DUE = Column("name", "VARCHAR"), Column("due", "BIGINT")
# The words for the time domains of timers, by table.
TIME_DOMAINS = {EVENT_TIMERS: "event time", PROCESSING_TIMERS: "processing time"}


@dataclass(frozen=True, slots=True)
class StateTable:
    """A state, its time to live (0: for ever), and where it is stored.

    `number` is its index among the states of the function, and part of the names of its columns and table. A value has columns in
    the state row of the key; a list has its length there. A list, a map or a broadcast state has a table of its own.
    """

    number: int
    state: StateDeclaration
    ttl: Duration

    @property
    def column(self) -> Column | None:
        """The column in the key's row of the value, or of the length of a list; None for a map or a broadcast state."""
        if self.state.broadcast:
            return None
        match self.state.kind:
            case "value":
                return Column(f"s{self.number}", self.state.type)
            case "list":
                return Column(f"n{self.number}", "BIGINT")
        return None

    @property
    def write_time(self) -> Column | None:
        """The column in the key's row of when `column` was written, in microseconds; None if it never expires."""
        return Column(f"w{self.number}", "BIGINT") if self.ttl and self.column else None

    @property
    def table(self) -> str | None:
        """The name of the state's own table; None for a value of a key."""
        return None if self.state.kind == "value" and not self.state.broadcast else f"{self.state.kind}_{self.number}"

    @property
    def holds(self) -> Mapping[str, tuple[str, ...]]:
        """The names of the columns that store the state, by table."""
        in_row = tuple(c.name for c in (self.column, self.write_time) if c is not None)
        columns = {KEYS: in_row} if in_row else {}
        return {**columns, **({self.table: tuple(c.name for c in self.item_columns)} if self.table else {})}

    @property
    def item_key(self) -> Column:
        """The column that identifies an item of a key: the key of a map, else a position."""
        if self.state.kind != "map":
            return Column(POSITION, "BIGINT")
        assert self.state.key_type is not None
        return Column(ENTRY, self.state.key_type)

    @property
    def item_columns(self) -> tuple[Column, ...]:
        """The columns of the state's own table behind the key: `item_key`, ITEM, and AT with a time to live."""
        return (self.item_key, Column(ITEM, self.state.type), *((AT,) if self.ttl else ()))


@dataclass(frozen=True)
class StateTables:
    """The state tables of a function; `keys` are the key columns in state, k0, k1, ..

    An event-time timer is due when the watermark reaches it. With `in_order` it is due when the watermark has passed it, and so
    all rows of its time; it is then stored a microsecond later.
    """

    keys: tuple[Column, ...]
    states: tuple[StateTable, ...]
    has_timers: bool
    in_order: bool = False
    # The columns, behind the key, of the row that each key has in the result, if the function emits upserts.
    result: tuple[Column, ...] = ()

    @property
    def shift(self) -> int:
        """By how many microseconds timers of event time are stored later than they are due."""
        return int(self.in_order)

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.keys)

    @cached_property
    def in_row(self) -> tuple[StateTable, ...]:
        """The states with columns in the row of the key."""
        return tuple(s for s in self.states if s.column is not None)

    @cached_property
    def collections(self) -> tuple[StateTable, ...]:
        """The states with a table of their own."""
        return tuple(s for s in self.states if s.table is not None)

    @cached_property
    def row(self) -> tuple[Column, ...]:
        """The columns of the row of a key in the table KEYS: the key, `column` and `write_time` of each state, AT."""
        parts = (c for s in self.in_row for c in (s.column, s.write_time) if c is not None)
        return (*self.keys, *parts, AT)

    @cached_property
    def has_values(self) -> Condition:
        """The condition that the row of a key holds a value, or the length of a list."""
        return Condition(" OR ".join(f"{one.column.name} IS NOT NULL" for one in self.in_row if one.column))

    @cached_property
    def timer_columns(self) -> tuple[Column, ...]:
        """The columns of a table of timers, without the weight: the key, TIMER_NAME, DUE."""
        return (*self.keys, TIMER_NAME, DUE)

    @cached_property
    def declarations(self) -> tuple[TableDeclaration, ...]:
        """The declarations of the tables that the function needs, all Z-sets; event-time timers expire with the watermark."""
        tables = [zset(KEYS, self.row)] if self.in_row else []
        for one in self.collections:
            assert one.table is not None
            tables.append(dataclasses.replace(zset(one.table, self.items(one)), replicated=one.state.broadcast))
        if self.result:
            tables.append(zset(RESULT, (*self.keys, *self.result)))
        if self.has_timers:
            # A timer of event time expires when the watermark reaches the time at which it is stored.
            merge = summed(self.timer_columns, MERGED)
            tables.append(TableDeclaration(EVENT_TIMERS, (*self.timer_columns, WEIGHT_COLUMN), DUE.name, merge))
            tables.append(zset(PROCESSING_TIMERS, self.timer_columns))
        return tuple(tables)

    @property
    def remembered(self) -> Iterator[ExpiringState]:
        """Yield the state that a time to live bounds, state by state: values of keys, items of lists, entries of maps."""
        for one in self.states:
            if one.table is not None:
                keys = (*self.key_names, one.item_key.name)
                ttl_state = ExpiringState((one.table,), one.table, keys, ttl=one.ttl, name=one.state.name)
                # To put the value that an entry has already changes nothing in the table.
                ttl_state = replace(ttl_state, misses_writes=one.state.kind == "map")
                yield replace(ttl_state, at=AT.name, unit=MICROSECOND, misses_writes=False) if one.ttl else ttl_state
            elif one.column is not None:
                ttl_state = ExpiringState((KEYS,), KEYS, self.key_names, AT.name, MICROSECOND, one.ttl, one.state.name)
                ttl_state = replace(
                    ttl_state, holds=f"{one.column.name} IS NOT NULL", misses_writes=len(self.in_row) > 1
                )
                yield replace(ttl_state, at=one.write_time.name, misses_writes=False) if one.write_time else ttl_state

    def items(self, state: StateTable) -> tuple[Column, ...]:
        """Return the columns of a state's own table, without the weight: the key, then `item_columns`."""
        return (*self.keys, *state.item_columns)

    def same(self, a: str, b: str) -> Condition:
        """Return the condition that rows of the relations `a` and `b` have equal keys, where NULL equals NULL."""
        return same_keys(self.keys, a, b)


def same_keys(keys: Iterable[Column], a: str, b: str) -> Condition:
    """Return the condition that rows of the relations `a` and `b` have equal keys, where NULL equals NULL."""
    return same_columns(a, b, (k.name for k in keys))


def is_live(state: StateTable, write_time: str, now: str) -> Condition:
    """Return the condition that a value written at `write_time` is not expired for the user at `now`.

    Both are SQL of microseconds of processing time. The condition is always true without a time to live, or if the state is
    declared to show expired values until they are deleted.
    """
    return Condition(f"{write_time} > {now} - {state.ttl}") if state.ttl and not state.state.visible else TRUE


# -- views

_NOW = f"epoch_us({NOW})"


def instant(column: str, plus: Duration = NO_TIME) -> str:
    """Return the SQL of an instant, `plus` later than `column`, SQL of microseconds."""
    return f"make_timestamptz({column} + {plus})"


def key_view(tables: StateTables, keys: tuple[Column, ...], relations: Relations) -> Rows:
    """Return the view of keys: their values, `_updated_at` and, if all values can expire, `_expires_at` of the last one.

    `keys` are the key columns of the result; `relations` read the state tables. If no state has columns in the rows of keys, the
    view shows the keys that have items or timers; for a call without keys it is then empty.
    """
    if not tables.in_row:
        return _known_keys(tables, keys, relations)
    used_names = [key.name for key in keys]
    items = [(key.name, key.type, k.name) for key, k in zip(keys, tables.keys, strict=True)]
    expiries, present = [], []
    for one in tables.in_row:
        assert one.column is not None
        live = is_live(one, f"w{one.number}", _NOW)
        value = f"CASE WHEN {live} THEN {one.column.name} END"
        present.append(f"({value}) IS NOT NULL")
        if one.ttl:
            expiries.append(f"CASE WHEN {one.column.name} IS NOT NULL THEN w{one.number} + {one.ttl} END")
        if one.state.kind == "value":
            items.append((_free(one.state.name, used_names), one.state.type, value))
    items.append((_free(UPDATED_AT, used_names), "TIMESTAMP WITH TIME ZONE", instant(AT.name)))
    if len(expiries) == len(tables.in_row):
        last = expiries[0] if len(expiries) == 1 else f"greatest({', '.join(expiries)})"
        items.append((_free(EXPIRES_AT, used_names), "TIMESTAMP WITH TIME ZONE", instant(f"({last})")))
    rows = subquery(summed(tables.row, relations[KEYS]))
    return Rows.selected(rows, items, Condition(" OR ".join(present)))


def _known_keys(tables: StateTables, keys: tuple[Column, ...], relations: Relations) -> Rows:
    """Return the view of the keys with items or timers, of a function whose states have no columns in the rows of keys."""
    listed = ", ".join(k.name for k in tables.keys)
    stored = [summed(tables.items(s), relations[s.table]) for s in tables.collections if s.table]
    if tables.has_timers:
        stored += [summed(tables.timer_columns, relations[t]) for t in TIME_DOMAINS]
    items = [(key.name, key.type, k.name) for key, k in zip(keys, tables.keys, strict=True)]
    if not stored or not items:
        return Rows(Select("SELECT 0 AS rows WHERE false"), (("rows", "INTEGER"),))
    parts = union_all(Select(f"SELECT {listed} FROM ({rows})") for rows in stored)
    return Rows.selected(Relation(f"(SELECT DISTINCT * FROM ({parts}))"), items)


def more_views(
    tables: StateTables, keys: tuple[Column, ...], emitted: tuple[Column, ...], relations: Relations
) -> Iterator[tuple[str, Rows]]:
    """Yield the views of lists, maps, broadcast states, the result of upserts and timers, with their names.

    `keys` are the key columns of the result, `emitted` its other columns; `relations` read the state tables. A view of a list or
    map has a row per item. Expired items are left out, unless the state is declared to show them.
    """
    key_items = [(key.name, key.type, k.name) for key, k in zip(keys, tables.keys, strict=True)]
    for one in tables.collections:
        used_names = [key.name for key in keys]
        assert one.table is not None
        items = [*key_items]
        if one.state.kind != "value":
            items.append((_free(one.item_key.name, used_names), one.item_key.type, one.item_key.name))
        items.append((_free("value", used_names), one.state.type, ITEM))
        where = TRUE
        if one.ttl:
            where = is_live(one, AT.name, _NOW)
            items.append((_free(UPDATED_AT, used_names), "TIMESTAMP WITH TIME ZONE", instant(AT.name)))
            items.append((_free(EXPIRES_AT, used_names), "TIMESTAMP WITH TIME ZONE", instant(AT.name, one.ttl)))
        rows = subquery(summed(tables.items(one), relations[one.table]))
        yield one.state.name, Rows.selected(rows, items, where)
    if tables.result:
        used_names = [key.name for key in keys]
        own = zip(emitted, tables.result, strict=True)
        items = [*key_items, *((_free(e.name, used_names), e.type, c.name) for e, c in own)]
        rows = subquery(summed((*tables.keys, *tables.result), relations[RESULT]))
        yield RESULT, Rows.selected(rows, items)
    if tables.has_timers:
        used_names = [key.name for key in keys]
        parts = [
            f"SELECT * REPLACE ({DUE.name} - {tables.shift if table == EVENT_TIMERS else 0} AS {DUE.name}), "
            f"{quote_text(domain)} AS _clock FROM ({summed(tables.timer_columns, relations[table])})"
            for table, domain in TIME_DOMAINS.items()
        ]
        items = [
            *key_items,
            (_free("kind", used_names), "VARCHAR", "_clock"),
            (_free("name", used_names), "VARCHAR", f"nullif({TIMER_NAME.name}, '')"),
            (_free("time", used_names), "TIMESTAMP", f"make_timestamp({DUE.name})"),
        ]
        yield "timers", Rows.selected(subquery(union_all(map(Select, parts))), items)


def _free(name: str, used_names: list[str]) -> str:
    """Return the name, with underscores appended until no name in `used_names` equals it in any case, and add it to these."""
    while name.lower() in (other.lower() for other in used_names):
        name = f"{name}_"
    used_names.append(name)
    return name


def listed(columns: Iterable[Column], alias: str = "") -> Items:
    """Return the names of columns, quoted, of the relation with that alias if it is not empty."""
    before = f"{alias}." if alias else ""
    return Items(", ".join(f"{before}{quote_name(c.name)}" for c in columns))
