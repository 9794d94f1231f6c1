"""Columns of type JSON in rows that are JSON themselves.

Many producers, Debezium among them, write a document within a document as a string. So a string that contains an object or an
array is read as that object or array. Any other string stays a string: `"{\\"a\\": 1}"` is an object, `"abc"` and `"5"` are
strings.
"""

from __future__ import annotations

from typing import Any

from sqlstream.duck.sql import quote_name, quote_text


def documents(value: str, declared: Any, depth: int = 0) -> str | None:
    """Return the SQL that reads documents in strings of `value`; None if `declared`, its DuckDB type, contains no JSON."""
    item = f"_d{depth}"
    match declared.id:
        case "varchar" if str(declared) == "JSON":
            # The first character decides for nearly all values.
            text = f"json_extract_string({value}, '$')"
            is_document = f"starts_with(CAST({value} AS VARCHAR), '\"') AND json_valid({text})"
            nested = f"CASE WHEN json_type({text}) IN ('OBJECT', 'ARRAY') THEN CAST({text} AS JSON) ELSE {value} END"
            return f"CASE WHEN {is_document} THEN {nested} ELSE {value} END"
        case "struct":
            fields = [(n, t, f"struct_extract({value}, {quote_text(n)})") for n, t in declared.children]
            inside = [(n, field, documents(field, t, depth)) for n, t, field in fields]
            if not any(sql for *_, sql in inside):
                return None
            packed = ", ".join(f"{quote_name(n)} := {sql or field}" for n, field, sql in inside)
            return f"CASE WHEN {value} IS NOT NULL THEN struct_pack({packed}) END"
        case "list" | "array":
            inner = documents(item, declared.children[0][1], depth + 1)
            return inner and f"CAST(list_transform({value}, lambda {item}: {inner}) AS {declared})"
        case "map":
            inner = documents(f"{item}.value", declared.children[1][1], depth + 1)
            entry = f"lambda {item}: {{'key': {item}.key, 'value': {inner}}}"
            return inner and f"CAST(map_from_entries(list_transform(map_entries({value}), {entry})) AS {declared})"
    return None
