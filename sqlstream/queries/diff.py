"""`sqlstream.diff('job.operator', older, newer)`: the rows of a state that differ between two versions, and why.

A version is one that a job keeps, or a savepoint.

Rows of state whose hash columns differ are independent of each other. So a comparison first collects the keys that batches wrote
between the versions, from the segments that only one of the versions sees, and compares the rows of these keys only. Rows of
other keys can still disappear as time passes: windows close, keys expire.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import duckdb

from sqlstream.duck.internal_columns import EXPIRES_AT, internal
from sqlstream.duck.sql import FALSE, Condition, Items, Select, over, quote_name, quote_text, same_columns, union_all
from sqlstream.duck.types import time_literal
from sqlstream.errors import QueryError, Span
from sqlstream.queries.arguments import CallArgument, by_parameter
from sqlstream.queries.statement import tokenize
from sqlstream.queries.version_differences import (
    ADDED,
    BY_BATCH,
    TableVersion,
    VersionDifference,
    content_difference,
    version_difference,
)
from sqlstream.queries.versions import StateRelation, StateVersion, find_moment, find_savepoint_named, find_state
from sqlstream.storage.snapshot import JobHistory, JobVersion, VisibleSegments
from sqlstream.storage.views import at_operator, operator_version, state_tables, times_macro, visible_state
from sqlstream.storage.zsets import WEIGHT
from sqlstream.units import END_OF_INPUT, MILLISECOND, EventTime
from sqlstream.warehouse.declarations import TableDeclaration
from sqlstream.warehouse.paths import Warehouse

USAGE = (
    "Write sqlstream.diff('job.operator', 10, 20): two versions, as numbers, times or savepoints, the older one first."
)
# How often the newer version has a row, minus how often the older one has it; and the kind of the row's key (`_keep_keys`).
_COUNT, _KIND = internal("count"), internal("kind")
# The kind of keys of which nothing was written between the versions.
_REST = 4
# Kinds of keys whose rows no batch has changed, or perhaps not only batches: an upgrade or a migration wrote the state.
_MIGRATED, _PERHAPS_MIGRATED = 8, 9
# The column with the processing time of the last row of a key, in milliseconds.
_AT = "_at"
# The tables of a process function's timers.
_TIMERS = ("event_timers", "processing_timers")


def create_diff(
    connection: duckdb.DuckDBPyConnection,
    catalog: str,
    warehouse: Warehouse,
    jobs: Mapping[str, JobHistory],
    arguments: Sequence[CallArgument],
    span: Span,
    folders: Mapping[str, Warehouse] | None = None,
) -> str:
    """Create the relation of a call of `sqlstream.diff`: see `Maker`. `folders` are savepoints by the folders that name them."""
    state, *named = by_parameter(arguments, ("state", "older", "newer"), USAGE, span)
    folders = folders or {}
    opened = [find_savepoint_named(warehouse, one.value, one.span, folders) for one in named]
    # A job that was dropped is still in its savepoints.
    all_jobs = {**{one.job.name: one.job for one in opened if one is not None}, **jobs}
    relation = find_state(all_jobs, state.value, state.span)
    older, newer = (find_moment(connection, warehouse, relation, one.value, one.span, folders) for one in named)
    difference = _Difference(connection, catalog, older, newer)
    if difference.is_one_life and older.version.version > newer.version.version:
        message = f"version {newer.version.version} is older than version {older.version.version}"
        raise QueryError(message, named[1].span, hint="Name the older version first.")
    return difference.create()


@dataclass(frozen=True)
class _Difference:
    """The difference of a state between two versions, computed in catalogs of its own."""

    connection: duckdb.DuckDBPyConnection
    catalog: str
    older: StateVersion
    newer: StateVersion

    @property
    def sides(self) -> tuple[StateVersion, StateVersion]:
        return self.older, self.newer

    @property
    def relation(self) -> StateRelation:
        """The relation in the newer version."""
        return self.newer.relation

    @cached_property
    def versions(self) -> tuple[JobVersion, JobVersion]:
        """The versions, with the watermark of the operator in place of the job's."""
        older, newer = (at_operator(side.relation.operator, side.version) for side in self.sides)
        return older, newer

    @property
    def is_one_life(self) -> bool:
        """Whether the job ran on from one version to the other, without a fresh start or a return to a savepoint in between."""
        older, newer = (side.relation.job.record for side in self.sides)
        return older is newer or (older is not None and newer is not None and older.created_at == newer.created_at)

    @cached_property
    def is_alike(self) -> bool:
        """Whether the state has the same tables and the same view in both versions."""
        older, newer = (side.relation.operator for side in self.sides)
        name = self.relation.name
        same = older.tables == newer.tables and older.hash_columns == newer.hash_columns
        return older is newer or (same and older.views[name] == newer.views[name])

    @property
    def is_rewritten(self) -> bool:
        """Whether an upgrade or a migration, and not only batches, may have changed the state."""
        older, newer = self.versions
        is_outside = any(side.relation.savepoint is not None for side in self.sides)
        return not self.is_alike or (is_outside and self.is_one_life and older.version == newer.version)

    @cached_property
    def schemas(self) -> tuple[str, str]:
        """The schemas for the older and the newer version. Views in them see the clock of their version."""
        return f"{quote_name(f'{self.catalog}older')}.main", f"{quote_name(f'{self.catalog}newer')}.main"

    @cached_property
    def sql(self) -> tuple[Select, Select]:
        """The view in both versions."""
        older, newer = (side.relation.operator.views[side.relation.name] for side in self.sides)
        return older, newer

    @cached_property
    def tables(self) -> tuple[TableDeclaration, ...]:
        """The state tables that the view reads."""
        return self._tables(self.newer)

    def _tables(self, side: StateVersion) -> tuple[TableDeclaration, ...]:
        operator = side.relation.operator
        named = {name.lower() for name in self.connection.get_table_names(operator.views[side.relation.name])}
        declarations = (table.declaration for table in operator.tables)
        return tuple(table for table in declarations if table.name.lower() in named)

    @cached_property
    def own(self) -> tuple[JobVersion, JobVersion]:
        """The versions, each with the watermark up to which the operator has forgotten rows in place of the job's."""
        older, newer = (operator_version(side.relation.operator, side.version) for side in self.sides)
        assert older is not None
        assert newer is not None
        return older, newer

    @cached_property
    def rows(self) -> tuple[dict[str, Select], dict[str, Select]]:
        """All rows of the tables at both versions, by table."""
        older, newer = (
            state_tables(s.warehouse, s.relation.job.name, s.relation.operator, s.version) for s in self.sides
        )
        return older, newer

    @cached_property
    def changes(self) -> dict[str, VersionDifference]:
        """The rows of each table that were written or forgotten between the versions, by table."""
        older, newer = (self._table_versions(side, own) for side, own in zip(self.sides, self.own, strict=True))
        if any(side.relation.savepoint is not None for side in self.sides):
            return {t.name: content_difference(t, older[t.name], newer[t.name]) for t in self.tables}
        return {t.name: version_difference(t, older[t.name], newer[t.name]) for t in self.tables}

    def _table_versions(self, side: StateVersion, own: JobVersion) -> dict[str, TableVersion]:
        job, operator, warehouse = side.relation.job.name, side.relation.operator, side.warehouse
        visible = visible_state(warehouse, job, operator, own)
        data, none = f"{warehouse.job(job).operator(operator.name).root}/data", VisibleSegments()
        return {t.name: TableVersion(warehouse.fs, data, own, visible.get(t.name, none)) for t in self._tables(side)}

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The hash columns, as SQL; none if a table that changed lacks them: then all rows count as one key."""
        columns = self.relation.operator.hash_columns
        lacking = [table for table in self.tables if not {c.name for c in table.columns}.issuperset(columns)]
        if len(lacking) == len(self.tables):
            return ()
        if any(self.changes[table.name].changes or self.changes[table.name].forgotten for table in lacking):
            return ()
        return tuple(map(quote_name, columns))

    @cached_property
    def times_read(self) -> frozenset[str]:
        """The variables of the clock that the view reads and that differ between the versions."""
        tokens = tokenize(self.sql[1])
        named = (tokens[i + 2].text.strip("'") for i, t in enumerate(tokens) if t.name.lower() == "getvariable")
        older, newer = self.versions
        same = {"_now"} if older.time == newer.time else set()
        return frozenset(named) - same - ({"_watermark", "_reached"} if older.watermark == newer.watermark else set())

    @property
    def _tells_expired(self) -> bool:
        """Whether only the expiry of their keys can explain why rows are gone that no batch has removed."""
        operator = self.relation.operator
        return (
            self.times_read == {"_now"} and operator.ttl > 0 and self.relation.name == operator.name and bool(self.keys)
        )

    @property
    def _due(self) -> Condition:
        """The condition that a key has expired between the versions, unless a row has come for it."""
        older, newer = (version.time - self.relation.operator.ttl for version in self.versions)
        return Condition(f"{_AT} * {MILLISECOND} > {older} AND {_AT} * {MILLISECOND} <= {newer}")

    # -- steps

    def create(self) -> str:
        """Create the table of the difference (`change`, `reason`, `before`, `after`), and return its name as SQL."""
        name = quote_name(self.catalog)
        self.connection.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {name}")
        for schema, version in zip(self.schemas, self.versions, strict=True):
            self.connection.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {schema.removesuffix('.main')}")
            self.connection.execute(times_macro(schema, version))
        columns = self._columns()
        if self.is_rewritten:
            is_same_version = self.is_one_life and self.versions[0].version == self.versions[1].version
            parts = [self._differing("all", columns, _MIGRATED if is_same_version else _PERHAPS_MIGRATED)]
        else:
            parts = [self._written(name, kind, columns) for kind in self._keep_keys(name)]
            parts += self._rest(name, columns)
        nothing = Select(f"{self._select(0, 'all', columns, _REST)} WHERE false")
        net = union_all(parts or [nothing])
        result = f"{name}.main.difference"
        self.connection.execute(
            f"CREATE TABLE {result} AS {_paired(net, columns, self._row_key(columns), self._reason(columns))}"
        )
        return result

    def _keep_keys(self, name: str) -> list[int]:
        """Store the keys that were written, with their kinds, and the keys that time may have changed; return all kinds.

        A kind is 1 if rows were added, plus 2 if the watermark or a timer has passed rows of the key. Other kinds say that not
        only batches have written.
        """
        written, passed = self._key_rows()
        by = ", ".join([*self.keys, "_all"])
        self.connection.execute(
            f"CREATE TABLE {name}.main.passed AS SELECT {by}, bool_or(_moved) AS _moved "
            f"FROM ({union_all(passed)}) GROUP BY {by}"
        )
        done = "bool_or(_adds) AS _adds, bool_or(_by_batch) AS _by_batch"
        changed_keys = f"SELECT {by}, {done} FROM ({union_all(written)}) GROUP BY {by}"
        same = self._same("_written_", "_passed_")
        is_passed = f"EXISTS (FROM {name}.main.passed _passed_ WHERE _moved AND {same})"
        kind = f"_adds::INT + 2 * {is_passed}::INT"
        if self.is_one_life:
            migrated = f"WHEN NOT _by_batch THEN {_MIGRATED} WHEN _by_batch IS NULL THEN {_PERHAPS_MIGRATED}"
            kind = f"CASE {migrated} ELSE {kind} END"
        self.connection.execute(
            f"CREATE TABLE {name}.main.written AS SELECT *, {kind} AS {_KIND} FROM ({changed_keys}) _written_"
        )
        kinds = self.connection.execute(f"SELECT DISTINCT {_KIND} FROM {name}.main.written ORDER BY 1").fetchall()
        return [kind for (kind,) in kinds]

    def _key_rows(self) -> tuple[list[Select], list[Select]]:
        """Return the keys that were written, with whether rows were added, and the keys that time may have changed.

        For the latter, `_moved` says that the watermark or a timer has passed rows; otherwise the key may have expired.
        """
        items = ", ".join([*self.keys, "true AS _all"])
        written = [Select(f"SELECT {self._no_keys()}, true AS _adds, true AS _by_batch WHERE false")]
        passed = [Select(f"SELECT {self._no_keys()}, true AS _moved WHERE false")]
        for table in self.tables:
            changes = self.changes[table.name]
            if changes.changes:
                flags = f"{ADDED} AS _adds, {BY_BATCH} AS _by_batch"
                written.append(Select(f"SELECT {items}, {flags} FROM ({changes.changes})"))
                if table.name == _TIMERS[1]:
                    passed.append(Select(f"SELECT {items}, true AS _moved FROM ({changes.changes}) WHERE NOT {ADDED}"))
            if changes.forgotten:
                passed.append(Select(f"SELECT {items}, true AS _moved FROM ({changes.forgotten})"))
            elif self._tells_expired and _AT in {c.name for c in table.columns}:
                rows, weighted = self.rows[0][table.name], any(c.name == WEIGHT for c in table.columns)
                there = f"{WEIGHT} > 0 AND " if weighted else ""
                passed.append(Select(f"SELECT {items}, false AS _moved FROM ({rows}) WHERE {there}{self._due}"))
        return written, passed

    def _no_keys(self) -> Items:
        types = {quote_name(c.name): c.type for table in self.tables for c in table.columns}
        return Items(", ".join([*(f"CAST(NULL AS {types[k]}) AS {k}" for k in self.keys), "true AS _all"]))

    def _same(self, a: str, b: str) -> Condition:
        return same_columns(a, b, self.keys)

    def _columns(self) -> list[str]:
        """Create the view of all rows. Return its columns; columns that only the older version has come last."""
        for side, rows, schema, sql in zip(self.sides, self.rows, self.schemas, self.sql, strict=True):
            relations = {table.name: rows[table.name] for table in self._tables(side)}
            self.connection.execute(f'CREATE VIEW {schema}."all" AS {over(relations, sql)}')
        older, newer = self._own_columns
        return [*newer, *(name for name in older if name not in newer)]

    @cached_property
    def _own_columns(self) -> tuple[list[str], list[str]]:
        """The columns of the created view in both versions."""
        older, newer = (self.connection.sql(f'FROM {schema}."all"').columns for schema in self.schemas)
        return older, newer

    def _table_rows(self, rows: Mapping[str, Select]) -> dict[str, Select]:
        return {table.name: rows[table.name] for table in self.tables}

    def _has_keys(self, table: TableDeclaration) -> bool:
        return {quote_name(c.name) for c in table.columns}.issuperset(self.keys)

    def _written(self, name: str, kind: int, columns: Sequence[str]) -> Select:
        """Create views of the rows of keys of one kind; return their differences."""
        if not self.keys:
            return self._differing("all", columns, kind)
        for rows, schema in zip(self.rows, self.schemas, strict=True):
            relations = {}
            for table in self.tables:
                relations[table.name] = rows[table.name]
                if self._has_keys(table):
                    own = f"{schema}.{quote_name(f'{table.name} {kind}')}"
                    keys = f"(FROM {name}.main.written WHERE {_KIND} = {kind}) _keys_"
                    some = f"FROM ({rows[table.name]}) _rows_ SEMI JOIN {keys} ON {self._same('_rows_', '_keys_')}"
                    self.connection.execute(f"CREATE TABLE {own} AS {some}")
                    relations[table.name] = Select(f"FROM {own}")
            self.connection.execute(f'CREATE VIEW {schema}."kind {kind}" AS {over(relations, self.sql[1])}')
        return self._differing(f"kind {kind}", columns, kind)

    def _rest(self, name: str, columns: Sequence[str]) -> list[Select]:
        """Return the differences in keys that no batch wrote in between: only the passing of time changed them."""
        [(passed,)] = self.connection.execute(f"SELECT count(*) FROM {name}.main.passed").fetchall()
        [(written,)] = self.connection.execute(f"SELECT count(*) FROM {name}.main.written").fetchall()
        unmoved = not self.times_read or self._tells_expired
        if (unmoved and not passed) or (written and not self.keys):
            return []
        for rows, schema in zip(self.rows, self.schemas, strict=True):
            relations = self._table_rows(rows)
            for table in self.tables:
                if self.keys and self._has_keys(table):
                    of = f"({rows[table.name]}) _rows_"
                    if not self.times_read or self._tells_expired:
                        same = self._same("_rows_", "_passed_")
                        of = f"(FROM {of} SEMI JOIN {name}.main.passed _passed_ ON {same}) _rows_"
                    same = self._same("_rows_", "_written_")
                    relations[table.name] = Select(f"FROM {of} ANTI JOIN {name}.main.written _written_ ON {same}")
            self.connection.execute(f"CREATE VIEW {schema}.rest AS {over(relations, self.sql[1])}")
        if gone := self._gone(columns):
            return [Select(f"{self._select(0, 'rest', columns, _REST)} WHERE {gone}")]
        if self._tells_expired and EXPIRES_AT in columns:
            return [Select(f"{self._select(0, 'rest', columns, _REST)} WHERE {self._expired}")]
        return [self._differing("rest", columns, _REST)]

    # -- SQL

    def _select(self, index: int, view: str, columns: Sequence[str], kind: int) -> Select:
        count = "1" if index else "-1"
        own = self._own_columns[index]
        listed = ", ".join(quote_name(c) if c in own else f"NULL AS {quote_name(c)}" for c in columns)
        own_view = f"{self.schemas[index]}.{quote_name(view)}"
        return Select(f"SELECT {listed}, {kind} AS {_KIND}, {count} AS {_COUNT} FROM {own_view}")

    def _differing(self, view: str, columns: Sequence[str], kind: int) -> Select:
        """Return the rows that a view has more or less often in the newer version, with the difference."""
        both = union_all(self._select(index, view, columns, kind) for index in (0, 1))
        total = f"sum({_COUNT})"
        items = f"* EXCLUDE ({_COUNT}), {total} AS {_COUNT}"
        return Select(f"SELECT {items} FROM ({both}) GROUP BY ALL HAVING {total} <> 0")

    def _gone(self, columns: Sequence[str], row: str = "") -> Condition | None:
        """Return the condition that a row of the older version is of a window that has closed; None if rows are in no windows."""
        window, watermark = self.relation.operator.window, self.own[1].watermark
        if self.relation.name != self.relation.operator.name or window is None:
            return None
        if window.end is None or window.end not in columns:
            return None
        if watermark is None:
            return FALSE
        last = watermark if watermark == END_OF_INPUT else EventTime(watermark - window.lateness)
        return Condition(f"CAST({row}{quote_name(window.end)} AS TIMESTAMP) <= {time_literal(last, 'TIMESTAMP')}")

    @property
    def _expired(self) -> Condition:
        return Condition(f"{EXPIRES_AT} <= make_timestamptz({self.versions[1].time})")

    def _row_key(self, columns: Sequence[str]) -> list[str]:
        """Return the columns that identify a row in both versions; none if the view may have several rows for them."""
        operator = self.relation.operator
        keys = list(operator.key_columns)
        if self.relation.name == operator.name:
            if operator.unique and not (operator.window and operator.window.grow):
                keys = list(operator.unique)
            elif operator.window is not None:
                bounds = (operator.window.start, None if operator.window.grow else operator.window.end)
                keys += [bound for bound in bounds if bound is not None]
        return keys if set(keys) <= set(columns) else []

    def _reason(self, columns: Sequence[str]) -> str:
        """Return the SQL of the reason why a row differs, over `change`, `before` and the kind of the row's key."""
        timers = any(table.name in _TIMERS for table in self.relation.operator.tables)
        expires = EXPIRES_AT in columns
        forgets_keys = expires or "_now" in self.times_read
        cases = []
        if gone := self._gone(columns, "before."):
            cases.append(f"WHEN change = 'removed' AND {gone} THEN 'window closed'")
        cases.append(
            f"WHEN {_KIND} = {_MIGRATED} THEN 'migrated' WHEN {_KIND} = {_PERHAPS_MIGRATED} THEN 'input or migrated'"
        )
        if expires:
            due = f"change = 'removed' AND before.{self._expired}"
            # A row in between may have extended the time to live, and then have been retracted.
            cases.append(f"WHEN {due} AND {_KIND} IN (1, 3) THEN 'not known'")
            cases.append(f"WHEN {due} THEN 'expired'")
        rest = "'watermark'"
        if forgets_keys:
            rest = "'expired'" if self.times_read <= {"_now"} else "'not known'"
        cases.append(f"WHEN {_KIND} = {_REST} THEN {rest}")
        if forgets_keys and not expires:
            cases.append(f"WHEN change = 'removed' AND {_KIND} IN (0, 2) THEN 'not known'")
        if self.relation.operator.window is None:
            cases.append(f"WHEN {_KIND} >= 2 THEN {quote_text('input or timer' if timers else 'input or watermark')}")
        return f"CASE {' '.join(cases)} ELSE 'input' END"


