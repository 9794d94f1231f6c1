"""Where the items of a list or map are stored, and how they become Python objects."""

from __future__ import annotations

from typing import Any

from sqlstream.catalog import Column
from sqlstream.duck.sql import Condition, Relation
from sqlstream.functions import types
from sqlstream.operators.process.arrivals import TOUCHED
from sqlstream.operators.process.batch import BucketBatch
from sqlstream.operators.process.tables import AT, StateTable, StateTables, is_live


class StoredItems:
    """The items of a list or map state, or of a broadcast value, for the keys of a batch in the temporary table `touched`.

    An item has an *item key* in its key's collection: its position in a list, or its key in a map. `hints` are Python types: of
    the values; for a map, of its keys and of its values.
    """

    def __init__(
        self,
        batch: BucketBatch,
        tables: StateTables,
        one: StateTable,
        hints: tuple[Any, ...],
        touched: Relation = TOUCHED,
    ):
        assert one.table is not None
        self.con, self.state, self.times = batch.con, batch.state, batch.times
        self.batch, self.tables, self.one, self.touched = batch, tables, one, touched
        self.table: str = one.table
        self.item_key_codec = types.codec(one.item_key.type, hints[0] if one.state.kind == "map" else None)
        self.item_codec = types.codec(one.state.type, hints[-1])
        self.columns: tuple[Column, ...] = tables.items(one)
        self.item_columns = one.item_columns

    def rows_of(self, touched: Relation) -> Relation | None:
        """Return stored rows of the keys in a temporary table; there can be rows of other keys, too."""
        return self.state.candidates(self.con, self.table, self.tables.key_names, touched)

    def is_live(self, alias: str = "") -> Condition:
        """Return the condition that a stored item, in a row of the relation with that alias, has not expired."""
        return is_live(self.one, f"{alias}.{AT.name}" if alias else AT.name, str(self.times.time))
