"""In-memory indexes of large segments, which find the rows of few keys without reading the segment.

Reading a segment costs as much as it holds, however few rows are wanted. When a process looks up few keys in a large segment for
the second time, it keeps the segment's rows, and the positions of each key hash; from then on a lookup costs as much as it finds.
Segments never change, so an index never becomes wrong, and nothing of it is stored.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeAlias

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sqlstream.catalog import Column
from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import Relation, names, quote_name, quote_text
from sqlstream.storage.row_hashes import RowHashes, hashed_rows
from sqlstream.storage.segments import Segment, read_parquet
from sqlstream.warehouse.filesystem import Filesystem

# A smaller segment is read as fast as an index answers; so is one of which more than one row in FEW is wanted.
LARGE_ROWS = 200_000
FEW = 50
# An index that is unused for so long makes way for another one.
UNUSED_SECONDS = 600
# An index of a small segment goes in any case, and sooner: its segment is mostly merged by then, and each batch brings another
# one. In ten minutes a job of a few batches a second left thousands behind, of 20 KB and more each.
SMALL_UNUSED_SECONDS = 60
# How many rows a key has.
KEY_ROWS = Column(internal("rows"), "BIGINT")

Hashes: TypeAlias = npt.NDArray[np.uint32]


class KeyIndex:
    """The rows of a segment as they are stored, and the positions of the rows of each key hash."""

    def __init__(self, hashes: Hashes, rows: pa.Table):
        order = np.argsort(hashes)
        self.schema = rows.schema
        self._hashes, self._positions = hashes[order], order.astype(np.uint32)
        self._names = rows.column_names
        # Columns that hold one value, as weights mostly do, are kept as that; one column must say how many rows there are.
        constants = [(name, _constant(rows.column(name))) for name in self._names[1:]]
        self._constants = {name: value for name, value in constants if value is not None}
        self._rows = rows.drop_columns(list(self._constants)).combine_chunks()
        self.bytes = self._hashes.nbytes + self._positions.nbytes + self._rows.nbytes
        self.used = time.monotonic()

    @property
    def is_small(self) -> bool:
        """Whether its segment has fewer than LARGE_ROWS rows."""
        return len(self._hashes) < LARGE_ROWS

    def has(self, hashes: Hashes) -> bool:
        """Return whether a row's key has one of the hashes."""
        self.used = time.monotonic()
        positions = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        return bool((self._hashes[positions] == hashes).any())

    def find(self, hashes: Hashes) -> pa.Table:
        """Return the rows whose keys have one of the hashes, which must be distinct. Other keys can have the same hash."""
        self.used = time.monotonic()
        begins = np.searchsorted(self._hashes, hashes, "left")
        counts = np.searchsorted(self._hashes, hashes, "right") - begins
        # Of each hash the positions from its begin on, one after the other.
        starts = np.repeat(begins - np.cumsum(counts) + counts, counts)
        rows = self._rows.take(pa.array(self._positions[starts + np.arange(len(starts))]))
        for name, value in self._constants.items():
            rows = rows.append_column(name, pa.repeat(value, len(starts)))
        return rows.select(self._names)


def _constant(values: pa.ChunkedArray) -> pa.Scalar | None:
    """Return the value of an integer column that holds only one, else None."""
    if not pa.types.is_integer(values.type) or values.null_count:
        return None
    bounds = pc.min_max(values)
    return bounds["min"] if bounds["min"] == bounds["max"] else None


# The indexes of this process, and the sizes of the indexes to build when their segments are read again.
_Name: TypeAlias = tuple[str, tuple[str, ...]]
_indexes: dict[_Name, KeyIndex] = {}
_sizes: dict[_Name, int] = {}
_MOST_SIZES = 1_000
# Keys with many rows in a segment, by path, key columns, and the number of rows that they exceed.
_large_keys: dict[tuple[str, tuple[str, ...], int], pa.Table] = {}
_MOST_COUNTED = 10_000
_lock = Lock()
# When unused indexes were last dropped.
_looked_at = float("-inf")


