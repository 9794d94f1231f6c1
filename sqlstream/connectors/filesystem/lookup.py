"""The rows of all files that a table has now: for lookups, and for state queries."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import duckdb
import pyarrow as pa

from sqlstream.catalog import IGNORE, Table
from sqlstream.connectors.confined_files import check_files
from sqlstream.connectors.filesystem.listing import PathPattern
from sqlstream.connectors.formats.changelogs import present, source_table
from sqlstream.connectors.formats.copies import near
from sqlstream.connectors.formats.csv_records import mixed_files
from sqlstream.connectors.formats.faults import number_faults, translate
from sqlstream.connectors.formats.file_split import FileSplit
from sqlstream.connectors.formats.malformed import format_of, skip_hint
from sqlstream.connectors.formats.reading import may_be_infinite, read, read_checked
from sqlstream.connectors.interface import LookupFunction, Snapshot
from sqlstream.connectors.lookup_rows import KEYS, chosen
from sqlstream.duck import databases
from sqlstream.duck.internal_columns import internal
from sqlstream.duck.sql import subquery
from sqlstream.errors import DataError, JobError

_numbers = itertools.count()


def files_snapshot(
    con: duckdb.DuckDBPyConnection, table: Table, splits: Sequence[FileSplit], paths: tuple[str, ...] = ()
) -> Snapshot:
    """Return the rows of some files, with the table's physical columns, and `paths`.

    For a table of changes, these are the rows that exist after all changes. Streams are already registered in `con`.
    """
    by_record = mixed_files(splits) if format_of(table) == "csv" else ()
    source, functions = source_table(table), dict[str, Callable[[str], str]]()
    if splits and may_be_infinite(con, source):
        name = internal(f"number_faults_{next(_numbers)}")
        functions[name] = number_faults(splits, source)
        plan = read_checked(con, splits, source, name)
    else:
        plan = read(con, splits, source, by_record=by_record)
    relation = subquery(present(table, plan.relation)) if table.has_changes else plan.relation
    return Snapshot(relation, paths, plan.streams, functions)


def files_now(table: Table, project: str) -> list[FileSplit]:
    """Return the files that a table has now and that are not empty, in reading order; remote ones as local copies.

    Raises DataError for a file outside of the folders that the table is confined to.
    """
    pattern = PathPattern(table.options["path"], project)
    files = sorted(pattern.files() or ())
    check_files(table, [file.path for file in files])
    return [near(FileSplit(f.path, f.size, f.mtime_ns, f.size)) for f in files if f.size]


class CurrentFilesLookup(LookupFunction):
    """Looks up rows in the files that a table has now. Raises JobError, for a retry, if a file cannot be read."""

    def __init__(self, table: Table, project: str):
        self._table, self._project = table, project

    def __call__(self, keys: pa.Table) -> pa.Table:
        with databases.passing() as con:
            con.register(KEYS, keys)
            splits = files_now(self._table, self._project)
            try:
                rows = files_snapshot(con, self._table, splits)
                rows.register(con)
                try:
                    return con.sql(chosen(self._table, rows.relation, keys)).to_arrow_table()
                finally:
                    # They would stay in the database of the process.
                    for name in rows.functions:
                        con.remove_function(name)
            except duckdb.Error as error:
                # Not a DataError: a retry may find the file complete.
                wrong = translate(error, splits, self._table)
                if wrong is None:
                    raise
                raise _again(wrong, self._table) from error


def _again(error: DataError, table: Table) -> JobError:
    """Return the error about a file in a lookup, with a hint that fits: lookups neither count nor store malformed rows."""
    skip = f"Set '{format_of(table)}.{IGNORE}' = 'true' to leave out such rows."
    hint = skip if error.hint == skip_hint(table) else error.hint
    return JobError(error.message, detail=error.detail, hint=hint)
