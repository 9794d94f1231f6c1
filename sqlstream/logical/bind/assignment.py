"""The implicit conversions of an assignment, such as INSERT INTO.

Numbers convert to numbers, and times to times; bytes and texts only to their own kind, and a UUID to its text, which it is in
Flink. Text to numbers or times, and the reverse, needs a CAST.
"""

from __future__ import annotations

from typing import Any

from duckdb.sqltypes import DuckDBPyType

_FAMILIES = {
    **dict.fromkeys(("tinyint", "smallint", "integer", "bigint", "hugeint", "float", "double", "decimal"), "number"),
    **dict.fromkeys(("utinyint", "usmallint", "uinteger", "ubigint", "uhugeint", "bignum"), "number"),
    **dict.fromkeys(("timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "date"), "timestamp"),
    **dict.fromkeys(("timestamp with time zone", "timestamp_tz"), "timestamp"),
    **dict.fromkeys(("varchar", "enum"), "text"),
    **dict.fromkeys(("time", "time with time zone", "time_tz"), "time of day"),
}


def assignable(source: str, target: str) -> bool:
    """Return whether an assignment converts a value of the DuckDB type `source` to `target`.

    >>> assignable("BIGINT", "INTEGER"), assignable("VARCHAR", "INTEGER"), assignable("INTEGER[]", "BIGINT[]")
    (True, False, True)
    >>> assignable("UUID", "VARCHAR"), assignable("VARCHAR", "UUID")
    (True, False)
    >>> assignable("TUPLE(INTEGER, VARCHAR)", "STRUCT(a BIGINT, b VARCHAR)"), assignable("TUPLE(INTEGER)", "STRUCT(a VARCHAR)")
    (True, False)
    """
    if source in ('"NULL"', target):
        return True
    return _fits(DuckDBPyType(source), DuckDBPyType(target))


def _fits(source: Any, target: Any) -> bool:
    if source.id in ("sqlnull", "null") or source == target:
        return True
    if (source.id, target.id) == ("uuid", "varchar"):
        return True
    if source.id in ("list", "array") and target.id in ("list", "array"):
        return _fits(source.children[0][1], target.children[0][1])
    if source.id == target.id == "map":
        return all(_fits(s, t) for (_, s), (_, t) in zip(source.children, target.children, strict=True))
    if source.id == "tuple" and target.id == "struct":
        # ROW(..) has no field names: fields match by position.
        pairs = zip(source.children, target.children, strict=False)
        return len(source.children) == len(target.children) and all(_fits(s, t) for (_, s), (_, t) in pairs)
    if source.id == target.id == "struct":
        fields = {name.lower(): child for name, child in source.children}
        # Fields match by name, as in DuckDB's own cast.
        return len(source.children) == len(target.children) and all(
            name.lower() in fields and _fits(fields[name.lower()], child) for name, child in target.children
        )
    return bool(_FAMILIES.get(source.id, source.id) == _FAMILIES.get(target.id, target.id))
