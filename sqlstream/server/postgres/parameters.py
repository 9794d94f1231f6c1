"""Converts values of the parameters of prepared statements to SQL."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlstream.duck.sql import quote_text
from sqlstream.duck.time_texts import date_text, time_text
from sqlstream.server.postgres.errors import ProtocolError
from sqlstream.server.postgres.types import OTHER_TYPES, RESULT_TYPES

# DuckDB's types of parameters, by PostgreSQL's oids. Texts have none: they become untyped literals, which take the type of what
# they are compared with.
_TYPES: Mapping[int, str] = {
    16: "BOOLEAN",
    17: "BLOB",
    20: "BIGINT",
    21: "SMALLINT",
    23: "INTEGER",
    26: "BIGINT",
    114: "JSON",
    700: "FLOAT",
    701: "DOUBLE",
    1082: "DATE",
    1083: "TIME",
    1114: "TIMESTAMP",
    1184: "TIMESTAMPTZ",
    1186: "INTERVAL",
    1266: "TIMETZ",
    1700: "DECIMAL(38,9)",
    2950: "UUID",
    3802: "JSON",
}
_TEXTS = {0, 18, 19, 25, 705, 1042, 1043}
_ELEMENTS = {t.array: t.oid for t in (*RESULT_TYPES, *OTHER_TYPES) if t.array}
# The origin of PostgreSQL's days, and of its microseconds, since 1970.
_EPOCH_DAY, _EPOCH_MICROSECONDS = 10_957, 946_684_800_000_000
_ZONED_DAY = re.compile(r"(\d{4,}-\d\d-\d\d) ?[+-]\d\d(?::?\d\d)?")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def arrays(sql: str) -> set[int]:
    """Return the numbers of the parameters that must be arrays, from their positions in a statement.

    >>> arrays("SELECT $1 WHERE k = ANY($2)")
    {2}
    """
    return {int(number) for number in re.findall(r"\b(?:ANY|ALL|SOME)\s*\(\s*\$(\d+)\s*\)", sql, re.IGNORECASE)}


def null(oid: int) -> str:
    """Return NULL of a type as SQL. Raises ProtocolError for an unsupported type."""
    return "NULL" if oid in _TEXTS else f"CAST(NULL AS {_type(oid)})"


def literal(oid: int, value: bytes | None, *, binary: bool) -> str:
    """Return a parameter's value as SQL. Raises ProtocolError for a value that is not of its type, or an unsupported type."""
    if value is None:
        return null(oid)
    try:
        return _of_binary(oid, value) if binary else _of_text(oid, value.decode())
    except (ValueError, struct.error, OverflowError, IndexError) as error:
        raise ProtocolError(f"a parameter is no value of its type: {error}", "22P02") from error


def _type(oid: int) -> str:
    if oid in _ELEMENTS:
        return f"{_TYPES.get(_ELEMENTS[oid], 'VARCHAR')}[]"
    if oid not in _TYPES:
        raise ProtocolError(f"parameters of the type with the number {oid} are not supported", "0A000")
    return _TYPES[oid]


def _of_text(oid: int, text: str) -> str:
    if "\0" in text:
        raise ValueError("it has a zero byte")
    if oid in (0, 1082) and (day := _ZONED_DAY.fullmatch(text)):
        # The JDBC driver sends a date with a zone, without the type of a date.
        text = day[1]
    if oid in _TEXTS:
        return quote_text(text)
    if oid in _ELEMENTS:
        return _list(oid, [None if e is None else _of_text(_ELEMENTS[oid], e) for e in _elements(text)])
    if oid in (20, 21, 23, 26):
        return f"CAST({int(text)} AS {_type(oid)})"
    if oid == 1700 and _NUMBER.fullmatch(text):
        return f"({text})"
    if oid == 17:
        return _blob(bytes.fromhex(text[2:]) if text.startswith("\\x") else _escaped(text))
    return f"CAST({quote_text(text)} AS {'DOUBLE' if oid == 1700 else _type(oid)})"


def _escaped(text: str) -> bytes:
    """Return bytes from the older text form: two backslashes for one, and three octal digits behind one for any byte."""
    parts = re.findall(rb"\\\\|\\[0-7]{3}|[^\\]", text.encode(), re.DOTALL)
    return b"".join(p[:1] if p == b"\\\\" else bytes([int(p[1:], 8)]) if len(p) == 4 else p for p in parts)


def _blob(data: bytes) -> str:
    return f"from_hex('{data.hex()}')"


def _list(oid: int, elements: Sequence[str | None]) -> str:
    return f"CAST([{', '.join(e or 'NULL' for e in elements)}] AS {_type(oid)})"


