"""The rows of single keys in the state tables of a view, from indexes in memory where they fit, else from files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from sqlstream.catalog import Column
from sqlstream.duck import key_hash
from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import (
    Condition,
    Items,
    Relation,
    Relations,
    Select,
    all_of,
    names,
    no_rows,
    over,
    quote_name,
    quote_text,
    typed,
    union_all,
)
from sqlstream.duck.types import has_intervals, stored_type, time_literal, time_literal_type
from sqlstream.queries.prepared import PreparedStatements
from sqlstream.queries.versions import StateRelation
from sqlstream.queries.why import has_whole_number, is_whole
from sqlstream.storage.key_index import LARGE_ROWS, Hashes, KeyIndex, SegmentIndexes, halves
from sqlstream.storage.row_hashes import can_hash, hashed_rows
from sqlstream.storage.segments import BATCH_COLUMN, Segment, check_segments, scan
from sqlstream.storage.snapshot import JobVersion
from sqlstream.warehouse.declarations import MERGED, TableDeclaration
from sqlstream.warehouse.jobs import JobRecord
from sqlstream.warehouse.paths import Warehouse

_BUCKET, _NUMBER = internal("bucket"), internal("number")
_PLAIN = {
    "VARCHAR": pa.string(),
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
}
# Bits of the types of whole numbers, and how a whole number is written that needs no DuckDB to parse.
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}
_WHOLE = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True)
class LookupView:
    """A view of an operator, and what lookups in it need. It stays valid until the job's record changes.

    `columns` are the key columns, `tables` the state tables that the view reads, `labels` the labels of the buckets.
    """

    record: JobRecord
    relation: StateRelation
    columns: tuple[Column, ...]
    tables: tuple[TableDeclaration, ...]
    labels: tuple[int, ...]

    @cached_property
    def sql(self) -> Select:
        """The view.

        Where it has the merged rows of a table more than once, they become a named, materialized CTE: without its optimizer,
        DuckDB plans and runs each copy of a subquery.
        """
        view, named = str(self.relation.operator.views[self.relation.name]), list[str]()
        for table in self.tables:
            merged = f"({table.merge.replace(MERGED, quote_name(table.name))})" if table.merge is not None else ""
            if merged and view.count(merged) > 1:
                name = internal(f"merged_{table.name}")
                named.append(f"{name} AS MATERIALIZED {merged}")
                view = view.replace(merged, name)
        return Select(f"WITH {', '.join(named)} SELECT * FROM ({view})" if named else view)

    @cached_property
    def key_sql(self) -> Select:
        """A key as it is stored, and its bucket; the parameters are the key's values as VARCHAR."""
        stored = [Column(c.name, stored_type(c.type)) for c in self.columns]
        items = ", ".join(
            f"CAST({_parameter(i, c)} AS {s.type}) AS {quote_name(c.name)}"
            for i, (c, s) in enumerate(zip(self.columns, stored, strict=True), 1)
        )
        hashed = [Column(c.name, key_hash.hashed_type(c.type)) for c in self.columns]
        keys = key_hash.in_version(hashed, self.record.key_hash)
        return Select(f"SELECT *, {key_hash.bucket(keys, len(self.labels))} AS {_BUCKET} FROM (SELECT {items})")

    @cached_property
    def are_whole(self) -> Sequence[bool]:
        """Whether each key column has a type of whole numbers."""
        return [is_whole(c.type) for c in self.columns]

    @cached_property
    def plain_types(self) -> Sequence[pa.DataType] | None:
        """The Arrow types of the stored key columns; None if a Python value may not represent a stored value exactly."""
        candidates = [_PLAIN.get(stored_type(c.type)) for c in self.columns]
        types = [kind for kind in candidates if kind is not None]
        return types if len(types) == len(candidates) else None

    def plain_key(self, key: Sequence[str | None]) -> list[int | str | None] | None:
        """Return a key of texts and whole numbers as stored values; None for a key that only DuckDB can convert."""
        values = list[int | str | None]()
        for column, text in zip(self.columns, key, strict=True):
            if text is None or (column.type == "VARCHAR" and text.isprintable()):
                values.append(text)
                continue
            bits = _BITS.get(column.type)
            if bits is None or not _WHOLE.fullmatch(text) or not -(1 << bits - 1) <= int(text) < 1 << bits - 1:
                return None
            values.append(int(text))
        return values

    @cached_property
    def is_of_key(self) -> Condition:
        """The condition that a row has the key of the first parameters."""
        return all_of(
            f"{quote_name(c.name)} IS NOT DISTINCT FROM {_parameter(i, c)}" for i, c in enumerate(self.columns, 1)
        )

    @cached_property
    def shows_key(self) -> bool:
        """Whether each row of the view has its key in the key columns; in an outer join they may be NULL."""
        operator = self.relation.operator
        columns = {name for name, _ in operator.view_columns}
        is_result = self.relation.name == operator.name
        return is_result and operator.kind != "join" and columns >= set(operator.key_columns)

    def seen_rows(self, table: TableDeclaration, rows: Select, at: JobVersion, keys: int) -> Select:
        """Return the rows of a table that a version sees. The parameters follow the parameters of `keys` keys."""
        parameter = keys * len(self.columns) + 1
        seen = f"{BATCH_COLUMN} <= CAST(${parameter} AS BIGINT)"
        if table.time_column is not None and at.watermark is not None:
            timed = [t.name for t in self.tables if t.time_column is not None]
            parameter += 1 + timed.index(table.name)
            kind = time_literal_type(table.time_type)
            seen += f" AND {quote_name(table.time_column)} > CAST(${parameter} AS {kind})"
        return Select(f"SELECT {names(table.columns)} FROM ({rows}) WHERE {seen}")

    def values_of(self, at: JobVersion) -> list[str]:
        """Return the values of the parameters that follow the keys, as SQL: the version, and watermarks."""
        values = [f"{at.version}::BIGINT"]
        if at.watermark is not None:
            values += [time_literal(at.watermark, t.time_type) for t in self.tables if t.time_column is not None]
        return values

    def several(self, rows: Relations, at: JobVersion, keys: int) -> Select:
        """Return the view's rows of several keys. The first column is the number (from 0) of a row's key.

        Rows of other keys have the number NULL. `rows` are the stored rows by table, `keys` is the number of keys.
        """
        relations = {
            table.name: self.seen_rows(table, self.selected(table, rows[table.name]), at, keys) for table in self.tables
        }
        width = len(self.columns)
        listed = ", ".join(
            f"({key}, {', '.join(_parameter(key * width + i, c) for i, c in enumerate(self.columns, 1))})"
            for key in range(keys)
        )
        keyed = [internal(f"key_{i}") for i in range(width)]
        same = " AND ".join(
            f"_row.{quote_name(name)} IS NOT DISTINCT FROM _asked.{key}"
            for name, key in zip(self.relation.operator.key_columns, keyed, strict=True)
        )
        return Select(
            f"SELECT _asked.{_NUMBER}, _row.* FROM ({over(relations, self.sql)}) _row"
            f" LEFT JOIN (VALUES {listed}) _asked({_NUMBER}, {', '.join(keyed)}) ON {same}"
        )

    def selected(self, table: TableDeclaration, rows: Relation) -> Select:
        """Return the stored rows of a table, with the columns of the table and of the batch."""
        return Select(f"SELECT {self._items[table.name]} FROM {rows}")

    @cached_property
    def _items(self) -> Mapping[str, Items]:
        """The columns of each table, and of the batch, over the table's stored rows."""
        return {table.name: Items(f"{typed(table.columns)}, {BATCH_COLUMN}") for table in self.tables}

    @cached_property
    def empty(self) -> Mapping[str, pa.Table]:
        """Empty Arrow tables with the stored columns of each state table."""
        tables = {}
        with duckdb.connect() as connection:
            for table in self.tables:
                stored = [Column(c.name, stored_type(c.type)) for c in table.columns]
                sql = no_rows([*stored, Column(BATCH_COLUMN, "BIGINT")])
                tables[table.name] = connection.sql(sql).to_arrow_table()
        return tables


