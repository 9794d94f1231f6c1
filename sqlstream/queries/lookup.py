"""The rows that a state has for one key, found again and again: what never changes of a warehouse is kept in memory.

A key is in one bucket. Of the segments of that bucket a process keeps the rows, with an index by their keys' hashes
(`storage/key_index.py`). So a lookup reads the newest commit, the entry of the log that it names, and rows in memory.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column
from sqlstream.duck import clock, key_hash
from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import names, no_rows, over, quote_name, typed
from sqlstream.duck.types import stored_type, time_literal
from sqlstream.errors import DamageError, QueryError
from sqlstream.queries.versions import StateRelation, Version, find_state, find_version, no_version
from sqlstream.queries.why import check_key_value
from sqlstream.storage.joblog import labels_of
from sqlstream.storage.key_index import KeyIndex, SegmentIndexes, halves
from sqlstream.storage.manifests import Manifest
from sqlstream.storage.row_hashes import can_hash, hashed_rows
from sqlstream.storage.segments import BATCH_COLUMN, Segment, check_segments, scan
from sqlstream.storage.snapshot import JobHistory, JobVersion, named_manifest
from sqlstream.storage.views import operator_version
from sqlstream.warehouse.declarations import TableDeclaration
from sqlstream.warehouse.jobs import JobRecord
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.records import GONE

# A reader that is overtaken by the deletion of old files looks again.
_ATTEMPTS = 4
_MOST_MANIFESTS = 1_000
_MOST_ASKED = 100
_BUCKET = internal("bucket")


@dataclass(frozen=True, slots=True)
class FoundRows:
    """The rows of a view of a key at a version, and the types of its columns."""

    version: JobVersion
    types: Mapping[str, str]
    rows: Sequence[Sequence[Any]]


class Manifests:
    """Manifests by their paths; those that were used least lately go."""

    def __init__(self) -> None:
        self._found: OrderedDict[str, Manifest] = OrderedDict()
        self._changing = threading.Lock()

    def get(self, path: str, read: Callable[[], Manifest]) -> Manifest:
        """Return a manifest, and read it if it is not known."""
        with self._changing:
            if path in self._found:
                self._found.move_to_end(path)
                return self._found[path]
        found = read()
        with self._changing:
            self._found[path] = found
            while len(self._found) > _MOST_MANIFESTS:
                self._found.popitem(last=False)
        return found


@dataclass(frozen=True)
class _Asked:
    """A view of an operator, and what a lookup needs to know of it that stays the same as long as the job."""

    relation: StateRelation
    columns: tuple[Column, ...]
    tables: tuple[TableDeclaration, ...]
    labels: tuple[int, ...]

    @cached_property
    def sql(self) -> str:
        return self.relation.operator.views[self.relation.name]

    @cached_property
    def key_sql(self) -> str:
        """The query of a key as it is stored, and of its bucket."""
        stored = [Column(c.name, stored_type(c.type)) for c in self.columns]
        items = ", ".join(
            f"CAST(CAST(${i} AS {c.type}) AS {s.type}) AS {quote_name(c.name)}"
            for i, (c, s) in enumerate(zip(self.columns, stored, strict=True), 1)
        )
        return f"SELECT *, {key_hash.bucket(stored, len(self.labels))} AS {_BUCKET} FROM (SELECT {items})"

    @cached_property
    def is_of_key(self) -> str:
        return " AND ".join(
            f"{quote_name(c.name)} IS NOT DISTINCT FROM CAST(${i} AS {c.type})" for i, c in enumerate(self.columns, 1)
        )


@dataclass(frozen=True)
class _Reading:
    """A lookup on its way: the rows of a key, from indexes of segments as far as `memory` goes, else from the files."""

    connection: duckdb.DuckDBPyConnection
    warehouse: Warehouse
    asked: _Asked
    at: JobVersion
    key: pa.Table
    memory: int

    def relation(self, number: int, table: TableDeclaration, directory: str, segments: Sequence[Segment]) -> str:
        """Return the SELECT of the rows of a table that a version sees; what of them is in memory is registered by a number."""
        fs, found, selects = self.warehouse.fs, list[pa.Table](), list[str]()
        for segment in segments:
            if segment.first_batch > self.at.version or (segment.until or self.at.version + 1) <= self.at.version:
                continue
            index = self._index(table, directory, segment)
            if index is None:
                selects.append(scan(fs, directory, table.columns, [segment], batch=True))
                continue
            key = [self.key.column(c.name).cast(index.schema.field(c.name).type) for c in self.asked.columns]
            hashes = halves(hashed_rows(key, 1))
            if index.has(hashes):
                rows = index.find(hashes)
                if not segment.compacted:
                    rows = rows.append_column(BATCH_COLUMN, pa.repeat(segment.first_batch, rows.num_rows))
                found.append(rows)
        if found:
            name = f"_rows_{number}"
            self.connection.register(name, pa.concat_tables(found, promote_options="permissive"))
            selects.append(f"SELECT {typed(table.columns)}, {BATCH_COLUMN} FROM {name}")
        if not selects:
            return no_rows(table.columns)
        seen = f"{BATCH_COLUMN} <= {self.at.version}"
        if table.time_column is not None and self.at.watermark is not None:
            seen += f" AND {quote_name(table.time_column)} > {time_literal(self.at.watermark, table.time_type)}"
        return f"SELECT {names(table.columns)} FROM ({' UNION ALL '.join(selects)}) WHERE {seen} AND {self.asked.is_of_key}"

    def _index(self, table: TableDeclaration, directory: str, segment: Segment) -> KeyIndex | None:
        """Return the index of a segment, None where there is none: it has no room, or the key cannot be looked for in it."""
        if not all(can_hash(self.key.schema.field(c.name).type) for c in self.asked.columns):
            return None
        columns = [*table.columns, *([Column(BATCH_COLUMN, "BIGINT")] if segment.compacted else [])]
        keys = tuple(c.name for c in self.asked.columns)
        indexes = SegmentIndexes(self.warehouse.fs, directory, columns, keys, self.memory, points=True)
        if not indexes.is_known(segment):
            check_segments(self.warehouse.fs, directory, [segment], content=False)
        index = indexes.index(self.connection, segment)
        return index if index is not None and self._fits(index) else None

    def _fits(self, index: KeyIndex) -> bool:
        """Tell whether the key has the types that the rows of an index have, but for how their texts are held."""
        for column in self.asked.columns:
            held, own = index.schema.field(column.name).type, self.key.schema.field(column.name).type
            if held != own and not (_is_text(held) and _is_text(own)):
                return False
        return True


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


class Lookups:
    """Looks for keys in the states of a warehouse, in several threads; `prepare` registers functions in a connection.

    Indexes take at most `memory` bytes.
    """

    def __init__(self, warehouse: Warehouse, memory: int, prepare: Callable[[duckdb.DuckDBPyConnection], object]):
        self._warehouse, self._memory, self._prepare = warehouse, memory, prepare
        self._manifests = Manifests()
        self._free: list[duckdb.DuckDBPyConnection] = []
        self._asked: dict[object, _Asked] = {}

    def find(self, job: str, operator: str, key: Sequence[str | None], version: Version | None = None) -> FoundRows:
        """Return the rows of a key, which has a value for each key column, in their order. Raises QueryError."""
        with self._connection() as connection:
            for attempt in range(_ATTEMPTS):
                try:
                    return self._find(connection, job, operator, key, version)
                except (FileNotFoundError, DamageError, duckdb.IOException) as error:
                    if attempt == _ATTEMPTS - 1 or (isinstance(error, DamageError) and error.fault != GONE):
                        raise
        raise AssertionError("unreachable")

    def _find(
        self,
        connection: duckdb.DuckDBPyConnection,
        job: str,
        operator: str,
        key: Sequence[str | None],
        version: Version | None,
    ) -> FoundRows:
        history = JobHistory(self._warehouse, job.lower())
        newest = history.newest
        if newest is None:
            # Either there is no such job, or it has no version.
            find_state({history.name: history} if history.record is not None else {}, f"{job}.{operator}", None)
            raise QueryError(f'job "{job}" has no version yet', hint="It has one once it has committed a batch.")
        asked = self._asked_of(connection, history, f"{job}.{operator}", labels_of(_record(history), newest.newest))
        _check_key(connection, asked, key)
        at = newest if version is None else find_version(connection, history, version, None)
        return self._read(connection, history, asked, at, key)

    def _read(
        self,
        connection: duckdb.DuckDBPyConnection,
        history: JobHistory,
        asked: _Asked,
        at: JobVersion,
        key: Sequence[str | None],
    ) -> FoundRows:
        parameters = {str(i): value for i, value in enumerate(key, 1)}
        own = connection.sql(asked.key_sql, params=parameters).to_arrow_table()
        label = asked.labels[own.column(_BUCKET)[0].as_py()]
        operator = asked.relation.operator
        paths = self._warehouse.job(_record(history).job).operator(operator.name)
        segments: Mapping[str, Sequence[Segment]] = {}
        if (name := at.newest.state_manifests(operator.name).get(label)) is not None:
            path = f"{paths.manifests(label)}/{name}"
            manifest = self._manifests.get(path, lambda: named_manifest(self._warehouse.fs, paths, label, name))
            if at.version < manifest.oldest:
                raise no_version(history, "version that old", None, manifest.oldest)
            segments = manifest.tables
        seen = operator_version(operator, at)
        assert seen is not None
        reading = _Reading(connection, self._warehouse, asked, seen, own, self._memory)
        relations = {
            table.name: reading.relation(number, table, paths.data(label), segments.get(table.name, ()))
            for number, table in enumerate(asked.tables)
        }
        if "getvariable" in asked.sql:
            for variable, value in clock.view_variables(at.time, at.watermark).items():
                connection.execute(f"SET VARIABLE {variable} = {value}")
        try:
            is_used = any(asked.is_of_key in sql for sql in relations.values())
            found = connection.execute(over(relations, asked.sql), parameters if is_used else {})
            types = {column[0]: str(column[1]) for column in found.description}
            return FoundRows(at, types, found.fetchall())
        finally:
            for number in range(len(asked.tables)):
                connection.unregister(f"_rows_{number}")

    def _asked_of(
        self, connection: duckdb.DuckDBPyConnection, history: JobHistory, title: str, labels: tuple[int, ...]
    ) -> _Asked:
        """Return what is asked about. Raises QueryError for what is not there, or not stored by key."""
        known = (_record(history).created_at, title.lower(), labels)
        if known in self._asked:
            return self._asked[known]
        relation = find_state({history.name: history}, title, None)
        operator = relation.operator
        tables = [table.declaration for table in operator.tables]
        types = {c.name: c.type for table in tables for c in table.columns}
        columns = tuple(Column(name, types[name]) for name in operator.hash_columns)
        read = {name.lower() for name in connection.get_table_names(operator.views[relation.name])}
        used = tuple(table for table in tables if table.name.lower() in read)
        keyed = all({c.name for c in columns} <= {c.name for c in table.columns} for table in used)
        if not operator.key_columns or len(columns) != len(operator.key_columns) or not keyed:
            raise QueryError(f'"{relation.title}" is not stored by key', hint="Ask for it with a state query.")
        found = _Asked(relation, columns, used, labels)
        self._asked = dict([*self._asked.items(), (known, found)][-_MOST_ASKED:])
        return found

    @contextmanager
    def _connection(self) -> Iterator[duckdb.DuckDBPyConnection]:
        try:
            found = self._free.pop()
        except IndexError:
            # Nothing that people write runs in it: the view is the job's own.
            found = duckdb.connect(config={"python_enable_replacements": "false", "threads": 1})
            # Of a few rows a plan costs more than it saves when it is improved.
            found.execute("SET TimeZone = 'UTC'; PRAGMA disable_optimizer")
            key_hash.register(found)
            self._prepare(found)
        yield found
        self._free.append(found)

    def close(self) -> None:
        for connection in self._free:
            connection.close()


def _record(history: JobHistory) -> JobRecord:
    record = history.record
    assert record is not None
    return record


def _check_key(connection: duckdb.DuckDBPyConnection, asked: _Asked, key: Sequence[str | None]) -> None:
    """Raise QueryError unless there is a value for each key column, of its type."""
    names = asked.relation.operator.key_columns
    if len(key) != len(names):
        columns = "1 column" if len(names) == 1 else f"{len(names)} columns"
        hint = f"Give a value for each, in this order: {', '.join(names)}."
        raise QueryError(f'the key of "{asked.relation.title}" has {columns}, not {len(key)}', hint=hint)
    for name, column, value in zip(names, asked.columns, key, strict=True):
        if column.type != "VARCHAR":
            check_key_value(connection, name, value, column.type)
