"""Which types of a Parquet file may be read as which declared types: those that hold every value of the file's.

integer    a wider integer, DOUBLE or FLOAT where exact, DECIMAL with enough digits
FLOAT      DOUBLE
DECIMAL    DECIMAL with at least as many digits on both sides of the point
DATE       TIMESTAMP (midnight)
TIMESTAMP  of another precision, cut to microseconds; with and without zone: as the wall clock of UTC
ENUM, UUID, JSON  VARCHAR
STRUCT     STRUCT with fewer fields, matched by name; fields, elements and values by these rules, but keep their zone
"""

from __future__ import annotations

from typing import Any

# Bits of the whole numbers that each type holds: (signed, unsigned) integers, and floats by their mantissa.
_SIGNED = {"tinyint": 7, "smallint": 15, "integer": 31, "bigint": 63, "hugeint": 127}
_UNSIGNED = {"utinyint": 8, "usmallint": 16, "uinteger": 32, "ubigint": 64, "uhugeint": 128}
_INTEGERS = {**_SIGNED, **_UNSIGNED}
_MANTISSA = {"float": 24, "double": 53}
_DIGITS = {7: 3, 8: 3, 15: 5, 16: 5, 31: 10, 32: 10, 63: 19, 64: 20}
_INSTANTS = {"timestamp with time zone", "timestamptz_ns"}
_CLOCKS = {"timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns"}
_TEXTS = {"enum", "uuid", "varchar"}


def conversion(column: str, found: Any, declared: Any) -> str | None:
    """Return the SQL that reads a column of one DuckDB type as another, or None when it might lose something."""
    if found == declared:
        return column
    if found.id in _INSTANTS and declared.id == "timestamp":
        return f"timezone('UTC', CAST({column} AS TIMESTAMPTZ))"
    if found.id in _CLOCKS and declared.id == "timestamp with time zone":
        return f"timezone('UTC', CAST({column} AS TIMESTAMP))"
    return f"CAST({column} AS {declared})" if _holds(found, declared) else None


def _holds(found: Any, declared: Any) -> bool:
    if found == declared:
        return True
    pair = (found.id, declared.id)
    match pair:
        case ("struct", "struct"):
            fields = {name.lower(): type_ for name, type_ in found.children}
            return all(n.lower() in fields and _holds(fields[n.lower()], t) for n, t in declared.children)
        case ("list", "list"):
            return _holds(found.children[0][1], declared.children[0][1])
        case ("map", "map"):
            return all(_holds(f, d) for (_, f), (_, d) in zip(found.children, declared.children, strict=True))
        case ("date", "timestamp") | ("float", "double"):
            return True
        case ("decimal", "decimal"):
            (_, digits), (_, scale) = found.children
            (_, room), (_, places) = declared.children
            return bool(places >= scale and room - places >= digits - scale)
    if found.id in _INTEGERS:
        return _holds_integer(found.id, declared)
    families = (_INSTANTS, _CLOCKS, _TEXTS)
    return declared.id in ("varchar", "timestamp", "timestamp with time zone") and any(
        found.id in family and declared.id in family for family in families
    )


def _holds_integer(found: str, declared: Any) -> bool:
    bits = _INTEGERS[found]
    if declared.id == "decimal":
        (_, room), (_, places) = declared.children
        return bool(bits in _DIGITS and room - places >= _DIGITS[bits])
    if declared.id in _MANTISSA:
        return bits <= _MANTISSA[declared.id]
    if declared.id in _UNSIGNED:
        return found in _UNSIGNED and bits <= _UNSIGNED[declared.id]
    return bits <= _SIGNED.get(declared.id, 0)
