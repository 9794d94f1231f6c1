"""JSON lines read one by one, so that a line that is not a row of the table can be skipped, counted, or named."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

from sqlstream.catalog import Column, Table
from sqlstream.connectors.filesystem.splits import FileSplit
from sqlstream.connectors.formats.malformed import skips
from sqlstream.connectors.formats.whole_numbers import READ_AS_TEXT, as_text, fraction, whole
from sqlstream.connectors.read_plan import VALUE, WRONG, ReadPlan
from sqlstream.duck.sql import quote_name, quote_text
from sqlstream.duck.text_files import NO_OBJECT, duckdb_paths


def read_json(
    con: duckdb.DuckDBPyConnection,
    splits: Sequence[FileSplit],
    table: Table,
    columns: Sequence[Column],
    copies: Mapping[str, str],
) -> ReadPlan:
    """Return how to read files of JSON lines; `copies` are files to read in place of others, by their paths."""
    paths = duckdb_paths([copies.get(s.path, s.path) for s in splits])
    if skips(table):
        names = ", ".join(quote_name(c.name) for c in columns) or "1"
        lines = f"read_ndjson_objects({paths}, ignore_errors = true, hive_partitioning = false)"
        return ReadPlan.of_marked(f"SELECT {names}, {WRONG} FROM {_marked(con, lines, columns, NO_OBJECT)}", keep=True)
    typed = [(c, con.sqltype(c.type)) for c in columns or table.physical]
    types = ", ".join(f"{quote_text(c.name)}: {quote_text(as_text(t) or c.type)}" for c, t in typed)
    items, where = whole(typed if columns else [])
    options = f"format = 'newline_delimited', columns = {{{types}}}, hive_partitioning = false"
    return ReadPlan(f"SELECT {items} FROM read_json({paths}, {options}){where}", keep=True)


def json_values(
    con: duckdb.DuckDBPyConnection, values: str, table: Table, columns: Sequence[Column], kept: Sequence[str]
) -> str:
    """Return the marked rows of values, each the text of an object; `kept` are further columns of them that stay."""
    objects = f"(SELECT *, CASE WHEN json_valid({VALUE}) THEN CAST({VALUE} AS JSON) END AS json FROM {values})"
    return _marked(con, objects, columns, "The value is not a JSON object", kept)


def _marked(
    con: duckdb.DuckDBPyConnection, lines: str, columns: Sequence[Column], no_object: str, kept: Sequence[str] = ()
) -> str:
    """Return a relation with a row per object: its columns, and in WRONG why it is no row of the table, NULL where it is one.

    `lines` has the object as `json`, NULL where there is none.
    """
    typed = [(c, con.sqltype(c.type), f"json_extract(json, {_json_key(c.name)})") for c in columns]
    shape = quote_text(json.dumps({c.name: as_text(t) or c.type for c, t, _ in typed}))
    items, suspicious = [], []
    for column, type_, _ in typed:
        name = f"_row.{quote_name(column.name)}"
        item = name if as_text(type_) is None else f"TRY_CAST({name} AS {column.type})"
        items.append(f"{item} AS {quote_name(column.name)}")
        # A value that does not fit becomes NULL, so most lines of flat columns need no second look.
        nested = type_.id in ("struct", "list", "map", "array")
        suspicious += ["true"] if nested else [f"{item} IS NULL", *filter(None, [fraction(name, type_)])]
    faults = [(c, _misfit(value, type_)) for c, type_, value in typed]
    cases = " ".join(f"WHEN {f} THEN {quote_text(does_not_hold(c))}" for c, f in faults if f != "false")
    wrong = f"CASE WHEN {' OR '.join(suspicious)} THEN CASE {cases} END END" if cases else "NULL"
    not_an_object = "json IS NULL OR json_type(json) NOT IN ('OBJECT', 'NULL')"
    others = "".join(f"{name}, " for name in kept)
    rows = f"(SELECT {others}json, json_transform(json, {shape}) AS _row FROM {lines})"
    items.append(f"CASE WHEN {not_an_object} THEN {quote_text(no_object)} ELSE {wrong} END AS {WRONG}")
    return f"(SELECT {', '.join([*kept, *items])} FROM {rows})"


def does_not_hold(column: Column) -> str:
    """Return why a row is malformed of which a value does not fit its column."""
    return f'Column "{column.name}" does not hold a {column.type}'


def _json_key(name: str) -> str:
    return quote_text('$."' + name.replace('"', '\\"') + '"')


def _misfit(value: str, declared: Any, depth: int = 0) -> str:
    """Return a condition: this JSON value is there and is not of the declared type."""
    item = f"_x{depth}"
    match declared.id:
        case "varchar":
            return "false"
        case id if id in READ_AS_TEXT:
            text = f"json_extract_string({value}, '$')"
            wrong = [f"TRY_CAST({text} AS {declared}) IS NULL", *filter(None, [fraction(text, declared)])]
            return f"(coalesce(json_type({value}), 'NULL') <> 'NULL' AND ({' OR '.join(wrong)}))"
        case "struct":
            fields = [_misfit(f"json_extract({value}, {_json_key(n)})", t, depth) for n, t in declared.children]
            kind, inner = "OBJECT", " OR ".join(fields)
        case "list" | "array":
            inside = _misfit(item, declared.children[0][1], depth + 1)
            kind, inner = "ARRAY", f"len(list_filter(json_extract({value}, '$[*]'), lambda {item}: {inside})) > 0"
        case "map":
            inside = _misfit(item, declared.children[1][1], depth + 1)
            kind, inner = "OBJECT", f"len(list_filter(json_extract({value}, '$.*'), lambda {item}: {inside})) > 0"
        case _:
            return f"(coalesce(json_type({value}), 'NULL') <> 'NULL' AND TRY_CAST({value} AS {declared}) IS NULL)"
    return f"CASE coalesce(json_type({value}), 'NULL') WHEN 'NULL' THEN false WHEN '{kind}' THEN {inner} ELSE true END"