def _paired(net: Select, columns: Sequence[str], row_key: Sequence[str], reason: str) -> Select:
    """Return the differences: `change`, `reason`, `before`, `after`. Two single rows of one identity are one change."""
    row = f"struct_pack({', '.join(f'{quote_name(c)} := {quote_name(c)}' for c in columns)})"
    by = ", ".join(f"{quote_name(c)} AS _i{i}" for i, c in enumerate(row_key))
    listed = ", ".join(f"_i{i}" for i in range(len(row_key)))
    items = f"{row} AS _row, {_KIND}, {_COUNT} > 0 AS _is_new, unnest(range(abs({_COUNT})::BIGINT)) AS _copy"
    rows = f"SELECT {', '.join(filter(None, [by, items]))} FROM ({net})"
    alone = "false"
    if row_key:
        counts = [f"count(*) FILTER (WHERE {c}) OVER (PARTITION BY {listed}) = 1" for c in ("_is_new", "NOT _is_new")]
        alone = " AND ".join(counts)
    single = f"SELECT *, {alone} AS _pairs FROM ({rows})"
    before, after = "CASE WHEN NOT _is_new THEN _row END AS before", "CASE WHEN _is_new THEN _row END AS after"
    change = "CASE WHEN _is_new THEN 'added' ELSE 'removed' END AS change"
    changes = f"SELECT {change}, {_KIND}, {before}, {after} FROM counted WHERE NOT _pairs"
    if row_key:
        sides = ", ".join(
            f"any_value(_row) FILTER (WHERE {c}) AS {name}"
            for c, name in (("NOT _is_new", "before"), ("_is_new", "after"))
        )
        pairs = (
            f"SELECT 'changed' AS change, max({_KIND}) AS {_KIND}, {sides} FROM counted WHERE _pairs GROUP BY {listed}"
        )
        changes = f"{changes} UNION ALL {pairs}"
    return Select(
        f"WITH counted AS ({single}) SELECT change, {reason} AS reason, before, after FROM ({changes}) "
        "ORDER BY coalesce(after, before), change"
    )