def has_large(segments: Sequence[Segment], count: int = 0) -> bool:
    """Return whether some segment is large enough to look up `count` keys by an index."""
    return any(s.rows >= max(LARGE_ROWS, FEW * count) for s in segments)


class KeyLookup:
    """A lookup of the keys in the temporary table `touched`: their `count`, and `equals`, the SQL operator that compares them."""

    def __init__(
        self, con: duckdb.DuckDBPyConnection, columns: Sequence[Column], keys: Sequence[str], touched: Relation
    ):
        self._con, self._touched, self._hash = con, touched, key_hash(columns, keys)
        not_null = " AND ".join(f"{quote_name(key)} IS NOT NULL" for key in keys)
        [(self.count, has_all)] = con.execute(
            f"SELECT count(*), coalesce(bool_and({not_null}), true) FROM {touched}"
        ).fetchall()
        # By an equality, DuckDB leaves rows out where it reads them.
        self.equals = "=" if has_all else "IS NOT DISTINCT FROM"

    def find(self, indexes: Sequence[KeyIndex]) -> list[pa.Table]:
        """Return stored rows, one table per index: all rows with the keys, and maybe some of other keys."""
        if not indexes:
            return []
        hashes = self._con.sql(f"SELECT {self._hash} FROM {self._touched}").to_arrow_table().column(0)
        distinct = np.unique(halves(hashes.to_numpy()))
        return [index.find(distinct) for index in indexes]


def key_hash(columns: Sequence[Column], keys: Sequence[str]) -> str:
    """Return the SQL of the hash of keys, which depends on their values and not on how they are stored."""
    types = {c.name: c.type for c in columns}
    return f"hash({', '.join(f'CAST({quote_name(key)} AS {types[key]})' for key in keys)})"


