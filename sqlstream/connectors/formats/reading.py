"""Reading files as a table declares them: the SQL that DuckDB reads them with, and what is wrong when it cannot.

Parquet: columns by name (case does not matter); the file's types may be narrower than declared, see `parquet_types`. A column
that a file lacks is NULL, unless it is NOT NULL or in the key.

JSON: one object per line, keys by exact name; a missing key is NULL, further keys are ignored.

CSV: RFC 4180, columns by place, or by name when there is a header; an empty unquoted field is NULL.

Beside its rows, a file tells metadata, and the values of the columns by which a table is partitioned, from its path
(`k=v/`, as Hive writes it).

Debezium: JSON of its envelopes, see `changelogs`.

JSON and CSV may be compressed (.gz, .zst). A text is cast as DuckDB casts it: "12" is a number, a number is not a time, and a
TIMESTAMP drops the zone of its text without a conversion (TIMESTAMP_LTZ keeps the instant); but 1.5 is no integer, see
`whole_numbers`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import duckdb

from sqlstream.catalog import DEBEZIUM, OP_COLUMN, Column, Table
from sqlstream.connectors.filesystem.splits import Split
from sqlstream.connectors.formats.changelogs import malformed
from sqlstream.connectors.formats.csv_rows import csv_layout, csv_syntax
from sqlstream.connectors.formats.json_lines import does_not_hold, json_source
from sqlstream.connectors.formats.malformed import format_of, skips
from sqlstream.connectors.formats.parquet_types import conversion
from sqlstream.connectors.formats.read_errors import name_file, reading
from sqlstream.connectors.formats.whole_numbers import as_text, fraction, whole
from sqlstream.connectors.read_plan import WRONG, ReadPlan
from sqlstream.duck.sql import no_rows, quote_name, quote_text
from sqlstream.duck.text_files import duckdb_paths
from sqlstream.errors import DataError, missing
from sqlstream.state.internal_columns import MODIFIED


def read(
    con: duckdb.DuckDBPyConnection,
    splits: Sequence[Split],
    table: Table,
    columns: Iterable[str] | None = None,
    copies: Mapping[str, str] | None = None,
) -> ReadPlan:
    """Return how to read the splits, all of them local, of a table.

    `columns` names the physical columns to read, by default all; what is wrong in others goes unnoticed. `copies` are files of
    JSON to read in place of others, by their paths. Raises DataError when a file is not there, is not of the format, or does
    not hold the columns.
    """
    wanted = list(table.physical)
    if columns is not None:
        names = {name.lower() for name in columns}
        wanted = [c for c in wanted if c.name.lower() in names]
    if not splits:
        return ReadPlan(no_rows(wanted))
    plan = _read_wanted(con, splits, table, wanted, copies or {})
    if not (table.has_changes and skips(table)):
        return plan
    # Rows that say nothing that a row can do.
    before = f"coalesce({WRONG}, " if plan.marked else "("
    operation = f"{before}CASE WHEN {malformed(table)} THEN {quote_text(_operation_fault(table))} END) AS {WRONG}"
    rows = f"SELECT * REPLACE ({operation})" if plan.marked else f"SELECT *, {operation}"
    return ReadPlan.of_marked(f"{rows} FROM ({plan.marked or plan.sql})", plan.rejects, keep=plan.keep)


def _operation_fault(table: Table) -> str:
    if format_of(table) == DEBEZIUM:
        return "The envelope has no operation, or not the row that its operation needs"
    return f'Column "{table.options[OP_COLUMN]}" holds none of I, U, B, D'


def _read_wanted(
    con: duckdb.DuckDBPyConnection,
    splits: Sequence[Split],
    table: Table,
    wanted: Sequence[Column],
    copies: Mapping[str, str],
) -> ReadPlan:
    stored = replace(table, columns=table.stored)
    if all(c in stored.columns for c in wanted):
        return _read_stored(con, splits, stored, wanted, copies)
    plans = [_read_group(con, group, table, wanted, copies) for group in _alike(splits, table, wanted)]
    keep, rejects = any(p.keep for p in plans), next((p.rejects for p in plans if p.rejects), None)
    marked = [p.marked for p in plans if p.marked]
    if marked:
        return ReadPlan.of_marked(" UNION ALL ".join(marked), rejects, keep=keep)
    return ReadPlan(" UNION ALL ".join(p.sql for p in plans), rejects=rejects, keep=keep)


def _read_stored(
    con: duckdb.DuckDBPyConnection,
    splits: Sequence[Split],
    table: Table,
    columns: Sequence[Column],
    copies: Mapping[str, str],
) -> ReadPlan:
    match format_of(table):
        case "parquet":
            return _read_parquet(con, splits, table, columns)
        case "json" | "debezium-json":
            return _read_json(con, [copies.get(s.path, s.path) for s in splits], table, columns)
        case _:
            return _read_csv(con, splits, table, columns)


# What a file tells beside its rows

ROW_NUMBER = "row-number"
_METADATA: Mapping[str, Callable[[Split], str]] = {
    "file.path": lambda split: quote_text(split.path),
    "file.name": lambda split: quote_text(split.path.rpartition("/")[2]),
    "file.size": lambda split: str(split.size),
    "file.modification-time": lambda split: f"make_timestamptz({split.mtime_ns // 1000})",
    ROW_NUMBER: lambda split: "",
}
# What a file tells nobody but the reader of changes.
_ORDER: Mapping[str, Callable[[Split], str]] = {str(MODIFIED.metadata): lambda split: str(split.mtime_ns)}
# How Hive writes NULL in a path.
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


def _alike(splits: Sequence[Split], table: Table, wanted: Sequence[Column]) -> list[list[Split]]:
    """Group splits for which everything that is not in the files is the same."""
    groups: dict[tuple[str, ...], list[Split]] = {}
    for split in splits:
        told = tuple(_told(c, split, table) for c in wanted if c not in table.stored)
        # The rows of a file are numbered in the order in which they are read.
        numbered = any(c.metadata == ROW_NUMBER for c in wanted)
        groups.setdefault((*told, split.path if numbered else ""), []).append(split)
    return list(groups.values())


def _told(column: Column, split: Split, table: Table) -> str:
    """Return the value of a column that is not in the file, as SQL."""
    if column.metadata is not None:
        return {**_METADATA, **_ORDER}[column.metadata](split)
    parts = [part.partition("=") for part in split.path.split("/")]
    found = [value for name, equals, value in parts if equals and unquote(name).lower() == column.name.lower()]
    if not found:
        hint = f"Its folders are named as in {column.name}=value/."
        raise DataError(f'{name_file(split.path, table)} is in no partition "{column.name}"', hint=hint)
    return "NULL" if found[-1] == NULL_PARTITION else quote_text(unquote(found[-1]))


def _read_group(
    con: duckdb.DuckDBPyConnection,
    splits: Sequence[Split],
    table: Table,
    wanted: Sequence[Column],
    copies: Mapping[str, str],
) -> ReadPlan:
    parquet = format_of(table) == "parquet"
    inner = [c for c in wanted if c in table.stored or (parquet and c.metadata == ROW_NUMBER)]
    plan = _read_stored(con, splits, replace(table, columns=table.stored), inner, copies)
    items = []
    for column in wanted:
        value = quote_name(column.name)
        if column not in inner:
            # Text is read by one thread, or with its order kept.
            value = "row_number() OVER () - 1" if column.metadata == ROW_NUMBER else _told(column, splits[0], table)
        items.append(f"CAST({value} AS {column.type}) AS {quote_name(column.name)}")
    if plan.marked is not None:
        return ReadPlan.of_marked(
            f"SELECT {', '.join([*items, WRONG])} FROM ({plan.marked})", plan.rejects, keep=plan.keep
        )
    return replace(plan, sql=f"SELECT {', '.join(items)} FROM {plan.relation}")


# Parquet


def _read_parquet(
    con: duckdb.DuckDBPyConnection, splits: Sequence[Split], table: Table, columns: Sequence[Column]
) -> ReadPlan:
    selects = []
    for group in _same_schema(con, splits, table):
        whole = [s.path for s in group if s.rows is None]
        items = _parquet_items(con, group[0], table, columns)
        if whole:
            selects.append(f"SELECT {items} FROM read_parquet({duckdb_paths(whole)}, hive_partitioning = false)")
        for split in group:
            if split.rows is not None:
                # DuckDB skips the row groups outside of the range by this predicate.
                where = f"file_row_number >= {split.rows[0]} AND file_row_number < {split.rows[1]}"
                source = f"read_parquet({duckdb_paths([split.path])}, hive_partitioning = false)"
                selects.append(f"SELECT {items} FROM {source} WHERE {where}")
    return ReadPlan(" UNION ALL ".join(selects))


# All that tells one Parquet column from another.
_SCHEMA = "(name, type, type_length, num_children, converted_type, scale, precision, logical_type, repetition_type)"


def _same_schema(con: duckdb.DuckDBPyConnection, splits: Sequence[Split], table: Table) -> list[list[Split]]:
    """Group splits by the schema of their files: DuckDB reads a list of files as the first one declares."""
    by_path: dict[str, list[Split]] = {}
    for split in splits:
        by_path.setdefault(split.path, []).append(split)
    with reading(splits, table):
        rows = con.execute(
            f"SELECT file_name, list(s ORDER BY column_id) FROM (SELECT file_name, column_id, {_SCHEMA} AS s"
            f" FROM parquet_schema({duckdb_paths(by_path)})) GROUP BY file_name"
        ).fetchall()
    groups: dict[str, list[Split]] = {}
    for path, schema in sorted(rows):
        groups.setdefault(str(schema), []).extend(by_path[path])
    return list(groups.values())


def _parquet_items(con: duckdb.DuckDBPyConnection, split: Split, table: Table, columns: Sequence[Column]) -> str:
    with reading([split], table):
        described = con.execute(
            f"SELECT * FROM read_parquet({duckdb_paths([split.path])}, hive_partitioning = false) LIMIT 0"
        ).description
    found = {name.lower(): (name, type_) for name, type_, *_ in described or ()}
    _check_columns(split, table, [name for name, _ in found.values()])
    items = []
    for column in columns:
        if column.metadata == ROW_NUMBER:
            items.append(f"file_row_number AS {quote_name(column.name)}")
            continue
        if column.name.lower() not in found:
            items.append(f"CAST(NULL AS {column.type}) AS {quote_name(column.name)}")
            continue
        name, type_ = found[column.name.lower()]
        converted = conversion(quote_name(name), type_, con.sqltype(column.type))
        if converted is None:
            raise DataError(
                f'column "{name}" of {name_file(split.path, table)} is {type_}, which does not fit {column.type}',
                hint="Declare the column with the file's type and convert it in a computed column or in the query.",
            )
        items.append(f"{converted} AS {quote_name(column.name)}")
    return ", ".join(items) or "1"


def _check_columns(split: Split, table: Table, found: Sequence[str]) -> None:
    """Raise DataError unless a Parquet file has the columns that it needs: one at least, and those that are never NULL.

    Others may be missing: the file may be older than the column.
    """
    there = {name.lower() for name in found}
    operation = table.options.get(OP_COLUMN, "").lower()
    key = {name.lower() for name in table.primary_key}
    for column in table.stored:
        needed = column.not_null or column.name.lower() in (operation, *key)
        if needed and column.name.lower() not in there:
            hint = missing("column", column.name, found)
            raise DataError(f'{name_file(split.path, table)} has no column "{column.name}"', hint=hint)
    if table.stored and not any(c.name.lower() in there for c in table.stored):
        hint = missing("column", table.stored[0].name, found)
        raise DataError(f"{name_file(split.path, table)} has none of the columns of the table", hint=hint)


# JSON


def _read_json(
    con: duckdb.DuckDBPyConnection, files: Sequence[str], table: Table, columns: Sequence[Column]
) -> ReadPlan:
    paths = duckdb_paths(files)
    if skips(table):
        names = ", ".join(quote_name(c.name) for c in columns) or "1"
        return ReadPlan.of_marked(f"SELECT {names}, {WRONG} FROM {json_source(con, paths, columns)}", keep=True)
    typed = [(c, con.sqltype(c.type)) for c in columns or table.physical]
    types = ", ".join(f"{quote_text(c.name)}: {quote_text(as_text(t) or c.type)}" for c, t in typed)
    items, where = whole(typed if columns else [])
    options = f"format = 'newline_delimited', columns = {{{types}}}, hive_partitioning = false"
    return ReadPlan(f"SELECT {items} FROM read_json({paths}, {options}){where}", keep=True)


# CSV

_rejects = itertools.count()


def _read_csv(
    con: duckdb.DuckDBPyConnection, splits: Sequence[Split], table: Table, columns: Sequence[Column]
) -> ReadPlan:
    options = [*csv_syntax(table.options), "hive_partitioning = false"]
    rejects: tuple[str, str] | None = None
    if skips(table):
        number = next(_rejects)
        rejects = f"_rejects_{number}", f"_reject_scans_{number}"
        options.append(f"store_rejects = true, rejects_table = '{rejects[0]}', rejects_scan = '{rejects[1]}'")
    layouts: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for split in splits:
        layouts.setdefault(csv_layout(split, table), []).append(split.path)
    typed = [(c, con.sqltype(c.type)) for c in columns]
    texts = {c.name: text for c, type_ in typed if (text := as_text(type_))}
    items, where = whole(typed)
    if rejects:
        items, where = _marked(typed), ""
    selects = []
    for layout, paths in layouts.items():
        types = ", ".join(f"{quote_text(name)}: {quote_text(texts.get(name, type_))}" for name, type_ in layout)
        arguments = ", ".join([duckdb_paths(paths), f"columns = {{{types}}}", *options])
        selects.append(f"SELECT {items} FROM read_csv({arguments}){where}")
    sql = " UNION ALL ".join(selects)
    return ReadPlan.of_marked(sql, rejects, keep=True) if rejects else ReadPlan(sql, keep=True)


def _marked(columns: Sequence[tuple[Column, Any]]) -> str:
    """Return the select items of columns that may hold text where integers should be."""
    items, cases = [], []
    for column, type_ in columns:
        name = quote_name(column.name)
        if as_text(type_) is None:
            items.append(name)
            continue
        value = f"TRY_CAST({name} AS {column.type})"
        items.append(f"{value} AS {name}")
        wrong = [f"{name} IS NOT NULL AND {value} IS NULL", *filter(None, [fraction(name, type_)])]
        cases.append(f"WHEN {' OR '.join(wrong)} THEN {quote_text(does_not_hold(column))}")
    reason = f"CASE {' '.join(cases)} END" if cases else "CAST(NULL AS VARCHAR)"
    return ", ".join([*(items or ["1"]), f"{reason} AS {WRONG}"])
