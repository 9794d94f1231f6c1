"""All stored rows of one key of an operator, in all retained versions: read once, from the files of the key's bucket."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import duckdb

from sqlstream.catalog import Column
from sqlstream.duck import key_hash
from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import Relation, Select, names, over, quote_name, union_all
from sqlstream.duck.types import stored_type, time_literal
from sqlstream.storage.joblog import labels_of
from sqlstream.storage.manifests import Manifest
from sqlstream.storage.segments import BATCH_COLUMN, Segment, check_segments, scan
from sqlstream.storage.snapshot import JobVersion, named_manifest
from sqlstream.storage.views import at_operator, operator_version, state_tables, times_macro
from sqlstream.warehouse.declarations import TableDeclaration
from sqlstream.warehouse.jobs import JobRecord, OperatorRecord
from sqlstream.warehouse.paths import BucketedPaths, Warehouse

# The first version in which merged rows replace a row; NULL: none.
_UNTIL = internal("until")


@dataclass(frozen=True)
class KeyState:
    """The rows of a key in an operator's state tables, as tables of a schema; `values` are the values of the key columns.

    An index as in `storage/point_reads.py` would have to read as much, and to sort it. It pays off for many lookups only.
    """

    connection: duckdb.DuckDBPyConnection
    schema: str
    warehouse: Warehouse
    record: JobRecord
    operator: OperatorRecord
    values: Sequence[Any]
    newest: JobVersion

    @cached_property
    def _columns(self) -> tuple[Column, ...]:
        """The stored columns of the keys."""
        types = {c.name: c.type for table in self.tables for c in table.columns}
        return tuple(Column(n, types[n]) for n in self.operator.hash_columns) if self.values else ()

    @cached_property
    def tables(self) -> tuple[TableDeclaration, ...]:
        """All state tables of the operator."""
        return tuple(table.declaration for table in self.operator.tables)

    def is_keyed(self, table: TableDeclaration) -> bool:
        """Return whether each row of a table belongs to one key."""
        return {c.name for c in self._columns} <= {c.name for c in table.columns}

    def load(self) -> None:
        """Read the rows into the schema. Raises DamageError, also when a file has been replaced in the meantime."""
        for table in self.tables:
            if not self.is_keyed(table):
                continue
            nulls = ", ".join(f"CAST(NULL AS {c.type}) AS {quote_name(c.name)}" for c in table.columns)
            empty = Select(f"SELECT {nulls}, 0::BIGINT AS {BATCH_COLUMN}, NULL::BIGINT AS {_UNTIL} WHERE false")
            own = " AND ".join(
                f"{quote_name(c.name)} IS NOT DISTINCT FROM CAST(${i} AS {c.type})"
                for i, c in enumerate(self._columns, 1)
            )
            rows = union_all([empty, *self._rows(table)])
            select = f"SELECT {names(table.columns)}, {BATCH_COLUMN}, {_UNTIL} FROM ({rows}) WHERE {own or 'true'}"
            self.connection.execute(f"CREATE TABLE {self._table(table)} AS {select}", self._parameters())

    def _parameters(self) -> dict[str, Any]:
        return {str(i): value for i, value in enumerate(self.values, 1)} if self._columns else {}

    def _table(self, table: TableDeclaration) -> Relation:
        return Relation(f"{self.schema}.{quote_name(f'key {table.name}')}")

    def _rows(self, table: TableDeclaration) -> Iterator[Select]:
        """Yield a table's rows of all versions, from the bucket of the key, or from all buckets if there is no key."""
        fs, paths = self.warehouse.fs, self._paths
        for bucket, manifest in self._manifests.items():
            if table.replicated and bucket != min(self._manifests):
                continue
            groups: dict[int | None, list[Segment]] = {}
            for segment in manifest.tables.get(table.name, ()):
                groups.setdefault(segment.until, []).append(segment)
            for until, segments in groups.items():
                check_segments(fs, paths.data(bucket), segments, content=False)
                rows = scan(fs, paths.data(bucket), table.columns, segments, batch=True)
                last = "NULL" if until is None else str(until)
                yield Select(f"SELECT *, {last}::BIGINT AS {_UNTIL} FROM ({rows})")

    @cached_property
    def _paths(self) -> BucketedPaths:
        return self.warehouse.job(self.record.job).operator(self.operator.name)

    @cached_property
    def _manifests(self) -> dict[int, Manifest]:
        """The manifests of the buckets that may have the key."""
        named = self.newest.newest.state_manifests(self.operator.name)
        buckets = {self._bucket()} & named.keys() if self._columns else named
        fs = self.warehouse.fs
        return {b: named_manifest(fs, self._paths, b, named[b]) for b in sorted(buckets)}

    @cached_property
    def oldest(self) -> int:
        """The oldest version of which all rows are still stored."""
        return max((manifest.oldest for manifest in self._manifests.values()), default=0)

    def _bucket(self) -> int:
        key_hash.register(self.connection)
        labels = labels_of(self.record, self.newest.newest)
        stored = [Column(f"k{i}", stored_type(c.type)) for i, c in enumerate(self._columns)]
        hashed = [Column(f"k{i}", key_hash.hashed_type(c.type)) for i, c in enumerate(self._columns)]
        keys = key_hash.in_version(hashed, self.record.key_hash)
        items = ", ".join(
            f"CAST(CAST(${i} AS {c.type}) AS {s.type}) AS {s.name}"
            for i, (c, s) in enumerate(zip(self._columns, stored, strict=True), 1)
        )
        sql = f"SELECT {key_hash.bucket(keys, len(labels))} FROM (SELECT {items})"
        [(index,)] = self.connection.execute(sql, self._parameters()).fetchall()
        return int(labels[index])

    def batches(self) -> list[int]:
        """Return the batches that wrote rows of the key, in ascending order."""
        changes = [f"SELECT {BATCH_COLUMN} AS batch FROM {self._table(t)}" for t in self.tables if self.is_keyed(t)]
        if not changes:
            return []
        rows = self.connection.execute(
            f"SELECT DISTINCT batch FROM ({' UNION ALL '.join(changes)}) ORDER BY 1"
        ).fetchall()
        return [batch for (batch,) in rows]

    def tables_of(self, sql: Select) -> list[TableDeclaration]:
        """Return the state tables that a view reads."""
        named = {name.lower() for name in self.connection.get_table_names(sql)}
        return [table for table in self.tables if table.name.lower() in named]

    def view(self, name: str, sql: Select, version: JobVersion) -> Relation:
        """Create a view over the rows of the key at a version, and return it."""
        own = operator_version(self.operator, version)
        assert own is not None
        tables = self.tables_of(sql)
        others: Mapping[str, Select] = {}
        if not all(map(self.is_keyed, tables)):
            others = state_tables(self.warehouse, self.record.job, self.operator, version)
        relations = {t.name: self._visible(t, own) if self.is_keyed(t) else others[t.name] for t in tables}
        view = Relation(f"{self.schema}.{quote_name(f'view {name}')}")
        self.connection.execute(times_macro(self.schema, at_operator(self.operator, version)))
        self.connection.execute(f"CREATE OR REPLACE VIEW {view} AS {over(relations, sql)}")
        return view

    def _visible(self, table: TableDeclaration, version: JobVersion) -> Select:
        seen = f"{BATCH_COLUMN} <= {version.version} AND ({_UNTIL} IS NULL OR {_UNTIL} > {version.version})"
        if table.time_column is not None and version.watermark is not None:
            seen += f" AND {quote_name(table.time_column)} > {time_literal(version.watermark, table.time_type)}"
        return Select(f"SELECT {names(table.columns)} FROM {self._table(table)} WHERE {seen}")
