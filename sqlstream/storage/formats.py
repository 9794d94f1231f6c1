"""Reading files as a table declares them: the SQL that DuckDB reads them with, and what is wrong when it cannot.

Parquet: columns by name (case does not matter); the file's types may be narrower than declared, see `parquet_types`.

JSON: one object per line, keys by exact name; a missing key is NULL, further keys are ignored.

CSV: RFC 4180, columns by place, or by name when there is a header; an empty unquoted field is NULL.

Beside its rows, a file tells metadata, and the values of the columns by which a table is partitioned, from its path
(`k=v/`, as Hive writes it).

Debezium: JSON of its envelopes, see `changelogs`.

JSON and CSV may be compressed (.gz, .zst). A text is cast as DuckDB casts it: "12" is a number, 1.5 rounds to an integer,
a number is not a time, and a TIMESTAMP drops the zone of its text without a conversion (TIMESTAMP_LTZ keeps the instant).
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote

import duckdb

from sqlstream.catalog import DEBEZIUM, IDLE_TIMEOUT, OP_COLUMN, VALUES, Column, Table
from sqlstream.errors import BindError, DataError, missing
from sqlstream.storage.changelogs import MODIFIED, SCHEMA_INCLUDE, malformed
from sqlstream.storage.changelogs import validate as validate_changes
from sqlstream.storage.files import Split
from sqlstream.storage.json_lines import json_source
from sqlstream.storage.parquet_types import conversion
from sqlstream.storage.read_errors import duckdb_paths, name_file, open_text, reading
from sqlstream.storage.segments import quote_name, quote_text
from sqlstream.storage.values import values_sql
from sqlstream.units import parse_boolean, parse_bytes, parse_count, parse_duration

FORMATS = ("parquet", "json", "csv", DEBEZIUM)


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """How to read some splits.

    `sql` is a SELECT of the asked columns, in their order and with the declared types. Where malformed rows are to be
    skipped, `skipped` counts them once `sql` has been read to its end, on the same connection. `keep` says that the rows
    are better kept than read a second time: text is parsed once, a second look at one column of Parquet costs little.
    """

    sql: str
    malformed_sql: str | None = None
    temporary: tuple[str, ...] = ()
    keep: bool = False

    @property
    def relation(self) -> str:
        """The SELECT as it stands in a FROM clause."""
        return f"({self.sql})"

    def skipped(self, con: duckdb.DuckDBPyConnection) -> int:
        """Return how many malformed rows were skipped, and forget them."""
        if self.malformed_sql is None:
            return 0
        [(count,)] = con.execute(self.malformed_sql).fetchall()
        for table in self.temporary:
            con.execute(f"DROP TABLE IF EXISTS {table}")
        return int(count)


def read(
    con: duckdb.DuckDBPyConnection, splits: Sequence[Split], table: Table, columns: Iterable[str] | None = None
) -> ReadPlan:
    """Return how to read the splits, all of them local, of a table.

    `columns` names the physical columns to read, by default all; what is wrong in others goes unnoticed. Raises DataError
    when a file is not there, is not of the format, or does not hold the columns.
    """
    wanted = list(table.physical)
    if columns is not None:
        names = {name.lower() for name in columns}
        wanted = [c for c in wanted if c.name.lower() in names]
    if not splits:
        nothing = ", ".join(f"NULL::{c.type} AS {quote_name(c.name)}" for c in wanted)
        return ReadPlan(f"SELECT {nothing} WHERE false")
    if table.connector == VALUES:
        return ReadPlan(values_sql(table, wanted))
    plan = _read_wanted(con, splits, table, wanted)
    return _without_malformed(plan, table) if table.has_changes and _ignores_errors(table) else plan


def _ignores_errors(table: Table) -> bool:
    return _flag(table.options, f"{table.options['format'].lower()}.ignore-parse-errors")


def _without_malformed(plan: ReadPlan, table: Table) -> ReadPlan:
    """Return the plan without rows that say nothing that a row can do; they are counted."""
    wrong = malformed(table)
    counted = f"(SELECT count(*) FROM {plan.relation} WHERE {wrong})"
    # The rows are read before those that their reader rejects are counted.
    more = f" + ({plan.malformed_sql})" if plan.malformed_sql else ""
    return replace(
        plan, sql=f"SELECT * FROM {plan.relation} WHERE NOT ({wrong})", malformed_sql=f"SELECT {counted}{more}"
    )


def _read_wanted(
    con: duckdb.DuckDBPyConnection, splits: Sequence[Split], table: Table, wanted: Sequence[Column]
) -> ReadPlan:
    stored = replace(table, columns=table.stored)
    if all(c in stored.columns for c in wanted):
        return _read_stored(con, splits, stored, wanted)
    plans = [_read_group(con, group, table, wanted) for group in _alike(splits, table, wanted)]
    counts = " + ".join(f"({p.malformed_sql})" for p in plans if p.malformed_sql)
    return ReadPlan(
        " UNION ALL ".join(p.sql for p in plans),
        f"SELECT {counts}" if counts else None,
        tuple(name for p in plans for name in p.temporary),
        any(p.keep for p in plans),
    )


def _read_stored(
    con: duckdb.DuckDBPyConnection, splits: Sequence[Split], table: Table, columns: Sequence[Column]
) -> ReadPlan:
    match table.options["format"].lower():
        case "parquet":
            return _read_parquet(con, splits, table, columns)
        case "json" | "debezium-json":
            return _read_json(con, splits, table, columns)
        case _:
            return _read_csv(splits, table, columns)


# What a file tells beside its rows

ROW_NUMBER = "row-number"
METADATA: Mapping[str, Callable[[Split], str]] = {
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
        return {**METADATA, **_ORDER}[column.metadata](split)
    parts = [part.partition("=") for part in split.path.split("/")]
    found = [value for name, equals, value in parts if equals and unquote(name).lower() == column.name.lower()]
    if not found:
        hint = f"Its folders are named as in {column.name}=value/."
        raise DataError(f'{name_file(split.path, table)} is in no partition "{column.name}"', hint=hint)
    return "NULL" if found[-1] == NULL_PARTITION else quote_text(unquote(found[-1]))


def _read_group(
    con: duckdb.DuckDBPyConnection, splits: Sequence[Split], table: Table, wanted: Sequence[Column]
) -> ReadPlan:
    parquet = table.options["format"].lower() == "parquet"
    inner = [c for c in wanted if c in table.stored or (parquet and c.metadata == ROW_NUMBER)]
    plan = _read_stored(con, splits, replace(table, columns=table.stored), inner)
    items = []
    for column in wanted:
        value = quote_name(column.name)
        if column not in inner:
            # Text is read by one thread, or with its order kept.
            value = "row_number() OVER () - 1" if column.metadata == ROW_NUMBER else _told(column, splits[0], table)
        items.append(f"CAST({value} AS {column.type}) AS {quote_name(column.name)}")
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
    items = []
    for column in columns:
        if column.metadata == ROW_NUMBER:
            items.append(f"file_row_number AS {quote_name(column.name)}")
            continue
        if column.name.lower() not in found:
            hint = missing("column", column.name, [name for name, _ in found.values()])
            raise DataError(f'{name_file(split.path, table)} has no column "{column.name}"', hint=hint)
        name, type_ = found[column.name.lower()]
        converted = conversion(quote_name(name), type_, con.sqltype(column.type))
        if converted is None:
            raise DataError(
                f'column "{name}" of {name_file(split.path, table)} is {type_}, which does not fit {column.type}',
                hint="Declare the column with the file's type and convert it in a computed column or in the query.",
            )
        items.append(f"{converted} AS {quote_name(column.name)}")
    return ", ".join(items) or "1"


# JSON


def _read_json(
    con: duckdb.DuckDBPyConnection, splits: Sequence[Split], table: Table, columns: Sequence[Column]
) -> ReadPlan:
    items = ", ".join(quote_name(c.name) for c in columns) or "1"
    paths = duckdb_paths(s.path for s in splits)
    if not _ignores_errors(table):
        types = ", ".join(f"{quote_text(c.name)}: {quote_text(c.type)}" for c in columns or table.physical)
        options = f"format = 'newline_delimited', columns = {{{types}}}, hive_partitioning = false"
        return ReadPlan(f"SELECT {items} FROM read_json({paths}, {options})", keep=True)
    source = json_source(con, paths, columns)
    fields = ", ".join(f"_row.{quote_name(c.name)}" for c in columns) or "1"
    return ReadPlan(
        f"SELECT {fields} FROM {source} WHERE _wrong IS NULL",
        f"SELECT count(*) FROM {source} WHERE _wrong IS NOT NULL",
        keep=True,
    )


# CSV

_rejects = itertools.count()


def _read_csv(splits: Sequence[Split], table: Table, columns: Sequence[Column]) -> ReadPlan:
    options = [*_csv_syntax(table.options), "hive_partitioning = false"]
    malformed_sql: str | None = None
    temporary: tuple[str, ...] = ()
    if _flag(table.options, "csv.ignore-parse-errors"):
        number = next(_rejects)
        rejects, scans = f"_rejects_{number}", f"_reject_scans_{number}"
        options.append(f"store_rejects = true, rejects_table = '{rejects}', rejects_scan = '{scans}'")
        # One malformed row may be rejected for several reasons, and several times when the SQL is run again.
        rows = f"SELECT DISTINCT file_path, line FROM {rejects} JOIN {scans} USING (scan_id, file_id)"
        malformed_sql = f"SELECT count(*) FROM ({rows})"
        temporary = (rejects, scans)
    layouts: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for split in splits:
        layouts.setdefault(_csv_layout(split, table), []).append(split.path)
    items = ", ".join(quote_name(c.name) for c in columns) or "1"
    selects = []
    for layout, paths in layouts.items():
        types = ", ".join(f"{quote_text(name)}: {quote_text(type_)}" for name, type_ in layout)
        arguments = ", ".join([duckdb_paths(paths), f"columns = {{{types}}}", *options])
        selects.append(f"SELECT {items} FROM read_csv({arguments})")
    return ReadPlan(" UNION ALL ".join(selects), malformed_sql, temporary, keep=True)


def _csv_layout(split: Split, table: Table) -> tuple[tuple[str, str], ...]:
    """Return the (name, type) of each field of a file's rows, by its header if there is one."""
    if not _flag(table.options, "csv.header"):
        return tuple((c.name, c.type) for c in table.physical)
    with reading([split], table):
        header = _csv_header(split.path, table.options)
    declared = {c.name.lower(): c for c in table.physical}
    if header is None:
        return tuple((c.name, c.type) for c in table.physical)
    places = [name.strip().lower() for name in header]
    for name, column in declared.items():
        if name not in places:
            hint = missing("column", column.name, [n.strip() for n in header])
            message = f'the header of {name_file(split.path, table)} has no column "{column.name}"'
            raise DataError(message, hint=hint)
        if places.count(name) > 1:
            raise DataError(f'the header of {name_file(split.path, table)} has column "{column.name}" twice')
    # Fields that are not declared need a name of their own, but no type.
    return tuple(
        (declared[n].name, declared[n].type) if n in declared else (f"_undeclared_{i}", "VARCHAR")
        for i, n in enumerate(places)
    )


