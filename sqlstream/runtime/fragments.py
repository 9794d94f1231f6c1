"""Runs fragments in DuckDB: what a Spark worker and the in-process runner have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import duckdb
import pyarrow as pa

from sqlstream.catalog import MAX_AHEAD, Table
from sqlstream.connectors.discovery import Split
from sqlstream.connectors.formats.changelogs import DECLARE_KEY, NO_ROW_BEFORE
from sqlstream.connectors.formats.malformed import NO_VALUE, format_of, skip_hint
from sqlstream.connectors.interface import TableSource
from sqlstream.duck import key_hash
from sqlstream.duck.errors import plain
from sqlstream.duck.internal_columns import ADDS, CHANGE, INTERNAL, PARTITION, ROW
from sqlstream.duck.sql import (
    Condition,
    Items,
    Relation,
    Select,
    all_of,
    no_rows,
    quote_name,
    quote_text,
    typed,
    union_all,
)
from sqlstream.duck.time_variables import timestamp, variables
from sqlstream.errors import DataError
from sqlstream.physical.plan import Fragment, Lookup, ScanStage, SinkPlan
from sqlstream.runtime.frames import BUCKET
from sqlstream.units import EventTime, ProcessingTime, parse_duration

BATCH_ROWS = 100_000
# The first and the last event time that rows may have, both inclusive.
TimeBounds: TypeAlias = tuple[EventTime, EventTime]
# 290000 BC and the year 294000 in microseconds: so far from the ends of what microseconds can count that windows fit.
EARLIEST: Final = EventTime(-9_213_651_676_800_000_000)
LATEST: Final = EventTime(9_215_576_668_800_000_000)
# Looks up the rows of a lookup table for keys, a table with one row for each.
Find = Callable[[Lookup, pa.Table], pa.Table]


@dataclass(frozen=True, slots=True)
class ScanStats:
    """The statistics of a scan in a batch: rows read, rows without a finite event time, newest event time and watermark.

    `astray` rows have an event time out of bounds; they count nowhere else. `partitions` are the statistics of each partition of
    a scan whose partitions have watermarks.
    """

    rows: int = 0
    null_rows: int = 0
    max_event_time: EventTime | None = None
    watermark: EventTime | None = None
    astray: int = 0
    partitions: Mapping[str, ScanStats] = field(default_factory=dict)

    def __add__(self, other: ScanStats) -> ScanStats:
        return ScanStats(
            self.rows + other.rows,
            self.null_rows + other.null_rows,
            newest(self.max_event_time, other.max_event_time),
            newest(self.watermark, other.watermark),
            self.astray + other.astray,
            {**self.partitions, **other.partitions},
        )


def newest(a: EventTime | None, b: EventTime | None) -> EventTime | None:
    """Return the later of two event times; None is earlier than any."""
    return b if a is None else a if b is None else max(a, b)


def set_times(con: duckdb.DuckDBPyConnection, time: ProcessingTime, watermark: EventTime | None) -> None:
    """Set what NOW() and CURRENT_WATERMARK return in a connection.

    `watermark` is the watermark before the batch of the scan or operator that the fragment follows.
    """
    # One call: each costs as much as a small statement.
    con.execute("; ".join(f"SET VARIABLE {name} = {value}" for name, value in variables(time, watermark).items()))


def set_watermarks(con: duckdb.DuckDBPyConnection, watermarks: Mapping[str, EventTime | None]) -> None:
    """Set variables, by name, that hold other watermarks than `set_times` does.

    These are the watermarks of nodes above several inputs (`PhysicalPlan.watermark_variables`), and of the operator that gets the
    rows of the fragment.
    """
    if watermarks:
        con.execute("; ".join(f"SET VARIABLE {name} = {timestamp(value)}" for name, value in watermarks.items()))


def time_bounds(table: Table, time: ProcessingTime) -> TimeBounds:
    """Return the first and the last event time that rows of a batch may have; `time` is the batch's processing time."""
    ahead = table.options.get(MAX_AHEAD)
    if ahead is None:
        return EARLIEST, LATEST
    return EARLIEST, min(LATEST, EventTime(time + parse_duration(ahead)))


