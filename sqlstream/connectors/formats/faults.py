"""Finds the malformed rows of files, with their places and the reasons. It reads the files again, only if there are such rows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache

import duckdb

from sqlstream.catalog import IGNORE, Table
from sqlstream.connectors.formats.csv_records import is_no_row, nth_rows
from sqlstream.connectors.formats.csv_rows import csv_layout, quoting
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.connectors.formats.long_lines import is_too_long, without_long_lines
from sqlstream.connectors.formats.malformed import MalformedRow, format_of, skips
from sqlstream.connectors.formats.raw_lines import nth_raw_lines
from sqlstream.connectors.formats.read_errors import (
    csv_reason,
    malformed_row,
    name_file,
    path_in,
    reading,
    translate_file,
)
from sqlstream.connectors.formats.reading import read, read_exactly
from sqlstream.connectors.formats.whole_numbers import INFINITE, NOT_WHOLE
from sqlstream.connectors.read_plan import ReadPlan
from sqlstream.duck import databases
from sqlstream.duck.internal_columns import PATH, ROW
from sqlstream.duck.sql import quote_name, quote_text
from sqlstream.duck.text_files import LIMIT, duckdb_paths, nth_lines
from sqlstream.errors import DataError

TOO_LONG = f"The line is longer than {LIMIT >> 20} MB"


def translate(error: Exception, splits: Iterable[FileSplit], table: Table) -> DataError | None:
    """Translate an error of reading some splits for users; None if it is about something else.

    If a row is malformed, the splits are read again to name its place.
    """
    form, splits = format_of(table), list(splits)
    if not form:
        return None
    text = str(error)
    path = path_in(text, splits)
    json = form in ("json", "debezium-json")
    # An error about a value that is cast after reading names no place.
    is_number = NOT_WHOLE in text or INFINITE in text
    unplaced = path is None and (is_number or isinstance(error, duckdb.ConversionException))
    if (
        unplaced
        or is_no_row(error)
        or '" is malformed: ' in text
        or (json and path and "JSON" in text)
        or is_too_long(error)
    ):
        suspects = [s for s in splits if path in (None, s.path)]
        if row := next(malformed_rows(suspects, table), None):
            return malformed_row(
                row.path, "line" if json or form == "raw" else "row", row.number, row.reason, row.text, table
            )
        if path is not None:
            fallback = translate_file(error, splits, table)
            detail = fallback.detail if fallback else None
            return DataError(f"{name_file(path, table)} has a malformed row", detail=detail)
    return translate_file(error, splits, table)


def malformed_rows(splits: Sequence[FileSplit], table: Table) -> Iterator[MalformedRow]:
    """Yield the malformed rows of some splits, in order. Raises DataError for a file that cannot be read."""
    with databases.passing() as con:
        for split in splits:
            with reading([split], table):
                rows = _malformed_rows_of(con, split, table)
            yield from rows


def _malformed_rows_of(con: duckdb.DuckDBPyConnection, split: FileSplit, table: Table) -> list[MalformedRow]:
    plan = take_numbered(con, split, table)
    rejected = [(r.number, csv_reason(r.kind, r.column, r.message, table), r.text) for r in plan.rejected(con)]
    marked = plan.marked_rows(con, f"{ROW.name} + 1") if plan.marked else []
    places = place(split, table, [n for n, _ in marked], [row for row, *_ in rejected])
    marked_rows = [(places[n][0], _too_long(places[n][1]) or why, places[n][1]) for n, why in marked]
    plan.forget(con)
    return sorted(MalformedRow(split.path, *row) for row in (*marked_rows, *rejected))


def take_numbered(con: duckdb.DuckDBPyConnection, split: FileSplit, table: Table) -> ReadPlan:
    """Return the plan of a split after `take`, with the columns PATH and ROW, and with malformed rows marked.

    ROW is a row's number in the file, from 0. For CSV it counts only rows that DuckDB's reader has not rejected.
    """
    skipping = replace(
        table,
        columns=(*table.columns, *(c for c in (PATH, ROW) if c not in table.columns)),
        options={**table.options, f"{format_of(table)}.{IGNORE}": "true"},
    )
    return take(con, [split], skipping)


def take(con: duckdb.DuckDBPyConnection, splits: Sequence[FileSplit], table: Table) -> ReadPlan:
    """Return the plan of some splits, of a table that skips malformed rows, after `ReadPlan.take`."""
    if format_of(table) == "csv":
        return _take_csv(con, splits, table)
    with tempfile.TemporaryDirectory(prefix="sqlstream-") as directory:
        plan = read(con, splits, table)
        try:
            plan.take(con)
        except duckdb.Error as error:
            if not is_too_long(error):
                raise
            plan = read(con, splits, table, copies=without_long_lines([s.path for s in splits], directory))
            plan.take(con)
    return plan


def _take_csv(con: duckdb.DuckDBPyConnection, splits: Sequence[FileSplit], table: Table) -> ReadPlan:
    """Return the plan of CSV files after `ReadPlan.take`. Files that DuckDB's reader may misread are read record by record."""
    by_record = set[str]()
    while True:
        plan = read(con, splits, table, by_record=by_record)
        try:
            plan.take(con)
            puzzling = _doubted(con, plan, splits, table)
        except duckdb.Error as error:
            puzzling = puzzling_files(error, splits, table)
            if puzzling <= by_record:
                raise
        if puzzling <= by_record:
            return plan
        plan.forget(con)
        # After the second attempt, all files are read by record: each attempt may reveal one more.
        by_record = by_record | {s.path for s in splits} if by_record else puzzling