def _elements(text: str) -> list[str | None]:
    """Return the elements of an array's text form. Raises ValueError.

    >>> _elements('{1,"a \\\\"b\\\\"",NULL}'), _elements("{}")
    (['1', 'a "b"', None], [])
    """
    if not (text.startswith("{") and text.endswith("}")):
        raise ValueError("it is not an array of one dimension")
    if not (inside := text[1:-1]):
        return []
    elements: list[str | None] = []
    at = 0
    while at <= len(inside):
        part = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,"{}]*)', re.DOTALL).match(inside, at)
        assert part is not None
        if part.end() < len(inside) and inside[part.end()] != ",":
            raise ValueError("it is not an array of one dimension")
        plain = part[2]
        elements.append(
            re.sub(r"\\(.)", r"\1", part[1]) if plain is None else None if plain.upper() == "NULL" else plain
        )
        at = part.end() + 1
    return elements


def _of_binary(oid: int, data: bytes) -> str:
    if oid in _TEXTS or oid == 114:
        return _of_text(oid, data.decode())
    if oid == 3802:
        return _of_text(oid, data[1:].decode())
    if oid == 17:
        return _blob(data)
    if oid in _ELEMENTS:
        return _list(oid, _binary_elements(data))
    if oid == 1700:
        return f"({_numeric(data)})"
    if oid not in _BINARY:
        raise ProtocolError(f"binary parameters of the type with the number {oid} are not supported", "0A000")
    form, of = _BINARY[oid]
    return f"CAST({quote_text(str(of(*struct.unpack(form, data))))} AS {_type(oid)})"


def _binary_elements(data: bytes) -> list[str | None]:
    dimensions, _, oid = struct.unpack_from(">iii", data)
    if dimensions > 1:
        raise ValueError("it is not an array of one dimension")
    at, elements = 20, list[str | None]()
    for _ in range(struct.unpack_from(">i", data, 12)[0] if dimensions else 0):
        [length] = struct.unpack_from(">i", data, at)
        at += 4
        elements.append(None if length < 0 else _of_binary(oid, data[at : at + length]))
        at += max(length, 0)
    return elements


def _numeric(data: bytes) -> str:
    count, weight, sign, scale = struct.unpack_from(">hhHh", data)
    if sign not in (0, 0x4000):
        return f"CAST('{'-inf' if sign == 0xF000 else 'inf' if sign == 0xD000 else 'nan'}' AS DOUBLE)"
    groups = struct.unpack_from(f">{count}H", data, 8)
    if any(group > 9999 for group in groups):
        # Text that is no number would become part of the statement.
        raise ValueError("a digit is out of range")
    digits = "".join(f"{d:04}" for d in groups)
    whole = max(weight + 1, 0) * 4
    digits = "0" * (-(weight + 1) * 4 if weight < -1 else 0) + digits
    before, after = digits[:whole].ljust(whole, "0") or "0", digits[whole:].ljust(scale, "0")[:scale]
    return ("-" if sign else "") + (before.lstrip("0") or "0") + (f".{after}" if after else "")


def _moment(microseconds: int) -> str:
    if abs(microseconds) >= 2**63 - 1:
        return "infinity" if microseconds > 0 else "-infinity"
    if microseconds + _EPOCH_MICROSECONDS >= 2**63 - 1:
        raise ValueError("it is beyond the years that are possible")
    return time_text(microseconds + _EPOCH_MICROSECONDS)


def _zoned(microseconds: int) -> str:
    moment = _moment(microseconds)
    return moment if "inf" in moment else f"{moment}+00"


def _day(days: int) -> str:
    if abs(days) >= 2**31 - 1:
        return "infinity" if days > 0 else "-infinity"
    return date_text(days + _EPOCH_DAY)


def _time(microseconds: int) -> str:
    return (datetime.min + timedelta(microseconds=microseconds)).time().isoformat()


def _timetz(microseconds: int, behind: int) -> str:
    minutes = abs(behind) // 60
    return f"{_time(microseconds)}{'-' if behind > 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"


def _identity(value: Any) -> Any:
    return value


# The struct format of a value, and the function that makes its text.
_BINARY: Mapping[int, tuple[str, Callable[..., Any]]] = {
    16: (">?", _identity),
    20: (">q", _identity),
    21: (">h", _identity),
    23: (">i", _identity),
    26: (">I", _identity),
    700: (">f", repr),
    701: (">d", repr),
    1082: (">i", _day),
    1083: (">q", _time),
    1114: (">q", _moment),
    1184: (">q", _zoned),
    1186: (">qii", lambda us, days, months: f"{months} months {days} days {us} microseconds"),
    1266: (">qi", _timetz),
    2950: (">16s", lambda data: data.hex()),
}
