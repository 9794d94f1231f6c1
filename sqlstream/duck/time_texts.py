"""Dates and times as DuckDB writes them, also those before the year 1, after 9999 and infinite ones, which Python lacks."""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Any

import pyarrow as pa

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_EPOCH = date(1970, 1, 1)
# After so many years, of so many days, the calendar begins anew.
_ERA, _ERA_DAYS = 400, 146_097
# Infinite times in microseconds, and dates in days, both since 1970.
_INFINITE, _INFINITE_DAYS = 2**63 - 1, 2**31 - 1
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_TEXT = re.compile(
    r"(\d+)-(\d\d)-(\d\d)( \(BC\))?(?:[ T](\d\d):(\d\d):(\d\d)(?:\.(\d+))?)?(?:([+-])(\d\d)(?::?(\d\d))?(?::?(\d\d))?)?"
)


def date_text(days: int) -> str:
    """Return a date, in days since 1970, as text.

    >>> date_text(0), date_text(2_932_897), date_text(-719_163)
    ('1970-01-01', '10000-01-01', '0001-12-31 (BC)')
    """
    if abs(days) >= _INFINITE_DAYS:
        return _infinity(days)
    eras, rest = divmod(days, _ERA_DAYS)
    alike = _EPOCH + timedelta(rest)
    year = alike.year + _ERA * eras
    return f"{year if year > 0 else 1 - year:04}-{alike:%m-%d}{'' if year > 0 else ' (BC)'}"


def time_text(micros: int) -> str:
    """Return a time, in microseconds since 1970, as text.

    >>> time_text(1_500_000), time_text(253_402_300_800_000_000), time_text(2**63 - 1)
    ('1970-01-01 00:00:01.5', '10000-01-01 00:00:00', 'infinity')
    """
    return _infinity(micros) if abs(micros) >= _INFINITE else _moment(micros, _SECOND)


def _moment(count: int, second: int) -> str:
    """Return a finite time as text: `count` units since 1970, of which a second has `second`."""
    days, rest = divmod(count, 86_400 * second)
    seconds, part = divmod(rest, second)
    fraction = f".{part:0{len(str(second)) - 1}}".rstrip("0") if part else ""
    return f"{date_text(days)} {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}"


def _infinity(count: int) -> str:
    return f"{'-' if count < 0 else ''}infinity"


def microseconds_of(text: str) -> int:
    """Return the microseconds since 1970 of a date or time as text, in UTC if it has no zone. Raises ValueError.

    >>> microseconds_of("1970-01-01 01:00:00.5+01"), microseconds_of("10000-01-01 00:00:00"), microseconds_of("-infinity")
    (500000, 253402300800000000, -9223372036854775807)
    """
    if text.endswith("infinity"):
        return -_INFINITE if text.startswith("-") else _INFINITE
    if (match := _TEXT.fullmatch(text)) is None:
        raise ValueError(f'"{text}" is no time')
    written, month, day, before_christ, hour, minute, second, fraction, sign, *zone = match.groups()
    eras, year = divmod((1 - int(written) if before_christ else int(written)) - 1, _ERA)
    days = date(year + 1, int(month), int(day)).toordinal() - _EPOCH.toordinal() + eras * _ERA_DAYS
    ahead = _seconds(*zone) * (-1 if sign == "-" else 1)
    return days * _DAY + (_seconds(hour, minute, second) - ahead) * _SECOND + int((fraction or "").ljust(6, "0")[:6])


def _seconds(hours: str | None, minutes: str | None, seconds: str | None) -> int:
    return (int(hours or 0) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return Arrow values as Python's; dates and times that Python lacks, and those with nanoseconds, are texts.

    >>> python_values(pa.array([0, 253_402_300_800_000_000], pa.timestamp("us")))
    [datetime.datetime(1970, 1, 1, 0, 0), '10000-01-01 00:00:00']
    """
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        return [python_value(value) for value in column]


def python_value(value: Any) -> Any:
    """Return a value of Arrow as Python's: see `python_values`."""
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        kind = value.type
    if isinstance(value, pa.ExtensionScalar | pa.DictionaryScalar):
        return python_value(value.value)
    if pa.types.is_struct(kind):
        return {field.name: python_value(value[index]) for index, field in enumerate(kind)}
    if pa.types.is_map(kind):
        return [(python_value(entry[0]), python_value(entry[1])) for entry in value.values]
    if pa.types.is_nested(kind):
        return [python_value(element) for element in value.values]
    return arrow_time_text(value)


def arrow_time_text(value: Any) -> str:
    """Return a date or a timestamp of Arrow as text; one with a zone in UTC, with `+00`."""
    kind = value.type
    if pa.types.is_date32(kind):
        return date_text(value.value)
    if pa.types.is_date64(kind):
        return date_text(value.value // 86_400_000)
    if abs(value.value) >= _INFINITE:
        return _infinity(value.value)
    return _moment(value.value, _PER_SECOND[kind.unit]) + ("+00" if kind.tz else "")
