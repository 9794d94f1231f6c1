"""Lookups: the rows of a state for one key. What does not change in the warehouse stays in memory between lookups.

A key is in one bucket. The process keeps the rows of that bucket's segments in memory, indexed by the hashes of their keys
(`storage/key_index.py`). A lookup lists the commits, takes rows from memory, and runs the view over them, as a prepared
statement. Most of the time of such a small query goes into parsing and planning, so one statement answers several lookups that
wait at the same time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa

from sqlstream.catalog import Column
from sqlstream.duck import databases, key_hash, time_variables
from sqlstream.duck.sql import Relation, Relations, Select, over
from sqlstream.errors import DamageError, QueryError
from sqlstream.queries.histories import JobHistories
from sqlstream.queries.key_rows import LookupView, StoredKey, StoredRows
from sqlstream.queries.lookup_turns import PendingRequest, RequestBatcher
from sqlstream.queries.prepared import PreparedStatements
from sqlstream.queries.versions import Version, find_state, find_version, no_version
from sqlstream.queries.why import check_key_value
from sqlstream.storage.joblog import labels_of
from sqlstream.storage.manifests import Manifest
from sqlstream.storage.segments import Segment
from sqlstream.storage.snapshot import JobHistory, JobVersion, named_manifest
from sqlstream.storage.views import at_operator, operator_version
from sqlstream.warehouse.jobs import JobRecord
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.records import GONE

# How often a lookup is tried: files that it needs may be deleted while it runs.
_ATTEMPTS = 4
_MOST_MANIFESTS = 1_000
_MOST_VIEWS = 100
# The most keys that one statement looks up.
_MOST_TOGETHER = 32


@dataclass(frozen=True, slots=True)
class FoundRows:
    """The rows of a view for a key at a version, and the view's DuckDB types by column."""

    version: JobVersion
    types: Mapping[str, str]
    rows: Sequence[Sequence[Any]]


class Manifests:
    """A cache of the manifest that was last read of each bucket, for the 1,000 buckets that were last used.

    Lookups read the newest manifest of a bucket, also for older versions. Keeping earlier manifests would fill the memory: a job
    may commit several times per second.
    """

    def __init__(self) -> None:
        # The name of the manifest and the manifest, by the directory of the bucket's manifests.
        self._cache: OrderedDict[str, tuple[str, Manifest]] = OrderedDict()
        self._changing = threading.Lock()

    def get(self, directory: str, name: str, read: Callable[[], Manifest]) -> Manifest:
        """Return the manifest `name` of a directory: the cached one, or the result of `read`."""
        with self._changing:
            entry = self._cache.get(directory)
            if entry is not None and entry[0] == name:
                self._cache.move_to_end(directory)
                return entry[1]
        manifest = read()
        with self._changing:
            self._cache[directory] = name, manifest
            self._cache.move_to_end(directory)
            while len(self._cache) > _MOST_MANIFESTS:
                self._cache.popitem(last=False)
        return manifest


@dataclass(frozen=True, slots=True)
class _Engine:
    """A connection, and the statements that are prepared in it."""

    connection: duckdb.DuckDBPyConnection
    statements: PreparedStatements


@dataclass(frozen=True, slots=True)
class LookupRequest:
    """A lookup: a key of a state, at a version or the newest one (None). A value of the key is a text, or None for NULL."""

    job: str
    operator: str
    key: Sequence[str | None]
    version: Version | None = None


_Request: TypeAlias = PendingRequest[LookupRequest, FoundRows]


@dataclass(frozen=True, slots=True)
class _Lookup:
    """A key to look up in a view, at a version (`at`: as the operator's state has it), with its bucket's segments by table."""

    view: LookupView
    version: JobVersion
    at: JobVersion
    key: StoredKey
    directory: str
    segments: Mapping[str, Sequence[Segment]]

    @property
    def variables(self) -> Mapping[str, str]:
        """The clock variables that the view reads, as SQL by name."""
        tells_time = "getvariable" in self.view.sql
        return time_variables.view_variables(self.version.time, self.version.watermark) if tells_time else {}


class _NotShareable(Exception):
    """A lookup cannot share a statement with other lookups; its key must be looked up alone."""


def _not_now() -> AbstractContextManager[None]:
    raise _NotShareable


