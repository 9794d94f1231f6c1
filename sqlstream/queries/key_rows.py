"""The rows of one key in the state tables of a view: from indexes in memory, where there is room for them, else from files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column
from sqlstream.duck import key_hash
from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import names, no_rows, quote_name, quote_text, typed
from sqlstream.duck.types import stored_type, time_literal, time_literal_type
from sqlstream.queries.prepared import PreparedStatements
from sqlstream.queries.versions import StateRelation
from sqlstream.queries.why import has_whole_number, is_whole
from sqlstream.storage.key_index import LARGE_ROWS, Hashes, KeyIndex, SegmentIndexes, halves
from sqlstream.storage.row_hashes import can_hash, hashed_rows
from sqlstream.storage.segments import BATCH_COLUMN, Segment, check_segments, scan
from sqlstream.storage.snapshot import JobVersion
from sqlstream.warehouse.declarations import TableDeclaration
from sqlstream.warehouse.jobs import JobRecord
from sqlstream.warehouse.paths import Warehouse

_BUCKET = internal("bucket")
_PLAIN = {
    "VARCHAR": pa.string(),
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
}
# Whole numbers by their bits, and how they are written where nothing is left to DuckDB.
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}
_WHOLE = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True)
class AskedView:
    """A view of an operator, and what a lookup needs to know of it that stays the same as long as the job's record.

    `columns` are those of the key, `tables` the state tables that the view reads, `labels` those of the buckets.
    """

    record: JobRecord
    relation: StateRelation
    columns: tuple[Column, ...]
    tables: tuple[TableDeclaration, ...]
    labels: tuple[int, ...]

    @cached_property
    def sql(self) -> str:
        return self.relation.operator.views[self.relation.name]

    @cached_property
    def key_sql(self) -> str:
        """The statement of a key as it is stored, and of its bucket; its parameters are texts."""
        stored = [Column(c.name, stored_type(c.type)) for c in self.columns]
        items = ", ".join(
            f"CAST({_parameter(i, c)} AS {s.type}) AS {quote_name(c.name)}"
            for i, (c, s) in enumerate(zip(self.columns, stored, strict=True), 1)
        )
        return f"SELECT *, {key_hash.bucket(stored, len(self.labels))} AS {_BUCKET} FROM (SELECT {items})"

    @cached_property
    def are_whole(self) -> Sequence[bool]:
        """Whether each column of the key is one of whole numbers."""
        return [is_whole(c.type) for c in self.columns]

    @cached_property
    def plain_types(self) -> Sequence[pa.DataType] | None:
        """The types of the stored columns in Arrow; None where a value of Python may not say exactly what is stored."""
        found = [_PLAIN.get(stored_type(c.type)) for c in self.columns]
        known = [kind for kind in found if kind is not None]
        return known if len(known) == len(found) else None

    def plain_key(self, key: Sequence[str | None]) -> list[int | str | None] | None:
        """Return the values of a key of texts and whole numbers; None where only DuckDB can tell what is stored."""
        found = list[int | str | None]()
        for column, text in zip(self.columns, key, strict=True):
            if text is None or (column.type == "VARCHAR" and text.isprintable()):
                found.append(text)
                continue
            bits = _BITS.get(column.type)
            if bits is None or not _WHOLE.fullmatch(text) or not -(1 << bits - 1) <= int(text) < 1 << bits - 1:
                return None
            found.append(int(text))
        return found

    @cached_property
    def is_of_key(self) -> str:
        return " AND ".join(
            f"{quote_name(c.name)} IS NOT DISTINCT FROM {_parameter(i, c)}" for i, c in enumerate(self.columns, 1)
        )

    @cached_property
    def selected(self) -> Mapping[str, str]:
        """The columns of each table as the items of a SELECT over its stored rows."""
        return {table.name: f"{typed(table.columns)}, {BATCH_COLUMN}" for table in self.tables}

    @cached_property
    def empty(self) -> Mapping[str, pa.Table]:
        """No rows of each table, as they are stored."""
        found = {}
        with duckdb.connect() as connection:
            for table in self.tables:
                stored = [Column(c.name, stored_type(c.type)) for c in table.columns]
                sql = no_rows([*stored, Column(BATCH_COLUMN, "BIGINT")])
                found[table.name] = connection.sql(sql).to_arrow_table()
        return found


def _parameter(number: int, column: Column) -> str:
    """Return the value of a key column that a statement is given as a text."""
    return f"CAST(CAST(${number} AS VARCHAR) AS {column.type})"


class StoredKey:
    """A key as it is stored, and its hashes. Raises duckdb.Error for what is no value of its column."""

    def __init__(self, view: AskedView, statements: PreparedStatements, key: Sequence[str | None]):
        self.values = ["NULL::VARCHAR" if value is None else quote_text(value) for value in key]
        self._columns: Sequence[pa.Array | pa.ChunkedArray]
        if (types := view.plain_types) is not None:
            own: Sequence[Any] | None = view.plain_key(key)
            if own is not None:
                bucket = key_hash.bucket_of(own, len(view.labels))
            else:
                # It costs a third of what an Arrow table does.
                [(*own, bucket)] = statements.execute(view.key_sql, self.values).fetchall()
            self._columns = [pa.array([value], kind) for value, kind in zip(own, types, strict=True)]
        else:
            rows = statements.relation(view.key_sql, self.values).to_arrow_table()
            self._columns, bucket = rows.columns[:-1], rows.column(_BUCKET)[0].as_py()
        self.label = view.labels[bucket]
        self._are_whole = view.are_whole
        self._hashes: dict[tuple[pa.DataType, ...], Hashes | None] = {}
        self.can_hash = all(can_hash(column.type) for column in self._columns)

    def is_as_written(self, key: Sequence[str | None]) -> bool:
        """Tell whether each value that is not NULL is one of its column, and was not rounded to be one."""
        pairs = [(v, c, w) for v, c, w in zip(key, self._columns, self._are_whole, strict=True) if v is not None]
        return all(not c.null_count and (not whole or has_whole_number(v)) for v, c, whole in pairs)

    def hashes(self, types: tuple[pa.DataType, ...]) -> Hashes | None:
        """Return the hashes of the key among keys of some types, None where these are not those of the key."""
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
class RowsOfKey:
    """The rows of a key that a version sees; indexes of segments take at most `memory` bytes. What takes long runs in `aside`."""

    warehouse: Warehouse
    view: AskedView
    key: StoredKey
    at: JobVersion
    memory: int
    aside: Callable[[], AbstractContextManager[None]]

    def values(self) -> list[str]:
        """Return the values of the statement, in the order of its parameters: the key, the version, the watermarks."""
        found = [*self.key.values, f"{self.at.version}::BIGINT"] if self.view.tables else []
        watermark = self.at.watermark
        if watermark is not None:
            found += [time_literal(watermark, t.time_type) for t in self.view.tables if t.time_column is not None]
        return found

    def find(
        self,
        connection: duckdb.DuckDBPyConnection,
        directory: str,
        table: TableDeclaration,
        segments: Sequence[Segment],
    ) -> tuple[pa.Table, list[Segment]]:
        """Return stored rows of a table in memory among which are all of the key, but for those of the segments to read."""
        found, unindexed = list[pa.Table](), list[Segment]()
        for segment in segments:
            if segment.first_batch > self.at.version or (segment.until or self.at.version + 1) <= self.at.version:
                continue
            index = self._index(connection, directory, table, segment)
            types = tuple(index.schema.field(c.name).type for c in self.view.columns) if index is not None else ()
            if index is None or (hashes := self.key.hashes(types)) is None:
                unindexed.append(segment)
            elif index.has(hashes):
                rows = index.find(hashes)
                if not segment.compacted:
                    rows = rows.append_column(BATCH_COLUMN, pa.repeat(segment.first_batch, rows.num_rows))
                found.append(rows)
        if not found:
            return self.view.empty[table.name], unindexed
        return found[0] if len(found) == 1 else pa.concat_tables(found, promote_options="permissive"), unindexed

    def _index(
        self, connection: duckdb.DuckDBPyConnection, directory: str, table: TableDeclaration, segment: Segment
    ) -> KeyIndex | None:
        """Return the index of a segment, None where there is none: it has no room, or the key cannot be looked for in it."""
        if not self.key.can_hash:
            return None
        columns = [*table.columns, *([Column(BATCH_COLUMN, "BIGINT")] if segment.compacted else [])]
        keys = tuple(c.name for c in self.view.columns)
        indexes = SegmentIndexes(self.warehouse.fs, directory, columns, keys, self.memory, points=True)
        if indexes.is_known(segment):
            return indexes.index(connection, segment)
        with self.aside() if segment.rows >= LARGE_ROWS else nullcontext():
            check_segments(self.warehouse.fs, directory, [segment], content=False)
            return indexes.index(connection, segment)

    def relation(self, table: TableDeclaration, rows: str, directory: str, unindexed: Sequence[Segment]) -> str:
        """Return the SELECT of the key's rows of a table that the version sees: of those behind a name, and in segments."""
        selects = [f"SELECT {self.view.selected[table.name]} FROM {rows}"]
        if unindexed:
            selects.append(scan(self.warehouse.fs, directory, table.columns, unindexed, batch=True))
        parameter = len(self.view.columns) + 1
        seen = f"{BATCH_COLUMN} <= CAST(${parameter} AS BIGINT)"
        if table.time_column is not None and self.at.watermark is not None:
            timed = [t.name for t in self.view.tables if t.time_column is not None]
            parameter += 1 + timed.index(table.name)
            kind = time_literal_type(table.time_type)
            seen += f" AND {quote_name(table.time_column)} > CAST(${parameter} AS {kind})"
        return (
            f"SELECT {names(table.columns)} FROM ({' UNION ALL '.join(selects)}) WHERE {seen} AND {self.view.is_of_key}"
        )
