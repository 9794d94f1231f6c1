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
from sqlstream.duck import clock, databases, key_hash
from sqlstream.duck.sql import over
from sqlstream.errors import DamageError, QueryError
from sqlstream.queries.key_rows import AskedView, StoredKey, StoredRows
from sqlstream.queries.lookup_turns import Turns, Waiting
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

# How often a lookup is tried: files that it needs may be deleted while it runs.
_ATTEMPTS = 4
_MOST_MANIFESTS = 1_000
_MOST_ASKED = 100
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
        self._found: OrderedDict[str, tuple[str, Manifest]] = OrderedDict()
        self._changing = threading.Lock()

    def get(self, directory: str, name: str, read: Callable[[], Manifest]) -> Manifest:
        """Return the manifest `name` of a directory: the cached one, or the result of `read`."""
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


@dataclass(frozen=True, slots=True)
class Question:
    """A lookup: a key of a state, at a version or the newest one (None). A value of the key is a text, or None for NULL."""

    job: str
    operator: str
    key: Sequence[str | None]
    version: Version | None = None


_Request: TypeAlias = Waiting[Question, FoundRows]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A key to look up in a view, at a version (`at`: as the operator has it), with the segments of its bucket by table."""

    asked: AskedView
    version: JobVersion
    at: JobVersion
    key: StoredKey
    directory: str
    segments: Mapping[str, Sequence[Segment]]

    @property
    def variables(self) -> Mapping[str, str]:
        """The clock variables that the view reads, as SQL by name."""
        tells_time = "getvariable" in self.asked.sql
        return clock.view_variables(self.version.time, self.version.watermark) if tells_time else {}


class _Alone(Exception):
    """A key needs a statement of its own."""


def _not_now() -> AbstractContextManager[None]:
    raise _Alone


class Lookups:
    """Looks up keys in the states of a warehouse; several threads may call `find`.

    `prepare` registers functions in a new connection. Indexes take at most `memory` bytes.
    """

    def __init__(self, warehouse: Warehouse, memory: int, prepare: Callable[[duckdb.DuckDBPyConnection], object]):
        self._warehouse, self._memory, self._prepare = warehouse, memory, prepare
        self._histories = JobHistories(warehouse)
        self._manifests = Manifests()
        self._free: list[_Lent] = []
        self._asked: dict[object, AskedView] = {}
        self._turns = Turns[Question, FoundRows](self._together, self._alone, _MOST_TOGETHER)

    def find(self, job: str, operator: str, key: Sequence[str | None], version: Version | None = None) -> FoundRows:
        """Return the rows of a key. Raises QueryError if the state, the version or the key's values are wrong, and DamageError.

        `key` has a text, or None for NULL, for each key column, in their order.
        """
        return self._turns.ask(Question(job, operator, key, version))

    def _together(self, requests: Sequence[_Request]) -> None:
        """Answer requests by common statements where that is possible: when their rows are indexed, and nothing fails."""
        groups: dict[tuple[int, int], list[tuple[_Request, _Wanted]]] = {}
        with self._lent() as lent:
            for request in requests:
                # The error is raised when the request is repeated alone.
                with suppress(Exception):
                    wanted = self._wanted(lent, request.question)
                    if wanted.asked.shows_key and None not in request.question.key:
                        groups.setdefault((id(wanted.asked), wanted.version.version), []).append((request, wanted))
            for group in groups.values():
                if len(group) > 1:
                    with suppress(Exception):
                        found = self._found_together(lent, [wanted for _, wanted in group])
                        for (request, _), rows in zip(group, found, strict=True):
                            request.answer = rows

    def _alone(self, question: Question) -> FoundRows:
        with self._lent() as lent:
            for attempt in range(_ATTEMPTS):
                try:
                    return self._found(lent, self._wanted(lent, question))
                except (FileNotFoundError, DamageError, duckdb.IOException) as error:
                    if attempt == _ATTEMPTS - 1 or (isinstance(error, DamageError) and error.fault != GONE):
                        raise
                    self._histories.forget(question.job.lower())
        raise AssertionError("unreachable")

    def _wanted(self, lent: _Lent, question: Question) -> _Wanted:
        """Return what a lookup needs. Raises QueryError."""
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
        asked = self._asked_of(lent.connection, history, title, labels)
        key = _stored(lent, asked, question.key)
        at = newest if question.version is None else find_version(lent.connection, history, question.version, None)
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
        return _Wanted(asked, at, seen, key, paths.data(key.label), segments)

    def _found(self, lent: _Lent, wanted: _Wanted) -> FoundRows:
        asked = wanted.asked
        rows = StoredRows(self._warehouse, asked, [wanted.key], wanted.at, self._memory, self._turns.left)
        relations, is_indexed = dict[str, str](), True
        for number, table in enumerate(asked.tables):
            segments = wanted.segments.get(table.name, ())
            found, unindexed = rows.find(lent.connection, wanted.directory, table, segments)
            slot = lent.statements.put(number, found)
            relations[table.name] = rows.relation(table, slot, wanted.directory, unindexed)
            is_indexed = is_indexed and not unindexed
        sql = over(relations, asked.sql)
        values = [*wanted.key.values, *asked.values_of(wanted.at)] if asked.tables else []
        if is_indexed:
            answer = lent.statements.execute(sql, values, wanted.variables)
            return FoundRows(wanted.version, _types(answer), answer.fetchall())
        with self._turns.left():
            # The statement names the files to read, which change with each batch.
            answer = lent.statements.execute_once(sql, values, wanted.variables)
            return FoundRows(wanted.version, _types(answer), answer.fetchall())

    def _found_together(self, lent: _Lent, group: Sequence[_Wanted]) -> list[FoundRows]:
        """Return the rows of several keys by one statement. Raises _Alone when rows are in files, or are of other keys."""
        first, relations = group[0], dict[str, str]()
        buckets: dict[str, list[_Wanted]] = {}
        for wanted in group:
            buckets.setdefault(wanted.directory, []).append(wanted)
        for number, table in enumerate(first.asked.tables):
            parts = list[pa.Table]()
            for directory, some in buckets.items():
                keys = [wanted.key for wanted in some]
                stored = StoredRows(self._warehouse, first.asked, keys, first.at, self._memory, _not_now)
                rows, unindexed = stored.find(lent.connection, directory, table, some[0].segments.get(table.name, ()))
                if unindexed:
                    raise _Alone
                parts.append(rows)
            found = pa.concat_tables(parts, promote_options="permissive")
            relations[table.name] = lent.statements.put(number, found)
        return _split(lent, group, relations)

    def _asked_of(
        self, connection: duckdb.DuckDBPyConnection, history: JobHistory, title: str, labels: tuple[int, ...]
    ) -> AskedView:
        """Return the view to look up in. Raises QueryError if there is none, or it is not stored by key."""
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
            # No SQL of users runs in it: the view comes from the job's record.
            connection = duckdb.connect(
                config={"python_enable_replacements": False, "threads": 1, **databases.FORGETS_FILES}
            )
            # Optimizing a plan over a few rows takes longer than it saves.
            connection.execute("SET TimeZone = 'UTC'; PRAGMA disable_optimizer")
            key_hash.register(connection)
            self._prepare(connection)
            found = _Lent(connection, PreparedStatements(connection))
        try:
            yield found
        finally:
            self._free.append(found)

    def close(self) -> None:
        """Close the connections that no lookup is using."""
        for lent in self._free:
            lent.connection.close()


def _split(lent: _Lent, group: Sequence[_Wanted], relations: Mapping[str, str]) -> list[FoundRows]:
    """Return the view's rows of each key, from relations with the stored rows of all of them. Raises _Alone."""
    first = group[0]
    # The number of keys is rounded up to a power of two, so that few statements are parsed.
    count = 1 << (len(group) - 1).bit_length()
    keys = [wanted.key.values for wanted in group]
    keys += [keys[-1]] * (count - len(group))
    values = [*chain.from_iterable(keys), *first.asked.values_of(first.at)]
    sql = first.asked.several(relations, first.at, count)
    answer = lent.statements.execute(sql, values, first.variables)
    types = dict(list(_types(answer).items())[1:])
    found: list[list[Sequence[Any]]] = [[] for _ in range(count)]
    for number, *row in answer.fetchall():
        if number is None:
            # Another key has the same hash as one of these.
            raise _Alone
        found[number].append(tuple(row))
    return [FoundRows(first.version, types, rows) for rows in found[: len(group)]]


def _types(answer: duckdb.DuckDBPyConnection) -> dict[str, str]:
    return {column[0]: str(column[1]) for column in answer.description}


def _record(history: JobHistory) -> JobRecord:
    record = history.record
    assert record is not None
    return record


def _stored(lent: _Lent, asked: AskedView, key: Sequence[str | None]) -> StoredKey:
    """Return a key as it is stored. Raises QueryError unless it has a value of the right type for each key column."""
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