def scan_input(
    con: duckdb.DuckDBPyConnection, scan: ScanStage, relation: Relation, *, keep: bool, bounds: TimeBounds, zone: str
) -> tuple[Select, ScanStats]:
    """Return the scan's rows, and their statistics.

    `relation` has the physical columns. With `keep` it is read once, into a temporary table; without, it is read a second time
    (only the time column) for the statistics, which is cheaper for columnar files. Rows without an event time within `bounds` are
    left out. Keyed changes stay, with NULL in place of an event time out of bounds. Event times that are instants are counted in
    the local time of `zone`.
    """
    rows = over_input(Select(f"SELECT * FROM {relation}"), scan.columns)
    if keep:
        con.execute(f"CREATE OR REPLACE TEMP TABLE _scan AS {rows}")
        rows = Select("SELECT * FROM _scan")
    if scan.time_column is None:
        [(count,)] = con.execute(f"SELECT count(*) FROM ({rows})").fetchall()
        return rows, ScanStats(rows=count)
    time = quote_name(scan.time_column)
    # Infinity is no event time: no window holds it.
    untimed = f"isfinite({time}) IS NOT TRUE"
    if scan.changes == "keyed":
        # A delete needs only the key; an update to a row without an event time removes the row.
        untimed += f" AND {ADDS}"
    timed = f"(epoch_us({time}) BETWEEN {bounds[0]} AND {bounds[1]})"
    watermark = "CAST(NULL AS TIMESTAMP)" if scan.has_watermarks or scan.by_clock else scan.watermark
    local = f"timezone({quote_text(zone)}, {time})" if scan.has_instants else f"CAST({time} AS TIMESTAMP)"
    # Expressions over an impossible event time may fail.
    seen = Items(
        f"count(*), count(*) FILTER (WHERE {untimed}), "
        f"max(CASE WHEN {timed} THEN epoch_us({local}) END), "
        f"max(CASE WHEN {timed} THEN epoch_us({watermark}) END), count(*) FILTER (WHERE {astray(time, bounds)})"
    )
    stats = _scan_stats(con, scan, seen, rows)
    if scan.changes != "keyed":
        return Select(f"SELECT * FROM ({rows}) WHERE {timed}"), stats
    if stats.astray:
        rows = Select(f"SELECT * REPLACE (CASE WHEN {timed} THEN {time} END AS {time}) FROM ({rows})")
    return rows, stats


def over_input(rows: Select, sql: Select) -> Select:
    """Return what `sql`, over `_input`, computes of rows."""
    return Select(f"WITH _input AS ({rows}) {sql}")


def _scan_stats(con: duckdb.DuckDBPyConnection, scan: ScanStage, seen: Items, rows: Select) -> ScanStats:
    """Return the statistics of rows; `seen` are the fields of ScanStats."""
    if not scan.has_partitions:
        [values] = con.execute(f"SELECT {seen} FROM ({rows})").fetchall()
        return _without_astray(ScanStats(*values))
    by_partition = con.execute(f"SELECT {PARTITION.name}, {seen} FROM ({rows}) GROUP BY 1").fetchall()
    partitions = {name: _without_astray(ScanStats(*values)) for name, *values in by_partition}
    return replace(sum(partitions.values(), ScanStats()), partitions=partitions)


def _without_astray(stats: ScanStats) -> ScanStats:
    return replace(stats, rows=stats.rows - stats.astray)


def astray(time: str, bounds: TimeBounds) -> Condition:
    """Return the condition that an event time, the SQL `time`, is finite and out of bounds."""
    return Condition(f"(isfinite({time}) AND epoch_us({time}) NOT BETWEEN {bounds[0]} AND {bounds[1]})")


def count_unfit(con: duckdb.DuckDBPyConnection, scan: ScanStage, rows: Select) -> int:
    """Return the number of rows of a scan in which a query reads a text as a number, and it is none."""
    if not scan.unfit:
        return 0
    numbered = Select(f"SELECT *, row_number() OVER () AS {ROW.name} FROM ({rows})")
    [(count,)] = con.execute(over_input(numbered, _rows_of(scan.unfit))).fetchall()
    return int(count)


def _rows_of(unfit: Sequence[Select]) -> Select:
    return Select(f"SELECT count(DISTINCT {ROW.name}) FROM ({union_all(unfit)})")