def _parameter(number: int, column: Column) -> str:
    """Return the value of a key column, from a parameter of type VARCHAR."""
    return f"CAST(CAST(${number} AS VARCHAR) AS {column.type})"


class StoredKey:
    """A key as it is stored: its bucket's label and its hashes. Raises duckdb.Error if a value does not fit its column."""

    def __init__(self, view: LookupView, statements: PreparedStatements, key: Sequence[str | None]):
        self.values = ["NULL::VARCHAR" if value is None else quote_text(value) for value in key]
        self._columns: Sequence[pa.Array | pa.ChunkedArray]
        if (types := view.plain_types) is not None:
            own: Sequence[Any] | None = view.plain_key(key)
            if own is not None:
                bucket = key_hash.bucket_of(own, len(view.labels))
            else:
                # This takes a third of the time of an Arrow table.
                [(*own, bucket)] = statements.execute(view.key_sql, self.values).fetchall()
            self._columns = [pa.array([value], kind) for value, kind in zip(own, types, strict=True)]
        else:
            rows = statements.relation(view.key_sql, self.values).to_arrow_table()
            self._columns, bucket = rows.columns[:-1], rows.column(_BUCKET)[0].as_py()
        self.label = view.labels[bucket]
        self._are_whole = view.are_whole
        self._hashes: dict[tuple[pa.DataType, ...], Hashes | None] = {}
        # Equal intervals may be stored as several texts.
        is_exact = not any(has_intervals(c.type) for c in view.columns)
        self.can_hash = is_exact and all(can_hash(column.type) for column in self._columns)

    def is_as_written(self, key: Sequence[str | None]) -> bool:
        """Return whether each value except NULL, as written, is a value of its column's type, without being rounded."""
        pairs = [(v, c, w) for v, c, w in zip(key, self._columns, self._are_whole, strict=True) if v is not None]
        return all(not c.null_count and (not whole or has_whole_number(v)) for v, c, whole in pairs)

    def hashes(self, types: tuple[pa.DataType, ...]) -> Hashes | None:
        """Return the hashes of the key for key columns of some types; None if a key of these types has other hashes."""
        if types not in self._hashes:
            self._hashes[types] = self._hashed(types)
        return self._hashes[types]

    def _hashed(self, types: tuple[pa.DataType, ...]) -> Hashes | None:
        pairs = list(zip(self._columns, types, strict=True))
        if any(own.type != held and not (_is_text(own.type) and _is_text(held)) for own, held in pairs):
            return None
        return halves(hashed_rows([own.cast(held) for own, held in pairs], 1))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


