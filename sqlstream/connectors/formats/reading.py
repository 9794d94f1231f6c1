"""Reading files as a table declares them: the SQL with which DuckDB reads them.

Parquet: columns by name (case does not matter); the file's types may be narrower than declared, see `parquet_types`. A column
that a file lacks is NULL, unless it is NOT NULL or in the key.

Avro: container files, with the same rules.

JSON: one object per line, keys by exact name; a missing key is NULL, further keys are ignored.

CSV: RFC 4180, columns by position, or by name if there is a header; an empty unquoted field is NULL.

Raw: each line, without its end, is a row of one column.

Debezium: JSON of its envelopes, see `changelogs`.

Metadata columns come from the file's name and properties, and columns in PARTITIONED BY from its path (`k=v/`, as in Hive).

JSON, CSV and raw lines may be compressed (.gz, .zst). A text is cast as DuckDB casts it: "12" is a number, a number is
not a time, and a TIMESTAMP drops the zone of its text without a conversion (TIMESTAMP_LTZ keeps the instant); but 1.5 is no
integer, see `whole_numbers`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote

import duckdb

from sqlstream.catalog import DEBEZIUM, OP_COLUMN, Column, Table
from sqlstream.connectors.formats.changelogs import lacking, malformed
from sqlstream.connectors.formats.copies import shown
from sqlstream.connectors.formats.csv_records import misread_files, read_records
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.connectors.formats.json_lines import read_json
from sqlstream.connectors.formats.malformed import does_not_hold, format_of, no_value, skips
from sqlstream.connectors.formats.read_errors import check_frames, name_file
from sqlstream.connectors.formats.registry import FORMATS
from sqlstream.connectors.formats.whole_numbers import fraction, infinite
from sqlstream.connectors.read_plan import WRONG, ReadPlan
from sqlstream.duck.internal_columns import MODIFIED
from sqlstream.duck.sql import Select, no_rows, quote_name, quote_text, union_all
from sqlstream.errors import DataError


def read(
    con: duckdb.DuckDBPyConnection,
    splits: Sequence[FileSplit],
    table: Table,
    columns: Iterable[str] | None = None,
    copies: Mapping[str, str] | None = None,
    by_record: Collection[str] = (),
) -> ReadPlan:
    """Return the plan that reads splits of a table, whose paths are local.

    `columns` names the physical columns to read, by default all; malformed values in other columns are not noticed. `copies` maps
    paths of JSON files to files that are read in their place. `by_record` has the paths of CSV files that are read record by
    record. Raises DataError if a file does not exist, is not of the format, or lacks columns.
    """
    selected = list(table.physical)
    if columns is not None:
        names = {name.lower() for name in columns}
        selected = [c for c in selected if c.name.lower() in names]
    if not splits:
        return ReadPlan(no_rows(selected))
    check_frames(splits, table)
    plan = _read_columns(con, splits, table, selected, _ReadModes(copies or {}, frozenset(by_record)))
    if not skips(table):
        return plan
    if table.has_changes:
        plan = ReadPlan.of_marked(marked_changes(table, plan), plan.rejects, keep=plan.keep, streams=plan.streams)
    marked = marked_nulls(table, selected, plan)
    return plan if marked is None else ReadPlan.of_marked(marked, plan.rejects, keep=plan.keep, streams=plan.streams)


def read_exactly(con: duckdb.DuckDBPyConnection, splits: Sequence[FileSplit], table: Table) -> ReadPlan:
    """Return a plan that judges infinite numbers by their texts, for files at which the plan of `read` fails. It takes longer.

    The format must be JSON, and the table must not skip malformed rows.
    """
    check_frames(splits, table)
    return _read_columns(con, splits, table, table.physical, _ReadModes({}, frozenset(), exactly=True))


def read_checked(con: duckdb.DuckDBPyConnection, splits: Sequence[FileSplit], table: Table, check: str) -> ReadPlan:
    """Return a plan that calls the SQL function `check` for a file with an infinite number, see `read_json`.

    The function decides whether the file says `Infinity`, or has a number that is too large. The format must be JSON, and the
    table must not skip malformed rows.
    """
    check_frames(splits, table)
    return _read_columns(con, splits, table, table.physical, _ReadModes({}, frozenset(), check=check))


def may_be_infinite(con: duckdb.DuckDBPyConnection, table: Table) -> bool:
    """Whether a table has floating-point columns for which the plan of `read` would fail at an infinite number.

    `read_exactly` and `read_checked` can read such numbers.
    """
    is_json = format_of(table) in ("json", DEBEZIUM) and not skips(table)
    return is_json and any(infinite("x", con.sqltype(c.type)) for c in table.stored)


def marked_changes(table: Table, plan: ReadPlan) -> Select:
    """Return the marked rows of a plan, with WRONG also set in rows that are not a valid change, see `changelogs.malformed`."""
    before = f"coalesce({WRONG}, " if plan.marked else "("
    operation = f"{before}CASE WHEN {malformed(table)} THEN {quote_text(_operation_fault(table))} END) AS {WRONG}"
    rows = f"SELECT * REPLACE ({operation})" if plan.marked else f"SELECT *, {operation}"
    return Select(f"{rows} FROM ({plan.marked or plan.sql})")


def marked_nulls(table: Table, columns: Sequence[Column], plan: ReadPlan) -> Select | None:
    """Return the marked rows of a plan, with WRONG also set in rows that lack a value of a NOT NULL column.

    `columns` are the columns that are read. Return None if none of them is NOT NULL.
    """
    cases = [f"WHEN {lacks} THEN {quote_text(no_value(name))}" for lacks, name in lacking(table, columns)]
    if not cases:
        return None
    why = f"CASE {' '.join(cases)} END"
    if plan.marked is None:
        return Select(f"SELECT *, {why} AS {WRONG} FROM ({plan.sql})")
    return Select(f"SELECT * REPLACE (coalesce({WRONG}, {why}) AS {WRONG}) FROM ({plan.marked})")


def _operation_fault(table: Table) -> str:
    if format_of(table) == DEBEZIUM:
        return "The envelope has no operation, or not the row that its operation needs"
    return f'Column "{table.options[OP_COLUMN]}" holds none of I, U, B, D'


@dataclass(frozen=True, slots=True)
class _ReadModes:
    """Which files `read` must read in another than the usual way: see its arguments."""

    copies: Mapping[str, str]
    by_record: frozenset[str]
    # Whether numbers of JSON are read by their texts, and the function that decides about infinite ones.
    exactly: bool = False
    check: str | None = None


def _read_columns(
    con: duckdb.DuckDBPyConnection,
    splits: Sequence[FileSplit],
    table: Table,
    columns: Sequence[Column],
    ways: _ReadModes,
) -> ReadPlan:
    stored = replace(table, columns=table.stored)
    if all(c in stored.columns for c in columns):
        return _read_stored(con, splits, stored, columns, ways)
    return _together([_read_group(con, group, table, columns, ways) for group in _alike(splits, table, columns)])


def _together(plans: Sequence[ReadPlan]) -> ReadPlan:
    """Return the plan that reads the rows of all plans."""
    if len(plans) == 1:
        return plans[0]
    keep, rejects = any(p.keep for p in plans), [pair for p in plans for pair in p.rejects]
    streams = {name: stream for p in plans for name, stream in p.streams.items()}
    if any(p.marked for p in plans):
        unmarked = f"SELECT *, CAST(NULL AS VARCHAR) AS {WRONG} FROM"
        marked = (p.marked or Select(f"{unmarked} {p.relation}") for p in plans)
        return ReadPlan.of_marked(union_all(marked), rejects, keep=keep, streams=streams)
    return ReadPlan(union_all(p.sql for p in plans), rejects=rejects, keep=keep, streams=streams)


def _read_stored(
    con: duckdb.DuckDBPyConnection,
    splits: Sequence[FileSplit],
    table: Table,
    columns: Sequence[Column],
    ways: _ReadModes,
) -> ReadPlan:
    if ways.exactly or ways.check:
        return read_json(con, splits, table, columns, ways.copies, exactly=ways.exactly, check=ways.check)
    read_files = FORMATS[format_of(table)].read_files
    assert read_files is not None
    by_record = ways.by_record | misread_files(splits, table) if format_of(table) == "csv" else ways.by_record
    slow = [s for s in splits if s.path in by_record]
    if not slow:
        return read_files(con, splits, table, columns, ways.copies)
    plans = [read_records(con, slow, table, columns)]
    if others := [s for s in splits if s.path not in by_record]:
        plans.append(read_files(con, others, table, columns, ways.copies))
    return _together(plans)


# Metadata columns and partition columns

ROW_NUMBER = "row-number"
_METADATA: Mapping[str, Callable[[FileSplit], str]] = {
    "file.path": lambda split: quote_text(shown(split.path)),
    "file.name": lambda split: quote_text(split.path.rpartition("/")[2]),
    "file.size": lambda split: str(split.size),
    "file.modification-time": lambda split: f"make_timestamptz({split.mtime_ns // 1000})",
    ROW_NUMBER: lambda split: "",
}
# Metadata for the order of changes, which no column of a user can have.
_ORDER: Mapping[str, Callable[[FileSplit], str]] = {str(MODIFIED.metadata): lambda split: str(split.mtime_ns)}
# How Hive writes NULL in a path.
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


def _alike(splits: Sequence[FileSplit], table: Table, columns: Sequence[Column]) -> list[list[FileSplit]]:
    """Group splits that have the same values in the metadata and partition columns among `columns`."""
    groups: dict[tuple[str, ...], list[FileSplit]] = {}
    for split in splits:
        values = tuple(_unstored_value(c, split, table) for c in columns if c not in table.stored)
        # The rows of a file are numbered in the order in which they are read.
        numbered = any(c.metadata == ROW_NUMBER for c in columns)
        groups.setdefault((*values, split.path if numbered else ""), []).append(split)
    return list(groups.values())


def _unstored_value(column: Column, split: FileSplit, table: Table) -> str:
    """Return the SQL of a column that is not stored in the file: metadata, or a value from its path."""
    if column.metadata is not None:
        return {**_METADATA, **_ORDER}[column.metadata](split)
    parts = [part.partition("=") for part in split.path.split("/")]
    values = [value for name, equals, value in parts if equals and unquote(name).lower() == column.name.lower()]
    if not values:
        hint = f"Its folders are named as in {column.name}=value/."
        raise DataError(f'{name_file(split.path, table)} is in no partition "{column.name}"', hint=hint)
    return "NULL" if values[-1] == NULL_PARTITION else quote_text(unquote(values[-1]))


def _check_partition(
    con: duckdb.DuckDBPyConnection, column: Column, value: str, split: FileSplit, table: Table
) -> None:
    """Raise DataError for a file whose folder's name has a value that is not of the column's type."""
    wrong = [f"TRY_CAST({value} AS {column.type}) IS NULL", *filter(None, [fraction(value, con.sqltype(column.type))])]
    if con.execute(f"SELECT {' OR '.join(wrong)}").fetchall() == [(True,)]:
        message = f"{name_file(split.path, table)} is in partition {column.name}={value}"
        hint = f"Move the file, or declare the column as STRING: its folders are named as in {column.name}=value/."
        raise DataError(message, detail=f"{does_not_hold(column)}.", hint=hint)


def _read_group(
    con: duckdb.DuckDBPyConnection,
    splits: Sequence[FileSplit],
    table: Table,
    columns: Sequence[Column],
    ways: _ReadModes,
) -> ReadPlan:
    numbered = format_of(table) in ("parquet", "avro", "raw")
    inner = [c for c in columns if c in table.stored or (numbered and c.metadata == ROW_NUMBER)]
    plan = _read_stored(con, splits, replace(table, columns=table.stored), inner, ways)
    items = []
    for column in columns:
        value = quote_name(column.name)
        if column not in inner:
            # DuckDB reads text files in order, so that this numbers their rows.
            value = (
                "row_number() OVER () - 1"
                if column.metadata == ROW_NUMBER
                else _unstored_value(column, splits[0], table)
            )
            if column.metadata is None and value != "NULL":
                _check_partition(con, column, value, splits[0], table)
        items.append(f"CAST({value} AS {column.type}) AS {quote_name(column.name)}")
    if plan.marked is not None:
        marked = Select(f"SELECT {', '.join([*items, WRONG])} FROM ({plan.marked})")
        return ReadPlan.of_marked(marked, plan.rejects, keep=plan.keep, streams=plan.streams)
    return replace(plan, sql=Select(f"SELECT {', '.join(items)} FROM {plan.relation}"))
