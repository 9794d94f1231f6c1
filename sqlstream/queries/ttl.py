"""`sqlstream.ttl('job.operator', '1 h', ..)`: what a state would keep with times to live, and which keys came back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import compress
from typing import Any

import duckdb

from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import Select, quote_name, union_all
from sqlstream.errors import QueryError, Span, missing
from sqlstream.queries.arguments import CallArgument
from sqlstream.queries.batch_changes import changes_of, oldest_readable, stored_bytes
from sqlstream.queries.system import create_table
from sqlstream.storage.snapshot import JobHistory, JobVersion
from sqlstream.storage.views import state_tables
from sqlstream.storage.zsets import VERSION, WEIGHT
from sqlstream.units import Duration, parse_duration
from sqlstream.warehouse.declarations import ExpiringState, TableDeclaration
from sqlstream.warehouse.jobs import OperatorRecord
from sqlstream.warehouse.paths import Warehouse

COLUMNS: Mapping[str, str] = {
    "job": "VARCHAR",
    "operator": "VARCHAR",
    "state": "VARCHAR",
    "ttl": "VARCHAR",
    "keys": "BIGINT",
    "rows": "BIGINT",
    "bytes": "BIGINT",
    "keys_now": "BIGINT",
    "rows_now": "BIGINT",
    "bytes_now": "BIGINT",
    "returned_keys": "BIGINT",
    "since": "TIMESTAMPTZ",
    "exact": "BOOLEAN",
}

# Temporary tables: for each key the time of its last row, and its rows per table; and the times between the rows of a key.
_AGES, _GAPS = internal("ages"), internal("gaps")
_AT, _EXACT, _ALL = internal("at"), internal("exact"), internal("all")
_HINT = "Write sqlstream.ttl('job.operator', '1 h', '1 d'): a job or one of its operators, and times to live."

Row = Mapping[str, Any]


def create_ttl(
    connection: duckdb.DuckDBPyConnection,
    catalog: str,
    warehouse: Warehouse,
    jobs: Mapping[str, JobHistory],
    arguments: Sequence[CallArgument],
    span: Span,
) -> str:
    """Create the relation of a call of `sqlstream.ttl`: see `Maker`."""
    if named := next((one for one in arguments if one.name is not None), None):
        raise QueryError("the arguments of sqlstream.ttl have no names", named.span, hint=_HINT)
    rows = list(ttl_rows(connection, warehouse, jobs, [one.value for one in arguments], span))
    name = f"{quote_name(catalog)}.ttl"
    connection.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {quote_name(catalog)}")
    create_table(connection, name, COLUMNS, rows)
    return name


def ttl_rows(
    connection: duckdb.DuckDBPyConnection,
    warehouse: Warehouse,
    jobs: Mapping[str, JobHistory],
    arguments: Sequence[object],
    span: Span,
) -> Iterator[Row]:
    """Yield a row with COLUMNS for each time to live, and each part of the state that it would bound.

    `arguments` are the name of a job or an operator, and times to live, as texts. Raises QueryError at the span.
    """
    if len(arguments) < 2 or not all(isinstance(a, str) for a in arguments):
        raise QueryError("sqlstream.ttl takes a job or an operator, and times to live", span, hint=_HINT)
    name, *texts = map(str, arguments)
    ttls = {text: _duration(text, span) for text in texts}
    job, operators = _operators_of(jobs, name, span)
    newest = job.newest
    if newest is None:
        raise QueryError(f'job "{job.name}" has no version yet', span)
    parts = [(o, state) for o in operators for state in o.remembered]
    if not parts:
        bounds = "; ".join(f"{o.name}: {o.bound}" for o in operators)
        detail = f"What bounds it: {bounds}." if bounds else "It keeps no state."
        raise QueryError(f'"{name}" has no state that a time to live would bound', span, detail=detail)
    for operator, state in parts:
        with closing(_Part(connection, warehouse, job, operator, state, newest)) as part:
            for text, ttl in ttls.items():
                yield part.row(text, ttl)


def _duration(text: str, span: Span) -> Duration:
    try:
        ttl = parse_duration(text, unit=None)
    except ValueError as error:
        raise QueryError(str(error), span) from None
    if not ttl:
        raise QueryError("a time to live of 0 is for ever", span, hint="Name one from 1 ms on.")
    return ttl


def _operators_of(
    jobs: Mapping[str, JobHistory], name: str, span: Span
) -> tuple[JobHistory, tuple[OperatorRecord, ...]]:
    """Return a job and its operators by the job's name; by `job.operator`, the job and that operator. Raises QueryError."""
    records = {key: (job, record) for key, job in jobs.items() if (record := job.record)}
    if entry := records.get(name.lower()):
        return entry[0], entry[1].operators
    for key, (job, record) in records.items():
        if not name.lower().startswith(f"{key}."):
            continue
        operator_name = name[len(key) + 1 :].lower()
        if operators := tuple(o for o in record.operators if o.name.lower() == operator_name):
            return job, operators
        hint = missing("operator", operator_name, [o.name for o in record.operators])
        raise QueryError(f'job "{record.job}" has no operator "{name[len(key) + 1 :]}"', span, hint=hint)
    hint = missing("job", name.partition(".")[0], [record.job for _, record in records.values()])
    raise QueryError(f'job "{name.partition(".")[0]}" does not exist', span, hint=hint)