@dataclass(frozen=True)
class StoredRows:
    """The rows of keys in one bucket that a version sees. Indexes of segments take at most `memory` bytes.

    To read and index a large segment takes long, and happens within the context `aside`.
    """

    warehouse: Warehouse
    view: LookupView
    keys: Sequence[StoredKey]
    at: JobVersion
    memory: int
    aside: Callable[[], AbstractContextManager[None]]

    def find(
        self,
        connection: duckdb.DuckDBPyConnection,
        directory: str,
        table: TableDeclaration,
        segments: Sequence[Segment],
    ) -> tuple[pa.Table, list[Segment]]:
        """Return rows of a table from indexes, and the segments that have no index.

        The rows, as they are stored, include all rows of the keys in indexed segments; other keys with the same hashes may be
        among them.
        """
        parts, unindexed = list[pa.Table](), list[Segment]()
        for segment in segments:
            if segment.first_batch > self.at.version or (segment.until or self.at.version + 1) <= self.at.version:
                continue
            index = self._index(connection, directory, table, segment)
            types = tuple(index.schema.field(c.name).type for c in self.view.columns) if index is not None else ()
            if index is None or (hashes := self._hashes(types)) is None:
                unindexed.append(segment)
            elif index.has(hashes):
                rows = index.find(hashes)
                if not segment.compacted:
                    rows = rows.append_column(BATCH_COLUMN, pa.repeat(segment.first_batch, rows.num_rows))
                parts.append(rows)
        if not parts:
            return self.view.empty[table.name], unindexed
        return parts[0] if len(parts) == 1 else pa.concat_tables(parts, promote_options="permissive"), unindexed

    def _hashes(self, types: tuple[pa.DataType, ...]) -> Hashes | None:
        """Return the distinct hashes of the keys for key columns of some types; None if a key has none for these types."""
        key_hashes = [key.hashes(types) for key in self.keys]
        arrays = [hashes for hashes in key_hashes if hashes is not None]
        if len(arrays) < len(key_hashes):
            return None
        return arrays[0] if len(arrays) == 1 else np.unique(np.concatenate(arrays))

    def _index(
        self, connection: duckdb.DuckDBPyConnection, directory: str, table: TableDeclaration, segment: Segment
    ) -> KeyIndex | None:
        """Return the index of a segment; None if it does not fit into the memory, or the keys cannot be hashed."""
        if not all(key.can_hash for key in self.keys):
            return None
        columns = [*table.columns, *([Column(BATCH_COLUMN, "BIGINT")] if segment.compacted else [])]
        keys = tuple(c.name for c in self.view.columns)
        indexes = SegmentIndexes(self.warehouse.fs, directory, columns, keys, self.memory, points=True)
        if indexes.is_known(segment):
            return indexes.index(connection, segment)
        with self.aside() if segment.rows >= LARGE_ROWS else nullcontext():
            check_segments(self.warehouse.fs, directory, [segment], content=False)
            return indexes.index(connection, segment)

    def select(self, table: TableDeclaration, rows: Relation, directory: str, unindexed: Sequence[Segment]) -> Select:
        """Return a table's rows of the only key: of `rows`, and of unindexed segments."""
        selects = [self.view.selected(table, rows)]
        if unindexed:
            selects.append(scan(self.warehouse.fs, directory, table.columns, unindexed, batch=True))
        return Select(f"{self.view.seen_rows(table, union_all(selects), self.at, 1)} AND {self.view.is_of_key}")
