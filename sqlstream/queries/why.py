"""`sqlstream.why('job.operator', column := value)`: the state of one key, and when it will change."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import duckdb

from sqlstream.duck.internal_columns import INTERNAL, internal
from sqlstream.duck.sql import TRUE, Condition, Relation, Select, all_of, quote_name, quote_text
from sqlstream.duck.types import kind_of
from sqlstream.errors import QueryError, Span, missing
from sqlstream.queries.arguments import CallArgument
from sqlstream.queries.key_state import KeyState
from sqlstream.queries.outlook import Finding, due_times, expiries, late_rows, sources
from sqlstream.queries.versions import StateRelation, StateVersion, find_moment, find_savepoint_named, find_state
from sqlstream.storage.snapshot import JobHistory, JobVersion, VersionGone
from sqlstream.warehouse.paths import Warehouse

USAGE = (
    "Write sqlstream.why('job.operator', column := value, ..), with a value for each key column; behind the operator there may be"
    " a version: a number, a time or a savepoint."
)
COLUMNS = {"part": "VARCHAR", "name": "VARCHAR", "text": "VARCHAR", "time": "TIMESTAMP", "content": "JSON"}
# The most rows of a view that are shown.
MOST_ROWS = 100
# A DOUBLE keeps this many digits of any decimal number.
_DIGITS = 15
_WHOLE = (
    "tinyint",
    "smallint",
    "integer",
    "bigint",
    "hugeint",
    "utinyint",
    "usmallint",
    "uinteger",
    "ubigint",
    "uhugeint",
)


def name_of_key(number: int) -> str:
    """Return the name of the argument with the value of a key column, by the column's index (from 0) in the key."""
    return internal(f"key_{number}")


def create_why(
    connection: duckdb.DuckDBPyConnection,
    catalog: str,
    warehouse: Warehouse,
    jobs: Mapping[str, JobHistory],
    arguments: Sequence[CallArgument],
    span: Span,
    folders: Mapping[str, Warehouse] | None = None,
) -> str:
    """Create the relation of a call of `sqlstream.why`: see `Maker`. `folders` are savepoints by the folders that name them."""
    positional = [g for g in arguments if g.name is None]
    if not 1 <= len(positional) <= 2 or positional[0].value is None:
        raise QueryError("sqlstream.why takes an operator, and a version if need be", span, hint=USAGE)
    state = _state(connection, warehouse, jobs, positional, folders or {})
    values = _key(connection, state.relation, [g for g in arguments if g.name is not None], span)
    schema = f"{quote_name(catalog)}.main"
    connection.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {quote_name(catalog)}")
    explanation = _Explanation(connection, schema, state.warehouse, state.relation, values, state.version)
    rows = json.dumps([finding.row() for finding in explanation.findings()])
    stored = json.dumps([{**COLUMNS, "time": "BIGINT"}])
    items = "r.part, r.name, r.text, make_timestamp(r.time) AS time, r.content"
    connection.execute(
        f"CREATE TABLE {schema}.why AS SELECT {items} FROM (SELECT unnest(from_json($rows::JSON, {quote_text(stored)})) AS r)",
        {"rows": rows},
    )
    return f"{schema}.why"


def _state(
    connection: duckdb.DuckDBPyConnection,
    warehouse: Warehouse,
    jobs: Mapping[str, JobHistory],
    positional: Sequence[CallArgument],
    folders: Mapping[str, Warehouse],
) -> StateVersion:
    """Return the state that the positional arguments name: now, at a version, or in a savepoint. Raises QueryError."""
    state, *moment = positional
    opened = [find_savepoint_named(warehouse, one.value, one.span, folders) for one in moment]
    # A job that was dropped is still in its savepoints.
    all_jobs = {**{one.job.name: one.job for one in opened if one is not None}, **jobs}
    relation = find_state(all_jobs, state.value, state.span)
    if moment:
        return find_moment(connection, warehouse, relation, moment[0].value, moment[0].span, folders)
    if relation.job.newest is None:
        raise QueryError(f'job "{relation.title.partition(".")[0]}" has no version yet', state.span)
    return StateVersion(warehouse, relation, relation.job.newest)


