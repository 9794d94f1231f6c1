"""Encodes values of results in PostgreSQL's formats, text and binary.

DuckDB converts a value to its text form, or to a number, text or bytes from which Python packs the binary form.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa

from sqlstream.server.postgres.messages import ResultColumn
from sqlstream.server.postgres.types import (
    BOOL,
    BYTEA,
    DATE,
    FLOAT4,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    INTERVAL,
    JSON,
    NUMERIC,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    TIMETZ,
    UUID,
    WireType,
)

# The origin of PostgreSQL's days and microseconds.
_EPOCH = "DATE '2000-01-01'"
_EPOCH_MICROSECONDS = 946_684_800_000_000
_LAST, _LAST_DAY = 2**63 - 1, 2**31 - 1

# PostgreSQL writes BC behind the whole of a time.
_MOMENT_TEXT = (
    "CASE WHEN contains(CAST({0} AS VARCHAR), ' (BC)') THEN replace(CAST({0} AS VARCHAR), ' (BC)', '') || ' BC' "
    "ELSE CAST({0} AS VARCHAR) END"
)
# The text of a value as SQL; types that are missing have DuckDB's text.
_TEXTS: Mapping[WireType, str] = {
    BOOL: "CASE {0} WHEN true THEN 't' WHEN false THEN 'f' END",
    BYTEA: "'\\x' || lower(hex({0}))",
    FLOAT4: "CASE WHEN isnan({0}) THEN 'NaN' WHEN isinf({0}) THEN CASE WHEN {0} > 0 THEN '' ELSE '-' END || 'Infinity' "
    "ELSE CAST({0} AS VARCHAR) END",
    DATE: "replace(CAST({0} AS VARCHAR), ' (BC)', ' BC')",
    TIMESTAMP: _MOMENT_TEXT.format("CAST({0} AS TIMESTAMP)"),
    TIMESTAMPTZ: _MOMENT_TEXT,
    INTERVAL: "replace(CAST({0} AS VARCHAR), 'month', 'mon')",
    # A JSON value is its own text; to_json would make a JSON string of a text.
    JSON: "CAST(to_json({0}) AS VARCHAR)",
}
_TEXTS = {**_TEXTS, FLOAT8: _TEXTS[FLOAT4]}
_PLAIN_TEXT = "CAST({0} AS VARCHAR)"
# Elements of arrays that need no quotes.
_UNQUOTED = (BOOL, INT2, INT4, INT8, FLOAT4, FLOAT8, NUMERIC, DATE, UUID, TIME, TIMETZ)

_MOMENT = (
    f"CASE WHEN isinf({{0}}) THEN CASE WHEN {{0}} > TIMESTAMP '2000-01-01' THEN {_LAST} ELSE -{_LAST} - 1 END "
    f"ELSE epoch_us({{0}}) - {_EPOCH_MICROSECONDS} END"
)
# The SQL of the value from which the binary form is packed; types that are missing are packed from their text.
_PACKED_FROM: Mapping[WireType, str] = {
    **dict.fromkeys((BOOL, INT2, INT4, INT8, FLOAT4, FLOAT8, BYTEA, INTERVAL), "{0}"),
    NUMERIC: _PLAIN_TEXT,
    DATE: f"CASE WHEN isinf({{0}}) THEN CASE WHEN {{0}} > {_EPOCH} THEN {_LAST_DAY} ELSE -{_LAST_DAY} - 1 END "
    f"ELSE {{0}} - {_EPOCH} END",
    TIME: "epoch_us({0})",
    TIMESTAMP: _MOMENT,
    TIMESTAMPTZ: _MOMENT.replace("TIMESTAMP '", "TIMESTAMPTZ '"),
}


def expression(column: ResultColumn, value: str) -> str:
    """Return SQL that converts `value`, an SQL expression of the column's type, to the input of `encoded`."""
    kind = column.type
    if not kind.is_array:
        return _packed_from(kind.of, value) if column.binary else _text(kind.of, value)
    if column.binary:
        return f"list_transform({value}, lambda x: {_packed_from(kind.of, 'x')})"
    texts = f"list_transform({value}, lambda x: coalesce({_element(kind.of)}, 'NULL'))"
    return f"'{{' || array_to_string({texts}, ',') || '}}'"


def _text(of: WireType, value: str) -> str:
    return _TEXTS.get(of, _PLAIN_TEXT).format(value)


def _packed_from(of: WireType, value: str) -> str:
    return _PACKED_FROM[of].format(value) if of in _PACKED_FROM else _text(of, value)


