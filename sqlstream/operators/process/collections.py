"""Lists and maps in keyed state: loaded when read, small ones for a range of keys at once, and stored item by item."""

from __future__ import annotations

from collections import abc
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sqlstream.duck.sql import Condition, Items, Relation, Select, quote_name, rows_where, subquery, typed, union_all
from sqlstream.functions.codecs import decoded
from sqlstream.functions.process.shapes import encoded_values
from sqlstream.functions.process.states import REMOVED, ListState, MapState, not_found
from sqlstream.operators.process.arrivals import NUMBER, TOUCHED
from sqlstream.operators.process.batch import BucketBatch
from sqlstream.operators.process.items import StoredItems
from sqlstream.operators.process.large_keys import LargeKeys
from sqlstream.operators.process.tables import AT, ITEM, StateTable, StateTables, listed
from sqlstream.operators.scratch import keep, keep_and_count
from sqlstream.storage.bucket import EXPIRED, WEIGHTS
from sqlstream.storage.zsets import WEIGHT, WEIGHT_COLUMN, summed

# About how many items, of a range of keys, are converted to Python objects at a time.
STRETCH = 50_000


class Collection(StoredItems):
    """The items of a list or map state: loaded when a key of the batch reads them, and stored together if they change."""

    def __init__(
        self,
        batch: BucketBatch,
        tables: StateTables,
        one: StateTable,
        hints: tuple[Any, ...],
        touched: Relation = TOUCHED,
    ):
        super().__init__(batch, tables, one, hints, touched)
        self.large = LargeKeys(self)
        # The temporary table of the stored items of all keys that are not large; None: there are none.
        self._loaded: Relation | None = None
        self._is_loaded = False
        # The items of the keys from number `_from` up to `_until`; the items of one key lie between two bounds.
        self._stored_item_keys: list[Any] = []
        self._stored_items: list[Any] = []
        self._bounds: list[int] = []
        self._from = self._until = 0
        # How many keys have about STRETCH items.
        self._keys = 1
        # The numbers of cleared keys; and of the items that are put, the numbers of the keys, the item keys, and the items.
        self.cleared: list[int] = []
        self.numbers: list[int] = []
        self.item_keys: list[Any] = []
        self.items: list[Any] = []
        self._writing: list[int] = []

    # -- reading

    def stored(self, number: int) -> tuple[list[Any], list[Any]]:
        """Return the stored item keys and items of the key with this number. Call it in the order of the numbers."""
        if number in self.large.rows:
            return self.large.items(number)
        if not self._is_loaded:
            self._load()
        if self._loaded is None:
            return [], []
        if number >= self._until:
            self._fetch(number)
        begin, end = self._bounds[number - self._from : number - self._from + 2]
        return self._stored_item_keys[begin:end], self._stored_items[begin:end]

    def _load(self) -> None:
        """Make a temporary table of the stored items of all keys of the batch that are not large."""
        self._is_loaded = True
        touched = self.large.others()
        rows = touched and self.rows_of(touched)
        if not rows:
            return
        own = ", ".join([f"t.{NUMBER}", listed(self.item_columns, "s")])
        total = f"CAST(sum(s.{WEIGHT}) AS BIGINT)"
        items = (
            f"SELECT {own}, {total} AS {WEIGHT} FROM {rows} s JOIN {touched} t ON {self.tables.same('s', 't')} "
            f"GROUP BY {own} HAVING sum(s.{WEIGHT}) <> 0 ORDER BY t.{NUMBER}"
        )
        self._loaded, size = keep_and_count(self.con, f"_items_{self.one.number}", Select(items))
        [(keys,)] = self.con.execute(f"SELECT max({NUMBER}) + 1 FROM {touched}").fetchall()
        self._keys = max(1, STRETCH * keys // max(size, STRETCH))

    def entry(self, number: int, item_key: Any) -> dict[Any, Any] | None:
        """Return entries of a large map, among them the one at `item_key` if it exists; None: read all of them with `stored`."""
        return self.large.entry(number, item_key) if number in self.large.rows else None

    def _fetch(self, number: int) -> None:
        """Convert the items of a range of keys, from `number` on, to Python objects."""
        self._from, self._until = number, number + self._keys
        rows = self.con.sql(
            f"SELECT {NUMBER}, {self.one.item_key.name}, {ITEM} FROM {self._loaded} WHERE {NUMBER} >= {number} "
            f"AND {NUMBER} < {self._until} AND {self.is_live()} ORDER BY {NUMBER}, {self.one.item_key.name}"
        ).to_arrow_table()
        self._stored_item_keys = decoded(self.item_key_codec, rows.column(1))
        self._stored_items = decoded(self.item_codec, rows.column(2))
        every = np.arange(number, self._until + 1)
        self._bounds = np.searchsorted(rows.column(0).to_numpy(), every).tolist()

    # -- changing

    def put(self, number: int, item_keys: abc.Collection[Any], items: abc.Iterable[Any]) -> None:
        """Set items of the key with this number, at these item keys, to be stored by `store`; REMOVED deletes an item."""
        self.numbers += [number] * len(item_keys)
        self.item_keys += item_keys
        self.items += items

    def number_of(self, item_key: int) -> int:
        """Return the number of the key of an item by its index among the items being stored: the `number` of a RowMismatch."""
        return self._writing[item_key]

    def store(self) -> None:
        """Store the cleared keys and the items that were put. Raises RowMismatch for a value of another type."""
        if self.cleared or (self.numbers and self.one.state.kind != "list"):
            self._take_away()
        is_there = [item is not REMOVED for item in self.items]
        self._writing = list(compress(self.numbers, is_there))
        if not self._writing:
            return
        what, item_key = f'state "{self.one.state.name}"', self.one.item_key
        columns = {
            NUMBER: pa.array(self._writing, pa.int64()),
            item_key.name: encoded_values(
                what, item_key.type, self.item_key_codec, list(compress(self.item_keys, is_there))
            ),
            ITEM: encoded_values(what, self.one.state.type, self.item_codec, list(compress(self.items, is_there))),
        }
        self.con.register("_items", pa.table(columns))
        at = f", {self.times.time}::BIGINT AS {AT.name}" if self.one.ttl else ""
        own = typed(self.item_columns[:2])
        keys = "".join(f"{quote_name(k.name)}, " for k in self.tables.keys)
        items = f"{keys}{own}{at}, 1::BIGINT AS {WEIGHT}"
        self._append(Select(f"SELECT {items} FROM _items JOIN {self.touched} USING ({NUMBER})"))

    def _take_away(self) -> None:
        """Delete the stored items of cleared keys, and those that other items replace."""
        if not self.state.segments(self.table):
            return
        if parts := [*self._cleared(), *self._replaced()]:
            self._append(_negated(summed(self.columns, subquery(union_all(parts)))))

    def _stored_columns(self, keys: str) -> Items:
        """Return the columns of a stored row: the key columns of the relation `keys`, then the other columns of `s`."""
        items = [f"{keys}.{quote_name(k.name)}" for k in self.tables.keys]
        return Items(", ".join([*items, listed(self.item_columns, "s"), f"s.{WEIGHT}"]))

    def _cleared(self) -> Iterator[Select]:
        """Yield the stored items of cleared keys."""
        if not self.cleared:
            return
        is_far = self._are_far(self.cleared)
        self.con.register("_cleared", pa.table({NUMBER: pa.array(self.cleared, pa.int64()), "is_far": is_far}))
        columns = self._stored_columns("t")
        if self._loaded and not is_far.all():
            own = f"{self._loaded} s JOIN {self.touched} t USING ({NUMBER})"
            yield Select(f"SELECT {columns} FROM {own} SEMI JOIN _cleared c ON c.{NUMBER} = t.{NUMBER}")
        if is_far.any():
            far = f"(SELECT {NUMBER} FROM _cleared WHERE is_far)"
            far_keys = Select(f"SELECT * FROM {self.touched} SEMI JOIN {far} USING ({NUMBER})")
            keys = keep(self.con, "_cleared_keys", far_keys)
            if rows := self.rows_of(keys):
                yield Select(f"SELECT {columns} FROM {rows} s JOIN {keys} t ON {self.tables.same('s', 't')}")

    def _replaced(self) -> Iterator[Select]:
        """Yield the stored items that other items replace."""
        gone = set(self.cleared)
        is_put = [number not in gone for number in self.numbers]
        if self.one.state.kind == "list" or not any(is_put):
            return
        what, item_key = f'a key of state "{self.one.state.name}"', self.one.item_key
        self._writing = list(compress(self.numbers, is_put))
        item_keys = encoded_values(what, item_key.type, self.item_key_codec, list(compress(self.item_keys, is_put)))
        is_far = self._are_far(self._writing)
        numbers = pa.array(self._writing, pa.int64())
        self.con.register("_given", pa.table({NUMBER: numbers, "place": item_keys, "is_far": is_far}))
        put = f"SELECT {NUMBER}, CAST(place AS {item_key.type}) AS {item_key.name} FROM _given WHERE"
        same = f"c.{item_key.name} IS NOT DISTINCT FROM s.{item_key.name}"
        if self._loaded and not is_far.all():
            columns, own = self._stored_columns("t"), f"{self._loaded} s JOIN {self.touched} t USING ({NUMBER})"
            on = f"c.{NUMBER} = t.{NUMBER} AND {same}"
            yield Select(f"SELECT {columns} FROM {own} SEMI JOIN ({put} NOT is_far) c ON {on}")
        if is_far.any():
            far = Select(f"SELECT * FROM {self.touched} JOIN ({put} is_far) USING ({NUMBER})")
            far_item_keys, count = keep_and_count(self.con, "_given_places", far)
            if rows := self.large.rows_at(far_item_keys, count):
                on = f"{self.tables.same('s', 'c')} AND {same}"
                yield Select(f"SELECT {self._stored_columns('s')} FROM {rows} s SEMI JOIN {far_item_keys} c ON {on}")

    def _are_far(self, numbers: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Return for each key whether its items are missing in the temporary table of loaded items."""
        if not self._is_loaded:
            return np.ones(len(numbers), dtype=bool)
        large = list(self.large.rows)
        return np.isin(numbers, large) if large else np.zeros(len(numbers), dtype=bool)

    def _append(self, sql: Select) -> None:
        self.batch.change(self.table, self.batch.selected((*self.columns, WEIGHT_COLUMN), sql))

    def sweep(self) -> None:
        """Delete the expired items of the whole bucket, and count them as EXPIRED."""
        rows = self.state.relation(self.table) if self.one.ttl else None
        if rows is None:
            return
        past = rows_where(rows, Condition(f"{AT.name} <= {self.times.time - self.one.ttl}"))
        before = self.state.counters.get(WEIGHTS, 0)
        self._append(_negated(summed(self.columns, past)))
        self.state.count(EXPIRED, before - self.state.counters.get(WEIGHTS, 0))


def _negated(rows: Select) -> Select:
    """Return rows with their weights negated."""
    return Select(f"SELECT * REPLACE (-{WEIGHT} AS {WEIGHT}) FROM ({rows})")


class KeyCollection:
    """Connects the handle of a list or map state, which the user's code sees, to the items of the current key."""

    def __init__(self, collection: Collection, handle: ListState[Any] | MapState[Any, Any]):
        self.collection, self.handle = collection, handle
        self.refreshes = collection.one.ttl > 0 and collection.one.state.refreshed_by == "read"
        self.number = 0
        if isinstance(handle, ListState):
            handle.load = self._items
        else:
            handle.load, handle.find = self._entries, self._entry
            handle.read_keys = {} if self.refreshes else None

    def _items(self) -> list[Any]:
        _, items = self.collection.stored(self.number)
        return items

    def _entries(self) -> dict[Any, Any]:
        item_keys, items = self.collection.stored(self.number)
        return dict(zip(item_keys, items, strict=True))

    def _entry(self, item_key: Any) -> dict[Any, Any] | None:
        assert isinstance(self.handle, MapState)
        if not self.collection.large.rows:
            # Keys without large maps do not pay for them.
            self.handle.find = not_found
            return None
        return self.collection.entry(self.number, item_key)

    def enter(self, number: int) -> None:
        """Reset the handle for the key with this number; nothing is loaded yet."""
        self.number = number
        handle = self.handle
        handle.stored = None
        handle.is_cleared = handle.is_read = False
        if isinstance(handle, MapState):
            if handle.changed:
                handle.changed = {}
            if handle.read_keys:
                handle.read_keys = {}
        elif handle.added:
            handle.added = []

    def leave(self, length: int) -> int | None:
        """Add the handle's changes to the collection; `length` is the stored length of a list, 0 for a map.

        Return the new length of a list; None for a map, and for a list that has not changed.
        """
        handle, number = self.handle, self.number
        if self.refreshes:
            self._write_again()
        if handle.is_cleared:
            self.collection.cleared.append(number)
            length = 0
        if isinstance(handle, MapState):
            if handle.changed:
                self.collection.put(number, handle.changed, handle.changed.values())
            return None
        added = handle.added
        if added:
            self.collection.put(number, range(length, length + len(added)), added)
        return length + len(added) if added or handle.is_cleared else None

    def _write_again(self) -> None:
        """Write again what was read, so that its time to live starts anew."""
        handle = self.handle
        if isinstance(handle, ListState):
            if handle.is_read:
                handle.set(handle.get())
        elif handle.is_read:
            entries = handle.get_all()
            handle.clear()
            handle.update(entries)
        else:
            read = {key: handle.get(key, REMOVED) for key in handle.read_keys or () if key not in handle.changed}
            handle.update({key: value for key, value in read.items() if value is not REMOVED})