class _Part:
    """A part of an operator's state at the newest version, in temporary tables: its keys, and the times between their rows."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        warehouse: Warehouse,
        job: JobHistory,
        operator: OperatorRecord,
        state: ExpiringState,
        newest: JobVersion,
    ):
        self.con, self.warehouse, self.job, self.operator = connection, warehouse, job, operator
        self.state, self.newest = state, newest
        self.declared = {t.name: t.declaration for t in operator.tables}
        self.keys = ", ".join(map(quote_name, state.keys)) or _ALL
        # Without keys, all rows are of one key.
        self.key_items = self.keys if state.keys else f"true AS {_ALL}"
        oldest = oldest_readable(warehouse, job.name, operator, newest)
        entries = {e.version: e.committed_at for e in job.entries if e.version >= oldest}
        self.oldest = min(entries)
        self.times = ", ".join(f"({version}, {time})" for version, time in entries.items())
        self.since = entries[self.oldest]
        self.tables = state_tables(warehouse, job.name, operator, newest)
        self._keep_gaps()
        self._keep_ages()
        sizes = stored_bytes(warehouse, job.name, operator, [self.declared[t] for t in state.tables], newest)
        self.bytes = [sizes[t] for t in state.tables]

    def row(self, text: str, ttl: Duration) -> Row:
        """Return the row of a time to live; `text` is the time as the call writes it."""
        lives = f"({_AT} > {self.newest.time - ttl} OR ({self.state.lasts}))"
        is_counted = [not (self.state.bare and table == self.state.last_row_times) for table in self.state.tables]
        counts = ", ".join(
            f"coalesce(sum(n{i}) FILTER ({lives}), 0), coalesce(sum(n{i}), 0)" for i in range(len(self.bytes))
        )
        [(keys, keys_now, unsure, *rows)] = self.con.execute(
            f"SELECT count(*) FILTER ({lives}), count(*), count(*) FILTER ({lives} AND NOT {_EXACT}), {counts} FROM {_AGES}"
        ).fetchall()
        [(returned,)] = self.con.execute(
            f"SELECT count(DISTINCT ({self.keys},)) FROM {_GAPS} WHERE gap >= {ttl} AND NOT ({self.state.lasts})"
        ).fetchall()
        shares = [
            size * live // total if total else 0
            for size, live, total in zip(self.bytes, rows[::2], rows[1::2], strict=True)
        ]
        record = self.job.record
        return {
            "job": record.job if record else self.job.name,
            "operator": self.operator.name,
            "state": self.state.name or None,
            "ttl": text,
            "keys": keys,
            "rows": int(sum(compress(rows[::2], is_counted))),
            "bytes": int(sum(shares)),
            "keys_now": keys_now,
            "rows_now": int(sum(compress(rows[1::2], is_counted))),
            "bytes_now": sum(self.bytes),
            "returned_keys": returned,
            "since": self.since,
            "exact": not unsure and not self.state.misses_writes,
        }

    # -- when rows came

    def _changes(self, table: str) -> Select:
        declaration: TableDeclaration = self.declared[table]
        return changes_of(self.warehouse, self.job.name, self.operator, declaration, self.newest, self.oldest)

    def _versions(self, tables: Iterable[str]) -> Select:
        """Return the keys that each version has changed in some tables, with the version's time."""
        rows = union_all(
            Select(f"SELECT {self.key_items}, {VERSION}, {WEIGHT} FROM ({self._changes(t)}) WHERE true") for t in tables
        )
        return Select(
            f"SELECT {self.keys}, {VERSION}, sum({WEIGHT}) AS _weight, any_value(_time) AS _time FROM ({rows}) "
            f"JOIN (VALUES {self.times}) _times(_version, _time) ON {VERSION} = _version GROUP BY {self.keys}, {VERSION}"
        )

    def _touches(self) -> Select:
        """Return when rows came for keys: version, time, and by how many rows the key's state changed.

        The first row of a key is its state at the oldest version; its time is when the key's last row came, if that is known.
        """
        state, base = (
            self.state,
            state_tables(self.warehouse, self.job.name, self.operator, self.job.at_version(self.oldest)),
        )
        rows = f"({base[state.last_row_times]}) WHERE {state.holds}"
        if not state.at:
            first = f"SELECT {self.key_items}, {self.oldest} AS {VERSION}, {self.since} AS _at, {WEIGHT} FROM {rows}"
            came = (
                f"SELECT {self.keys}, {VERSION}, _time AS _at, _weight FROM ({self._versions([state.last_row_times])})"
            )
        else:
            at = f"{quote_name(state.at)} * {state.unit}"
            first = f"SELECT {self.key_items}, {self.oldest} AS {VERSION}, {at} AS _at, {WEIGHT} FROM {rows}"
            added = (
                f"SELECT {self.key_items}, {VERSION}, max({at}) FILTER ({WEIGHT} > 0) AS _at, sum({WEIGHT}) AS _weight "
                f"FROM ({self._changes(state.last_row_times)}) WHERE {state.holds} GROUP BY ALL"
            )
            came = f"SELECT {self.keys}, {VERSION}, _at, _weight FROM ({added})"
            if not state.ttl:
                # A row that removed the last row of a key came for that key, too.
                timed_rows = f"({added}) JOIN (VALUES {self.times}) _times(_version, _time) ON {VERSION} = _version"
                came = f"SELECT {self.keys}, {VERSION}, coalesce(_at, _time) AS _at, _weight FROM {timed_rows}"
        initial = (
            f"SELECT {self.keys}, {VERSION}, max(_at) AS _at, sum({WEIGHT}) AS _weight FROM ({first}) GROUP BY ALL"
        )
        return Select(f"{initial} UNION ALL {came}")

    def _keep_gaps(self) -> None:
        """Store, for each row that came for an existing key, the time since the key's last row."""
        own = f"SELECT {self.keys}, {VERSION}, _at, _weight, _at AS _own FROM ({self._touches()})"
        if self.state.asks:
            reads = self._versions(self.state.asks)
            own += f" UNION ALL SELECT {self.keys}, {VERSION}, _time, 0, NULL FROM ({reads})"
        self._create(f"{_GAPS}_rows", Select(own))
        # A key that a time to live has removed from the state counts as existing.
        there = "true" if self.state.ttl else "_there > 0"
        before = f"OVER (PARTITION BY {self.keys} ORDER BY {VERSION} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
        moments = (
            f"SELECT {self.keys}, {VERSION}, max(_at) AS _at, max(_own) AS _own, sum(_weight) AS _weight "
            f"FROM {_GAPS}_rows GROUP BY {self.keys}, {VERSION}"
        )
        history = f"SELECT *, max(_own) {before} AS _last, sum(_weight) {before} AS _there FROM ({moments})"
        gaps = f"SELECT {self.keys}, _at - _last AS gap FROM ({history}) WHERE {VERSION} > {self.oldest} AND {there}"
        self._create(_GAPS, Select(gaps))

    def _keep_ages(self) -> None:
        """Store the existing keys: the time of the last row, whether that is exact, and the number of rows by table."""
        state = self.state
        if state.at:
            at = f"{quote_name(state.at)} * {state.unit} AS {_AT}"
            key_times = self.tables[state.last_row_times]
            seen = f"SELECT {self.key_items}, {at}, true AS {_EXACT} FROM ({key_times}) WHERE {state.holds}"
            seen += f" GROUP BY ALL HAVING sum({WEIGHT}) > 0"
        else:
            # Rows at version 0 came with that version.
            is_exact = f"{VERSION} > {self.oldest} OR {self.oldest} = 0"
            seen = f"SELECT {self.keys}, _own AS {_AT}, {is_exact} AS {_EXACT} FROM {_GAPS}_rows WHERE _own IS NOT NULL"
        counted = [
            f"SELECT {self.key_items}, {', '.join(WEIGHT if i == n else '0' for i in range(len(state.tables)))} "
            f"FROM ({self.tables[table]}) WHERE {state.holds}"
            for n, table in enumerate(state.tables)
        ]
        numbers = [f"n{i}" for i in range(len(state.tables))]
        listed = f"{self.keys}, {', '.join(numbers)}"
        rows = " UNION ALL ".join(counted)
        named = f"SELECT * FROM ({rows}) _rows_({listed})"
        sums = ", ".join(f"sum({n}) AS {n}" for n in numbers)
        nothing = ", ".join(f"NULL AS {n}" for n in numbers)
        both = (
            f"SELECT {self.keys}, {_AT}, {_EXACT}, {nothing} FROM ({seen}) "
            f"UNION ALL SELECT {self.keys}, NULL, NULL, {', '.join(numbers)} FROM ({named})"
        )
        # The times of a key ascend with its rows: the last one says whether it is exact.
        newest = f"max({_AT}) AS {_AT}, coalesce(arg_max({_EXACT}, {_AT}), false) AS {_EXACT}"
        there = f"max({_AT}) IS NOT NULL" if state.at else f"sum({numbers[0]}) > 0"
        ages = f"SELECT {self.keys}, {newest}, {sums} FROM ({both}) GROUP BY {self.keys} HAVING {there}"
        self._create(_AGES, Select(ages))

    def close(self) -> None:
        """Drop the temporary tables, because the connection is the user's."""
        for name in (_AGES, _GAPS, f"{_GAPS}_rows"):
            self.con.execute(f"DROP TABLE IF EXISTS {name}")

    def _create(self, name: str, sql: Select) -> None:
        self.con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")