def _key(
    connection: duckdb.DuckDBPyConnection, relation: StateRelation, named: Sequence[CallArgument], span: Span
) -> tuple[Any, ...]:
    """Return the values of the key columns in their order. Raises QueryError."""
    operator = relation.operator
    columns = {name.lower(): name for name in operator.key_columns}
    if columns and len(operator.hash_columns) != len(operator.key_columns):
        message = f'the record of job "{relation.job.name}" is of an earlier version of sqlstream'
        raise QueryError(message, span, hint="Run the job, which writes it anew.")
    of_key = f'The key of "{relation.title}" is {", ".join(operator.key_columns)}.'
    positional = {name_of_key(number): name for number, name in enumerate(columns)}
    by_column: dict[str, CallArgument] = {}
    for one in named:
        name = positional.get(one.name or "", (one.name or "").lower())
        if columns and name.startswith(INTERNAL):
            raise QueryError(f'"{one.value}" is one value too many for a key', one.span, hint=of_key)
        if name not in columns:
            hint = missing("key column", one.name or "", operator.key_columns)
            if not columns:
                hint = f'Operator "{operator.name}" has no key columns: leave them out.'
            named_or_not = (
                f'"{one.name}" is no key column of' if not name.startswith(INTERNAL) else "there is no key in"
            )
            raise QueryError(f'{named_or_not} "{relation.title}"', one.span, hint=hint)
        if name in by_column:
            raise QueryError(f'key column "{one.name}" has two values', one.span)
        by_column[name] = one
    if absent := [column for name, column in columns.items() if name not in by_column]:
        raise QueryError(f'there is no value for key column "{absent[0]}"', span, hint=of_key)
    types = {name: type for table in operator.tables for name, type in table.columns}
    pairs = zip(columns, operator.hash_columns, strict=True) if columns else ()
    return tuple(
        check_key_value(connection, columns[name], by_column[name].value, types[stored], by_column[name].span)
        for name, stored in pairs
    )


def check_key_value(
    connection: duckdb.DuckDBPyConnection, column: str, value: Any, type: str, span: Span | None = None
) -> Any:
    """Return a value unchanged if it can be cast to the type of its key column. Raises QueryError at the span otherwise."""
    if value is None:
        return None
    fits = not is_whole(type) or has_whole_number(value)
    try:
        [(cast,)] = connection.execute(f"SELECT CAST(? AS {type}) IS NOT NULL", [value]).fetchall()
    except duckdb.Error:
        cast = False
    if not (fits and cast):
        raise QueryError(f'"{value}" is no value of key column "{column}", whose type is {type}', span)
    return value


def is_whole(type: str) -> bool:
    """Return whether a DuckDB type has whole numbers only. DuckDB would round fractions to it."""
    return kind_of(type) in _WHOLE


def has_whole_number(value: Any) -> bool:
    """Return whether a value is written as a whole number."""
    return str(value).strip().lstrip("+-").isdecimal()