def _csv_header(path: str, options: Mapping[str, str]) -> list[str] | None:
    quote = options.get("csv.quote-character", '"')
    escape = options.get("csv.escape-character", quote)
    with open_text(path) as lines:
        reader = csv.reader(
            lines,
            delimiter=_character(options.get("csv.field-delimiter", ",")),
            quotechar=quote or None,
            quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
            doublequote=escape == quote,
            escapechar=None if escape == quote else escape,
        )
        return next(reader, None)


def _csv_syntax(options: Mapping[str, str]) -> list[str]:
    quote = options.get("csv.quote-character", '"')
    nulls = ["", *([options["csv.null-literal"]] if options.get("csv.null-literal") else [])]
    return [
        "auto_detect = false",
        f"header = {str(_flag(options, 'csv.header')).lower()}",
        f"delim = {quote_text(_character(options.get('csv.field-delimiter', ',')))}",
        f"quote = {quote_text(quote)}",
        f"escape = {quote_text(options.get('csv.escape-character', quote))}",
        f"nullstr = [{', '.join(map(quote_text, nulls))}]",
        "allow_quoted_nulls = false",
    ]


def csv_write_options(options: Mapping[str, str]) -> list[str]:
    """Return how COPY writes CSV that `read` reads back, by the same options."""
    quote = options.get("csv.quote-character", '"')
    return [
        f"HEADER {str(_flag(options, 'csv.header')).lower()}",
        f"DELIMITER {quote_text(_character(options.get('csv.field-delimiter', ',')))}",
        f"QUOTE {quote_text(quote)}",
        f"ESCAPE {quote_text(options.get('csv.escape-character', quote))}",
        f"NULLSTR {quote_text(options.get('csv.null-literal', ''))}",
    ]


