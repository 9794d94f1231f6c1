"""JSON lines read one by one, so that a line that is not a row of the table can be skipped, counted, or named."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import duckdb

from sqlstream.catalog import Column
from sqlstream.storage.segments import quote_name, quote_text


def json_source(con: duckdb.DuckDBPyConnection, paths: str, columns: Sequence[Column]) -> str:
    """Return a relation with a row per line: its values in `_row`, and in `_wrong` the column at fault (-1: the line)."""
    shape = quote_text(json.dumps({c.name: c.type for c in columns}))
    typed = [(i, c, con.sqltype(c.type)) for i, c in enumerate(columns)]
    value = {i: f"json_extract(json, {_json_key(c.name)})" for i, c, _ in typed}
    faults = [(i, _misfit(value[i], type_)) for i, _, type_ in typed]
    cases = " ".join(f"WHEN {fault} THEN {i}" for i, fault in faults if fault != "false")
    # A value that does not fit becomes NULL, so most lines of flat columns need no second look.
    suspicious = [
        "true" if type_.id in ("struct", "list", "map", "array") else f"_row.{quote_name(c.name)} IS NULL"
        for _, c, type_ in typed
    ]
    wrong = f"CASE WHEN {' OR '.join(suspicious)} THEN CASE {cases} END END" if cases else "NULL"
    whole = "json IS NULL OR json_type(json) NOT IN ('OBJECT', 'NULL')"
    lines = f"read_ndjson_objects({paths}, ignore_errors = true, hive_partitioning = false)"
    rows = f"(SELECT json, json_transform(json, {shape}) AS _row FROM {lines})"
    return f"(SELECT _row, CASE WHEN {whole} THEN -1 ELSE {wrong} END AS _wrong FROM {rows})"


def _json_key(name: str) -> str:
    return quote_text('$."' + name.replace('"', '\\"') + '"')


def _misfit(value: str, declared: Any, depth: int = 0) -> str:
    """Return a condition: this JSON value is there and is not of the declared type."""
    item = f"_x{depth}"
    match declared.id:
        case "varchar":
            return "false"
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


def first_wrong_line(path: str, columns: Sequence[Column]) -> tuple[int, Column | None] | None:
    """Return which line of a file, not counting empty ones, is the first that is not a row, and the column at fault.

    `path` is a literal of DuckDB's. Takes a pass over the file.
    """
    with duckdb.connect(config={"threads": 1, "autoload_known_extensions": False}) as con:
        found = con.execute(
            f"SELECT _n, _wrong FROM (SELECT row_number() OVER () AS _n, _wrong FROM {json_source(con, path, columns)})"
            " WHERE _wrong IS NOT NULL ORDER BY _n LIMIT 1"
        ).fetchone()
    if found is None:
        return None
    number, wrong = found
    return number, columns[wrong] if wrong >= 0 else None
