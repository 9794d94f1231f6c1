"""Large lists and maps: one that is read as a whole is loaded by itself, and single entries of a map are read alone."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from sqlstream.duck.sql import Relation, Select
from sqlstream.duck.types import is_changed
from sqlstream.functions.codecs import decoded
from sqlstream.functions.process.shapes import RowMismatch, encoded_values
from sqlstream.operators.process.arrivals import NUMBER
from sqlstream.operators.process.items import StoredItems
from sqlstream.operators.process.tables import AT, ITEM, listed
from sqlstream.operators.scratch import keep, keep_and_count
from sqlstream.storage.key_index import KEY_ROWS, has_large
from sqlstream.storage.point_reads import PointReads
from sqlstream.storage.row_hashes import RowHashes, can_hash, hashed_rows
from sqlstream.storage.zsets import WEIGHT

# A list or map is large if a segment has more rows of it.
LARGE = 5_000
# The cost of reading one entry alone, in entries that are read together: by an index; by SQL, plus one per SCANNED rows to scan.
ENTRIES, BY_SQL, SCANNED = 800, 10_000, 20
# How many rows of large lists and maps are loaded together at most, unless one alone has more.
MOST_TOGETHER = 200_000
# With more stored rows for one entry, SQL sums them up.
MOST_ROWS = 50


class LargeKeys:
    """The keys of a batch with many items in a collection. The items of all other keys are loaded together."""

    def __init__(self, items: StoredItems):
        self._of = items
        self._name = f"_large_{items.one.number}"
        # The columns that identify an item among the items of all keys.
        self._columns = (*items.tables.keys, items.one.item_key)
        # The item keys and items of keys that are loaded, and how many rows were loaded so far.
        self._loaded: dict[int, tuple[list[Any], list[Any]]] = {}
        self._read = 0
        # The key whose entries were read alone last; the item keys that were read, and the entries that exist.
        self._number = -1
        self._read_item_keys: set[Any] = set()
        self._entries: dict[Any, Any] = {}

    @cached_property
    def rows(self) -> dict[int, int]:
        """About how many rows each large key has in state, by its number."""
        of = self._of
        counted = of.state.large_keys(of.con, of.table, of.tables.key_names, LARGE)
        if counted is None:
            return {}
        total = f"CAST(sum(l.{KEY_ROWS.name}) AS BIGINT) AS {KEY_ROWS.name}"
        joined = f"{of.touched} t JOIN {counted} l ON {of.tables.same('t', 'l')}"
        _, count = keep_and_count(of.con, self._name, Select(f"SELECT t.*, {total} FROM {joined} GROUP BY ALL"))
        if not count:
            return {}
        self._keys = of.con.sql(f"SELECT * FROM {self._name}").to_arrow_table()
        return dict(zip(*(self._keys.column(c).to_pylist() for c in (NUMBER, KEY_ROWS.name)), strict=True))

    def others(self) -> Relation | None:
        """Return a temporary table of the keys of the batch that are not large, None if all are."""
        if not self.rows:
            return self._of.touched
        sql = Select(f"SELECT * FROM {self._of.touched} ANTI JOIN {self._name} USING ({NUMBER})")
        keys, count = keep_and_count(self._of.con, f"_not{self._name}", sql)
        return keys if count else None

    def items(self, number: int) -> tuple[list[Any], list[Any]]:
        """Return the item keys and items of one large key. Call it in the order of the keys' numbers."""
        if number not in self._loaded:
            self._load(self._together(number))
        return self._loaded.pop(number)

    def _together(self, number: int) -> list[int]:
        """Return `number` and keys to load with it: as many rows as were loaded before, since keys seem to be read whole."""
        numbers, room = [number], min(self._read, MOST_TOGETHER)
        for other in islice(self._order, bisect_right(self._order, number), None):
            if room <= LARGE:
                break
            if self.rows[other] <= room:
                numbers.append(other)
                room -= self.rows[other]
        return numbers

    @cached_property
    def _order(self) -> list[int]:
        return sorted(self.rows)

    def _load(self, numbers: list[int]) -> None:
        of, item_key = self._of, self._of.one.item_key.name
        self._read += sum(self.rows[number] for number in numbers)
        some = f"SELECT * FROM {self._name} WHERE {NUMBER} IN ({', '.join(map(str, numbers))})"
        keys = keep(of.con, f"_some{self._name}", Select(some))
        rows = of.rows_of(keys)
        live, own = of.is_live("s"), listed(of.item_columns, "s")
        table = of.con.sql(
            f"SELECT t.{NUMBER}, s.{item_key}, s.{ITEM} FROM {rows} s JOIN {keys} t ON {of.tables.same('s', 't')} WHERE {live} "
            f"GROUP BY t.{NUMBER}, {own} HAVING sum(s.{WEIGHT}) <> 0 ORDER BY t.{NUMBER}, s.{item_key}"
        ).to_arrow_table()
        item_keys, items = decoded(of.item_key_codec, table.column(1)), decoded(of.item_codec, table.column(2))
        begins = np.searchsorted(table.column(0).to_numpy(), numbers, "left").tolist()
        ends = [*begins[1:], len(item_keys)]
        self._loaded = {n: (item_keys[b:e], items[b:e]) for n, b, e in zip(numbers, begins, ends, strict=True)}

    # -- single entries

    def entry(self, number: int, item_key: Any) -> dict[Any, Any] | None:
        """Return entries of a large map, with the one at `item_key` if it exists; None if reading all of them costs less."""
        if number != self._number:
            self._number, self._read_item_keys, self._entries = number, set(), {}
        if item_key in self._read_item_keys:
            return self._entries
        if number in self._loaded or not self._has_points or len(self._read_item_keys) * self._cost > self.rows[number]:
            return None
        if (item_keys := self._item_keys(item_key)) is None:
            return None
        self._read_item_keys.add(item_key)
        tables = self._reads.find(hashed_rows([item_keys], 1, self._key_hashes[number]))
        if tables or self._reads.scanned:
            one = None if self._reads.scanned else self._only(number, item_key, item_keys, tables)
            self._entries |= self._by_sql(number, item_keys, tables) if one is None else one
        return self._entries

    @property
    def _cost(self) -> int:
        """The cost of reading one entry alone, in entries that are read together."""
        return BY_SQL + self._reads.scanned // SCANNED if self._reads.scanned else ENTRIES

    @cached_property
    def _has_points(self) -> bool:
        """Whether entries can be found by hashes of key and item key."""
        types = [self._keys.column(name).type for name in self._of.tables.key_names]
        types.append(self._of.item_key_codec.arrow)
        return self._is_hashed(types) and self._reads.takes(types)

    def _is_hashed(self, types: Sequence[pa.DataType]) -> bool:
        return all(map(can_hash, types)) and not any(is_changed(c.type) for c in self._columns)

    @cached_property
    def _reads(self) -> PointReads:
        of = self._of
        return of.state.point_reads(of.con, of.table, [c.name for c in self._columns])

    @cached_property
    def _key_values(self) -> dict[int, list[Any]]:
        rows = self._keys.select([NUMBER, *self._of.tables.key_names]).to_pylist()
        return {number: key for number, *key in (row.values() for row in rows)}

    @cached_property
    def _key_hashes(self) -> dict[int, RowHashes]:
        columns = [self._keys.column(name) for name in self._of.tables.key_names]
        hashes = hashed_rows(columns, self._keys.num_rows)
        return {number: hashes[i : i + 1] for i, number in enumerate(self._keys.column(NUMBER).to_pylist())}

    def _item_keys(self, item_key: Any) -> pa.Array | None:
        """Return an item key as an Arrow array; None if it has another type, or equals a stored one of another form."""
        of = self._of
        try:
            item_keys = encoded_values("", of.one.item_key.type, of.item_key_codec, [item_key])
        except RowMismatch:
            return None
        [same] = decoded(of.item_key_codec, pa.chunked_array([item_keys]))
        return item_keys if type(same) is type(item_key) and same == item_key else None

    def _only(self, number: int, item_key: Any, item_keys: pa.Array, tables: list[pa.Table]) -> dict[Any, Any] | None:
        """Return the entry that the rows of `tables` add up to, empty if it does not exist; None if only SQL can tell."""
        of = self._of
        rows = tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="permissive")
        items, own = rows.column(ITEM), [*of.tables.key_names, of.one.item_key.name]
        if items.type != of.item_codec.arrow or rows.num_rows > MOST_ROWS:
            return None
        try:
            key_values = [*self._key_values[number], *item_keys.to_pylist()]
            if any(list(row.values()) != key_values for row in rows.select(own).to_pylist()):
                # Another entry has the same hash.
                return None
            weights: dict[str, int] = {}
            values = [repr(row) for row in rows.drop_columns([*own, WEIGHT]).to_pylist()]
        except (OverflowError, ValueError):
            return None
        for value, weight in zip(values, rows.column(WEIGHT).to_pylist(), strict=True):
            weights[value] = weights.get(value, 0) + weight
        there = [value for value, weight in weights.items() if weight]
        if not there:
            return {}
        if len(there) > 1 or weights[there[0]] != 1:
            return None
        at = values.index(there[0])
        if not of.one.state.visible and of.one.ttl and rows.column(AT.name)[at].as_py() <= of.times.time - of.one.ttl:
            return {}
        return {item_key: decoded(of.item_codec, items.slice(at, 1))[0]}

    def _by_sql(self, number: int, item_keys: pa.Array, tables: list[pa.Table]) -> dict[Any, Any]:
        """Return the entry that the rows of `tables` add up to, together with rows of segments without an index."""
        of, column = self._of, self._of.one.item_key
        of.con.register("_place", pa.table({"place": item_keys}))
        one = f"SELECT l.*, CAST(place AS {column.type}) AS {column.name} FROM {self._name} l, _place"
        same = f"{of.tables.same('s', 't')} AND s.{column.name} IS NOT DISTINCT FROM t.{column.name}"
        live, own = of.is_live("s"), listed(of.item_columns, "s")
        entries = of.con.sql(
            f"SELECT s.{column.name}, s.{ITEM} FROM {self._reads.relation(tables)} s "
            f"SEMI JOIN ({one} WHERE {NUMBER} = {number}) t ON {same} WHERE {live} GROUP BY {own} HAVING sum(s.{WEIGHT}) <> 0"
        ).to_arrow_table()
        return dict(
            zip(decoded(of.item_key_codec, entries.column(0)), decoded(of.item_codec, entries.column(1)), strict=True)
        )

    def rows_at(self, item_keys: Relation, count: int) -> Relation | None:
        """Return stored rows: all rows with a key and item key of the temporary table `item_keys`, and possibly others.

        `count` is the number of rows of that table. None: nothing is stored.
        """
        of, names = self._of, [c.name for c in self._columns]
        if "_reads" in vars(self) or has_large(of.state.segments(of.table), count):
            table = of.con.sql(f"SELECT {listed(self._columns)} FROM {item_keys}").to_arrow_table()
            if self._is_hashed(table.schema.types) and self._reads.takes(table.schema.types):
                return self._reads.relation(self._reads.find(hashed_rows(table.columns, table.num_rows)))
        return of.state.candidates(of.con, of.table, names, item_keys)
