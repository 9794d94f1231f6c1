"""Times in the names of indexes and in ids, as Flink's connector writes them: by patterns of Java, or as `toString` does."""

from __future__ import annotations

import re

from sqlstream.catalog import Column
from sqlstream.duck.sql import quote_name, quote_text

# Flink's patterns where the name of an index has none for a column.
DEFAULTS = {
    "DATE": "yyyy_MM_dd",
    "TIME": "HH_mm_ss",
    "TIMESTAMP": "yyyy_MM_dd_HH_mm_ss",
    "TIMESTAMP WITH TIME ZONE": "yyyy_MM_dd_HH_mm_ssX",
}
# What people name indexes by: numbers, and Z for UTC.
_LETTERS = {
    **dict.fromkeys(("y", "yyyy", "u", "uuuu"), "%Y"),
    **dict.fromkeys(("yy", "uu"), "%y"),
    "M": "%-m",
    "MM": "%m",
    "d": "%-d",
    "dd": "%d",
    "DDD": "%j",
    "H": "%-H",
    "HH": "%H",
    "m": "%-M",
    "mm": "%M",
    "s": "%-S",
    "ss": "%S",
    "SSS": "%g",
    "X": "Z",
}
_PART = re.compile(r"(?P<letters>([A-Za-z])\2*)|'(?P<text>(?:[^']|'')*)'|(?P<other>[^A-Za-z']+)|(?P<quote>')")


def strftime_pattern(pattern: str) -> str:
    """Translate a pattern of Java for DuckDB's strftime. Raises ValueError with the part that cannot be translated.

    >>> strftime_pattern("yyyy.MM.dd'at'HH"), strftime_pattern("100%-yy''")
    ('%Y.%m.%dat%H', "100%%-%y'")
    >>> strftime_pattern("yyyy-QQ")
    Traceback (most recent call last):
    ValueError: QQ
    """
    result = ""
    for part in _PART.finditer(pattern):
        if letters := part["letters"]:
            if letters not in _LETTERS:
                raise ValueError(letters)
            result += _LETTERS[letters]
        elif part["quote"]:
            raise ValueError("'")
        else:
            text = part["other"] or part["text"].replace("''", "'") or "'"
            result += text.replace("%", "%%")
    return result


def by_pattern(column: Column, pattern: str) -> str:
    """Return the SQL of a time as text by a pattern of Java, in UTC. Raises ValueError as `strftime_pattern` does."""
    return f"strftime({_timestamp(column)}, {quote_text(strftime_pattern(pattern))})"


def as_java(column: Column) -> str | None:
    """Return the SQL of the text that Java's `toString` gives a time; None for a column of another type."""
    match column.type:
        case "TIMESTAMP":
            return _in_groups(_timestamp(column), "%Y-%m-%dT", "%H:%M")
        case "TIME":
            return _in_groups(_timestamp(column), "", "%H:%M")
        case "TIMESTAMP WITH TIME ZONE":
            return f"({_in_groups(_timestamp(column), '%Y-%m-%dT', '%H:%M:%S')} || 'Z')"
    return None


def _timestamp(column: Column) -> str:
    """Return the SQL of a time as a TIMESTAMP, in UTC if it has a zone."""
    name = quote_name(column.name)
    match column.type:
        case "TIME":
            return f"(DATE '1970-01-01' + {name})"
        case "TIMESTAMP WITH TIME ZONE":
            return f"({name} AT TIME ZONE 'UTC')"
    return f"CAST({name} AS TIMESTAMP)"


def _in_groups(time: str, day: str, shortest: str) -> str:
    """Return the SQL of the text of a TIMESTAMP: `shortest` without seconds, and three or six digits of a fraction."""
    microseconds = f"date_part('microsecond', {time})"
    patterns = (
        (f"{microseconds} = 0", shortest),
        (f"{microseconds} % 1000000 = 0", "%H:%M:%S"),
        (f"{microseconds} % 1000 = 0", "%H:%M:%S.%g"),
        ("true", "%H:%M:%S.%f"),
    )
    cases = (f"WHEN {condition} THEN strftime({time}, {quote_text(day + pattern)})" for condition, pattern in patterns)
    return f"CASE {' '.join(cases)} END"
