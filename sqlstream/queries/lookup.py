"""The rows that a state has for one key, found again and again: what never changes of a warehouse is kept in memory.

A key is in one bucket. Of the segments of that bucket a process keeps the rows, with an index by their keys' hashes
(`storage/key_index.py`). So a lookup lists the commits, takes rows in memory, and runs the view over them as a statement that is
planned already: nearly all of what a query of so few rows costs is its plan.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb

from sqlstream.catalog import Column
from sqlstream.duck import clock, databases, key_hash
from sqlstream.duck.sql import over
from sqlstream.errors import DamageError, QueryError
from sqlstream.queries.key_rows import AskedView, RowsOfKey, StoredKey
from sqlstream.queries.prepared import PreparedStatements
from sqlstream.queries.versions import Version, find_state, find_version, no_version
from sqlstream.queries.why import check_key_value
from sqlstream.storage.histories import JobHistories
from sqlstream.storage.joblog import labels_of
from sqlstream.storage.manifests import Manifest
from sqlstream.storage.segments import Segment
from sqlstream.storage.snapshot import JobHistory, JobVersion, named_manifest
from sqlstream.storage.views import operator_version
from sqlstream.warehouse.jobs import JobRecord
from sqlstream.warehouse.paths import Warehouse
from sqlstream.warehouse.records import GONE

# A reader that is overtaken by the deletion of old files looks again.
_ATTEMPTS = 4
_MOST_MANIFESTS = 1_000
_MOST_ASKED = 100


@dataclass(frozen=True, slots=True)
class FoundRows:
    """The rows of a view of a key at a version, and the types of its columns."""

    version: JobVersion
    types: Mapping[str, str]
    rows: Sequence[Sequence[Any]]


class Manifests:
    """The manifest of each bucket that was read last; those of buckets that were asked for least lately go.

    A lookup reads the newest one, at an older version, too. A job that commits several times a second would fill the memory with
    those before it, which nobody asks for again.
    """

    def __init__(self) -> None:
        # By the directory of the bucket's manifests, with its file.
        self._found: OrderedDict[str, tuple[str, Manifest]] = OrderedDict()
        self._changing = threading.Lock()

    def get(self, directory: str, name: str, read: Callable[[], Manifest]) -> Manifest:
        """Return the manifest of a name, and read it if it is not known."""
        with self._changing:
            known = self._found.get(directory)
            if known is not None and known[0] == name:
                self._found.move_to_end(directory)
                return known[1]
        found = read()
        with self._changing:
            self._found[directory] = name, found
            self._found.move_to_end(directory)
            while len(self._found) > _MOST_MANIFESTS:
                self._found.popitem(last=False)
        return found


@dataclass(frozen=True, slots=True)
class _Lent:
    """A connection, and the statements that are planned in it."""

    connection: duckdb.DuckDBPyConnection
    statements: PreparedStatements


class Lookups:
    """Looks for keys in the states of a warehouse, in several threads; `prepare` registers functions in a connection.

    Indexes take at most `memory` bytes.
    """

    def __init__(self, warehouse: Warehouse, memory: int, prepare: Callable[[duckdb.DuckDBPyConnection], object]):
        self._warehouse, self._memory, self._prepare = warehouse, memory, prepare
        self._histories = JobHistories(warehouse)
        self._manifests = Manifests()
        self._free: list[_Lent] = []
        self._asked: dict[object, AskedView] = {}

    def find(self, job: str, operator: str, key: Sequence[str | None], version: Version | None = None) -> FoundRows:
        """Return the rows of a key, which has a value for each key column, in their order. Raises QueryError."""
        with self._lent() as lent:
            for attempt in range(_ATTEMPTS):
                try:
                    return self._find(lent, job, operator, key, version)
                except (FileNotFoundError, DamageError, duckdb.IOException) as error:
                    if attempt == _ATTEMPTS - 1 or (isinstance(error, DamageError) and error.fault != GONE):
                        raise
                    self._histories.forget(job.lower())
        raise AssertionError("unreachable")

    def _find(
        self, lent: _Lent, job: str, operator: str, key: Sequence[str | None], version: Version | None
    ) -> FoundRows:
        history = self._histories.of(job.lower())
        newest = history.newest
        if newest is None:
            # Either there is no such job, or it has no version.
            find_state({history.name: history} if history.record is not None else {}, f"{job}.{operator}", None)
            raise QueryError(f'job "{job}" has no version yet', hint="It has one once it has committed a batch.")
        labels = labels_of(_record(history), newest.newest)
        asked = self._asked_of(lent.connection, history, f"{job}.{operator}", labels)
        stored = _stored(lent, asked, key)
        at = newest if version is None else find_version(lent.connection, history, version, None)
        return self._read(lent, history, asked, at, stored)

    def _read(self, lent: _Lent, history: JobHistory, asked: AskedView, at: JobVersion, key: StoredKey) -> FoundRows:
        operator = asked.relation.operator
        paths = self._warehouse.job(asked.record.job).operator(operator.name)
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
        rows = RowsOfKey(self._warehouse, asked, key, seen, self._memory)
        directory, relations, is_indexed = paths.data(key.label), dict[str, str](), True
        for number, table in enumerate(asked.tables):
            found, unindexed = rows.find(lent.connection, directory, table, segments.get(table.name, ()))
            relations[table.name] = rows.relation(table, lent.statements.put(number, found), directory, unindexed)
            is_indexed = is_indexed and not unindexed
        variables = clock.view_variables(at.time, at.watermark) if "getvariable" in asked.sql else None
        # Which files there are to read changes with each batch.
        run = lent.statements.execute if is_indexed else lent.statements.execute_once
        answer = run(over(relations, asked.sql), rows.values(), variables)
        types = {column[0]: str(column[1]) for column in answer.description}
        return FoundRows(at, types, answer.fetchall())

    def _asked_of(
        self, connection: duckdb.DuckDBPyConnection, history: JobHistory, title: str, labels: tuple[int, ...]
    ) -> AskedView:
        """Return what is asked about. Raises QueryError for what is not there, or not stored by key."""
        record, known = _record(history), (title.lower(), labels)
        if (asked := self._asked.get(known)) is not None and (asked.record is record or asked.record == record):
            return asked
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
        found = AskedView(record, relation, columns, used, labels)
        self._asked = dict([*self._asked.items(), (known, found)][-_MOST_ASKED:])
        return found

    @contextmanager
    def _lent(self) -> Iterator[_Lent]:
        try:
            found = self._free.pop()
        except IndexError:
            # Nothing that people write runs in it: the view is the job's own.
            connection = duckdb.connect(
                config={"python_enable_replacements": False, "threads": 1, **databases.FORGETS_FILES}
            )
            # Of a few rows a plan costs more than it saves when it is improved.
            connection.execute("SET TimeZone = 'UTC'; PRAGMA disable_optimizer")
            key_hash.register(connection)
            self._prepare(connection)
            found = _Lent(connection, PreparedStatements(connection))
        try:
            yield found
        finally:
            self._free.append(found)

    def close(self) -> None:
        for lent in self._free:
            lent.connection.close()


def _record(history: JobHistory) -> JobRecord:
    record = history.record
    assert record is not None
    return record


def _stored(lent: _Lent, asked: AskedView, key: Sequence[str | None]) -> StoredKey:
    """Return a key as it is stored. Raises QueryError unless there is a value for each key column, of its type."""
    names = asked.relation.operator.key_columns
    if len(key) != len(names):
        columns = "1 column" if len(names) == 1 else f"{len(names)} columns"
        hint = f"Give a value for each, in this order: {', '.join(names)}."
        raise QueryError(f'the key of "{asked.relation.title}" has {columns}, not {len(key)}', hint=hint)
    try:
        found: StoredKey | duckdb.Error = StoredKey(asked, lent.statements, key)
    except duckdb.Error as error:
        found = error
    if isinstance(found, duckdb.Error) or not found.is_as_written(key):
        for name, column, value in zip(names, asked.columns, key, strict=True):
            if column.type != "VARCHAR":
                check_key_value(lent.connection, name, value, column.type)
    if isinstance(found, duckdb.Error):
        raise found
    return found