# Errors in which DuckDB's reader is right, whatever the rows around look like.
_SURE = "error_type IN ('CAST', 'MISSING COLUMNS', 'TOO MANY COLUMNS')"


def _doubted(con: duckdb.DuckDBPyConnection, plan: ReadPlan, splits: Sequence[FileSplit], table: Table) -> set[str]:
    """Return the paths of the files in which DuckDB's reader may have misjudged where a rejected row ends."""
    quote = quoting(table.options)[1]
    marks = " OR ".join(f"contains(csv_line, {quote_text(mark)})" for mark in ("\r", quote) if mark)
    doubted = f"NOT {_SURE} OR (error_type <> 'CAST' AND coalesce({marks}, true))"
    doubtful_paths = set[str]()
    for rejects, scans in plan.rejects:
        sql = f"SELECT DISTINCT file_path FROM {rejects} JOIN {scans} USING (scan_id, file_id) WHERE {doubted}"
        doubtful_paths |= {path for (path,) in con.execute(sql).fetchall()}
    paths = {s.path for s in splits}
    return doubtful_paths if doubtful_paths <= paths else paths


def puzzling_files(error: Exception, splits: Sequence[FileSplit], table: Table) -> set[str]:
    """Return the paths of CSV files at which DuckDB's reader failed with `error`, although they may be valid."""
    text = str(error)
    about_rows = isinstance(error, duckdb.InvalidInputException) and "CSV" in text
    if format_of(table) != "csv" or not about_rows or is_no_row(error) or "Error when converting column" in text:
        return set()
    path = path_in(text, splits)
    return {s.path for s in splits} if path is None else {path}


def read_again(
    con: duckdb.DuckDBPyConnection, error: duckdb.Error, splits: Sequence[FileSplit], table: Table
) -> ReadPlan | None:
    """Return another plan for splits at which DuckDB's reader failed with `error`; None if no other plan could succeed.

    The plan reads CSV files record by record, or judges infinite numbers of JSON by their texts.
    """
    # If malformed rows are skipped, `take` has tried it.
    if skips(table):
        return None
    if INFINITE in str(error):
        return read_exactly(con, splits, table)
    if not puzzling_files(error, splits, table):
        return None
    return read(con, splits, table, by_record={s.path for s in splits})


def number_faults(splits: Sequence[FileSplit], table: Table) -> Callable[[str], str]:
    """Return a function from the path of a split's file to the fault of its first malformed number, "" if there is none.

    The function reads each file once, and judges numbers by their texts. `may_be_infinite` must hold for the table.
    """
    by_path = {split.path: split for split in splits}

    @cache
    def fault(path: str) -> str:
        # A query may call the function with any text.
        if path not in by_path:
            return ""
        with databases.passing() as con:
            try:
                con.execute(f"SELECT count(*) FROM {read_exactly(con, [by_path[path]], table).relation}")
            except duckdb.Error as error:
                return str(error).removeprefix("Invalid Input Error: ")
        return ""

    return fault


def _too_long(text: str) -> str | None:
    return TOO_LONG if len(text.encode()) >= LIMIT - 4 else None


def place(
    split: FileSplit, table: Table, counts: Sequence[int], rejected: Collection[int] = ()
) -> dict[int, tuple[int, str]]:
    """Map each n in `counts` to (number, text) of the nth row of a split's file, counted from 1.

    `number` is the one that messages show: the number of the row or, for CSV, of the record, from 1. `rejected` has the numbers
    of CSV records that do not count as rows.
    """
    if not counts:
        return {}
    match format_of(table):
        case "parquet":
            return _parquet_rows(split, table, counts)
        case "avro":
            return _avro_rows(split, table, counts)
        case "csv":
            return _csv_rows(split, table, counts, rejected)
        case "raw":
            return nth_raw_lines(split.path, counts, table)
    return nth_lines(split.path, counts)


def _parquet_rows(split: FileSplit, table: Table, counts: Sequence[int]) -> dict[int, tuple[int, str]]:
    source = f"read_parquet({duckdb_paths([split.path])}, hive_partitioning = false) AS _row"
    numbers = ", ".join(str(n - 1) for n in counts)
    with databases.passing() as con:
        sql = f"SELECT file_row_number + 1, CAST(to_json(_row) AS VARCHAR) FROM {source} WHERE file_row_number IN ({numbers})"
        return {n: (n, text) for n, text in con.execute(sql).fetchall()}


def _avro_rows(split: FileSplit, table: Table, counts: Sequence[int]) -> dict[int, tuple[int, str]]:
    row = ", ".join(f"{quote_name(c.name)} := {quote_name(c.name)}" for c in table.stored)
    numbers = ", ".join(str(n - 1) for n in counts)
    # As plain rows, not as changes: so all are included, malformed or not.
    plain = replace(table, columns=(*table.stored, ROW), options={"format": "avro"})
    with databases.passing() as con:
        rows = read(con, [split], plain).relation
        sql = f"SELECT {ROW.name} + 1, CAST(to_json(struct_pack({row})) AS VARCHAR) FROM {rows} WHERE {ROW.name} IN ({numbers})"
        return {n: (n, text) for n, text in con.execute(sql).fetchall()}


def _csv_rows(
    split: FileSplit, table: Table, counts: Sequence[int], rejected: Collection[int]
) -> dict[int, tuple[int, str]]:
    """Map each n in `counts` to (number of the record, text) of the nth row of a CSV file, as `place` does."""
    fields = len(csv_layout(split, table))
    records = nth_rows(split.path, table.options, fields, set(counts), set(rejected))
    return {n: (record.number, record.text) for n, record in records.items()}
