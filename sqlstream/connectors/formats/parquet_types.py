"""Which declared types can read a type of a Parquet file: the types that hold all of its values.

integer    a wider integer, DOUBLE or FLOAT where exact, DECIMAL with enough digits; with `narrow`, an unsigned integer also as a
           signed one of its size: the caller has to look for values that do not fit (`may_not_fit`, `unfit`)
FLOAT      DOUBLE
DECIMAL    DECIMAL with at least as many digits on both sides of the point
DATE       TIMESTAMP (midnight)
TIMESTAMP  of another precision, cut to microseconds; with and without zone: as the wall clock of UTC
ENUM, UUID, JSON  VARCHAR; and VARCHAR, whose texts may not be JSON, as JSON
NULL       anything: writers declare it for a column without values
STRUCT     STRUCT, fields matched by name: fields that are not declared are left out, missing ones are NULL
The rules also apply to fields, elements, keys and values of nested types.
"""

from __future__ import annotations

from typing import Any

from sqlstream.catalog import Column
from sqlstream.connectors.formats.malformed import does_not_hold
from sqlstream.duck.sql import quote_name, quote_text

# Bits of the whole numbers that each type holds: (signed, unsigned) integers, and floats by their mantissa.
_SIGNED = {"tinyint": 7, "smallint": 15, "integer": 31, "bigint": 63, "hugeint": 127}
_UNSIGNED = {"utinyint": 8, "usmallint": 16, "uinteger": 32, "ubigint": 64, "uhugeint": 128}
_INTEGERS = {**_SIGNED, **_UNSIGNED}
_MANTISSA = {"float": 24, "double": 53}
_DIGITS = {7: 3, 8: 3, 15: 5, 16: 5, 31: 10, 32: 10, 63: 19, 64: 20}
_INSTANTS = {"timestamp with time zone", "timestamptz_ns"}
_CLOCKS = {"timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns"}
_TEXTS = {"enum", "uuid", "varchar"}


def conversion(value: str, source: Any, declared: Any, depth: int = 0, *, narrow: bool = False) -> str | None:
    """Return the SQL that converts `value` from DuckDB type `source` to `declared`; None if that may lose information.

    With `narrow`, unsigned integers are also converted to signed ones of their size, which fails for some values.
    """
    if source == declared and not _is_text_of_json(source, declared):
        return value
    item = f"_x{depth}"
    match source.id, declared.id:
        case "null", _:
            return f"CAST(NULL AS {declared})"
        case "struct", "struct":
            return _struct(value, source, declared, depth, narrow=narrow)
        case ("list" | "array", "list"):
            inner = conversion(item, source.children[0][1], declared.children[0][1], depth + 1, narrow=narrow)
            return inner and f"CAST(list_transform({value}, lambda {item}: {inner}) AS {declared})"
        case "map", "map":
            return _map(value, source, declared, depth, narrow=narrow)
    if source.id in _INSTANTS and declared.id == "timestamp":
        return f"timezone('UTC', {_microseconds(value, source)})"
    if source.id in _CLOCKS and declared.id == "timestamp with time zone":
        return f"timezone('UTC', {_microseconds(value, source)})"
    if not _holds(source, declared) and not (narrow and _may_hold(source, declared)):
        return None
    return f"CAST({_microseconds(value, source)} AS {declared})"


def may_not_fit(source: Any, declared: Any) -> bool:
    """Whether the SQL of `conversion` fails for some values: numbers that are too large, or texts that are not JSON."""
    match source.id, declared.id:
        case "struct", "struct":
            there = {name.lower(): type_ for name, type_ in source.children}
            pairs = ((there.get(name.lower()), type_) for name, type_ in declared.children)
            return any(own is not None and may_not_fit(own, type_) for own, type_ in pairs)
        case ("list" | "array" | "map", "list" | "map"):
            parts = zip(source.children, declared.children, strict=False)
            return any(may_not_fit(own, type_) for (_, own), (_, type_) in parts if hasattr(own, "id"))
    return _may_hold(source, declared) or _is_text_of_json(source, declared)