class Lookups:
    """Looks up keys in the states of a warehouse; several threads may call `find`.

    `prepare` registers functions in a new connection. Indexes take at most `memory` bytes.
    """

    def __init__(self, warehouse: Warehouse, memory: int, prepare: Callable[[duckdb.DuckDBPyConnection], object]):
        self._warehouse, self._memory, self._prepare = warehouse, memory, prepare
        self._histories = JobHistories(warehouse)
        self._manifests = Manifests()
        self._free: list[_Engine] = []
        self._views: dict[object, LookupView] = {}
        self._turns = RequestBatcher[LookupRequest, FoundRows](self._together, self._alone, _MOST_TOGETHER)

    def find(self, job: str, operator: str, key: Sequence[str | None], version: Version | None = None) -> FoundRows:
        """Return the rows of a key. Raises DamageError, and QueryError if the state, the version or a value of the key is wrong.

        `key` has a text, or None for NULL, for each key column, in their order.
        """
        return self._turns.ask(LookupRequest(job, operator, key, version))

    def _together(self, requests: Sequence[_Request]) -> None:
        """Answer requests by common statements where that is possible: when their rows are indexed, and nothing fails."""
        groups: dict[tuple[int, int], list[tuple[_Request, _Lookup]]] = {}
        with self._engine() as engine:
            for request in requests:
                # The error is raised when the request is repeated alone.
                with suppress(Exception):
                    lookup = self._plan(engine, request.question)
                    if lookup.view.shows_key and None not in request.question.key:
                        groups.setdefault((id(lookup.view), lookup.version.version), []).append((request, lookup))
            for group in groups.values():
                if len(group) > 1:
                    with suppress(Exception):
                        answers = self._run_together(engine, [lookup for _, lookup in group])
                        for (request, _), rows in zip(group, answers, strict=True):
                            request.answer = rows

    def _alone(self, question: LookupRequest) -> FoundRows:
        with self._engine() as engine:
            for attempt in range(_ATTEMPTS):
                try:
                    return self._run(engine, self._plan(engine, question))
                except (FileNotFoundError, DamageError, duckdb.IOException) as error:
                    if attempt == _ATTEMPTS - 1 or (isinstance(error, DamageError) and error.fault != GONE):
                        raise
                    self._histories.forget(question.job.lower())
        raise AssertionError("unreachable")

    def _plan(self, engine: _Engine, question: LookupRequest) -> _Lookup:
        """Return the view, the version and the segments that a lookup reads. Raises QueryError."""
        history = self._histories.of(question.job.lower())
        title = f"{question.job}.{question.operator}"
        newest = history.newest
        if newest is None:
            # Either there is no such job, or it has no version.
            find_state({history.name: history} if history.record is not None else {}, title, None)
            raise QueryError(
                f'job "{question.job}" has no version yet', hint="It has one once it has committed a batch."
            )
        labels = labels_of(_record(history), newest.newest)
        view = self._view_of(engine.connection, history, title, labels)
        key = _stored(engine, view, question.key)
        at = newest if question.version is None else find_version(engine.connection, history, question.version, None)
        operator = view.relation.operator
        paths = self._warehouse.job(view.record.job).operator(operator.name)
        segments: Mapping[str, Sequence[Segment]] = {}
        if (name := at.newest.state_manifests(operator.name).get(key.label)) is not None:
            directory = paths.manifests(key.label)
            manifest = self._manifests.get(
                directory, name, lambda: named_manifest(self._warehouse.fs, paths, key.label, name)
            )
            if at.version < manifest.oldest:
                raise no_version(history, "version that old", None, manifest.oldest)
            segments = manifest.tables
        seen = operator_version(operator, at)
        assert seen is not None
        return _Lookup(view, at_operator(operator, at), seen, key, paths.data(key.label), segments)

    def _run(self, engine: _Engine, lookup: _Lookup) -> FoundRows:
        view = lookup.view
        rows = StoredRows(self._warehouse, view, [lookup.key], lookup.at, self._memory, self._turns.suspended)
        relations, is_indexed = dict[str, Select](), True
        for number, table in enumerate(view.tables):
            segments = lookup.segments.get(table.name, ())
            table_rows, unindexed = rows.find(engine.connection, lookup.directory, table, segments)
            slot = engine.statements.put(number, table_rows)
            relations[table.name] = rows.select(table, slot, lookup.directory, unindexed)
            is_indexed = is_indexed and not unindexed
        sql = over(relations, view.sql)
        values = [*lookup.key.values, *view.values_of(lookup.at)] if view.tables else []
        if is_indexed:
            answer = engine.statements.execute(sql, values, lookup.variables)
            return FoundRows(lookup.version, _types(answer), answer.fetchall())
        with self._turns.suspended():
            # The statement names the files to read, which change with each batch.
            answer = engine.statements.execute_once(sql, values, lookup.variables)
            return FoundRows(lookup.version, _types(answer), answer.fetchall())

    def _run_together(self, engine: _Engine, group: Sequence[_Lookup]) -> list[FoundRows]:
        """Return the rows of several keys by one statement. Raises _Alone when rows are in files, or are of other keys."""
        first, relations = group[0], dict[str, Relation]()
        buckets: dict[str, list[_Lookup]] = {}
        for lookup in group:
            buckets.setdefault(lookup.directory, []).append(lookup)
        for number, table in enumerate(first.view.tables):
            parts = list[pa.Table]()
            for directory, some in buckets.items():
                keys = [lookup.key for lookup in some]
                stored = StoredRows(self._warehouse, first.view, keys, first.at, self._memory, _not_now)
                rows, unindexed = stored.find(engine.connection, directory, table, some[0].segments.get(table.name, ()))
                if unindexed:
                    raise _NotShareable
                parts.append(rows)
            table_rows = pa.concat_tables(parts, promote_options="permissive")
            relations[table.name] = engine.statements.put(number, table_rows)
        return _split(engine, group, relations)

    def _view_of(
        self, connection: duckdb.DuckDBPyConnection, history: JobHistory, title: str, labels: tuple[int, ...]
    ) -> LookupView:
        """Return the view to look up in. Raises QueryError if there is none, or it is not stored by key."""
        record, cache_key = _record(history), (title.lower(), labels)
        if (view := self._views.get(cache_key)) is not None and (view.record is record or view.record == record):
            return view
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
        new_view = LookupView(record, relation, columns, used, labels)
        self._views = dict([*self._views.items(), (cache_key, new_view)][-_MOST_VIEWS:])
        return new_view

    @contextmanager
    def _engine(self) -> Iterator[_Engine]:
        try:
            engine = self._free.pop()
        except IndexError:
            # No SQL of users runs in it: the view comes from the job's record.
            connection = duckdb.connect(
                config={"python_enable_replacements": False, "threads": 1, **databases.FORGETS_FILES}
            )
            # Optimizing a plan over a few rows takes longer than it saves.
            connection.execute("SET TimeZone = 'UTC'; PRAGMA disable_optimizer")
            key_hash.register(connection)
            self._prepare(connection)
            engine = _Engine(connection, PreparedStatements(connection))
        try:
            yield engine
        finally:
            self._free.append(engine)

    def close(self) -> None:
        """Close the connections that no lookup is using."""
        for engine in self._free:
            engine.connection.close()


