"""Lookups of single keys in a table, one after the other: for a batch that touches few rows of a large table."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import numpy as np
import pyarrow as pa

from sqlstream.duck.sql import Relation, Select, subquery, typed, union_all
from sqlstream.storage.key_index import KeyIndex, SegmentIndexes, halves
from sqlstream.storage.row_hashes import RowHashes, can_hash
from sqlstream.storage.segments import Segment, scan

# Smaller segments share one index, which is made anew for each batch: they are merged soon.
SMALL_ROWS = 5_000


class PointReads:
    """Lookups of rows in some segments of a table by the hashes of their keys, valid until the batch ends.

    `scanned` is the number of rows in segments whose indexes do not fit into memory: SQL must scan these.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection, segments: Sequence[Segment], indexes: SegmentIndexes):
        self._con, self._columns, self._keys = con, indexes.columns, indexes.keys
        self._indexes: list[KeyIndex] = []
        unindexed: list[Segment] = []
        for segment in (s for s in segments if s.rows >= SMALL_ROWS):
            if (index := indexes.index(con, segment)) is not None:
                self._indexes.append(index)
            else:
                unindexed.append(segment)
        if small := [s for s in segments if s.rows < SMALL_ROWS]:
            self._indexes.append(indexes.build(con, small))
        self._scan = scan(indexes.fs, indexes.directory, indexes.columns, unindexed) if unindexed else None
        self.scanned = sum(s.rows for s in unindexed)

    def takes(self, types: Sequence[pa.DataType]) -> bool:
        """Return whether `find` can look up keys of these Arrow types: the stored types are the same, and can be hashed."""
        if not all(map(can_hash, types)):
            return False
        return all([i.schema.field(key).type for key in self._keys] == list(types) for i in self._indexes)

    def find(self, hashes: RowHashes) -> list[pa.Table]:
        """Return stored rows, one table per index: rows whose keys have the hashes, but for scanned ones, and maybe others."""
        distinct = np.unique(halves(hashes))
        return [index.find(distinct) for index in self._indexes if index.has(distinct)]

    def relation(self, rows: Sequence[pa.Table]) -> Relation | None:
        """Return `rows`, and all rows that are scanned; None if there are none.

        It is valid until the next call.
        """
        selects = [self._scan] if self._scan else []
        if rows:
            self._con.register("_point_rows", pa.concat_tables(rows, promote_options="permissive"))
            selects.append(Select(f"SELECT {typed(self._columns)} FROM _point_rows"))
        return subquery(union_all(selects)) if selects else None