def _element(of: WireType) -> str:
    text = _text(of, "x")
    if of in _UNQUOTED:
        return text
    quoted = f"""'"' || replace(replace({text}, '\\', '\\\\'), '"', '\\"') || '"'"""
    if of is not TEXT:
        return quoted
    needs = f"""regexp_matches({text}, '[{{}},"\\\\\\s]|^$|^(?i:null)$')"""
    return f"CASE WHEN {needs} THEN {quoted} ELSE {text} END"


def encoded(column: ResultColumn, values: pa.Array) -> Sequence[bytes | None]:
    """Return the values of a column in the column's format, text or binary; None for NULL."""
    if not column.binary:
        return _bytes(values)
    if not column.type.is_array:
        return _packed(column.type.of, values)
    return [None if v is None else _array(column.type.of, v) for v in _lists(column.type.of, values)]


def _bytes(values: pa.Array) -> list[bytes | None]:
    found: list[bytes | None] = values.cast(pa.string()).cast(pa.binary()).to_pylist()
    return found


def _lists(of: WireType, values: pa.ListArray) -> list[list[bytes | None] | None]:
    elements = _packed(of, values.flatten())
    lists: list[list[bytes | None] | None] = []
    at = 0
    for length in values.value_lengths().to_pylist():
        lists.append(None if length is None else list(elements[at : at + length]))
        at += length or 0
    return lists


def _packed(of: WireType, values: pa.Array) -> Sequence[bytes | None]:
    if of not in _PACKERS:
        return _bytes(values)
    pack = _PACKERS[of]
    return [None if v is None else pack(v) for v in values.to_pylist()]


def _array(of: WireType, elements: Sequence[bytes | None]) -> bytes:
    header = struct.pack(">iii", 1 if elements else 0, int(None in elements), of.oid)
    parts = [b"\xff\xff\xff\xff" if e is None else len(e).to_bytes(4, "big") + e for e in elements]
    return b"".join([header, struct.pack(">ii", len(elements), 1) if elements else b"", *parts])


def _interval(value: Any) -> bytes:
    return struct.pack(">qii", value.nanoseconds // 1000, value.days, value.months)


def _timetz(text: str) -> bytes:
    """Return a time with a zone, packed: its microseconds, and the seconds by which its zone is behind UTC."""
    split = max(text.rfind("+"), text.rfind("-"))
    hours, minutes, seconds = text[:split].split(":")
    at = (int(hours) * 60 + int(minutes)) * 60_000_000 + round(float(seconds) * 1_000_000)
    parts = [*map(int, text[split + 1 :].split(":")), 0, 0][:3]
    zone = parts[0] * 3600 + parts[1] * 60 + parts[2]
    return struct.pack(">qi", at, -zone if text[split] == "+" else zone)


def packed_numeric(text: str) -> bytes:
    """Return a decimal in digits of base 10,000, packed: their number, the weight of the first, sign, scale, digits.

    >>> packed_numeric("-12345.5").hex(" ", 2)
    '0003 0001 4000 0001 0001 0929 1388'
    """
    sign, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    whole, scale = "".join(map(str, digits)), max(-exponent, 0)
    whole = whole + "0" * exponent if exponent > 0 else whole.rjust(scale + 1, "0")
    before, after = (whole[:-scale], whole[-scale:]) if scale else (whole, "")
    before = before.rjust(-(-len(before) // 4) * 4, "0")
    after = after.ljust(-(-len(after) // 4) * 4, "0")
    groups = [int((before + after)[i : i + 4]) for i in range(0, len(before + after), 4)]
    weight = len(before) // 4 - 1
    while groups and groups[0] == 0:
        groups.pop(0)
        weight -= 1
    while groups and groups[-1] == 0:
        groups.pop()
    return struct.pack(
        f">hhHh{len(groups)}h", len(groups), max(weight, 0) if not groups else weight, sign << 14, scale, *groups
    )


_PACKERS: Mapping[WireType, Callable[[Any], bytes]] = {
    BOOL: lambda value: b"\1" if value else b"\0",
    BYTEA: bytes,
    **{of: partial(struct.pack, ">q") for of in (INT8, TIME, TIMESTAMP, TIMESTAMPTZ)},
    INT2: partial(struct.pack, ">h"),
    INT4: partial(struct.pack, ">i"),
    DATE: partial(struct.pack, ">i"),
    FLOAT4: partial(struct.pack, ">f"),
    FLOAT8: partial(struct.pack, ">d"),
    NUMERIC: packed_numeric,
    INTERVAL: _interval,
    UUID: lambda text: bytes.fromhex(text.replace("-", "")),
    TIMETZ: _timetz,
}