def _split(engine: _Engine, group: Sequence[_Lookup], relations: Relations) -> list[FoundRows]:
    """Return the view's rows of each key, from the stored rows of all of them by table. Raises _Alone."""
    first = group[0]
    # The number of keys is rounded up to a power of two, so that few statements are parsed.
    count = 1 << (len(group) - 1).bit_length()
    keys = [lookup.key.values for lookup in group]
    keys += [keys[-1]] * (count - len(group))
    values = [*chain.from_iterable(keys), *first.view.values_of(first.at)]
    sql = first.view.several(relations, first.at, count)
    answer = engine.statements.execute(sql, values, first.variables)
    types = dict(list(_types(answer).items())[1:])
    key_rows: list[list[Sequence[Any]]] = [[] for _ in range(count)]
    for number, *row in answer.fetchall():
        if number is None:
            # Another key has the same hash as one of these.
            raise _NotShareable
        key_rows[number].append(tuple(row))
    return [FoundRows(first.version, types, rows) for rows in key_rows[: len(group)]]


def _types(answer: duckdb.DuckDBPyConnection) -> dict[str, str]:
    return {column[0]: str(column[1]) for column in answer.description}


def _record(history: JobHistory) -> JobRecord:
    record = history.record
    assert record is not None
    return record


def _stored(engine: _Engine, view: LookupView, key: Sequence[str | None]) -> StoredKey:
    """Return a key as it is stored. Raises QueryError unless it has a value of the right type for each key column."""
    names = view.relation.operator.key_columns
    if len(key) != len(names):
        columns = "1 column" if len(names) == 1 else f"{len(names)} columns"
        hint = f"Give a value for each, in this order: {', '.join(names)}."
        raise QueryError(f'the key of "{view.relation.title}" has {columns}, not {len(key)}', hint=hint)
    try:
        stored_key: StoredKey | duckdb.Error = StoredKey(view, engine.statements, key)
    except duckdb.Error as error:
        stored_key = error
    if isinstance(stored_key, duckdb.Error) or not stored_key.is_as_written(key):
        for name, column, value in zip(names, view.columns, key, strict=True):
            if column.type != "VARCHAR":
                check_key_value(engine.connection, name, value, column.type)
    if isinstance(stored_key, duckdb.Error):
        raise stored_key
    return stored_key