def unfit(value: str, converted: str, column: Column) -> str:
    """Return a WHEN clause: if `value` is not NULL and cannot be converted, the reason why its row is malformed."""
    return f"WHEN {value} IS NOT NULL AND TRY({converted}) IS NULL THEN {quote_text(does_not_hold(column))}"


def _struct(value: str, source: Any, declared: Any, depth: int, *, narrow: bool) -> str | None:
    fields = {name.lower(): (name, type_) for name, type_ in source.children}
    items = []
    for name, type_ in declared.children:
        own, there = fields.get(name.lower(), (None, None))
        item = f"CAST(NULL AS {type_})"
        if own is not None:
            field = f"struct_extract({value}, {quote_text(own)})"
            converted = conversion(field, there, type_, depth, narrow=narrow)
            if converted is None:
                return None
            item = converted
        items.append(f"{quote_name(name)} := {item}")
    if not any(name.lower() in fields for name, _ in declared.children):
        return None
    return f"CASE WHEN {value} IS NOT NULL THEN struct_pack({', '.join(items)}) END"


def _map(value: str, source: Any, declared: Any, depth: int, *, narrow: bool) -> str | None:
    item = f"_x{depth}"
    (_, source_key), (_, source_value) = source.children
    (_, key), (_, inner) = declared.children
    keys = conversion(f"{item}.key", source_key, key, depth + 1, narrow=narrow)
    values = conversion(f"{item}.value", source_value, inner, depth + 1, narrow=narrow)
    if keys is None or values is None:
        return None
    entry = f"lambda {item}: {{'key': {keys}, 'value': {values}}}"
    return f"CAST(map_from_entries(list_transform(map_entries({value}), {entry})) AS {declared})"


def _microseconds(value: str, source: Any) -> str:
    """Return the SQL of a time with its nanoseconds cut off; DuckDB's cast rounds, perhaps into the next window."""
    if source.id in ("timestamp_ns", "timestamptz_ns"):
        cut = f"make_timestamp((epoch_ns({value}) - ((epoch_ns({value}) % 1000) + 1000) % 1000) // 1000)"
        return f"timezone('UTC', {cut})" if source.id == "timestamptz_ns" else cut
    if source.id == "time_ns":
        return f"TIME '00:00:00' + to_microseconds(epoch_ns({value}) // 1000)"
    if source.id in _INSTANTS:
        return f"CAST({value} AS TIMESTAMPTZ)"
    return f"CAST({value} AS TIMESTAMP)" if source.id in _CLOCKS else value


def _is_text_of_json(source: Any, declared: Any) -> bool:
    return source.id in _TEXTS and str(declared) == "JSON" and str(source) != "JSON"


def _may_hold(source: Any, declared: Any) -> bool:
    """Whether `declared` is the signed type of the same size as the unsigned type `source`, so that large values do not fit."""
    return _UNSIGNED.get(source.id, 0) == _SIGNED.get(declared.id, 0) + 1


def _holds(source: Any, declared: Any) -> bool:
    match source.id, declared.id:
        case ("date", "timestamp") | ("float", "double") | ("time_ns", "time"):
            return True
        case ("decimal", "decimal"):
            (_, digits), (_, scale) = source.children
            (_, room), (_, places) = declared.children
            return bool(places >= scale and room - places >= digits - scale)
    if source.id in _INTEGERS:
        return _holds_integer(source.id, declared)
    families = (_INSTANTS, _CLOCKS, _TEXTS)
    return declared.id in ("varchar", "timestamp", "timestamp with time zone") and any(
        source.id in family and declared.id in family for family in families
    )


def _holds_integer(source_id: str, declared: Any) -> bool:
    bits = _INTEGERS[source_id]
    if declared.id == "decimal":
        (_, room), (_, places) = declared.children
        return bool(bits in _DIGITS and room - places >= _DIGITS[bits])
    if declared.id in _MANTISSA:
        return bits <= _MANTISSA[declared.id]
    if declared.id in _UNSIGNED:
        return source_id in _UNSIGNED and bits <= _UNSIGNED[declared.id]
    return bits <= _SIGNED.get(declared.id, 0)