@dataclass(frozen=True, slots=True)
class SegmentIndexes:
    """The indexes of a table's segments in a directory, by `keys`; all indexes of the process may take `memory` bytes.

    With `points`, they use the hashes of `row_hashes.py`: looking up a key needs no query.
    """

    fs: Filesystem
    directory: str
    columns: Sequence[Column]
    keys: tuple[str, ...]
    memory: int
    points: bool = False

    def split(
        self, con: duckdb.DuckDBPyConnection, segments: Sequence[Segment], count: int
    ) -> tuple[list[KeyIndex], list[Segment]]:
        """Return the indexes for a lookup of `count` keys, and the segments to read: not large, or without an index.

        A large segment gets its index at the second lookup, if memory allows.
        """
        indexes: list[KeyIndex] = []
        others: list[Segment] = []
        for segment in segments:
            large = segment.rows >= max(LARGE_ROWS, FEW * count)
            if large and (index := self._index(con, segment)) is not None:
                indexes.append(index)
            else:
                others.append(segment)
        return indexes, others

    def index(self, con: duckdb.DuckDBPyConnection, segment: Segment) -> KeyIndex | None:
        """Return the index of a segment, and build it if there is none; None if memory does not allow that."""
        name = self._name(segment)
        if (index := _indexes.get(name)) is not None:
            return index
        if not _has_room(_sizes.get(name) or self._size(con, segment), self.memory):
            return None
        index = self.build(con, [segment])
        with _lock:
            _indexes[name] = index
        return index

    def is_known(self, segment: Segment) -> bool:
        """Return whether the process has an index of a segment."""
        return self._name(segment) in _indexes

    def _name(self, segment: Segment) -> _Name:
        return f"{self.directory}/{segment.name}", ("points", *self.keys) if self.points else self.keys

    def _index(self, con: duckdb.DuckDBPyConnection, segment: Segment) -> KeyIndex | None:
        """Return the index of a segment, from the second call on, if memory allows; else None."""
        name = self._name(segment)
        if name in _indexes or name in _sizes:
            return self.index(con, segment)
        _sizes[name] = self._size(con, segment)
        while len(_sizes) > _MOST_SIZES:
            _sizes.pop(next(iter(_sizes)), None)
        return None

    def build(self, con: duckdb.DuckDBPyConnection, segments: Sequence[Segment]) -> KeyIndex:
        """Build an index of the rows of one or more segments, which the process does not cache."""
        source = read_parquet(self.fs, self.directory, segments)
        if self.points:
            rows = con.sql(f"SELECT {names(self.columns)} FROM {source}").to_arrow_table().combine_chunks()
            return KeyIndex(halves(hashed_rows([rows.column(key) for key in self.keys], rows.num_rows)), rows)
        sql = f"SELECT {key_hash(self.columns, self.keys)}, {names(self.columns)} FROM {source}"
        rows = con.sql(sql).to_arrow_table()
        return KeyIndex(halves(rows.column(0).to_numpy()), rows.select(range(1, rows.num_columns)))

    def large_keys(self, con: duckdb.DuckDBPyConnection, segment: Segment, most: int) -> pa.Table:
        """Return the keys that have more than `most` rows in a segment, as they are stored, with KEY_ROWS.

        A process counts the rows of a segment once.
        """
        name = (f"{self.directory}/{segment.name}", self.keys, most)
        if (counts := _large_keys.get(name)) is None:
            source = read_parquet(self.fs, self.directory, [segment])
            items = ", ".join([*map(quote_name, self.keys), f"count(*) AS {KEY_ROWS.name}"])
            sql = f"SELECT {items} FROM {source} GROUP BY ALL HAVING count(*) > {most}"
            counts = _large_keys[name] = con.sql(sql).to_arrow_table()
            while len(_large_keys) > _MOST_COUNTED:
                _large_keys.pop(next(iter(_large_keys)), None)
        return counts

    def _size(self, con: duckdb.DuckDBPyConnection, segment: Segment) -> int:
        """Return the approximate size in bytes of the index of a segment."""
        path = quote_text(self.fs.path_for_duckdb(f"{self.directory}/{segment.name}"))
        [(rows,)] = con.execute(f"SELECT sum(total_uncompressed_size) FROM parquet_metadata({path})").fetchall()
        return int(rows) + 2 * np.dtype(np.uint32).itemsize * segment.rows


def halves(hashes: RowHashes) -> Hashes:
    """Return the upper 32 bits of hashes: few other keys share them."""
    return (hashes >> np.uint64(32)).astype(np.uint32)


def _has_room(size: int, memory: int) -> bool:
    """Return whether the indexes of this process may take `size` more bytes; drop unused ones if that makes room."""
    with _lock:
        _forget_small()
        total = size + sum(index.bytes for index in _indexes.values())
        # There may be thousands, of which most stay.
        for name, index in sorted(_indexes.items(), key=lambda item: item[1].used) if total > memory else ():
            if total > memory and index.used < time.monotonic() - UNUSED_SECONDS:
                del _indexes[name]
                total -= index.bytes
        return bool(total <= memory)


def _forget_small() -> None:
    """Drop unused indexes of small segments, every now and then."""
    global _looked_at
    moment = time.monotonic()
    if moment - _looked_at < SMALL_UNUSED_SECONDS / 10:
        return
    _looked_at = moment
    for name, index in list(_indexes.items()):
        if index.is_small and index.used < moment - SMALL_UNUSED_SECONDS:
            del _indexes[name]


def forget_indexes(under: str = "") -> None:
    """Drop the indexes of segments whose paths start with `under`."""
    with _lock:
        caches: tuple[dict[Any, Any], ...] = (_indexes, _sizes, _large_keys)
        for cache in caches:
            for name in [n for n in cache if n[0].startswith(under)]:
                cache.pop(name, None)