@dataclass(frozen=True)
class _Explanation:
    """The explanation of a key at a version: of all views of the operator, or of one that is not the main view."""

    connection: duckdb.DuckDBPyConnection
    schema: str
    warehouse: Warehouse
    relation: StateRelation
    values: tuple[Any, ...]
    version: JobVersion

    @cached_property
    def state(self) -> KeyState:
        """The stored rows of the key, loaded into tables of the schema."""
        record, newest = self.relation.job.record, self.relation.job.newest
        assert record is not None
        assert newest is not None
        operator = self.relation.operator
        state = KeyState(self.connection, self.schema, self.warehouse, record, operator, self.values, newest)
        state.load()
        return state

    @cached_property
    def views(self) -> dict[str, Select]:
        """The views to show, by name; with a key, only views whose rows can be assigned to keys."""
        operator = self.relation.operator
        shown = (
            operator.views
            if self.relation.name == operator.name
            else {self.relation.name: operator.views[self.relation.name]}
        )
        return {name: sql for name, sql in shown.items() if self._condition(name, sql) is not None}

    def _condition(self, name: str, sql: Select) -> Condition | None:
        """Return the condition that a row of a view is of the key, None if the view does not tell."""
        if not self.values or any(map(self.state.is_keyed, self.state.tables_of(sql))):
            return TRUE
        # Late rows are stored without hash columns, but their view may have the key columns.
        view = self.state.view(name, sql, self.version)
        columns = {c.lower(): c for c in self.connection.sql(f"FROM {view}").columns}
        keys = [columns.get(key.lower()) for key in self.relation.operator.key_columns]
        if None in keys:
            return None
        pairs = zip(keys, self.values, strict=True)
        return all_of(
            f"{quote_name(k)}::VARCHAR IS NOT DISTINCT FROM {_literal(value)}" for k, value in pairs if k is not None
        )

    def _rows(self, name: str, version: JobVersion) -> list[Mapping[str, Any]]:
        """Return the key's rows of a view, as JSON objects: at most MOST_ROWS + 1."""
        view, condition = self._of_key(name, version)
        of_key = f"FROM {view} WHERE {condition} ORDER BY ALL LIMIT {MOST_ROWS + 1}"
        relation = self.connection.sql(f"FROM {view}")
        exact = [
            f"CAST({quote_name(name)} AS VARCHAR) AS {quote_name(name)}"
            for name, kind in zip(relation.columns, relation.types, strict=True)
            if _is_long(kind)
        ]
        shown = f"* REPLACE ({', '.join(exact)})" if exact else "*"
        result = self.connection.execute(f"SELECT to_json(_row_)::VARCHAR FROM (SELECT {shown} FROM ({of_key})) _row_")
        return [json.loads(text) for (text,) in result.fetchall()]

    def findings(self) -> Iterator[Finding]:
        """Yield the rows of `sqlstream.why`, in the order in which people read them. Raises VersionGone."""
        if self.version.version < self.state.oldest:
            raise VersionGone(self.relation.job.name, self.state.oldest)
        of = f' of savepoint "{saved.location}"' if (saved := self.relation.savepoint) is not None else ""
        yield Finding("version", None, f"version {self.version.version}{of}", self.version.time)
        rows = {name: self._rows(name, self.version) for name in self.views}
        yield from _contents("state", rows)
        operator = self.relation.operator
        log = next(e for e in self.relation.job.entries if e.version == self.version.version)
        if not any(rows.values()):
            yield from self._last()
        main = rows.get(operator.name, [])
        yield from due_times(operator, main, self.version.watermark_of(operator.name))
        yield from expiries(rows)
        if log.sources and (operator.window is not None or any(t.time_column for t in operator.tables)):
            yield from sources(operator, log)
        yield from late_rows(operator, log)

    def _last(self) -> Iterator[Finding]:
        """Yield that the state has nothing for the key, and the last version that had something."""
        of = "this key" if self.values else "this operator"
        if self.relation.savepoint is not None:
            # A savepoint has one version.
            yield Finding("nothing", None, f"nothing is kept for {of} in the savepoint")
            return
        last = self._last_version()
        if last is None:
            oldest = self.relation.job.oldest
            text = f"nothing is kept for {of}, nor was in any version since {oldest}"
            yield Finding("nothing", None, text)
            return
        yield Finding(
            "nothing", None, f"nothing is kept for {of}; version {last.version} was the last that had it", last.time
        )
        yield from _contents("last", {name: self._rows(name, last) for name in self.views})

    def _last_version(self) -> JobVersion | None:
        """Return the newest version, up to this one, with rows of the key; None if there is none.

        Between two batches that wrote rows of the key, its rows can only disappear: so bisection finds the version there.
        """
        versions = [e.version for e in self.relation.job.entries if e.version <= self.version.version]
        versions = [v for v in versions if v >= self.state.oldest]
        if not versions:
            return None
        begins = sorted({versions[0], *(b for b in self.state.batches() if versions[0] < b <= versions[-1])})
        end = versions[-1]
        for begin in reversed(begins):
            part = [v for v in versions if begin <= v <= end]
            end = begin - 1
            if not part or not self._holds(part[0]):
                continue
            low, high = 0, len(part) - 1
            while low < high:
                middle = (low + high + 1) // 2
                low, high = (middle, high) if self._holds(part[middle]) else (low, middle - 1)
            return self.relation.job.at_version(part[low])
        return None

    def _holds(self, number: int) -> bool:
        version = self.relation.job.at_version(number)
        return version is not None and any(self._has_rows(name, version) for name in self.views)

    def _has_rows(self, name: str, version: JobVersion) -> bool:
        view, condition = self._of_key(name, version)
        return bool(self.connection.execute(f"SELECT 1 FROM {view} WHERE {condition} LIMIT 1").fetchall())

    def _of_key(self, name: str, version: JobVersion) -> tuple[Relation, Condition | None]:
        """Return a view at a version, and the condition that a row of it is of the key."""
        sql = self.relation.operator.views[name]
        condition = self._condition(name, sql)
        return self.state.view(name, sql, version), condition


def _is_long(kind: Any) -> bool:
    """Return whether a type is a DECIMAL with more digits than a DOUBLE: DuckDB writes it to JSON as a DOUBLE."""
    return kind.id == "decimal" and int(dict(kind.children)["precision"]) > _DIGITS


def _literal(value: Any) -> str:
    return "NULL" if value is None else quote_text(str(value))


def _contents(part: str, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[Finding]:
    for name, of in rows.items():
        for content in of[:MOST_ROWS]:
            yield Finding(part, name, None, None, content)
        if len(of) > MOST_ROWS:
            yield Finding(part, name, f"more than {MOST_ROWS} rows: the others are not shown")