def lacks_rows_before(con: duckdb.DuckDBPyConnection, rows: Select) -> bool:
    """Whether changes have more rows after an update than rows before one: such an update would only add a row."""
    [(lacking,)] = con.execute(
        f"SELECT count(*) FILTER (WHERE {CHANGE.name} = 'U') > count(*) FILTER (WHERE {CHANGE.name} = 'B') FROM ({rows})"
    ).fetchall()
    return bool(lacking)


def check_updates(
    con: duckdb.DuckDBPyConnection,
    scan: ScanStage,
    source: TableSource,
    splits: Sequence[Split],
    relation_of: Callable[[Split], Relation],
) -> None:
    """Raise DataError for the first split that has more rows after an update than rows before one.

    `relation_of` returns the rows of a split.
    """
    for split in splits:
        rows = over_input(Select(f"SELECT * FROM {relation_of(split)}"), scan.columns)
        counts = ", ".join(f"count(*) FILTER (WHERE {CHANGE.name} = '{letter}')" for letter in "UB")
        [(after, before)] = con.execute(f"SELECT {counts} FROM ({rows})").fetchall()
        if after > before and (name := source.name_of(split)) is not None:
            detail = f"Rows after an update (U): {after}, rows before one (B): {before}."
            raise DataError(f"{name}: {NO_ROW_BEFORE}", detail=detail, hint=DECLARE_KEY)


def computed_rows(con: duckdb.DuckDBPyConnection, fragment: Fragment, rows: Select, find: Find) -> Select:
    """Run the lookups of a fragment over `rows`, into temporary tables; return the fragment's rows."""
    for number, lookup in enumerate(fragment.lookups):
        con.execute(f"CREATE OR REPLACE TEMP TABLE _before_{number} AS {over_input(rows, lookup.rows)}")
        types = {c.name: c.type for c in lookup.table.physical}
        keys = ", ".join(f"CAST({name} AS {types[column]}) AS {quote_name(column)}" for name, column in lookup.keys)
        not_null = all_of(f"{name} IS NOT NULL" for name, _ in lookup.keys)
        key_rows = con.sql(f"SELECT DISTINCT {keys} FROM _before_{number} WHERE {not_null}").to_arrow_table()
        columns = [c for c in lookup.table.physical if c is not lookup.table.operation]
        items = typed(columns)
        answer_sql = no_rows(columns)
        if key_rows.num_rows:
            con.register(f"_answer_{number}", find(lookup, key_rows))
            answer_sql = Select(f"SELECT {items} FROM _answer_{number}")
        con.execute(f"CREATE OR REPLACE TEMP TABLE _found_{number} AS {answer_sql}")
    return over_input(rows, fragment.rows)


def part_queries(
    con: duckdb.DuckDBPyConnection, fragment: Fragment, rows: Select, find: Find
) -> Iterator[tuple[str, Select]]:
    """Yield each part of a fragment over `rows`, with its name."""
    computed = computed_rows(con, fragment, rows, find)
    if len(fragment.parts) > 1:
        con.execute(f"CREATE OR REPLACE TEMP TABLE _computed AS {computed}")
        computed = Select("SELECT * FROM _computed")
    for name, sql in fragment.parts:
        yield name, Select(f"WITH _rows AS ({computed}) {sql}")


def part_batches(
    con: duckdb.DuckDBPyConnection, fragment: Fragment, rows: Select, buckets: int, find: Find
) -> Iterator[tuple[str, pa.RecordBatchReader]]:
    """Run a fragment over `rows`; yield (name, reader of batches) for each part.

    If an exchange by key follows, rows also have the column BUCKET, from 0 to `buckets` - 1.
    """
    for name, query in part_queries(con, fragment, rows, find):
        body = query
        if fragment.exchange is not None and not fragment.exchange.broadcast:
            # Without a key all rows meet in one bucket.
            body = Select(f"SELECT *, {key_hash.bucket(fragment.exchange.keys, buckets)} AS {BUCKET} FROM ({query})")
        yield name, con.sql(body).to_arrow_reader(BATCH_ROWS)