def _character(text: str) -> str:
    return "\t" if text == "\\t" else text


# Options


def _flag(options: Mapping[str, str], name: str) -> bool:
    return parse_boolean(options.get(name, "false"))


def _one_character(text: str) -> str:
    if len(_character(text)) != 1:
        raise ValueError(f'"{text}" is not one character')
    return text


_Parse = Callable[[str], object]
_OPTIONS: dict[str, _Parse] = {
    "connector": str,
    "path": str,
    "format": str,
    "source.monitor-interval": parse_duration,
    "source.max-files-per-batch": parse_count,
    "source.max-bytes-per-batch": parse_bytes,
    IDLE_TIMEOUT: parse_duration,
}
_OPERATION: dict[str, _Parse] = {OP_COLUMN: str}
_FORMAT_OPTIONS: dict[str, dict[str, _Parse]] = {
    "parquet": {},
    "json": {"json.ignore-parse-errors": parse_boolean},
    "csv": {
        "csv.header": parse_boolean,
        "csv.field-delimiter": _one_character,
        "csv.quote-character": lambda text: text and _one_character(text),
        "csv.escape-character": _one_character,
        "csv.null-literal": str,
        "csv.ignore-parse-errors": parse_boolean,
    },
    DEBEZIUM: {SCHEMA_INCLUDE: parse_boolean, "debezium-json.ignore-parse-errors": parse_boolean},
}


