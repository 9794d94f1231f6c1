"""Durations, byte sizes and booleans as options write them, in Flink's spelling."""

from __future__ import annotations

import re
from datetime import timedelta

_MICROSECONDS = {
    **dict.fromkeys(("us", "µs", "micro", "micros", "microsecond", "microseconds"), 1),
    **dict.fromkeys(("ms", "milli", "millis", "millisecond", "milliseconds"), 1_000),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1_000_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000_000),
}
# Flink's megabyte is 1024 * 1024 bytes, under either name.
_BYTES = {
    **dict.fromkeys(("b", "byte", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kib", "kibibytes"), 1 << 10),
    **dict.fromkeys(("m", "mb", "mib", "mebibytes"), 1 << 20),
    **dict.fromkeys(("g", "gb", "gib", "gibibytes"), 1 << 30),
    **dict.fromkeys(("t", "tb", "tib", "tebibytes"), 1 << 40),
}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zµ]*)\s*", re.IGNORECASE)


def parse_duration(text: str) -> timedelta:
    """Return the duration; a number other than 0 needs a unit. Raises ValueError with a message for people.

    >>> parse_duration("500 ms")
    datetime.timedelta(microseconds=500000)
    """
    return timedelta(microseconds=_quantity(text, _MICROSECONDS, "a duration, such as 500 ms, 1 s, 2 min, 1 h or 1 d"))


def duration(micros: int) -> str:
    """Return a length of time in words, in the largest unit that divides it.

    >>> duration(90_000_000), duration(3_600_000_000), duration(1500)
    ('90 s', '1 h', '1.5 ms')
    """
    for unit, length in (("d", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000)):
        if micros % length == 0:
            return f"{micros // length} {unit}"
    return f"{micros / 1000:g} ms" if micros < 1_000_000 else f"{micros / 1_000_000:.6f}".rstrip("0") + " s"


def parse_bytes(text: str) -> int:
    """Return the number of bytes; a number other than 0 needs a unit. Raises ValueError with a message for people.

    >>> parse_bytes("128 MB")
    134217728
    """
    return _quantity(text, _BYTES, "a size, such as 64 kb, 128 MB or 1 GiB")


def parse_boolean(text: str) -> bool:
    """Return the truth of `true` or `false`, in any case. Raises ValueError with a message for people."""
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError(f'"{text}" is not true or false')


def parse_count(text: str) -> int:
    """Return a whole number of at least 1. Raises ValueError with a message for people."""
    if not re.fullmatch(r"\s*0*[1-9]\d*\s*", text):
        raise ValueError(f'"{text}" is not a whole number of at least 1')
    return int(text)


def _quantity(text: str, units: dict[str, int], expected: str) -> int:
    match = _QUANTITY.fullmatch(text)
    if match:
        number, unit = float(match[1]), match[2].lower()
        if unit in units:
            return round(number * units[unit])
        if not unit and number == 0:
            return 0
    raise ValueError(f'"{text}" is not {expected}')