def explain_refused(
    con: duckdb.DuckDBPyConnection, fragment: Fragment, rows: Select, sink: SinkPlan, find: Find
) -> DataError | None:
    """Return an error that names the first column that cannot store a value, and the row; None if all rows can be stored."""
    computed = computed_rows(con, fragment, rows, find)
    never_null = {c.name for c in sink.table.columns if c.not_null}
    for name, type in sink.columns:
        column = quote_name(name)
        checks = {f"{column} IS NOT NULL AND TRY_CAST({column} AS {type}) IS NULL": f"cannot hold {{}} ({type})"}
        if name in never_null:
            checks[f"{column} IS NULL"] = "is NOT NULL, but the query gives NULL"
        for refused, message in checks.items():
            if row := _first(con, f"SELECT * FROM ({computed}) WHERE {refused}"):
                shown = ", ".join(f"{k}={'NULL' if v is None else v}" for k, v in row.items())
                what = f'column "{name}" of table "{sink.table.name}" {message.format(row[name])}'
                return DataError(what, detail=f"row: {shown}")
    return None


def explain_row(
    con: duckdb.DuckDBPyConnection,
    scan: ScanStage,
    source: TableSource,
    splits: Sequence[Split],
    relation_of: Callable[[Split], Relation],
    find: Find,
) -> DataError | None:
    """Return an error that names the file and the row at which a scan's columns or fragments fail; None if no row fails.

    The splits are read again, one by one, and bisected until one row is left. `relation_of` returns the rows of a split.
    """
    for split in splits:
        relation = relation_of(split)
        try:
            con.execute(
                f"CREATE OR REPLACE TEMP TABLE _suspects AS SELECT row_number() OVER () AS _row, * FROM {relation}"
            )
        except duckdb.Error:
            # It cannot even be read.
            continue
        [(count,)] = con.execute("SELECT count(*) FROM _suspects").fetchall()
        first, end = 1, count + 1
        while end - first > 1:
            middle = (first + end) // 2
            if _fails(con, scan, first, middle, find):
                end = middle
            else:
                first = middle
        if count and (failure := _fails(con, scan, first, end, find)):
            row = _first(con, f"SELECT * EXCLUDE (_row) FROM _suspects WHERE _row = {first}") or {}
            own = {k: v for k, v in row.items() if not k.startswith(INTERNAL)}
            shown = ", ".join(f"{k}={'NULL' if v is None else v}" for k, v in own.items())
            message = f"{source.place(split, first)}: {plain(failure)}"
            return DataError(message, detail=f"row: {shown}", hint=_hint(plain(failure), scan.table))
    return None


def _hint(fault: str, table: Table) -> str | None:
    if fault == NO_ROW_BEFORE:
        return DECLARE_KEY
    if "overflow in " in fault:
        return "Compute with a wider type, as in CAST(a AS BIGINT) + b, or have NULL: TRY(a + b)."
    if fault.startswith("division by zero"):
        return "Write a / NULLIF(b, 0) to have NULL."
    return skip_hint(table) if fault.endswith(NO_VALUE) and format_of(table) else None


def _fails(con: duckdb.DuckDBPyConnection, scan: ScanStage, first: int, end: int, find: Find) -> duckdb.Error | None:
    """Run a scan's columns and fragments over the suspects from `first` on, before `end`; return the error, None if none."""
    suspects = Select(f"SELECT * EXCLUDE (_row) FROM _suspects WHERE _row >= {first} AND _row < {end}")
    rows = over_input(suspects, scan.columns)
    try:
        con.execute(f"CREATE OR REPLACE TEMP TABLE _suspected AS {rows}")
        for fragment in scan.fragments:
            computed = computed_rows(con, fragment, rows, find)
            for _, sql in fragment.parts:
                con.execute(f"CREATE OR REPLACE TEMP TABLE _suspected AS WITH _rows AS ({computed}) {sql}")
    except duckdb.Error as e:
        return e
    return None


def _first(con: duckdb.DuckDBPyConnection, sql: str) -> dict[str, object] | None:
    """Return the first row of a query; None if there is none, or the query fails."""
    try:
        result = con.execute(f"{sql} LIMIT 1")
        names = [d[0] for d in result.description or ()]
        row = result.fetchone()
    except duckdb.Error:
        return None
    return dict(zip(names, row, strict=True)) if row is not None else None