def validate_options(table: Table) -> None:
    """Raise BindError unless the options of a `filesystem` table are complete, known, and of the right form."""
    every: set[str] = {*_OPTIONS, *_OPERATION}.union(*_FORMAT_OPTIONS.values())
    required = {"path": "data/", "format": "parquet"}
    incomplete = not all(table.options.get(name) for name in required)
    for name in table.options:
        # What is missing may be there under a wrong name.
        if incomplete and name not in every:
            message = f'table "{table.name}": option "{name}" does not exist for connector "filesystem"'
            raise BindError(message, table.option_span(name), hint=missing("option", name, sorted(every)))
    for name, example in required.items():
        if not table.options.get(name):
            hint = f"Write it into WITH (..): '{name}' = '{example}'."
            raise BindError(f'table "{table.name}" needs the option "{name}"', table.span, hint=hint)
    debezium = table.options["format"].lower() == DEBEZIUM
    validate_format(table, _OPTIONS if debezium else {**_OPTIONS, **_OPERATION})
    if table.has_changes:
        validate_changes(table)


def validate_format(table: Table, general: Mapping[str, _Parse]) -> None:
    """Raise BindError unless the format exists, and every option is one of it, or a general one, and of the right form."""
    format_ = table.options["format"].lower()
    if format_ not in FORMATS:
        message = f'table "{table.name}": format "{format_}" does not exist'
        raise BindError(message, table.option_span("format", value=True), hint=missing("format", format_, FORMATS))
    known = {**general, **_FORMAT_OPTIONS[format_]}
    for name, value in table.options.items():
        if name not in known:
            message = f'table "{table.name}": option "{name}" does not exist for format "{format_}"'
            raise BindError(message, table.option_span(name), hint=missing("option", name, known))
        try:
            known[name](value)
        except ValueError as error:
            message = f'table "{table.name}": option "{name}": {error}'
            raise BindError(message, table.option_span(name, value=True)) from None
